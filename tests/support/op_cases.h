/*
 * op_cases: the table of ops (kernels/examples) for tests.
 *
 * Purpose    A walk over all cases and sizes.
 * Ownership  Constants.
 * Threads    Any.
 * Failure    That of the body.
 */
#ifndef NEEDLED_TEST_OP_CASES_H
#define NEEDLED_TEST_OP_CASES_H

#include "kernels/examples/op_cases.h"
#include "tests/support/op_run.h"

/* Calls body for each case and each of the first size_count sizes. */
void each_op_case(struct backend *be, size_t size_count,
                  void (*body)(struct backend *be, const struct op_case *op,
                               const struct op_size *size));

#endif
