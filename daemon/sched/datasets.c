#include "daemon/sched/datasets.h"

#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/base/limits.h"
#include "daemon/base/log.h"
#include "daemon/base/utf8.h"
#include "daemon/sched/jobfiles.h"
#include "daemon/sched/report.h"
#include "daemon/sched/scanner.h"
#include "daemon/sched/strays.h"
#include "daemon/train/dataset.h"
#include "store/reservations.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_ID_START "file-"
#define FILE_ID_DIGITS 24
#define SWEEP_COUNT ((size_t)64) /* reservations in one transaction */

struct upload {
    struct file_record file;
    struct file_writer *writer;
    struct scanner *scanner;
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
    if (!file_random_id(upload->file.id, sizeof(upload->file.id), FILE_ID_START, FILE_ID_DIGITS,
                        err) ||
        !dataset_path(upload->path, sizeof(upload->path), state_folder, upload->file.id, err) ||
        !scanner_new(&upload->scanner, err) ||
        !file_writer_open(upload->path, &upload->writer, err)) {
        upload_abort(upload);
        return false;
    }
    *ret_upload = upload;
    return true;
}

void upload_set_helpers(struct upload *upload, atomic_int *helpers)
{
    scanner_set_helpers(upload->scanner, helpers);
}

bool upload_append(struct upload *upload, const void *bytes, size_t size, struct error *err)
{
    if (size > LIMIT_UPLOAD_BYTES - upload->size_bytes)
        return error_set_param(err, ERR_LIMIT, "file", "the file is longer than %zu bytes",
                               (size_t)LIMIT_UPLOAD_BYTES);
    upload->size_bytes += size;
    return file_writer_append(upload->writer, bytes, size, err) &&
           scanner_feed(upload->scanner, bytes, size, err);
}

void upload_abort(struct upload *upload)
{
    if (!upload)
        return;
    file_writer_discard(upload->writer);
    scanner_free(upload->scanner);
    free(upload);
}

/* The report as it is kept, for the caller to free(); NULL: it could not be made. */
static char *print_report(const struct dataset_report *report, struct error *err)
{
    struct json *object = report_json(report);
    char *text = NULL;

    if (!json_print_text(object, &text, err))
        text = NULL;
    json_free(object);
    return text;
}

/* Looks at the whole and puts it under its name: after this the bytes lie on disk, or are gone. */
static bool seal(struct upload *upload, struct dataset_report *report, struct json **ret_lines,
                 struct error *err)
{
    struct file_writer *writer = upload->writer;
    const char *filename = upload->file.filename;

    if (!scanner_finish(upload->scanner, report, err))
        return false;
    if (!dataset_report_accept(report, true, DATA_RULES_STRICT, err)) {
        (void)snprintf(err->param, sizeof(err->param), "file");
        if (ret_lines)
            *ret_lines = report_lines_json(report, &filename, true);
        report_name_file(upload->file.filename, err);
        return false;
    }
    upload->writer = NULL; /* ended by the commit in every case */
    if (!file_writer_commit(writer, NULL, upload->file.sha256, err))
        return false;
    upload->file.size_bytes = (int64_t)upload->size_bytes;
    upload->file.created_unix_s = clock_unix_s();
    upload->file.line_count = (int64_t)report->line_count;
    upload->file.example_count = (int64_t)report->example_count;
    return true;
}

bool upload_finish(struct upload *upload, struct store *store, const struct upload_terms *terms,
                   struct file_record *ret_file, struct json **ret_lines, struct error *err)
{
    struct dataset_report *report = calloc(1, sizeof(*report));
    struct file_record *file = &upload->file;
    char *text = NULL;
    bool ok = false;

    if (!report) {
        error_set(err, ERR_NO_MEMORY, "no memory for an upload's report");
        goto out;
    }
    if (!seal(upload, report, ret_lines, err))
        goto out;
    (void)snprintf(file->owner, sizeof(file->owner), "%s", terms->owner);
    if (terms->lifetime_s > 0)
        file->expires_unix_s = file->created_unix_s + terms->lifetime_s;
    text = print_report(report, err);
    ok = text && files_insert_within(store, file, text, terms->bytes_max, err);
    if (ok)
        *ret_file = *file;
    else
        jobfiles_remove(upload->path);
out:
    upload_abort(upload);
    free(report);
    free(text);
    return ok;
}

