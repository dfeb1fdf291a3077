/*
 * asks: short questions about data, in line for the thread that reads data sets.
 *
 * Purpose    Whoever serves a request hands in a function and waits for its answer; the validator runs
 *            it between two jobs.
 * Ownership  asks_new / asks_free. Arguments are borrowed until asks_put returns.
 * Threads    asks_put from any, the rest from the validator's.
 * Failure    More than ASKS_MAX in line, or a daemon that stops: ERR_UNAVAILABLE.
 */
#ifndef NEEDLED_ASKS_H
#define NEEDLED_ASKS_H

#include "daemon/base/error.h"

#include <stdatomic.h>

#define ASKS_MAX 4 /* half of the threads that serve requests: the others go on */

struct asks;
struct scheduler_options;
struct store;

/* What a question is answered with. */
struct asks_parts {
    const struct scheduler_options *options;
    struct store *store;
    const atomic_bool *stop; /* a long answer ends early once it is set; or NULL */
};
typedef bool asks_function(const struct asks_parts *parts, void *arguments, struct error *err);

struct asks *asks_new(void);       /* NULL without memory */
void asks_free(struct asks *asks); /* nobody may be waiting; NULL is fine */

/* wake is called once the question is in line. stop (or NULL) as in asks_parts: a question that was not
 * begun is taken back. */
MUST_CHECK bool asks_put(struct asks *asks, asks_function *function, void *arguments,
                         const atomic_bool *stop, void (*wake)(void *context), void *context,
                         struct error *err);
/* Answers one; false when there is none. */
bool asks_serve(struct asks *asks, const struct asks_parts *parts);
void asks_close(struct asks *asks); /* those in line are refused, and all later ones */

#endif
