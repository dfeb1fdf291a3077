/*
 * flops: the floating-point operations a step cannot do without, by formula.
 *
 * Purpose    The numerator of the share of the machine's peak: counted on the tree of the batch, a
 *            multiply and an add being two. Norms, gates, rotations, roundings and what is computed
 *            a second time in place of being kept count nothing.
 * Ownership  None.
 * Threads    Any.
 * Failure    None.
 */
#ifndef NEEDLED_BENCH_FLOPS_H
#define NEEDLED_BENCH_FLOPS_H

#include "tests/bench/counts.h"

#include <stdio.h>

struct flops {
    double projections; /* q k v gate out: forward, and the gradient of their inputs */
    double adapter;     /* A and B: gradients; merging them into the kernels */
    double attention;   /* scores and values over visible pairs, and their gradients */
    double monarch;
    double hyper; /* coefficients, reading and writing of the lanes */
    double engram;
    double head; /* logits at target rows, and the gradient of the hidden rows */
};

/* Of a training step, or of the forward pass alone. */
struct flops flops_of_step(const struct geometry *geometry, size_t lora_rank,
                           const struct counts *counts);
struct flops flops_of_forward(const struct geometry *geometry, const struct counts *counts);
double flops_total(const struct flops *flops);
/* Those of plain matrix products (not of attention, Monarch or hyper-connections). */
double flops_products(const struct flops *flops);
void flops_print_formula(FILE *out);

#endif
