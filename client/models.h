/*
 * models: bases and what jobs made of them, and the limits of a key.
 *
 * Purpose    Lists, records, deletion. Downloads are `fetch`, which takes a job too.
 * Ownership  None kept.
 * Threads    The program's only one.
 * Failure    As commands.h.
 */
#ifndef NEEDLED_CLIENT_MODELS_H
#define NEEDLED_CLIENT_MODELS_H

struct http;

int command_models(struct http *http, int count, char **arguments);
int command_models_get(struct http *http, int count, char **arguments);
int command_models_delete(struct http *http, int count, char **arguments);
int command_billing(struct http *http, int count, char **arguments);

#endif
