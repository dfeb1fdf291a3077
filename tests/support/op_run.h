/*
 * op_run: examples of ops (kernels/examples) for tests.
 *
 * Purpose    The same runs, where a failure fails the test; losses; the backends there are.
 * Ownership  op_run_init / op_run_release (caller's storage); the backend is borrowed.
 * Threads    One.
 * Failure    A backend's fault or a misnamed array fails the test.
 */
#ifndef NEEDLED_TEST_OP_RUN_H
#define NEEDLED_TEST_OP_RUN_H

#include "kernels/examples/op.h"
#include "tests/support/test.h"

void op_run_init(struct op_run *run, struct backend *be, const struct op_case *op,
                 const struct op_size *size);
/* The same on another backend, with the numbers of a run that was made. */
void op_run_init_as(struct op_run *run, struct backend *be, const struct op_run *other);
void op_run_release(struct op_run *run);
void op_run_forward(struct op_run *run);  /* starts, uploads, runs, downloads */
void op_run_backward(struct op_run *run); /* after forward */
double op_run_loss(const struct op_run *run);

double normalised_squared_error(const float *a, const float *b, size_t count, double floor);

/* A tree of the kind in preorder, its arrays on the device. */
void tree_build(struct backend *be, enum tree_kind kind, size_t token_count, struct tree *ret_tree);
/* The same from parents given on the host. */
void tree_from_parents(struct backend *be, const int32_t *parent, size_t token_count,
                       struct tree *ret_tree);
void tree_release(struct backend *be, struct tree *tree);

/* Opens the backend with two threads; NULL where it is not built or there is no device. */
struct backend *backend_for_test(enum backend_kind kind);
/* Calls body with every backend there is here, ref first; fails if there is none. */
void each_backend(void (*body)(struct backend *be));

#endif
