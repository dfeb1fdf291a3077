/*
 * faults: kernels and host code with faults made on purpose, and right without one.
 *
 * Purpose    What the stand-in must catch, one enumerator a fault; FAULT_NONE runs every kernel
 *            here as it should be.
 * Ownership  None: a run allocates and frees.
 * Threads    One.
 * Failure    A faulty run may end the process: run it in a child.
 */
#ifndef NEEDLED_TEST_FAULTS_H
#define NEEDLED_TEST_FAULTS_H

#include "kernels/gpu/gpu.h"

enum fault {
    FAULT_NONE,
    /* barriers */
    NO_BARRIER_BEFORE_READ,
    NO_BARRIER_BEFORE_REUSE,
    NO_BARRIER_BEFORE_TILE,
    DIVERGENT_BARRIER,
    HALF_WARP_SHUFFLE,
    WARP_SYNCHRONOUS_TAIL,
    /* memory */
    NO_BOUND,
    SHARED_TOO_SHORT,
    SHARED_OVER_32_KB,
    SHARED_NOT_WRITTEN,
    DEVICE_NOT_WRITTEN,
    FREED_MEMORY,
    MISALIGNED_VECTOR,
    HOST_POINTER_IN_KERNEL,
    DEVICE_POINTER_IN_HOST,
    /* order and arithmetic */
    SUM_ACROSS_BLOCKS,
    NOT_SYNCHRONISED,
    BLOCK_TOO_LARGE,
    MASK_OFF_BY_ONE,
    FAULT_COUNT
};

/* ---- faults.cu ------------------------------------------------------------------------------- */

#define SCALE_FACTOR 3.0f

/* y[i] = SCALE_FACTOR x[i]. groups: UP(count, GROUP_SIZE). */
KERNEL fault_scale(GLOBAL float *y, GLOBAL const float *x, int count, int fault);
/* The same four at a time. groups: UP(count / 4, GROUP_SIZE). */
KERNEL fault_scale4(GLOBAL float4 *y, GLOBAL const float4 *x, int count);
/* y[row,c] = x[row,c] (sum of the row) / (sum of its squares). groups: rows. */
KERNEL fault_rows(GLOBAL float *y, GLOBAL const float *x, int C, int fault);
/* o[i] = sum_{j <= i} q[i] k[j], j tile by tile. groups: UP(count, GROUP_SIZE). */
KERNEL fault_tiles(GLOBAL float *o, GLOBAL const float *q, GLOBAL const float *k, int count,
                   int fault);
/* sum[0] = sum_i x[i] down a tree. groups: 1. */
KERNEL fault_tree(GLOBAL float *sum, GLOBAL const float *x, int count, int fault);
/* sums[c] = sum_row x[row,c]. groups: 1, with the fault rows. */
KERNEL fault_columns(GLOBAL float *sums, GLOBAL const float *x, int rows, int C, int fault);

/* ---- runs.cc --------------------------------------------------------------------------------- */

/* Runs the kernel the fault is of (all, with FAULT_NONE), and says what came of it: "" for right
 * numbers, else "wrong numbers" or the error of a launch. */
const char *fault_run(enum fault fault);

#endif
