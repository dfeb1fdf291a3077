#include "tests/kernels/standin/group.h"

#include "tests/kernels/standin/check.h"
#include "tests/kernels/standin/fiber.h"
#include "tests/kernels/standin/report.h"

#include <stdio.h>

#define WARP 32
#define WARPS_MAX (GROUP_THREADS_MAX / WARP)

enum state { READY, AT_BARRIER, AT_WARP, DONE };

struct thread {
    struct fiber fiber;
    struct uint3 index;
    int number;
    enum state state;
    bool started;
    const char *site, *where; /* the group function's call, and the operation it waits in */
    uint32_t result;          /* of a warp operation */
};

/* Lanes of a warp that have come to an operation. */
struct meeting {
    enum standin_meeting kind;
    const char *site, *where;
    uint32_t arrived; /* a bit a lane; 0: nobody waits */
    uint32_t values[WARP];
    int sources[WARP];
};

static struct kernel_launch *launch;
static struct uint3 block_index;
static struct fiber system_stack;

static struct thread threads[GROUP_THREADS_MAX];
static struct meeting meetings[WARPS_MAX];
static uint32_t returned[WARPS_MAX]; /* a bit a lane */
static int thread_count, live_count, waiting_count;
static const struct thread *first_waiting; /* at the barrier, when waiting_count > 0 */

/* Threads that may run, a ring. */
static int ready[GROUP_THREADS_MAX];
static int ready_first, ready_count;

static enum standin_order order;
static uint64_t random_state;

/* The thread this thread of the system runs; NULL: host code. */
static thread_local struct thread *current;
__thread int group_thread_number = -1; /* current's */

/* ---- order ----------------------------------------------------------------------------------- */

void group_set_order(enum standin_order new_order, uint64_t seed)
{
    order = new_order;
    random_state = seed * 0x9E3779B97F4A7C15u + 1;
}

static uint32_t random_below(uint32_t bound)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % bound);
}

static void push_ready(struct thread *thread)
{
    thread->state = READY;
    ready[(ready_first + ready_count++) % GROUP_THREADS_MAX] = thread->number;
}

/* Those of the threads first .. past - 1 that are in `state`, in the order of the run. */
static void push_all(int first, int past, enum state state)
{
    for (int i = 0; i < past - first; i++) {
        struct thread *thread = &threads[order == STANDIN_REVERSE ? past - 1 - i : first + i];

        if (thread->state == state)
            push_ready(thread);
    }
}

static struct thread *pop_ready(void)
{
    if (order == STANDIN_SEEDED) {
        int *first = &ready[ready_first];
        int *other =
            &ready[(ready_first + (int)random_below((uint32_t)ready_count)) % GROUP_THREADS_MAX];
        const int number = *other;

        *other = *first;
        *first = number;
    }
    struct thread *thread = &threads[ready[ready_first]];
    ready_first = (ready_first + 1) % GROUP_THREADS_MAX;
    ready_count--;
    return thread;
}

/* ---- threads --------------------------------------------------------------------------------- */

static void thread_body(void);

/* Whoever comes next; the block's caller when nobody can run. */
static struct fiber *next_fiber(void)
{
    if (ready_count == 0) {
        current = NULL;
        group_thread_number = -1;
        return &system_stack;
    }
    current = pop_ready();
    group_thread_number = current->number;
    if (!current->started) {
        current->started = true;
        fiber_start(&current->fiber, thread_body);
    }
    return &current->fiber;
}

static void yield_thread(void)
{
    struct thread *self = current;
    struct fiber *next = next_fiber();

    if (next != &self->fiber)
        fiber_switch(&self->fiber, next);
}

static void open_barrier(void)
{
    waiting_count = 0;
    check_barrier_opened();
    push_all(0, thread_count, AT_BARRIER);
}

static uint32_t lanes_of(int warp)
{
    const int left = thread_count - warp * WARP;

    return left >= WARP ? 0xffffffffu : (1u << left) - 1;
}

