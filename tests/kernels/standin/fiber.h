/*
 * fiber: threads of a block as stacks that take turns on one thread of the system.
 *
 * Purpose    Start, switch, end; 40 ns a switch, since nothing enters the kernel.
 * Ownership  A stack belongs to its fiber until fiber_end; the pool keeps all of them.
 * Threads    Under the stand-in's lock: one set of fibers runs at a time.
 * Failure    A stack that overflows meets a page without access. No memory for stacks: aborts.
 */
#ifndef NEEDLED_STANDIN_FIBER_H
#define NEEDLED_STANDIN_FIBER_H

#include <stddef.h>
#include <stdint.h>

#define FIBER_STACK_SIZE ((size_t)256 << 10)
#define FIBER_STACKS_MAX 1032 /* the largest block, and those just given back */

struct fiber {
    void *stack_pointer; /* while it does not run */
    char *stack;         /* lowest address; NULL: the system's own stack */
};

/* body starts with the first switch to the fiber, and ends by fiber_end. */
void fiber_start(struct fiber *fiber, void (*body)(void));
void fiber_switch(struct fiber *from, struct fiber *to);
/* Like fiber_switch, for the last time. */
[[noreturn]] void fiber_end(struct fiber *self, struct fiber *to);

/* Where all stacks are; NULL before the first. */
extern char *fiber_stacks;

/* Whether the address is on a fiber's stack. */
static inline bool fiber_holds(const void *address)
{
    const uintptr_t a = (uintptr_t)address, begin = (uintptr_t)fiber_stacks;

    return fiber_stacks && a - begin < FIBER_STACKS_MAX * FIBER_STACK_SIZE;
}

#endif
