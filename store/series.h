/*
 * series: a job's steps as curves, made thin enough to draw.
 *
 * Purpose    Reads a job's metrics once, in memory that depends on the wanted number of points alone.
 *            Of each stretch of steps the first one stays, those of the least and the greatest loss and
 *            of the greatest gradient norm, and one whose loss is no number: what stands out is kept, and
 *            every point is a step that was.
 * Ownership  series_release frees what series_read filled.
 * Threads    As store.h.
 * Failure    As store.h.
 */
#ifndef NEEDLED_STORE_SERIES_H
#define NEEDLED_STORE_SERIES_H

#include "store/store.h"

enum series_column {
    SERIES_TRAIN_LOSS,
    SERIES_TRAIN_ACCURACY,
    SERIES_LEARNING_RATE,
    SERIES_GRAD_NORM,
    SERIES_TOKENS_PER_SECOND,
    SERIES_TIME,
    SERIES_MEMORY_USED,
    SERIES_COLUMN_COUNT,
};

enum series_valid_column { SERIES_VALID_LOSS, SERIES_VALID_ACCURACY, SERIES_VALID_COLUMN_COUNT };

struct series_row {
    int64_t step;
    double values[SERIES_COLUMN_COUNT]; /* NAN: none */
};

struct series_valid_row {
    int64_t step;
    double values[SERIES_VALID_COLUMN_COUNT];
};

struct series_wish {
    const char *job_id;
    int64_t first_step, last_step; /* what lies outside is left out; first >= 1, last >= first */
    size_t point_count;            /* about so many at most */
};

struct series {
    struct series_row *rows; /* by step */
    size_t count;
    struct series_valid_row
        *valid_rows; /* by step; of each stretch the least and the greatest loss */
    size_t valid_count;
    int64_t step_count;  /* of the stretch, before it was made thin */
    int64_t last_number; /* of the newest event that was seen: a stream goes on from there */
};

MUST_CHECK bool series_read(struct store *store, const struct series_wish *wish,
                            struct series *ret_series, struct error *err);
void series_release(struct series *series);

#endif