static void finish_meeting(int warp)
{
    struct meeting *meeting = &meetings[warp];

    for (int lane = 0; lane < WARP; lane++) {
        struct thread *thread = &threads[warp * WARP + lane];
        const int source = meeting->sources[lane];

        if (!(meeting->arrived >> lane & 1) || meeting->kind != STANDIN_SHUFFLE)
            continue;
        if (meeting->arrived >> source & 1) {
            thread->result = meeting->values[source];
        } else {
            report(NULL, "shuffle at %s: lane %d reads lane %d, which takes no part",
                   meeting->where, lane, source);
            thread->result = 0xffffffffu; /* a NaN */
        }
    }
    if (meeting->kind == STANDIN_SYNC_WARP)
        check_warp_synchronised(warp);
    meeting->arrived = 0;
    push_all(warp * WARP, warp * WARP + WARP, AT_WARP);
}

/* A barrier opens for those that are left, as on a card; a card promises nothing then. */
static void tell_of_returned(const char *where)
{
    if (live_count != thread_count)
        report(NULL, "barrier at %s: %d of %d threads are there, the others have returned", where,
               live_count, thread_count);
}

static void thread_body(void)
{
    launch->call(launch->arguments);

    struct thread *self = current;
    const int warp = self->number / WARP;
    self->state = DONE;
    live_count--;
    returned[warp] |= 1u << self->number % WARP;
    if (live_count > 0 && waiting_count == live_count) {
        tell_of_returned(first_waiting->where);
        open_barrier();
    }
    if (meetings[warp].arrived && meetings[warp].arrived == (lanes_of(warp) & ~returned[warp]))
        finish_meeting(warp);
    fiber_end(&self->fiber, next_fiber());
}

/* ---- what threads do together ---------------------------------------------------------------- */

