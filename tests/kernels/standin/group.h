/*
 * group: one block of a launch, its threads as fibers.
 *
 * Purpose    Runs the threads in the chosen order up to barriers and warp operations, and tells what
 *            a card leaves undefined: threads that part ways, lanes that are missing, deadlock.
 * Ownership  None to the caller; the block lives during group_run.
 * Threads    Under the stand-in's lock.
 * Failure    Reports; a block that cannot go on ends the process with both places named.
 */
#ifndef NEEDLED_STANDIN_GROUP_H
#define NEEDLED_STANDIN_GROUP_H

#include "tests/kernels/standin/cuda_runtime.h"
#include "tests/kernels/standin/standin.h"

#define GROUP_THREADS_MAX 1024

struct kernel_launch {
    const char *name;
    struct dim3 grid, block;
    void (*call)(void *arguments);
    alignas(16) unsigned char arguments[STANDIN_ARGUMENTS_MAX];
};

/* All blocks, in the order of the options. */
void group_run_launch(struct kernel_launch *launch);

void group_set_order(enum standin_order order, uint64_t seed);

/* For the checks, which ask at each access: the number within its block of the thread that the
 * calling thread of the system runs; -1: host code. */
extern __thread int group_thread_number;

static inline bool group_in_kernel(void)
{
    return group_thread_number >= 0;
}

const struct kernel_launch *group_launch(void); /* the one that runs */
/* "kernel f, block (1,2), thread 3", or "host". */
void group_describe_thread(char *ret_text, size_t text_size);

#endif
