#include "daemon/sched/keeping.h"

#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "daemon/base/log.h"
#include "daemon/sched/datasets.h"
#include "daemon/sched/events.h"
#include "daemon/sched/jobfiles.h"
#include "daemon/sched/scheduler.h"
#include "daemon/sched/strays.h"
#include "store/files.h"
#include "store/models.h"
#include "store/retention.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SWEEP_COUNT 64 /* records at one turn */
#define TOLD_MAX 20    /* of a kind, in the log; the rest is counted */
#define PAGE_FILES ((size_t)1000)

/* ---- too old, too many -------------------------------------------------------------------------------- */

/* An ended job has said its last word: then the log alone tells it. */
static void tell_job(const struct scheduler_options *options, struct store *store,
                     const struct retention_victim *victim)
{
    char text[sizeof(victim->reason) + 96];
    struct event_draft event = {
        .level = EVENT_INFO, .type = "message", .message = text, .created_unix_s = clock_unix_s()};

    (void)snprintf(text, sizeof(text), "The checkpoint of step %" PRId64 " was removed: %s",
                   victim->step, victim->reason);
    if (events_append(store, victim->job_id, &event, 1, -1, 0, 0, NULL))
        events_feed_publish(options->feed, victim->job_id);
}

static bool remove_victim(const struct scheduler_options *options, struct store *store,
                          const struct retention_victim *victim, struct error *err)
{
    char path[LIMIT_PATH_BYTES];
    bool used = false;

    log_write(LOG_LEVEL_INFO, "removed %s '%s': %s", victim->is_model ? "model" : "file",
              victim->id, victim->reason);
    if (!victim->is_model) {
        if (dataset_path(path, sizeof(path), options->state_folder, victim->id, NULL))
            jobfiles_remove(path);
        return true;
    }
    if (victim->step > 0)
        tell_job(options, store, victim);
    if (!models_has_artifact(store, victim->artifact, &used, err))
        return false;
    if (!used && artifact_path(path, sizeof(path), options->state_folder, victim->artifact, NULL))
        jobfiles_remove(path);
    return true;
}

bool keeping_sweep(const struct scheduler_options *options, struct store *store, struct error *err)
{
    struct retention_victim victim;
    bool found = true;

    strays_sweep(options->state_folder, clock_unix_s());
    for (size_t i = 0; i < SWEEP_COUNT && found; i++) {
        if (!retention_take(store, &options->retention, clock_unix_s(), &victim, &found, err) ||
            (found && !remove_victim(options, store, &victim, err)))
            return false;
    }
    return true;
}

/* ---- what may be read, and written into ------------------------------------------------------------------ */

static bool check_owner(const char *path, const struct stat *about, struct error *err)
{
    if (about->st_uid == geteuid())
        return true;
    return error_set(err, ERR_CORRUPT,
                     "'%s' belongs to user %u, not to user %u, who runs this: it is left alone",
                     path, (unsigned)about->st_uid, (unsigned)geteuid());
}

bool keeping_check_file(const char *path, struct error *err)
{
    struct stat about;

    if (lstat(path, &about) != 0)
        return errno == ENOENT ||
               error_set(err, ERR_IO, "look at '%s': %s", path, strerrordesc_np(errno));
    if (S_ISLNK(about.st_mode))
        return error_set(err, ERR_CORRUPT, "'%s' is a symbolic link: it is not followed", path);
    if (!S_ISREG(about.st_mode))
        return error_set(err, ERR_CORRUPT, "'%s' is not a regular file", path);
    return check_owner(path, &about, err);
}

bool keeping_check_folder(const char *path, struct error *err)
{
    struct stat about;

    if (lstat(path, &about) != 0)
        return error_set(err, ERR_IO, "look at '%s': %s", path, strerrordesc_np(errno));
    if (S_ISLNK(about.st_mode))
        return error_set(err, ERR_CORRUPT,
                         "'%s' is a symbolic link, which is not followed: mount the folder there, "
                         "or set state_dir",
                         path);
    if (!S_ISDIR(about.st_mode))
        return error_set(err, ERR_CORRUPT, "'%s' is no folder, which one of the state must be",
                         path);
    return check_owner(path, &about, err);
}

bool keeping_make_folder(const char *path, struct error *err)
{
    struct stat about;

    if (lstat(path, &about) != 0 && !file_make_folder(path, err))
        return false;
    return keeping_check_folder(path, err);
}

