/*
 * metrics: counters of the HTTP side, and the text that Prometheus reads.
 *
 * Purpose    Counts requests by route and status and how long they took; prints samples in the text
 *            format 0.0.4. Labels hold names of ours alone: routes, states, devices.
 * Ownership  metrics_new / metrics_free. A printer is the caller's storage.
 * Threads    Counting from any; a printer belongs to one.
 * Failure    Without memory the text's buffer has failed.
 */
#ifndef NEEDLED_API_METRICS_H
#define NEEDLED_API_METRICS_H

#include "daemon/base/buf.h"

#include <stdint.h>

struct metrics;
struct request;

struct metrics *metrics_new(void);          /* NULL without memory */
void metrics_free(struct metrics *metrics); /* NULL is fine */

/* A request that is over. Of an event stream, which lasts, the time is not counted. */
void metrics_count_request(struct metrics *metrics, const struct request *request,
                           int64_t elapsed_ns);
/* What was counted, as samples. */
void metrics_print(const struct metrics *metrics, struct buf *out);

/* "# HELP" and "# TYPE" of a family; its samples follow. */
void metrics_family(struct buf *out, const char *name, const char *type, const char *help);
/* label NULL: none. */
void metrics_sample(struct buf *out, const char *name, const char *label, const char *value,
                    double number);
/* A family with one sample without labels. */
void metrics_single(struct buf *out, const char *name, const char *type, const char *help,
                    double number);

#endif
