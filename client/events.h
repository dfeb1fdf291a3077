/*
 * events: what happened in all jobs, as lines.
 *
 * Purpose    `needlectl events`: the newest ones, and with --follow what comes from then on, over as
 *            many connections as it takes; as words or as JSON.
 * Ownership  None kept.
 * Threads    The program's only one; Ctrl-C ends it and says how to go on.
 * Failure    As commands.h.
 */
#ifndef NEEDLED_CLIENT_EVENTS_H
#define NEEDLED_CLIENT_EVENTS_H

struct http;

int command_events(struct http *http, int count, char **arguments);

#endif
