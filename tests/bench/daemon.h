/*
 * daemon: the built daemon, timed from outside.
 *
 * Purpose    Starts it with a state folder of its own and measures what a client sees: the time
 *            from a job's POST to its first step, and the memory of a daemon at rest.
 * Ownership  The folder is made and removed.
 * Threads    The caller's.
 * Failure    The daemon's or the client's words.
 */
#ifndef NEEDLED_BENCH_DAEMON_H
#define NEEDLED_BENCH_DAEMON_H

#include "daemon/base/error.h"

struct daemon_figures {
    double start_s; /* from exec to listening */
    double idle_rss_mb;
    double first_post_to_step_s; /* the base was never opened by this process */
    double post_to_step_s;       /* median of three later jobs */
    double idle_rss_after_mb;    /* at rest again */
};

/* models_folder holds the base as a folder `base`; lines is a data set. */
MUST_CHECK bool daemon_measure(const char *program, const char *models_folder, const char *base,
                               const char *lines, struct daemon_figures *ret_figures,
                               struct error *err);

#endif