static bool check_size(const struct upload *upload, const struct reservation_record *reservation,
                       struct error *err)
{
    if ((int64_t)upload->size_bytes == reservation->size_bytes)
        return true;
    return error_set_word(err, ERR_INVALID, "invalid_upload", "",
                          "%zu bytes came, %" PRId64 " were announced for '%s'", upload->size_bytes,
                          reservation->size_bytes, reservation->id);
}

bool upload_finish_reserved(struct upload *upload, struct store *store, const char *reservation_id,
                            struct reservation_record *ret_reservation, struct json **ret_lines,
                            struct error *err)
{
    struct dataset_report *report = calloc(1, sizeof(*report));
    struct reservation_record reservation;
    char *text = NULL;
    bool ok = false;

    if (!report) {
        error_set(err, ERR_NO_MEMORY, "no memory for an upload's report");
        goto out;
    }
    if (!reservations_get(store, reservation_id, &reservation, err) ||
        !check_size(upload, &reservation, err))
        goto out;
    (void)snprintf(upload->file.filename, sizeof(upload->file.filename), "%s",
                   reservation.filename);
    if (!seal(upload, report, ret_lines, err)) {
        if (err && err->code == ERR_INVALID)
            error_name(err, "invalid_upload");
        goto out;
    }
    text = print_report(report, err);
    ok = text && reservations_set_stored(store, reservation_id, &upload->file, text, err);
    if (ok) {
        *ret_reservation = reservation;
        (void)snprintf(ret_reservation->state, sizeof(reservation.state), "stored");
    } else {
        jobfiles_remove(upload->path); /* another PUT's bytes have another name */
    }
out:
    upload_abort(upload);
    free(report);
    free(text);
    return ok;
}

/* ---- what is over ------------------------------------------------------------------------------- */

/* Named as an upload's bytes are, and no row's: a daemon was killed between the two. */
static bool is_stranded(struct store *store, const char *name, bool *ret_stranded,
                        struct error *err)
{
    bool known = true;

    *ret_stranded = false;
    if (strncmp(name, FILE_ID_START, strlen(FILE_ID_START)) != 0 || !is_plain(name) ||
        strchr(name, '.'))
        return true;
    if (!files_know(store, name, &known, err))
        return false;
    *ret_stranded = !known;
    return true;
}

static bool is_temporary(const char *name)
{
    static const char end[] = ".tmp"; /* as file.h names what is not whole yet */
    size_t size = strlen(name);

    return size > strlen(end) && strcmp(name + size - strlen(end), end) == 0;
}

bool datasets_recover(const char *state_folder, struct store *store, struct error *err)
{
    char folder[LIMIT_PATH_BYTES], path[LIMIT_PATH_BYTES];
    const struct dirent *entry;
    size_t stranded_count = 0;
    bool ok = true;
    DIR *uploads;

    if (!file_join(folder, sizeof(folder), state_folder, "uploads", err) ||
        !file_open_folder(folder, &uploads, err))
        return false;
    while (ok && (entry = readdir(uploads)) != NULL) {
        bool stranded = false;

        ok = is_stranded(store, entry->d_name, &stranded, err);
        if (!file_join(path, sizeof(path), folder, entry->d_name, NULL))
            continue;
        if (stranded)
            stranded_count += strays_put(state_folder, path, entry->d_name);
        else if (is_temporary(entry->d_name))
            jobfiles_remove(path);
    }
    (void)closedir(uploads); /* only read */
    if (stranded_count > 0)
        log_write(LOG_LEVEL_WARN,
                  "files in uploads that no record names, moved to '%s/strays' for a week: %zu",
                  state_folder, stranded_count);
    return ok;
}

static void remove_bytes(const char *state_folder, const char *file_id)
{
    char path[LIMIT_PATH_BYTES];

    if (dataset_path(path, sizeof(path), state_folder, file_id, NULL))
        jobfiles_remove(path);
}

bool datasets_sweep(const char *state_folder, struct store *store, struct error *err)
{
    char(*ids)[STORE_ID_SIZE] = NULL;
    char id[STORE_ID_SIZE];
    size_t count = 0;
    bool found = true;

    do {
        if (!reservations_sweep(store, SWEEP_COUNT, &ids, &count, err))
            return false;
        for (size_t i = 0; i < count; i++) {
            if (ids[i][0])
                remove_bytes(state_folder, ids[i]);
        }
        free(ids);
    } while (count == SWEEP_COUNT);
    while (found) {
        if (!files_sweep(store, id, &found, err))
            return false;
        if (found)
            remove_bytes(state_folder, id); /* the row first: it is what others see */
    }
    return true;
}
