/*
 * queue: the commands that order the queue, make sweeps and show them.
 *
 * Purpose    Each reads its arguments, makes its calls and prints for a person.
 * Ownership  None kept.
 * Threads    The program's only one.
 * Failure    As commands.h.
 */
#ifndef NEEDLED_CLIENT_QUEUE_H
#define NEEDLED_CLIENT_QUEUE_H

struct http;

int command_move(struct http *http, int count, char **arguments);
int command_sweep(struct http *http, int count, char **arguments);
int command_sweeps(struct http *http, int count, char **arguments);

#endif
