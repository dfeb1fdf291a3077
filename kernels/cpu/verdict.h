/*
 * verdict: which levels of SIMD compute what ref computes.
 *
 * Purpose    A level is used only after every op's example agreed with ref on this processor; one
 *            that fails is passed over for the next lower one.
 * Ownership  Verdicts are kept until the process ends: a level is checked once.
 * Threads    Any. A lock guards the verdicts and is not held while a check runs; two threads that ask
 *            at the same time may both check, and come to the same verdict.
 * Failure    BACKEND_ABSENT: no such level here. BACKEND_CHECK_FAILED: no level passes. Others: the
 *            check did not get to its end, and there is no verdict yet.
 */
#ifndef NEEDLED_VERDICT_H
#define NEEDLED_VERDICT_H

#include "kernels/cpu/level.h"

#define VERDICT_REASON_BYTES 256

enum verdict_state { VERDICT_NONE, VERDICT_PASSED, VERDICT_FAILED };

struct verdict {
    enum verdict_state state;
    char reason[VERDICT_REASON_BYTES]; /* of a failure */
};

struct verdict_list {
    const struct level *levels; /* best first */
    struct verdict *verdicts;   /* one a level; guarded by the module's lock */
    size_t count;
};

/* wanted NULL: the best. BACKEND_OK: a level that passed, `wanted` or one below; the reason is empty,
 * or names the level passed over with the op that differs. */
enum backend_status verdict_choose(const struct verdict_list *list, const char *wanted,
                                   const struct level **ret_level, char *ret_reason,
                                   size_t reason_size);

/* Of this program's levels. */
extern const struct verdict_list verdict_list;

#endif
