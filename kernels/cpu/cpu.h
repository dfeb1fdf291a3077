/*
 * cpu: the fast backend for the processor.
 *
 * Purpose    Each op as cpu_<op>(cpu, ...), its loops shared out over a thread team, its large
 *            products by OpenBLAS held to one thread a caller. Formulas stand in
 *            kernels/ref/<op>.c.
 * Ownership  cpu_open makes the backend; its close frees threads and scratch.
 * Threads    The worker that opened it. Same thread count: same bits; on levels with AVX the same
 *            bits at any thread count.
 * Failure    Scratch that does not fit sets BACKEND_NO_MEMORY; the op then does nothing.
 */
#ifndef NEEDLED_CPU_H
#define NEEDLED_CPU_H

#include "kernels/backend.h"
#include "kernels/cpu/team.h"
#include "kernels/table.h"

#define CPU_EPSILON 1e-6 /* under every root of a mean square */
#define CPU_PARTIALS 64  /* most partial sums of a gradient that adds over rows */

struct cpu {
    struct backend base;
    struct team *team;
    float *scratch;
    size_t scratch_count; /* floats; grows, so that a second step allocates nothing */
};

#define CPU_DECLARE(name, parameters, arguments) CPU_DECLARE_(name, OP_STRIP parameters)
#define CPU_DECLARE_(name, ...) void cpu_##name(struct cpu *cpu, __VA_ARGS__);
OPS(CPU_DECLARE)
#undef CPU_DECLARE

struct level;
/* On the table of this level, unchecked. */
enum backend_status cpu_open_level(const struct level *level, size_t thread_count,
                                   struct backend **ret_backend, char *ret_reason,
                                   size_t reason_size);
void cpu_close(struct backend *be);

/* Room for an op's own values, 64-byte aligned, not cleared, until the op ends. One block an op.
 * NULL: fault set. */
float *cpu_scratch(struct cpu *cpu, size_t count);

/* team_run for rows of `width` values: shares are large enough to be worth a thread. */
void cpu_run_rows(struct cpu *cpu, size_t rows, size_t width, team_body *body, void *context);

/* Rows in blocks for sums over rows: the cut depends on the rows alone. */
struct cpu_blocks {
    size_t rows, size, count; /* block b holds rows [b size, min(rows, b size + size)) */
};
struct cpu_blocks cpu_blocks(size_t rows);
static inline size_t cpu_block_end(const struct cpu_blocks *blocks, size_t block)
{
    size_t end = (block + 1) * blocks->size;
    return end < blocks->rows ? end : blocks->rows;
}

/* total[c] += sum of partial[block stride + c], blocks ascending. */
void cpu_add_partials(struct cpu *cpu, float *total, const float *partial, size_t blocks,
                      size_t stride, size_t width);

/* One product on the calling thread, for use inside a team body. */
void cpu_product(float *C, const float *A, const float *B, const struct matmul *shape);

#endif
