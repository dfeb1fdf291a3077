/*
 * completion: what a shell is told to complete needlectl's commands, options and ids.
 *
 * Purpose    `needlectl completion bash|zsh|fish` prints a script that is made from the table (table.h).
 *            Ids of jobs, files and models are asked of the daemon when they are wanted.
 * Ownership  None kept.
 * Threads    The program's only one.
 * Failure    As commands.h.
 */
#ifndef NEEDLED_CLIENT_COMPLETION_H
#define NEEDLED_CLIENT_COMPLETION_H

struct http;

int command_completion(struct http *http, int count, char **arguments);

#endif
