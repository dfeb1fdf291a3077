#include "daemon/sched/datasets.h"

#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/base/limits.h"
#include "daemon/base/utf8.h"
#include "daemon/sched/jobfiles.h"
#include "daemon/sched/report.h"
#include "daemon/train/dataset.h"
#include "store/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_ID_DIGITS 24

struct upload {
    struct file_record file;
    struct file_writer *writer;
    struct dataset_scan *scan;
    size_t size_bytes;
    char path[LIMIT_PATH_BYTES];
};

/* ---- names and paths ---------------------------------------------------------------------------- */

static bool is_plain(const char *name)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

    return name[0] != '\0' && name[0] != '.' && name[strspn(name, plain)] == '\0';
}

static bool join_plain(char *ret_path, size_t capacity, const char *state_folder,
                       const char *folder, const char *name, struct error *err)
{
    char inside[LIMIT_PATH_BYTES];

    if (!is_plain(name))
        return error_set(err, ERR_INVALID, "'%.64s' is no name of ours", name);
    return file_join(inside, sizeof(inside), state_folder, folder, err) &&
           file_join(ret_path, capacity, inside, name, err);
}

bool dataset_path(char *ret_path, size_t capacity, const char *state_folder, const char *file_id,
                  struct error *err)
{
    if (strchr(file_id, '.'))
        return error_set(err, ERR_INVALID, "'%.64s' is no file id", file_id);
    return join_plain(ret_path, capacity, state_folder, "uploads", file_id, err);
}

bool artifact_path(char *ret_path, size_t capacity, const char *state_folder, const char *artifact,
                   struct error *err)
{
    static const char checkpoints[] = "checkpoints/";
    char inside[LIMIT_PATH_BYTES], job[STORE_ID_SIZE];
    const char *rest, *slash;

    if (strncmp(artifact, checkpoints, strlen(checkpoints)) != 0)
        return join_plain(ret_path, capacity, state_folder, "artifacts", artifact, err);
    rest = artifact + strlen(checkpoints);
    slash = strchr(rest, '/');
    if (!slash || (size_t)(slash - rest) >= sizeof(job))
        return error_set(err, ERR_INVALID, "'%.64s' is no artifact of ours", artifact);
    memcpy(job, rest, (size_t)(slash - rest));
    job[slash - rest] = '\0';
    return join_plain(inside, sizeof(inside), state_folder, "checkpoints", job, err) &&
           (is_plain(slash + 1) ||
            error_set(err, ERR_INVALID, "'%.64s' is no artifact of ours", artifact)) &&
           file_join(ret_path, capacity, inside, slash + 1, err);
}

/* A name given by a client becomes a label: no folder part, nothing that is not shown as text. */
static void clean_label(const char *filename, char *ret_label, size_t capacity)
{
    const char *start = filename;
    size_t size = 0;

    for (const char *at = filename; *at; at++) {
        if (*at == '/' || *at == '\\')
            start = at + 1;
    }
    for (const char *at = start; *at && size + 1 < capacity; at++) {
        if ((unsigned char)*at >= 0x20 && *at != 0x7f)
            ret_label[size++] = *at;
    }
    ret_label[size] = '\0';
    ret_label[utf8_find_fault(ret_label, size)] =
        '\0'; /* a cut letter, or bytes of another coding */
    if (ret_label[0] == '\0' || strcmp(ret_label, ".") == 0 || strcmp(ret_label, "..") == 0)
        (void)snprintf(ret_label, capacity, "upload");
}

/* ---- uploads ------------------------------------------------------------------------------------ */

bool upload_open(const char *state_folder, const char *filename, const char *purpose,
                 struct upload **ret_upload, struct error *err)
{
    struct upload *upload;

    if (strcmp(purpose, "fine-tune") != 0)
        return error_set_param(err, ERR_INVALID, "purpose",
                               "purpose '%.32s' is not served: 'fine-tune' is needed", purpose);
    upload = calloc(1, sizeof(*upload));
    if (!upload)
        return error_set(err, ERR_NO_MEMORY, "no memory for an upload");
    clean_label(filename, upload->file.filename, sizeof(upload->file.filename));
    (void)snprintf(upload->file.purpose, sizeof(upload->file.purpose), "%s", purpose);
    if (!file_random_id(upload->file.id, sizeof(upload->file.id), "file-", FILE_ID_DIGITS, err) ||
        !dataset_path(upload->path, sizeof(upload->path), state_folder, upload->file.id, err) ||
        !dataset_scan_new(&upload->scan, err) ||
        !file_writer_open(upload->path, &upload->writer, err)) {
        upload_abort(upload);
        return false;
    }
    *ret_upload = upload;
    return true;
}

bool upload_append(struct upload *upload, const void *bytes, size_t size, struct error *err)
{
    if (size > LIMIT_UPLOAD_BYTES - upload->size_bytes)
        return error_set_param(err, ERR_LIMIT, "file", "the file is longer than %zu bytes",
                               (size_t)LIMIT_UPLOAD_BYTES);
    upload->size_bytes += size;
    return file_writer_append(upload->writer, bytes, size, err) &&
           dataset_scan_feed(upload->scan, bytes, size, err);
}

void upload_abort(struct upload *upload)
{
    if (!upload)
        return;
    file_writer_discard(upload->writer);
    dataset_scan_free(upload->scan);
    free(upload);
}

static bool record(struct upload *upload, struct store *store, const struct dataset_report *report,
                   struct error *err)
{
    struct json *object = report_json(report);
    char *text = NULL;
    bool ok;

    upload->file.size_bytes = (int64_t)upload->size_bytes;
    upload->file.created_unix_s = clock_unix_s();
    upload->file.line_count = (int64_t)report->line_count;
    upload->file.example_count = (int64_t)report->example_count;
    ok = json_print_text(object, &text, err) && files_insert(store, &upload->file, text, err);
    free(text);
    json_free(object);
    return ok;
}

bool upload_finish(struct upload *upload, struct store *store, struct file_record *ret_file,
                   struct json **ret_lines, struct error *err)
{
    struct dataset_report *report = calloc(1, sizeof(*report));
    bool ok = false;

    if (!report) {
        error_set(err, ERR_NO_MEMORY, "no memory for an upload's report");
        goto out;
    }
    if (!dataset_scan_finish(upload->scan, report, err))
        goto out;
    if (!dataset_report_accept(report, true, DATA_RULES_STRICT, err)) {
        (void)snprintf(err->param, sizeof(err->param), "file");
        if (ret_lines)
            *ret_lines = report_lines_json(report, upload->file.filename, true);
        report_name_file(upload->file.filename, err);
        goto out;
    }
    struct file_writer *writer = upload->writer;

    upload->writer = NULL; /* ended by the commit in every case */
    if (!file_writer_commit(writer, NULL, upload->file.sha256, err))
        goto out;
    if (!record(upload, store, report, err)) {
        jobfiles_remove(upload->path);
        goto out;
    }
    *ret_file = upload->file;
    ok = true;
out:
    upload_abort(upload);
    free(report);
    return ok;
}
