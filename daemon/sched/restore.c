#include "daemon/sched/restore.h"

#include "daemon/base/buf.h"
#include "daemon/base/file.h"
#include "daemon/base/limits.h"
#include "daemon/sched/datasets.h"
#include "daemon/sched/losses.h"
#include "store/backup.h"
#include "store/figures.h"
#include "store/files.h"
#include "store/models.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE_FILES 256

struct differences {
    size_t missing_files, unknown_files, missing_adapters;
};

/* Uploads that it names and that are not there. */
static bool count_missing(const char *state_folder, struct store *store, size_t *ret_count,
                          struct error *err)
{
    const struct files_filter all = {NULL, NULL};
    char after[STORE_ID_SIZE] = "", path[LIMIT_PATH_BYTES];
    struct store_page page = {.after = after, .limit = PAGE_FILES};
    bool more = true;

    while (more) {
        struct file_record *files = NULL;
        size_t count = 0;

        if (!files_list(store, &all, &page, &files, &count, &more, err))
            return false;
        for (size_t i = 0; i < count; i++)
            *ret_count += dataset_path(path, sizeof(path), state_folder, files[i].id, NULL) &&
                          access(path, F_OK) != 0;
        if (count > 0)
            memcpy(after, files[count - 1].id, sizeof(after));
        free(files);
    }
    return true;
}

/* Uploads that are there and that it does not name. */
static bool count_unknown(const char *state_folder, struct store *store, size_t *ret_count,
                          struct error *err)
{
    char folder[LIMIT_PATH_BYTES];
    const struct dirent *entry;
    bool ok = true, known;
    DIR *uploads;

    if (!file_join(folder, sizeof(folder), state_folder, "uploads", err) ||
        !file_open_folder(folder, &uploads, err))
        return false;
    while (ok && (entry = readdir(uploads)) != NULL) {
        if (entry->d_name[0] == '.' || strchr(entry->d_name, '.'))
            continue; /* a temporary */
        ok = files_know(store, entry->d_name, &known, err);
        *ret_count += ok && !known;
    }
    (void)closedir(uploads); /* only read */
    return ok;
}

static bool count_adapters(const char *state_folder, struct store *store, size_t *ret_count,
                           struct error *err)
{
    struct model_record *models = NULL;
    char path[LIMIT_PATH_BYTES];
    size_t count = 0;

    if (!models_list(store, &models, &count, err))
        return false;
    for (size_t i = 0; i < count; i++)
        *ret_count += artifact_path(path, sizeof(path), state_folder, models[i].artifact, NULL) &&
                      access(path, F_OK) != 0;
    free(models);
    return true;
}

static bool tell_jobs(struct store *store, struct buf *text, struct error *err)
{
    int64_t counts[JOB_STATE_COUNT], all = 0, unfinished = 0;

    if (!figures_count_jobs(store, counts, err))
        return false;
    for (int i = 0; i < JOB_STATE_COUNT; i++) {
        all += counts[i];
        unfinished += job_state_is_final((enum job_state)i) ? 0 : counts[i];
    }
    buf_format(text, "jobs: %" PRId64 ", not finished: %" PRId64 "\n", all, unfinished);
    return true;
}

static void tell_differences(const struct differences *found, struct buf *text)
{
    if (found->missing_files > 0)
        buf_format(text, "files that it names and that are gone: %zu; jobs that need one fail\n",
                   found->missing_files);
    if (found->missing_adapters > 0)
        buf_format(text, "models that it names and whose adapter is gone: %zu\n",
                   found->missing_adapters);
    if (found->unknown_files > 0)
        buf_format(
            text,
            "files in uploads that it does not name: %zu; the next start moves them to strays/, "
            "where they stay for a week\n",
            found->unknown_files);
}

bool restore_database(const char *state_folder, const char *database, const char *backup,
                      struct buf *text, struct error *err)
{
    struct differences found = {0};
    char aside[BACKUP_ASIDE_SIZE];
    struct store *store = NULL;
    struct error own = {0};
    bool ok;

    if (!backup_restore(backup, database, aside, err))
        return false;
    buf_format(text, "'%s' is now '%s'\n", backup, database);
    if (aside[0])
        buf_format(text, "the database that was there is '%s%s'\n", database, aside);
    ok = store_open(database, true, &store, &own) && losses_allow(store, &own) &&
         tell_jobs(store, text, &own) &&
         count_missing(state_folder, store, &found.missing_files, &own) &&
         count_unknown(state_folder, store, &found.unknown_files, &own) &&
         count_adapters(state_folder, store, &found.missing_adapters, &own);
    tell_differences(&found, text);
    if (!ok)
        buf_format(text, "what lies beside it was not compared: %s\n", own.message);
    store_close(store);
    return true;
}
