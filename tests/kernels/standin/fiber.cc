#include "tests/kernels/standin/fiber.h"

#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#define PAGE 4096
/* Frames at equal offsets would share cache sets: this halves the time of a block. */
#define STAGGER 320
#define STAGGERS 128

char *fiber_stacks;
static int taken_count;
static char *free_stacks[FIBER_STACKS_MAX];
static int free_count;
static char *ended_stack; /* given back by whom still stands on it: free after the switch */

/* ---- the switch: what a call must preserve goes to the stack, then the stacks change --------- */

extern "C" void standin_switch(void **save, void *load) __attribute__((visibility("hidden")));

#if defined(__x86_64__)
#define SAVED_WORDS 6
asm(R"(
.text
.hidden standin_switch
.globl standin_switch
.type standin_switch,@function
standin_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp,(%rdi)
    mov %rsi,%rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
.size standin_switch,.-standin_switch
)");

/* As after a call: the word above the return address is 16-byte aligned but for 8. */
static void *first_frame(char *top, void (*body)(void))
{
    void **word = reinterpret_cast<void **>(top);

    *--word = NULL; /* what body would return to */
    *--word = reinterpret_cast<void *>(body);
    for (int i = 0; i < SAVED_WORDS; i++)
        *--word = NULL;
    return word;
}
#elif defined(__aarch64__)
#define SAVED_WORDS 20
#define LINK_WORD 11
asm(R"(
.text
.hidden standin_switch
.globl standin_switch
.type standin_switch,%function
standin_switch:
    sub sp,sp,#160
    stp x19,x20,[sp]
    stp x21,x22,[sp,#16]
    stp x23,x24,[sp,#32]
    stp x25,x26,[sp,#48]
    stp x27,x28,[sp,#64]
    stp x29,x30,[sp,#80]
    stp d8,d9,[sp,#96]
    stp d10,d11,[sp,#112]
    stp d12,d13,[sp,#128]
    stp d14,d15,[sp,#144]
    mov x2,sp
    str x2,[x0]
    mov sp,x1
    ldp x19,x20,[sp]
    ldp x21,x22,[sp,#16]
    ldp x23,x24,[sp,#32]
    ldp x25,x26,[sp,#48]
    ldp x27,x28,[sp,#64]
    ldp x29,x30,[sp,#80]
    ldp d8,d9,[sp,#96]
    ldp d10,d11,[sp,#112]
    ldp d12,d13,[sp,#128]
    ldp d14,d15,[sp,#144]
    add sp,sp,#160
    ret
.size standin_switch,.-standin_switch
)");

static void *first_frame(char *top, void (*body)(void))
{
    void **word = reinterpret_cast<void **>(top) - SAVED_WORDS;

    for (int i = 0; i < SAVED_WORDS; i++)
        word[i] = NULL;
    word[LINK_WORD] = reinterpret_cast<void *>(body);
    return word;
}
#else
#error "the stand-in switches stacks on x86-64 and on 64-bit ARM"
#endif

/* ---- the address sanitizer wants to know on which stack we are ------------------------------- */

#if defined(__SANITIZE_ADDRESS__)
static const void *system_stack;
static size_t system_stack_size;
static bool left_system_stack;

static void announce(const struct fiber *from, const struct fiber *to, bool ends, void **fake)
{
    left_system_stack = from->stack == NULL;
    __sanitizer_start_switch_fiber(ends ? NULL : fake, to->stack ? to->stack : system_stack,
                                   to->stack ? FIBER_STACK_SIZE : system_stack_size);
}

static void arrive(void *fake)
{
    const void *bottom;
    size_t size;

    __sanitizer_finish_switch_fiber(fake, &bottom, &size);
    if (left_system_stack) {
        system_stack = bottom;
        system_stack_size = size;
    }
}
#else
static void announce(const struct fiber *, const struct fiber *, bool, void **)
{
}

static void arrive(void *)
{
}
#endif

/* ---- stacks ---------------------------------------------------------------------------------- */

static void free_ended_stack(void)
{
    if (ended_stack)
        free_stacks[free_count++] = ended_stack;
    ended_stack = NULL;
}

static char *take_stack(void)
{
    if (free_count > 0)
        return free_stacks[--free_count];
    if (!fiber_stacks) {
        void *memory = mmap(NULL, FIBER_STACKS_MAX * FIBER_STACK_SIZE, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (memory == MAP_FAILED)
            abort();
        fiber_stacks = static_cast<char *>(memory);
    }
    if (taken_count == FIBER_STACKS_MAX)
        abort();
    char *stack = fiber_stacks + FIBER_STACK_SIZE * (size_t)taken_count++;
    if (mprotect(stack, PAGE, PROT_NONE) != 0)
        abort();
    return stack;
}

/* ---- fibers ---------------------------------------------------------------------------------- */

static thread_local void (*first_body)(void);

static void first_words(void)
{
    arrive(NULL);
    free_ended_stack();
    first_body();
    abort(); /* a body ends by fiber_end */
}

void fiber_start(struct fiber *fiber, void (*body)(void))
{
    first_body = body;
    fiber->stack = take_stack();
    const size_t number = (size_t)(fiber->stack - fiber_stacks) / FIBER_STACK_SIZE;
    fiber->stack_pointer =
        first_frame(fiber->stack + FIBER_STACK_SIZE - number % STAGGERS * STAGGER, first_words);
}

void fiber_switch(struct fiber *from, struct fiber *to)
{
    void *fake = NULL;

    announce(from, to, false, &fake);
    standin_switch(&from->stack_pointer, to->stack_pointer);
    arrive(fake);
    free_ended_stack();
}

void fiber_end(struct fiber *self, struct fiber *to)
{
    ended_stack = self->stack;
    announce(self, to, true, NULL);
    standin_switch(&self->stack_pointer, to->stack_pointer);
    abort(); /* nobody comes back */
}