bool keeping_make_folders(const char *state_folder, struct error *err)
{
    static const struct {
        const char *name;
        bool later; /* made when there is something to put into it */
    } folders[] = {
        {"uploads", false}, {"checkpoints", false}, {"artifacts", false}, {STRAYS_FOLDER, true}};
    char path[LIMIT_PATH_BYTES];
    struct stat about;

    for (size_t i = 0; i < COUNT_OF(folders); i++) {
        if (!file_join(path, sizeof(path), state_folder, folders[i].name, err))
            return false;
        if (folders[i].later && lstat(path, &about) != 0 && errno == ENOENT)
            continue;
        if (!keeping_make_folder(path, err))
            return false;
    }
    return true;
}

/* ---- at the start ------------------------------------------------------------------------------------------ */

struct findings { /* in one folder */
    const char *state_folder;
    struct store *store;
    size_t removed_count, stray_count, odd_count, missing_count;
};

static void tell_odd(struct findings *findings, const char *path, const char *what)
{
    if (findings->odd_count++ < TOLD_MAX)
        log_write(LOG_LEVEL_WARN, "'%s' %s: it is left alone", path, what);
}

static bool ends_with(const char *name, const char *end)
{
    const size_t size = strlen(name), end_size = strlen(end);

    return size > end_size && strcmp(name + size - end_size, end) == 0;
}

/* Whether the entry is one of ours to judge: a plain file of this user. */
static bool is_plain_file(struct findings *findings, const char *path)
{
    struct error err = {0};
    struct stat about;

    if (lstat(path, &about) != 0)
        return false; /* gone meanwhile */
    if (keeping_check_file(path, &err))
        return true;
    if (S_ISLNK(about.st_mode))
        tell_odd(findings, path, "is a symbolic link");
    else
        tell_odd(findings, path, S_ISREG(about.st_mode) ? "is another user's" : "is no file");
    return false;
}

static void put_away(struct findings *findings, const char *path, const char *artifact)
{
    char name[STORE_NAME_SIZE * 3];

    (void)snprintf(name, sizeof(name), "%s%s", strchr(artifact, '/') ? "" : "artifacts/", artifact);
    findings->stray_count += strays_put(findings->state_folder, path, name);
}

/* One entry of artifacts/ or of a job's folder in checkpoints/; artifact: as a model's record names it. */
static bool judge_file(struct findings *findings, const char *path, const char *name,
                       const char *artifact, bool may_resume, struct error *err)
{
    const bool is_resume = strncmp(name, "resume-", strlen("resume-")) == 0;
    bool used = false;

    if (!is_plain_file(findings, path))
        return true;
    if (ends_with(name, ".tmp")) {
        jobfiles_remove(path);
        findings->removed_count++;
        return true;
    }
    if (is_resume) {
        if (!may_resume)
            put_away(findings, path, artifact);
        return true;
    }
    if (!ends_with(name, ".safetensors")) {
        tell_odd(findings, path, "is no file of ours");
        return true;
    }
    if (!models_has_artifact(findings->store, artifact, &used, err))
        return false;
    if (!used)
        put_away(findings, path, artifact);
    return true;
}

/* prefix: of what a model's record calls the files. */
static bool judge_folder(struct findings *findings, const char *folder, const char *prefix,
                         bool may_resume, struct error *err)
{
    char path[LIMIT_PATH_BYTES], artifact[STORE_NAME_SIZE * 2];
    const struct dirent *entry;
    DIR *open_folder;
    bool ok = true;

    if (!file_open_folder(folder, &open_folder, err))
        return false;
    while (ok && (entry = readdir(open_folder)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            !file_join(path, sizeof(path), folder, entry->d_name, NULL))
            continue;
        (void)snprintf(artifact, sizeof(artifact), "%s%s", prefix, entry->d_name);
        ok = judge_file(findings, path, entry->d_name, artifact, may_resume, err);
    }
    (void)closedir(open_folder); /* only read */
    return ok;
}

/* The folder of one job: what it goes on from stays as long as it has not ended. */
static bool judge_job(struct findings *findings, const char *folder, const char *job_id,
                      struct error *err)
{
    char prefix[STORE_NAME_SIZE + 16];
    struct job_record job = {0};
    struct error why = {0};
    struct stat about;
    bool unfinished = false;

