/*
 * peak: what matrix products reach on this machine, now.
 *
 * Purpose    The denominator of the share of the peak: of a card its library's products, in the
 *            precision the run has; of the processor OpenBLAS on the threads a worker has, each
 *            with a product of its own, 768 wide. The machine may be shared: short runs between the
 *            measured steps, and the best of them counts.
 * Ownership  peak_new / peak_free; threads live for one call.
 * Threads    The caller's; nothing else may compute meanwhile.
 * Failure    peak_new returns NULL without memory.
 */
#ifndef NEEDLED_BENCH_PEAK_H
#define NEEDLED_BENCH_PEAK_H

#include "kernels/backend.h"

#define PEAK_SIZE_CARD 8192

struct peak;

struct peak *peak_new(int thread_count);
void peak_free(struct peak *peak); /* NULL is fine */
/* A few short runs; returns the best so far, in GFLOP/s of all threads together. */
double peak_measure(struct peak *peak);

/* The best of a few square products of that size through the backend, in its precision, in GFLOP/s; 0
 * without the memory for it. */
double peak_of_card(struct backend *be, size_t size);

#endif
