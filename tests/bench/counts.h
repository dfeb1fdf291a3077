/*
 * counts: what the steps of a job consist of, counted on the tree of each batch.
 *
 * Purpose    Reads a job's data as the trainer does, draws the same order, and counts what the
 *            formula of the work needs (flops.h).
 * Ownership  The caller's array.
 * Threads    Any.
 * Failure    As inputs_read.
 */
#ifndef NEEDLED_BENCH_COUNTS_H
#define NEEDLED_BENCH_COUNTS_H

#include "daemon/model/geometry.h"
#include "daemon/train/trainer.h"

struct counts {
    size_t line_tokens; /* of the lines, each for itself: the real tokens */
    size_t rows;        /* of the tree: what is computed */
    size_t line_rows;   /* of the lines, each for itself: what a tree could save from */
    size_t target_rows; /* rows with a target */
    size_t grams; /* different ends of the longest n-gram: an engram depends on nothing else */
    double window_pairs, global_pairs; /* (row, itself or ancestor seen), a layer of either kind */
};

/* The first steps of the first epoch, at most step_max of them. */
MUST_CHECK bool counts_of_steps(const struct train_job *job, const struct geometry *geometry,
                                size_t step_max, struct counts *ret_steps, size_t *ret_step_count,
                                struct error *err);

#endif
