/*
 * upkeep: what keeps the tables from growing for ever.
 *
 * Purpose    A finished job whose steps are in its result file keeps at most so many of its metrics events:
 *            the first, the last, and those between in even distances. Their numbers stay, with gaps.
 *            Where deleted records stood in their lists (for whoever pages on from one) is forgotten.
 *            What a job costs then: about 1.2 kB for its row, and 390 bytes for each event.
 * Ownership  struct upkeep is the caller's; zeroed at first, and the same for each call.
 * Threads    As store.h; one caller.
 * Failure    As store.h. Each call is one short transaction; what one leaves the next goes on with.
 */
#ifndef NEEDLED_STORE_UPKEEP_H
#define NEEDLED_STORE_UPKEEP_H

#include "store/store.h"

#define UPKEEP_METRICS_MIN 10 /* least that may be kept */

struct upkeep {
    char job_id[STORE_ID_SIZE];                     /* being thinned; "" none */
    int64_t first_number, last_number, next_number; /* of its metrics */
};

/* One step of thinning to metrics_max those that ended by finished_until_unix_s. *ret_more: call again. */
MUST_CHECK bool upkeep_thin(struct store *store, struct upkeep *upkeep, int64_t metrics_max,
                            int64_t finished_until_unix_s, bool *ret_more, struct error *err);
/* Places of records that were deleted before, and all but the newest 100,000. */
MUST_CHECK bool upkeep_forget(struct store *store, int64_t before_unix_s, struct error *err);

#endif
