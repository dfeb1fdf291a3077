/*
 * commands: what needlectl can do, one function a command.
 *
 * Purpose    Each reads its arguments, makes its calls and prints for a person.
 * Ownership  None kept.
 * Threads    The program's only one.
 * Failure    Returns the exit status: 0 done, 1 refused or failed, 2 bad usage or no connection,
 *            3 cancelled. What went wrong is on stderr.
 */
#ifndef NEEDLED_CLIENT_COMMANDS_H
#define NEEDLED_CLIENT_COMMANDS_H

struct http;

enum command_status { COMMAND_OK = 0, COMMAND_REFUSED = 1, COMMAND_USAGE = 2 };

/* arguments[0] is the command's name. */
int command_submit(struct http *http, int count, char **arguments);
int command_estimate(struct http *http, int count, char **arguments);
int command_watch(struct http *http, int count, char **arguments);
int command_jobs(struct http *http, int count, char **arguments);
int command_cancel(struct http *http, int count, char **arguments);
int command_fetch(struct http *http, int count, char **arguments);
int command_devices(struct http *http, int count, char **arguments);

#endif
