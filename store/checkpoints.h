/*
 * checkpoints: epoch checkpoints, the ones the API lists.
 *
 * Purpose    A row per epoch checkpoint of a job with its metrics; each is a model record as well.
 * Ownership  Lists are arrays for the caller to free().
 * Threads    As store.h.
 * Failure    As store.h.
 */
#ifndef NEEDLED_STORE_CHECKPOINTS_H
#define NEEDLED_STORE_CHECKPOINTS_H

#include "store/store.h"

struct checkpoint_record {
    char id[STORE_ID_SIZE]; /* ftckpt_... */
    char job_id[STORE_ID_SIZE];
    char model_id[STORE_NAME_SIZE];
    int64_t created_unix_s, step;
    double train_loss, train_accuracy, valid_loss, valid_accuracy; /* NAN: none */
    bool available; /* its model is there; only lists know */
};

MUST_CHECK bool checkpoints_insert(struct store *store, const struct checkpoint_record *checkpoint,
                                   struct error *err);
/* The model of a checkpoint; ERR_NOT_FOUND. */
MUST_CHECK bool checkpoints_get_model(struct store *store, const char *id,
                                      char ret_model_id[STORE_NAME_SIZE], struct error *err);
MUST_CHECK bool checkpoints_list(struct store *store, const char *job_id,
                                 const struct store_page *page,
                                 struct checkpoint_record **ret_checkpoints, size_t *ret_count,
                                 bool *ret_has_more, struct error *err);

#endif
