/*
 * call: any call of the daemon, by its method and path.
 *
 * Purpose    `needlectl call`: for what has no command of its own, as /v1/openapi.json describes it.
 * Ownership  None kept.
 * Threads    The program's only one.
 * Failure    As commands.h.
 */
#ifndef NEEDLED_CLIENT_CALL_H
#define NEEDLED_CLIENT_CALL_H

struct http;

int command_call(struct http *http, int count, char **arguments);

#endif
