/*
 * events: the append-only feed of all jobs.
 *
 * Purpose    Row numbers order all jobs; a job's own numbers count 1, 2, 3 (the SSE id of its
 *            stream). The API's id "ftevent-<row>" names a row.
 * Ownership  Lists are one allocation for the caller to free with events_free.
 * Threads    As store.h.
 * Failure    As store.h.
 */
#ifndef NEEDLED_STORE_EVENTS_H
#define NEEDLED_STORE_EVENTS_H

#include "store/store.h"

enum event_level { EVENT_INFO, EVENT_WARN, EVENT_ERROR };
const char *event_level_name(enum event_level level);

/* Is it a type that events have? */
bool event_type_is_known(const char *type);

struct event_draft {
    enum event_level level;
    const char *type; /* "message", "metrics", "validation", "checkpoint", "state", "done" */
    const char *message;
    const char *data_json;  /* object, or NULL */
    int64_t created_unix_s; /* 0: now */
};

struct event_record {
    int64_t row, number; /* of all jobs; of its job */
    char job_id[STORE_ID_SIZE];
    int64_t created_unix_s;
    enum event_level level;
    char type[24];
    char *message;
    char *data_json; /* or NULL */
};
void events_free(struct event_record *events, size_t count); /* NULL is fine */

/* Appends several events of one job in one transaction (metrics are batched by the caller), with the
 * job's progress: completed_steps, trained_tokens, last_train_loss (completed_steps -1: unchanged).
 * ERR_CONFLICT when the job has ended: nothing follows its closing event. */
MUST_CHECK bool events_append(struct store *store, const char *job_id,
                              const struct event_draft *events, size_t count,
                              int64_t completed_steps, int64_t trained_tokens,
                              double last_train_loss, struct error *err);
/* What a list is of. types: "" for all of them, else those wanted, each between commas: ",state,done,". */
struct events_filter {
    const char *job_id, *types;
};
/* Newest first, older than the event `page.after` (as events_resolve takes it); for GET .../events.
 * `ascending` turns both round. */
MUST_CHECK bool events_list(struct store *store, const struct events_filter *filter,
                            const struct store_page *page, struct event_record **ret_events,
                            size_t *ret_count, bool *ret_has_more, struct error *err);
/* Oldest first, with number > after_number, at most limit; for streams. */
MUST_CHECK bool events_since(struct store *store, const char *job_id, int64_t after_number,
                             size_t limit, struct event_record **ret_events, size_t *ret_count,
                             struct error *err);
/* Of all jobs, by row: a page as events_list gives it, rows with row > after_row, the newest row (0:
 * none). types: as above. */
MUST_CHECK bool events_list_all(struct store *store, const char *types,
                                const struct store_page *page, struct event_record **ret_events,
                                size_t *ret_count, bool *ret_has_more, struct error *err);
MUST_CHECK bool events_since_row(struct store *store, const char *types, int64_t after_row,
                                 size_t limit, struct event_record **ret_events, size_t *ret_count,
                                 struct error *err);
MUST_CHECK bool events_newest_row(struct store *store, int64_t *ret_row, struct error *err);
/* What metrics and validation events say of one step, the later of those made twice. */
struct events_step {
    int64_t step;
    double train_loss, train_accuracy, full_valid_loss, full_valid_accuracy; /* NAN: not computed */
};
/* Each step of a job in its order, as one read; take returns false to end it. */
MUST_CHECK bool events_read_steps(struct store *store, const char *job_id,
                                  bool (*take)(void *context, const struct events_step *step,
                                               struct error *err),
                                  void *context, struct error *err);
/* The row in "ftevent-<row>" or "<row>": also one that is not there. */
MUST_CHECK bool events_resolve_row(const char *event_id, int64_t *ret_row, struct error *err);
/* The job's own number of an event given as "ftevent-<row>" or "<number>"; of one that is there no more,
 * a number at its place that no other has. */
MUST_CHECK bool events_resolve(struct store *store, const char *job_id, const char *event_id,
                               int64_t *ret_number, struct error *err);

#endif
