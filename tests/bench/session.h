/*
 * session: the built daemon in a process of its own, and what a client says to it.
 *
 * Purpose    Starts it on a free port with a state folder of its own under /tmp; uploads, creates.
 * Ownership  session_start / session_stop (caller's storage): the process ends, the folder goes.
 *            session_stop takes a session whose start failed.
 * Threads    The caller's.
 * Failure    The daemon's or the client's words.
 */
#ifndef NEEDLED_BENCH_SESSION_H
#define NEEDLED_BENCH_SESSION_H

#include "daemon/base/error.h"
#include "daemon/base/limits.h"

#include <stdint.h>
#include <sys/types.h>

#define SESSION_ID_BYTES 80

struct http;

struct session {
    char folder[32], log[LIMIT_PATH_BYTES];
    pid_t process;
    int port;
    struct http *http;
};

/* models_folder holds a folder for each base. */
MUST_CHECK bool session_start(struct session *session, const char *program,
                              const char *models_folder, struct error *err);
void session_stop(struct session *session);
double session_resident_mb(const struct session *session);

MUST_CHECK bool session_upload(const struct session *session, const char *path,
                               char ret_id[SESSION_ID_BYTES], struct error *err);
/* body: a create request. */
MUST_CHECK bool session_create_job(const struct session *session, const char *body,
                                   char ret_id[SESSION_ID_BYTES], struct error *err);
MUST_CHECK bool session_cancel_job(const struct session *session, const char *job,
                                   struct error *err);

double session_seconds_since(int64_t started_ns);
void session_wait_ms(long ms);

#endif