static bool same_place(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static void needs_kernel(const char *where)
{
    if (!current)
        report_and_exit("%s is not for host code", where);
}

void standin_site(const char *where)
{
    needs_kernel(where);
    current->site = where;
}

void standin_barrier(const char *where)
{
    needs_kernel(where);
    current->where = where;
    current->state = AT_BARRIER;
    if (waiting_count == 0)
        first_waiting = current;
    else if (!same_place(first_waiting->where, where) ||
             !same_place(first_waiting->site, current->site))
        report(NULL, "divergent barrier: at %s (in the call at %s) here, at %s (%s) in thread %d",
               where, current->site ? current->site : "-", first_waiting->where,
               first_waiting->site ? first_waiting->site : "-", first_waiting->number);
    waiting_count++;
    if (waiting_count == live_count) {
        tell_of_returned(where);
        open_barrier();
    }
    yield_thread();
}

static void compare_with_meeting(const struct meeting *meeting, enum standin_meeting kind,
                                 const char *where)
{
    if (meeting->kind != kind)
        report_and_exit("warp operation at %s, while other lanes wait in another kind at %s", where,
                        meeting->where);
    if (!same_place(meeting->where, where) || !same_place(meeting->site, current->site))
        report(NULL,
               "divergent warp operation: at %s (in the call at %s) here, at %s (%s) in "
               "other lanes",
               where, current->site ? current->site : "-", meeting->where,
               meeting->site ? meeting->site : "-");
}

uint32_t standin_warp(enum standin_meeting kind, unsigned mask, uint32_t value, int source_lane,
                      const char *where)
{
    needs_kernel(where);
    const int warp = current->number / WARP, lane = current->number % WARP;
    struct meeting *meeting = &meetings[warp];

    if (mask != 0xffffffffu)
        report(NULL, "warp operation at %s with mask %08x: kernels name all lanes", where, mask);
    if (lanes_of(warp) != 0xffffffffu)
        report(NULL, "warp operation at %s: the block's last warp has no lane %d", where,
               thread_count % WARP);
    if (returned[warp])
        report(NULL, "warp operation at %s: lanes %08x have returned", where, returned[warp]);
    if (meeting->arrived)
        compare_with_meeting(meeting, kind, where);
    meeting->kind = kind;
    meeting->where = where;
    meeting->site = current->site;
    meeting->arrived |= 1u << lane;
    meeting->values[lane] = value;
    meeting->sources[lane] = source_lane;
    current->where = where;
    current->state = AT_WARP;
    if (meeting->arrived == (lanes_of(warp) & ~returned[warp]))
        finish_meeting(warp);
    struct thread *self = current;
    yield_thread();
    return self->result;
}

/* ---- a thread's numbers ---------------------------------------------------------------------- */

static const struct uint3 host_index = {0, 0, 0};

struct uint3 standin_thread_index(void)
{
    return current ? current->index : host_index;
}

struct uint3 standin_block_index(void)
{
    return block_index;
}

struct uint3 standin_block_size(void)
{
    return {launch->block.x, launch->block.y, launch->block.z};
}

struct uint3 standin_grid_size(void)
{
    return {launch->grid.x, launch->grid.y, launch->grid.z};
}

int standin_lane(void)
{
    return current ? current->number % WARP : 0;
}

const struct kernel_launch *group_launch(void)
{
    return launch;
}

void group_describe_thread(char *ret_text, size_t text_size)
{
    if (current)
        snprintf(ret_text, text_size, "kernel %s, block (%u,%u), thread %d", launch->name,
                 block_index.x, block_index.y, current->number);
    else
        snprintf(ret_text, text_size, "%s%s", launch ? "after kernel " : "host",
                 launch ? launch->name : "");
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static void tell_of_deadlock(void)
{
    const char *barrier = "no barrier", *warp = "no warp operation";
    int at_warp = 0;

    for (int i = 0; i < thread_count; i++) {
        if (threads[i].state == AT_BARRIER)
            barrier = threads[i].where;
        if (threads[i].state == AT_WARP) {
            warp = threads[i].where;
            at_warp++;
        }
    }
    report_and_exit("deadlock: %d of %d threads wait at %s, %d at %s", waiting_count, live_count,
                    barrier, at_warp, warp);
}

static void run_block(void)
{
    live_count = thread_count;
    waiting_count = ready_first = ready_count = 0;
    memset(meetings, 0, sizeof meetings);
    memset(returned, 0, sizeof returned);
    for (int i = 0; i < thread_count; i++) {
        const unsigned number = (unsigned)i, x = launch->block.x, y = launch->block.y;

        threads[i] = {};
        threads[i].number = i;
        threads[i].index = {number % x, number / x % y, number / x / y};
    }
    push_all(0, thread_count, READY);
    check_block_begins();
    fiber_switch(&system_stack, next_fiber());
    if (live_count > 0)
        tell_of_deadlock();
    check_block_ended();
}

/* A step through all blocks that meets each once: coprime with their number. */
static uint64_t random_step(uint64_t count)
{
    for (;;) {
        const uint64_t step = 1 + random_below(count < 0x7fffffff ? (uint32_t)count : 0x7fffffff);
        uint64_t a = step, b = count;

        while (b != 0) {
            const uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return step;
    }
}

void group_run_launch(struct kernel_launch *new_launch)
{
    struct kernel_launch *outer = launch;
    launch = new_launch;
    const uint64_t x = launch->grid.x, y = launch->grid.y, count = x * y * launch->grid.z;
    const uint64_t step = order == STANDIN_SEEDED ? random_step(count) : 1;

    thread_count = (int)(launch->block.x * launch->block.y * launch->block.z);
    check_launch_begins(launch->arguments, sizeof launch->arguments);
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t number = order == STANDIN_REVERSE ? count - 1 - i : i * step % count;

        block_index = {(unsigned)(number % x), (unsigned)(number / x % y),
                       (unsigned)(number / x / y)};
        run_block();
    }
    check_launch_ended();
    launch = outer;
}
