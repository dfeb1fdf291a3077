/*
 * request: the body of a create call, checked field by field.
 *
 * Purpose    Takes OpenAI's shape (training_file, method) or Needle's platform's (training_files,
 *            max_depth), told apart by their keys, with our additions; names the first field that is
 *            wrong or not known, resolves "auto", and keeps the result as the JSON a job record holds.
 * Ownership  A struct request borrows its texts from the body; hyper texts belong to the caller.
 * Threads    Any.
 * Failure    ERR_INVALID with param = the field's own name. Nothing in a body is ever fetched.
 */
#ifndef NEEDLED_SCHED_REQUEST_H
#define NEEDLED_SCHED_REQUEST_H

#include "daemon/base/limits.h"
#include "daemon/train/trainer.h"

#define REQUEST_BASE_RATE 1e-4 /* what learning_rate_multiplier multiplies */

struct json;

struct request_files {
    const char *ids[LIMIT_JOB_FILES];
    size_t count;
};

struct request {
    const char *model, *training_file, *validation_file; /* NULL: not given; the first of several */
    bool is_platform;                                    /* the second shape */
    struct request_files training, validation, test;     /* of the second shape */
    int64_t max_depth;                                   /* 0: not given */
    const char *suffix, *device;                         /* "" and "auto" when not given */
    const struct json *metadata;                         /* object, or NULL */
    int64_t seed, priority;                              /* order.h */
    struct hyperparameters hyper;
    bool max_len_given; /* else it follows the base */
    bool rank_given, alpha_given;
};

/* Everything that needs neither files nor models. */
MUST_CHECK bool request_read(const struct json *body, struct request *ret_request,
                             struct error *err);
/* Settles max_len by what the base can read, and max_depth by its layers. */
MUST_CHECK bool request_fit_base(struct request *request, const struct model_info *info,
                                 struct error *err);
/* Rank and alpha of the adapter that the job goes on from: they hold, others are refused. */
MUST_CHECK bool request_fit_adapter(struct request *request, size_t rank, double alpha,
                                    struct error *err);
/* All files of the second shape by kind, as a job record keeps them; NULL in the first. */
struct json *request_inputs_json(const struct request *request);

/* The resolved hyper-parameters as answered and stored, for the caller; and read back. */
struct json *request_hyper_json(const struct hyperparameters *hyper);
MUST_CHECK bool request_hyper_parse(const char *text, struct hyperparameters *ret_hyper,
                                    struct error *err);
const char *request_numerics_name(enum numerics numerics);

#endif
