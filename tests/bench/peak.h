/*
 * peak: what sgemm reaches on this machine, now.
 *
 * Purpose    The denominator of the share of the peak: OpenBLAS on the threads a worker has, each
 *            with a product of its own, 768 wide. The machine may be shared: short runs between the
 *            measured steps, and the best of them counts.
 * Ownership  peak_new / peak_free; threads live for one call.
 * Threads    The caller's; nothing else may compute meanwhile.
 * Failure    peak_new returns NULL without memory.
 */
#ifndef NEEDLED_BENCH_PEAK_H
#define NEEDLED_BENCH_PEAK_H

struct peak;

struct peak *peak_new(int thread_count);
void peak_free(struct peak *peak); /* NULL is fine */
/* A few short runs; returns the best so far, in GFLOP/s of all threads together. */
double peak_measure(struct peak *peak);

#endif
