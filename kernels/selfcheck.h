/*
 * selfcheck: whether a backend computes what ref does, op by op.
 *
 * Purpose    Each case of the table of examples, forward and backward, on two small sizes: past a
 *            vector's width and a tile's border with tails, and in whole vectors.
 * Ownership  Takes memory of both backends and of the host, at most 1 MiB each, and gives it back.
 * Threads    The one that owns the backend.
 * Failure    In words: the first op that differs, with the error and what is allowed, or the fault.
 */
#ifndef NEEDLED_SELFCHECK_H
#define NEEDLED_SELFCHECK_H

#include "kernels/backend.h"

/* BACKEND_CHECK_FAILED: an op differs. BACKEND_NO_MEMORY, BACKEND_FAULT: the check did not get to
 * its end, for a reason that says nothing about the ops. ret_check (may be NULL) is filled also then,
 * with what was found so far. */
enum backend_status selfcheck_run(struct backend *be, struct backend_check *ret_check,
                                  char *ret_reason, size_t reason_size);

#endif
