/*
 * request: the body of a create call, checked field by field.
 *
 * Purpose    Takes OpenAI's shape and our additions, names the first field that is wrong or not known,
 *            resolves "auto", and keeps the result as the JSON a job record holds.
 * Ownership  A struct request borrows its texts from the body; hyper texts belong to the caller.
 * Threads    Any.
 * Failure    ERR_INVALID with param = the field's own name. Nothing in a body is ever fetched.
 */
#ifndef NEEDLED_SCHED_REQUEST_H
#define NEEDLED_SCHED_REQUEST_H

#include "daemon/train/trainer.h"

#define REQUEST_BASE_RATE 1e-4 /* what learning_rate_multiplier multiplies */

struct json;

struct request {
    const char *model, *training_file, *validation_file; /* NULL: not given */
    const char *suffix, *device;                         /* "" and "auto" when not given */
    const struct json *metadata;                         /* object, or NULL */
    int64_t seed;
    struct hyperparameters hyper;
    bool max_len_given; /* else it follows the base */
};

/* Everything that needs neither files nor models. */
MUST_CHECK bool request_read(const struct json *body, struct request *ret_request,
                             struct error *err);
/* Settles max_len by what the base can read. */
MUST_CHECK bool request_fit_base(struct request *request, size_t max_seq_len, struct error *err);

/* The resolved hyper-parameters as answered and stored, for the caller; and read back. */
struct json *request_hyper_json(const struct hyperparameters *hyper);
MUST_CHECK bool request_hyper_parse(const char *text, struct hyperparameters *ret_hyper,
                                    struct error *err);
const char *request_numerics_name(enum numerics numerics);

#endif
