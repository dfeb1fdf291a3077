/*
 * jobs: a job's record, its checkpoints and result, and holding it back.
 *
 * Purpose    The commands about one job that are no more than a call.
 * Ownership  None kept.
 * Threads    The program's only one.
 * Failure    As commands.h.
 */
#ifndef NEEDLED_CLIENT_JOBS_H
#define NEEDLED_CLIENT_JOBS_H

struct http;

int command_jobs_get(struct http *http, int count, char **arguments);
int command_pause(struct http *http, int count, char **arguments);
int command_resume(struct http *http, int count, char **arguments);
int command_checkpoints(struct http *http, int count, char **arguments);
int command_metrics(struct http *http, int count, char **arguments);
int command_result(struct http *http, int count, char **arguments);

#endif
