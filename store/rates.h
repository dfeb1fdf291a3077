/*
 * rates: how fast training was, last time.
 *
 * Purpose    Tokens per second by device, base and setting, from which a next job's time is estimated.
 * Ownership  Plain values.
 * Threads    As store.h.
 * Failure    As store.h.
 */
#ifndef NEEDLED_STORE_RATES_H
#define NEEDLED_STORE_RATES_H

#include "store/store.h"

#define RATE_SETTING_SIZE 64

struct rate_record {
    char device[32]; /* "cpu:0" */
    char base_model[STORE_NAME_SIZE];
    char setting[RATE_SETTING_SIZE]; /* what changes the speed: "w4a8 float32 rank 16" */
    double tokens_per_second;
    int64_t measured_unix_s;
};

MUST_CHECK bool rates_set(struct store *store, const struct rate_record *rate, struct error *err);
/* Of the record the first three are the question; *ret_found false: not measured. */
MUST_CHECK bool rates_get(struct store *store, struct rate_record *rate, bool *ret_found,
                          struct error *err);

#endif
