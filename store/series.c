#include "store/series.h"

#include "store/sql.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* What may stay of a stretch of steps, ordered as they are compared. */
enum slot {
    SLOT_FIRST,
    SLOT_LOSS_MIN,
    SLOT_LOSS_MAX,
    SLOT_GRAD_MAX,
    SLOT_NO_LOSS,
    SLOT_COUNT,
};
enum valid_slot { VALID_MIN, VALID_MAX, VALID_SLOT_COUNT };

/* Step 0: empty. */
struct stretch {
    struct series_row rows[SLOT_COUNT];
    struct series_valid_row valid_rows[VALID_SLOT_COUNT];
};

struct thinning {
    const struct series_wish *wish;
    struct stretch *stretches;
    size_t stretch_count;
    int64_t newest_step; /* of the rows so far: one that comes again was told before */
    int64_t step_count, last_number;
};

static struct stretch *find_stretch(const struct thinning *thinning, int64_t step)
{
    const struct series_wish *wish = thinning->wish;
    const double share =
        (double)(step - wish->first_step) / ((double)(wish->last_step - wish->first_step) + 1);
    const size_t index = (size_t)(share * (double)thinning->stretch_count);

    return &thinning
                ->stretches[index < thinning->stretch_count ? index : thinning->stretch_count - 1];
}

static void keep(struct series_row *slot, const struct series_row *row, bool better)
{
    if (slot->step == 0 || better)
        *slot = *row;
}

static void add_row(struct thinning *thinning, const struct series_row *row)
{
    struct series_row *slots = find_stretch(thinning, row->step)->rows;
    const double loss = row->values[SERIES_TRAIN_LOSS], grad = row->values[SERIES_GRAD_NORM];

    thinning->step_count++;
    keep(&slots[SLOT_FIRST], row, false);
    if (isfinite(loss)) {
        keep(&slots[SLOT_LOSS_MIN], row, loss < slots[SLOT_LOSS_MIN].values[SERIES_TRAIN_LOSS]);
        keep(&slots[SLOT_LOSS_MAX], row, loss > slots[SLOT_LOSS_MAX].values[SERIES_TRAIN_LOSS]);
    } else {
        keep(&slots[SLOT_NO_LOSS], row, false);
    }
    if (isfinite(grad))
        keep(&slots[SLOT_GRAD_MAX], row, grad > slots[SLOT_GRAD_MAX].values[SERIES_GRAD_NORM]);
}

static void add_valid_row(struct thinning *thinning, const struct series_valid_row *row)
{
    struct series_valid_row *slots = find_stretch(thinning, row->step)->valid_rows;
    const double loss = row->values[SERIES_VALID_LOSS];

    if (!isfinite(loss))
        return;
    if (slots[VALID_MIN].step == 0 || loss < slots[VALID_MIN].values[SERIES_VALID_LOSS])
        slots[VALID_MIN] = *row;
    if (slots[VALID_MAX].step == 0 || loss > slots[VALID_MAX].values[SERIES_VALID_LOSS])
        slots[VALID_MAX] = *row;
}

/* Columns of the statement below. */
enum { AT_NUMBER, AT_IS_METRICS, AT_STEP, AT_VALUES };

static void add_event(struct thinning *thinning, sqlite3_stmt *statement)
{
    const int64_t step = sqlite3_column_int64(statement, AT_STEP);
    const struct series_wish *wish = thinning->wish;

    if (step > wish->last_step)
        return; /* a stream tells of it */
    thinning->last_number = sqlite3_column_int64(statement, AT_NUMBER);
    if (step < wish->first_step)
        return;
    if (sqlite3_column_int(statement, AT_IS_METRICS)) {
        struct series_row row = {.step = step};

        if (step <= thinning->newest_step)
            return;
        thinning->newest_step = step;
        for (int i = 0; i < SERIES_COLUMN_COUNT; i++)
            row.values[i] = sql_read_double(statement, AT_VALUES + i);
        add_row(thinning, &row);
    } else {
        struct series_valid_row row = {.step = step};

        for (int i = 0; i < SERIES_VALID_COLUMN_COUNT; i++)
            row.values[i] = sql_read_double(statement, AT_VALUES + SERIES_COLUMN_COUNT + i);
        add_valid_row(thinning, &row);
    }
}

