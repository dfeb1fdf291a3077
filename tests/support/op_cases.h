/*
 * op_cases: every op, with the arrays it reads and writes, and the shapes it is run on.
 *
 * Purpose    One table for all backends: compared with ref, and backward with differences.
 * Ownership  Constants.
 * Threads    Any.
 * Failure    None.
 */
#ifndef NEEDLED_TEST_OP_CASES_H
#define NEEDLED_TEST_OP_CASES_H

#include "tests/support/op_run.h"

/* The last size is for comparisons alone: differences would take too long. */
extern const struct op_size op_sizes[];
extern const size_t op_size_count;

/* Ended by a case without a name. */
extern const struct op_case op_cases[];
extern const struct op_case op_cases_blocks[];
extern const struct op_case op_cases_tables[];

/* Declares "values", a codebook: ascending, symmetric, about normal quantiles over sqrt(group). */
void op_codebook(struct op_run *run, size_t count, double group);

/* Calls body for each case and each of the first size_count sizes. */
void each_op_case(struct backend *be, size_t size_count,
                  void (*body)(struct backend *be, const struct op_case *op,
                               const struct op_size *size));

#endif
