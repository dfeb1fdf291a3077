/*
 * team: a fixed set of threads that shares out index ranges.
 *
 * Purpose    Splits [0, count) the same way for the same thread count, so sums keep their order.
 * Ownership  team_open / team_close; the context passed to a run is the caller's.
 * Threads    One thread at a time may run; it works as part 0. A body must not run the team again
 *            (asserted). Idle threads spin for some microseconds, then sleep. Signals are blocked
 *            in them.
 * Failure    team_open returns NULL when threads or memory run out.
 */
#ifndef NEEDLED_TEAM_H
#define NEEDLED_TEAM_H

#include <stddef.h>

#define TEAM_MAX_THREADS 1024

struct team;

/* Called for its share [begin, end); part < team_thread_count, no two at once share a part. */
typedef void team_body(void *context, size_t begin, size_t end, size_t part);

/* thread_start (may be NULL) is called once on each new thread, one after the other. */
struct team *team_open(size_t thread_count, void (*thread_start)(void));
void team_close(struct team *team); /* NULL is fine */
size_t team_thread_count(const struct team *team);

/* Contiguous shares of at least `grain` indices; one share runs on the calling thread alone. */
void team_run(struct team *team, size_t count, size_t grain, team_body *body, void *context);

/* Index by index, in order, each to the next thread that is free: for work of uneven cost whose
 * result does not depend on who does it. */
void team_deal(struct team *team, size_t count, team_body *body, void *context);

#endif
