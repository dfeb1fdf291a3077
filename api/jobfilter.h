/*
 * jobfilter: which jobs a listing asks for.
 *
 * Purpose    Reads status, metadata and search of a query into what the store is asked.
 * Ownership  Caller's storage; jobfilter_release after jobfilter_read was true. Not to be moved: it points
 *            into itself, and its search into the request.
 * Threads    One thread at a time.
 * Failure    ERR_INVALID with param status or metadata; there is nothing to release.
 */
#ifndef NEEDLED_API_JOBFILTER_H
#define NEEDLED_API_JOBFILTER_H

#include "store/jobs.h"

#define JOBFILTER_STATES_BYTES 96 /* all seven, each between commas */

struct request;

struct jobfilter {
    struct jobs_filter wanted;
    char states[JOBFILTER_STATES_BYTES];
    char *pairs;
};

MUST_CHECK bool jobfilter_read(const struct request *request, struct jobfilter *ret_filter,
                               struct error *err);
void jobfilter_release(struct jobfilter *filter);

#endif