static bool read_events(struct store *store, struct thinning *thinning, struct error *err)
{
    sqlite3_stmt *statement = NULL;
    bool row = false, ok;

    if (!sql_start(store,
                   "SELECT number, type = 'metrics', json_extract(data_json, '$.step'),"
                   " json_extract(data_json, '$.train_loss'),"
                   " json_extract(data_json, '$.train_mean_token_accuracy'),"
                   " json_extract(data_json, '$.learning_rate'),"
                   " json_extract(data_json, '$.grad_norm'),"
                   " json_extract(data_json, '$.tokens_per_second'),"
                   " json_extract(data_json, '$.time'),"
                   " json_extract(data_json, '$.memory_used_bytes'),"
                   " json_extract(data_json, '$.full_valid_loss'),"
                   " json_extract(data_json, '$.full_valid_mean_token_accuracy')"
                   " FROM events WHERE job_id = ?1 AND type IN ('metrics', 'validation')"
                   " ORDER BY number",
                   &statement, err))
        return false;
    sql_bind_text(store, statement, 1, thinning->wish->job_id);
    while ((ok = sql_next(store, statement, &row, err)) && row)
        add_event(thinning, statement);
    sql_end(statement);
    return ok;
}

static int compare_rows(const void *left, const void *right)
{
    const int64_t a = ((const struct series_row *)left)->step;
    const int64_t b = ((const struct series_row *)right)->step;

    return a < b ? -1 : a > b;
}

static int compare_valid_rows(const void *left, const void *right)
{
    const int64_t a = ((const struct series_valid_row *)left)->step;
    const int64_t b = ((const struct series_valid_row *)right)->step;

    return a < b ? -1 : a > b;
}

/* Stretches follow each other; within one the slots' rows are put in order, each step once. */
static void collect(const struct thinning *thinning, struct series *series)
{
    for (size_t i = 0; i < thinning->stretch_count; i++) {
        struct stretch *stretch = &thinning->stretches[i];

        qsort(stretch->rows, SLOT_COUNT, sizeof(stretch->rows[0]), compare_rows);
        for (size_t j = 0; j < SLOT_COUNT; j++) {
            if (stretch->rows[j].step > 0 &&
                (j == 0 || stretch->rows[j].step != stretch->rows[j - 1].step))
                series->rows[series->count++] = stretch->rows[j];
        }
        qsort(stretch->valid_rows, VALID_SLOT_COUNT, sizeof(stretch->valid_rows[0]),
              compare_valid_rows);
        for (size_t j = 0; j < VALID_SLOT_COUNT; j++) {
            if (stretch->valid_rows[j].step > 0 &&
                (j == 0 || stretch->valid_rows[j].step != stretch->valid_rows[j - 1].step))
                series->valid_rows[series->valid_count++] = stretch->valid_rows[j];
        }
    }
    series->step_count = thinning->step_count;
    series->last_number = thinning->last_number;
}

bool series_read(struct store *store, const struct series_wish *wish, struct series *ret_series,
                 struct error *err)
{
    const int64_t step_count = wish->last_step - wish->first_step + 1;
    struct thinning thinning = {.wish = wish};
    struct series series = {0};
    bool ok = false;

    assert(wish->first_step >= 1 && step_count >= 1);
    /* A stretch of one step keeps that step: nothing is left out where everything fits. */
    if ((uint64_t)step_count <= wish->point_count)
        thinning.stretch_count = (size_t)step_count;
    else
        thinning.stretch_count = wish->point_count / (SLOT_COUNT - 1) + 1;
    thinning.stretches = calloc(thinning.stretch_count, sizeof(*thinning.stretches));
    series.rows = calloc(thinning.stretch_count * SLOT_COUNT, sizeof(*series.rows));
    series.valid_rows =
        calloc(thinning.stretch_count * VALID_SLOT_COUNT, sizeof(*series.valid_rows));
    if (!thinning.stretches || !series.rows || !series.valid_rows) {
        error_set(err, ERR_NO_MEMORY, "no memory for %zu points", wish->point_count);
        goto out;
    }
    if (!read_events(store, &thinning, err))
        goto out;
    collect(&thinning, &series);
    *ret_series = series;
    ok = true;
out:
    free(thinning.stretches);
    if (!ok)
        series_release(&series);
    return ok;
}

void series_release(struct series *series)
{
    free(series->rows);
    free(series->valid_rows);
    *series = (struct series){0};
}
