/*
 * op_cases: every op, with the arrays it reads and writes, and the shapes it is run on.
 *
 * Purpose    One table for the check at start and for the tests of all backends.
 * Ownership  Constants.
 * Threads    Any.
 * Failure    None.
 */
#ifndef NEEDLED_OP_CASES_H
#define NEEDLED_OP_CASES_H

#include "kernels/examples/op.h"

/* The tests' shapes. The last is for comparisons alone: differences would take too long. */
extern const struct op_size op_sizes[];
extern const size_t op_size_count;

/* Each ended by a case without a name. */
extern const struct op_case op_cases[];
extern const struct op_case op_cases_blocks[];
extern const struct op_case op_cases_tables[];
extern const struct op_case *const op_cases_all[]; /* the three, then NULL */

/* Declares "values", a codebook: ascending, symmetric, about normal quantiles over sqrt(group). */
void op_codebook(struct op_run *run, size_t count, double group);

#endif
