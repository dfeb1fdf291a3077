/*
 * models: what jobs produced.
 *
 * Purpose    A record per fine-tuned model, with where its adapter lies, its size and digest.
 * Ownership  Records are plain values.
 * Threads    As store.h.
 * Failure    ERR_NOT_FOUND names the id.
 */
#ifndef NEEDLED_STORE_MODELS_H
#define NEEDLED_STORE_MODELS_H

#include "store/store.h"

struct model_record {
    char id[STORE_NAME_SIZE]; /* ft:<base>:<org>:<suffix>:<8>, a checkpoint adds :ckpt-step-<n> */
    char base_model[STORE_NAME_SIZE];
    char job_id[STORE_ID_SIZE];
    char artifact[STORE_NAME_SIZE]; /* file name in artifacts/ or checkpoints/<job>/ */
    int64_t size_bytes, created_unix_s;
    char sha256[65];
    char device[32], numerics[16];
    int64_t step;      /* of a checkpoint; 0: the final model */
    double valid_loss; /* NAN: none */
    char owner[STORE_ID_SIZE];
    char parent_model[STORE_NAME_SIZE]; /* that its job went on from, "" none */
};

MUST_CHECK bool models_insert(struct store *store, const struct model_record *model,
                              struct error *err);
MUST_CHECK bool models_get(struct store *store, const char *id, struct model_record *ret_model,
                           struct error *err);
MUST_CHECK bool models_list(struct store *store, struct model_record **ret_models,
                            size_t *ret_count, struct error *err); /* newest first; free() */
/* ERR_CONFLICT with the word model_in_use while an unfinished job goes on from it. */
MUST_CHECK bool models_delete(struct store *store, const char *id, struct error *err);
/* Whether any model's adapter is that file: a job's last checkpoint and its model share one. */
MUST_CHECK bool models_has_artifact(struct store *store, const char *artifact, bool *ret_used,
                                    struct error *err);

#endif