    if (lstat(folder, &about) != 0 || !S_ISDIR(about.st_mode)) {
        tell_odd(findings, folder, "is no job's folder");
        return true;
    }
    if (jobs_get(findings->store, job_id, &job, &why)) {
        unfinished = !job_state_is_final(job.state);
        job_record_release(&job);
    } else if (why.code != ERR_NOT_FOUND) {
        *err = why;
        return false;
    } else if (strncmp(job_id, "ftjob-", strlen("ftjob-")) != 0) {
        tell_odd(findings, folder, "is no job's folder");
        return true;
    }
    (void)snprintf(prefix, sizeof(prefix), "checkpoints/%s/", job_id);
    if (!judge_folder(findings, folder, prefix, unfinished, err))
        return false;
    if (!unfinished)
        (void)rmdir(folder); /* fails where epoch checkpoints stay */
    return true;
}

static bool judge_jobs(struct findings *findings, struct error *err)
{
    char all[LIMIT_PATH_BYTES], folder[LIMIT_PATH_BYTES];
    const struct dirent *entry;
    DIR *open_folder;
    bool ok = true;

    if (!file_join(all, sizeof(all), findings->state_folder, "checkpoints", err) ||
        !file_open_folder(all, &open_folder, err))
        return false;
    while (ok && (entry = readdir(open_folder)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            file_join(folder, sizeof(folder), all, entry->d_name, NULL))
            ok = judge_job(findings, folder, entry->d_name, err);
    }
    (void)closedir(open_folder); /* only read */
    return ok;
}

static void look_for(struct findings *findings, const char *what, const char *id, const char *path)
{
    struct error err = {0};

    if (access(path, F_OK) == 0 && keeping_check_file(path, &err))
        return;
    if (findings->missing_count++ < TOLD_MAX)
        log_write(LOG_LEVEL_WARN, "%s '%s' cannot be read: %s", what, id,
                  err.message[0] ? err.message : "its file is gone");
}

static bool look_for_files(struct findings *findings, struct error *err)
{
    const struct files_filter all = {NULL, NULL};
    struct store_page page = {.after = "", .limit = PAGE_FILES};
    char last[STORE_ID_SIZE] = "", path[LIMIT_PATH_BYTES];
    bool has_more = true;

    while (has_more) {
        struct file_record *files = NULL;
        size_t count = 0;

        page.after = last;
        if (!files_list(findings->store, &all, &page, &files, &count, &has_more, err))
            return false;
        for (size_t i = 0; i < count; i++) {
            if (dataset_path(path, sizeof(path), findings->state_folder, files[i].id, NULL))
                look_for(findings, "file", files[i].id, path);
        }
        if (count > 0)
            memcpy(last, files[count - 1].id, sizeof(last));
        free(files);
    }
    return true;
}

static bool look_for_models(struct findings *findings, struct error *err)
{
    struct model_record *models = NULL;
    char path[LIMIT_PATH_BYTES];
    size_t count = 0;

    if (!models_list(findings->store, &models, &count, err))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (artifact_path(path, sizeof(path), findings->state_folder, models[i].artifact, NULL))
            look_for(findings, "model", models[i].id, path);
    }
    free(models);
    return true;
}

bool keeping_recover(const char *state_folder, struct store *store, struct error *err)
{
    struct findings findings = {.state_folder = state_folder, .store = store};
    char artifacts[LIMIT_PATH_BYTES];

    if (!datasets_recover(state_folder, store, err) ||
        !file_join(artifacts, sizeof(artifacts), state_folder, "artifacts", err) ||
        !judge_folder(&findings, artifacts, "", false, err) || !judge_jobs(&findings, err) ||
        !look_for_files(&findings, err) || !look_for_models(&findings, err))
        return false;
    if (findings.removed_count > 0)
        log_write(LOG_LEVEL_INFO, "files of jobs that were not whole, removed: %zu",
                  findings.removed_count);
    if (findings.stray_count > 0)
        log_write(LOG_LEVEL_WARN,
                  "files of jobs that no record names, moved to '%s/strays' for a week: %zu",
                  state_folder, findings.stray_count);
    strays_sweep(state_folder, clock_unix_s());
    if (findings.odd_count > TOLD_MAX || findings.missing_count > TOLD_MAX)
        log_write(LOG_LEVEL_WARN, "in all, left alone: %zu; records without a file: %zu",
                  findings.odd_count, findings.missing_count);
    return true;
}
