/*
 * inspect: what is known of a data set before a job is made of it, as JSON.
 *
 * Purpose    Reports on files and single lines, rendered, tokenised and masked as the trainer does it.
 * Ownership  Requests are borrowed; answers are the caller's trees.
 * Threads    asks_functions: the validator's.
 * Failure    ERR_NOT_FOUND with param for files, models and lines that are not there; ERR_INVALID with
 *            param for settings.
 */
#ifndef NEEDLED_INSPECT_H
#define NEEDLED_INSPECT_H

#include "daemon/sched/asks.h"
#include "daemon/sched/scheduler.h"

struct inspect_ask {
    const struct inspect_request *request;
    struct json *answer; /* out */
};

asks_function inspect_report;  /* struct inspect_ask */
asks_function inspect_example; /* struct inspect_ask */

#endif
