/*
 * watch: a job's events on the terminal.
 *
 * Purpose    Follows the stream until the job ends: a progress bar with loss, tokens/s and time
 *            left on a terminal, plain lines elsewhere; a curve of the loss at the end when asked.
 * Ownership  None kept.
 * Threads    The caller's; Ctrl-C ends the program and leaves the job running.
 * Failure    Returns a status for the shell: 0 succeeded, 1 failed, 3 cancelled, 2 no connection.
 */
#ifndef NEEDLED_CLIENT_WATCH_H
#define NEEDLED_CLIENT_WATCH_H

struct http;

enum watch_status { WATCH_SUCCEEDED = 0, WATCH_FAILED = 1, WATCH_LOST = 2, WATCH_CANCELLED = 3 };

enum watch_form {
    WATCH_PLAIN,
    WATCH_CURVE, /* and the curve of the loss at the end */
    WATCH_JSON,  /* each event a line of JSON, then the job's record */
};

enum watch_status watch_job(struct http *http, const char *job_id, enum watch_form form);

#endif
