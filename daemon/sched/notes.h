/*
 * notes: events being put together for one transaction.
 *
 * Purpose    Holds the texts that event drafts point to until the store has taken them.
 * Ownership  notes_init / notes_release (caller's storage).
 * Threads    One thread at a time.
 * Failure    What does not fit or finds no memory sets `failed`; the rest still counts.
 */
#ifndef NEEDLED_NOTES_H
#define NEEDLED_NOTES_H

#include "store/events.h"

#define NOTES_MAX                                                                                  \
    192 /* three kinds of files' findings of two levels, their sums, and what goes with them */

struct json;

struct notes {
    struct event_draft drafts[NOTES_MAX];
    size_t count;
    bool failed;
};

void notes_init(struct notes *notes);
void notes_release(struct notes *notes); /* NULL is fine */
/* data is taken over; NULL: none, which only a "message" has: others had no memory. type must be static text. */
void notes_add(struct notes *notes, enum event_level level, const char *type, struct json *data,
               const char *format, ...) PRINTF_LIKE(5, 6);

/* {"status": name}, to which more may be added. */
struct json *notes_status(const char *state_name);
/* The last event of a job: "done", with its status and model (may be NULL). */
void notes_add_done(struct notes *notes, const char *state_name, const char *model);

#endif
