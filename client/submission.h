/*
 * submission: a create call, made of a command's arguments.
 *
 * Purpose    What submit, estimate and sweep share: uploads data sets, puts the body together, sends it.
 * Ownership  submission_release frees what submission_send has filled, also after a failure.
 * Threads    The program's only one.
 * Failure    The exit status, with the reason on stderr; uploads of a call that was refused are removed.
 */
#ifndef NEEDLED_CLIENT_SUBMISSION_H
#define NEEDLED_CLIENT_SUBMISSION_H

#include "client/words.h"

struct cJSON;
struct http;

struct submission {
    struct words words;
    struct cJSON *body, *hyperparameters;
    struct cJSON *uploaded; /* ids of this call's uploads */
    bool json;
};

/* Reads the arguments, uploads what is no file's id, and makes the call. COMMAND_OK: *ret_answer. */
int submission_send(struct http *http, const char *path, int count, char **arguments,
                    struct submission *ret_submission, struct cJSON **ret_answer);
/* The uploads of this call go again, so that a retry leaves no copies. */
void submission_take_back(struct http *http, const struct submission *submission);
void submission_release(struct submission *submission, struct cJSON *answer);

#endif
