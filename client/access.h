/*
 * access: needlectl's commands about API keys and webhooks.
 *
 * Purpose    key create, list, revoke; webhook create, list, delete, test, rotate, deliveries. A secret
 *            goes to standard output alone, so that a script can take it; the rest is said beside it.
 * Ownership  None kept.
 * Threads    The program's only one.
 * Failure    As commands.h.
 */
#ifndef NEEDLED_CLIENT_ACCESS_H
#define NEEDLED_CLIENT_ACCESS_H

struct http;

int command_key_create(struct http *http, int count, char **arguments);
int command_key_list(struct http *http, int count, char **arguments);
int command_key_revoke(struct http *http, int count, char **arguments);

int command_webhook_create(struct http *http, int count, char **arguments);
int command_webhook_list(struct http *http, int count, char **arguments);
int command_webhook_delete(struct http *http, int count, char **arguments);
int command_webhook_test(struct http *http, int count, char **arguments);
int command_webhook_rotate(struct http *http, int count, char **arguments);
int command_webhook_deliveries(struct http *http, int count, char **arguments);

#endif
