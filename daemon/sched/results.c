#include "daemon/sched/results.h"

#include "daemon/base/buf.h"
#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "daemon/base/jsontext.h"
#include "daemon/base/limits.h"
#include "daemon/sched/datasets.h"
#include "daemon/sched/jobfiles.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define PIECE_BYTES ((size_t)1 << 16)
#define ROW_BYTES ((size_t)512) /* more than any row has */

struct writing {
    struct file_writer *writer;
    struct buf rows; /* that are not in the file yet */
    int64_t row_count;
};

static bool flush(struct writing *writing, struct error *err)
{
    bool ok = !writing->rows.failed || error_set(err, ERR_NO_MEMORY, "no memory for a result file");

    ok = ok && (writing->rows.size == 0 ||
                file_writer_append(writing->writer, writing->rows.data, writing->rows.size, err));
    buf_clear(&writing->rows);
    return ok;
}

static void add_cell(struct buf *rows, double number)
{
    char text[JSONTEXT_NUMBER_MAX] = "";

    if (isfinite(number))
        jsontext_format_double(number, text);
    buf_format(rows, ",%s", text);
}

static bool add_row(void *context, const struct events_step *step, struct error *err)
{
    struct writing *writing = context;
    struct buf *rows = &writing->rows;

    buf_format(rows, "%" PRId64, step->step);
    add_cell(rows, step->train_loss);
    add_cell(rows, step->train_accuracy);
    buf_append_text(rows, ",,"); /* nothing is validated on one batch */
    add_cell(rows, step->train_accuracy);
    buf_append_char(rows, ',');
    add_cell(rows, step->full_valid_loss);
    add_cell(rows, step->full_valid_accuracy);
    buf_append_char(rows, '\n');
    writing->row_count++;
    return rows->size < PIECE_BYTES - ROW_BYTES || flush(writing, err);
}

bool results_write(const char *state_folder, struct store *store, const struct job_record *job,
                   struct file_record *ret_file, struct error *err)
{
    struct file_record file = {.filename = "step_metrics.csv",
                               .purpose = "fine-tune-results",
                               .created_unix_s = clock_unix_s()};
    const char *dash = strchr(job->id, '-');
    struct writing writing = {0};
    char path[LIMIT_PATH_BYTES];
    uint64_t size = 0;
    bool ok = false;

    (void)snprintf(file.id, sizeof(file.id), "file-%s", dash ? dash + 1 : job->id);
    (void)snprintf(file.owner, sizeof(file.owner), "%s", job->owner);
    buf_init(&writing.rows, PIECE_BYTES);
    buf_append_text(&writing.rows, RESULTS_HEADER);
    if (!dataset_path(path, sizeof(path), state_folder, file.id, err) ||
        !file_writer_open(path, &writing.writer, err))
        goto out;
    ok = events_read_steps(store, job->id, add_row, &writing, err) && flush(&writing, err);
    if (ok)
        ok = file_writer_commit(writing.writer, &size, file.sha256, err);
    else
        file_writer_discard(writing.writer);
    file.size_bytes = (int64_t)size;
    file.line_count = writing.row_count + 1;
    if (ok)
        *ret_file = file;
out:
    buf_release(&writing.rows);
    return ok;
}

void results_remove(const char *state_folder, const struct file_record *file)
{
    char path[LIMIT_PATH_BYTES];

    if (file->id[0] && dataset_path(path, sizeof(path), state_folder, file->id, NULL))
        jobfiles_remove(path);
}
