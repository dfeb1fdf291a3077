#include "daemon/sched/jobfiles.h"

#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/base/log.h"
#include "daemon/sched/bases.h"
#include "daemon/sched/datasets.h"
#include "daemon/sched/keeping.h"
#include "daemon/sched/request.h"
#include "daemon/sched/scheduler.h"
#include "store/files.h"
#include "store/models.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RESUME_PREFIX "resume-" /* as the trainer names them */
#define NAME_CHARACTERS 8       /* of the job's id, at the end of the model's name */

bool jobfiles_find_checkpoints(const char *state_folder, const char *job_id, char *ret_path,
                               size_t capacity, struct error *err)
{
    char all[JOBFILES_PATH_BYTES];

    return file_join(all, sizeof(all), state_folder, "checkpoints", err) &&
           file_join(ret_path, capacity, all, job_id, err);
}

/* ---- data sets ---------------------------------------------------------------------------------- */

static const char *const params[][JOBFILES_KIND_COUNT] = {
    {"training_file", "validation_file", "test_file"},
    {"training_files", "validation_files", "test_files"},
};

const char *jobfiles_param(const struct job_record *job, enum jobfiles_kind kind)
{
    return params[job->inputs_json != NULL][kind];
}

static void add_id(struct jobfiles_list *list, const char *id)
{
    if (id && id[0] && list->count < LIMIT_JOB_FILES) /* the create took no more */
        (void)snprintf(list->ids[list->count++], STORE_ID_SIZE, "%s", id);
}

bool jobfiles_list_ids(const struct job_record *job, enum jobfiles_kind kind,
                       struct jobfiles_list *ret_list, struct error *err)
{
    const struct json *ids;
    struct json *inputs = NULL;

    *ret_list = (struct jobfiles_list){0};
    if (!job->inputs_json) {
        if (kind != JOBFILES_TEST)
            add_id(ret_list, kind == JOBFILES_TRAINING ? job->training_file : job->validation_file);
        return true;
    }
    if (!json_parse(job->inputs_json, strlen(job->inputs_json), &inputs, err))
        return false;
    ids = json_member(inputs, params[true][kind]);
    for (const struct json *id = ids ? json_first(ids) : NULL; id; id = json_next(id))
        add_id(ret_list, json_text(id));
    json_free(inputs);
    return true;
}

/* "" where there is no record any more: the file itself may be there. */
static bool find_digest(struct store *store, const char *file_id, char ret_sha256[SHA256_HEX_SIZE],
                        struct error *err)
{
    struct file_record file;
    struct error why = {0};

    ret_sha256[0] = '\0';
    if (files_get(store, file_id, &file, &why)) {
        (void)snprintf(ret_sha256, SHA256_HEX_SIZE, "%s", file.sha256);
        return true;
    }
    if (why.code == ERR_NOT_FOUND)
        return true;
    if (err)
        *err = why;
    return false;
}

struct finding {
    const char *state_folder;
    struct store *store;
    const struct job_record *job;
    struct jobfiles *files;
};

static bool find_data(const struct finding *at, enum jobfiles_kind kind, size_t *ret_count,
                      struct error *err)
{
    struct jobfiles *files = at->files;
    struct jobfiles_list list;

    if (!jobfiles_list_ids(at->job, kind, &list, err))
        return false;
    for (size_t i = 0; i < list.count; i++) {
        if (!dataset_path(files->data[kind][i], JOBFILES_PATH_BYTES, at->state_folder, list.ids[i],
                          err) ||
            !keeping_check_file(files->data[kind][i], err) ||
            !find_digest(at->store, list.ids[i], files->digests[kind][i], err))
            return false;
        files->paths[kind][i] = files->data[kind][i];
        files->sha256s[kind][i] = files->digests[kind][i];
    }
    *ret_count = list.count;
    return true;
}

static struct train_files list_of(const struct jobfiles *files, enum jobfiles_kind kind,
                                  size_t first, size_t count)
{
    return (struct train_files){files->paths[kind] + first, count - first,
                                files->sha256s[kind] + first};
}

static bool find_all_data(const struct finding *at, struct error *err)
{
    struct jobfiles *files = at->files;
    size_t counts[JOBFILES_KIND_COUNT];

    for (enum jobfiles_kind kind = 0; kind < JOBFILES_KIND_COUNT; kind++) {
        if (!find_data(at, kind, &counts[kind], err))
            return false;
    }
    if (counts[JOBFILES_TRAINING] == 0)
        return error_set_param(err, ERR_CORRUPT, "training_file",
                               "the job's record names no training file");
    files->job.training_path = files->paths[JOBFILES_TRAINING][0];
    files->job.training_sha256 = files->sha256s[JOBFILES_TRAINING][0];
    files->job.more_training = list_of(files, JOBFILES_TRAINING, 1, counts[JOBFILES_TRAINING]);
    files->test = list_of(files, JOBFILES_TEST, 0, counts[JOBFILES_TEST]);
    if (counts[JOBFILES_VALIDATION] == 0)
        return true;
    files->job.validation_path = files->paths[JOBFILES_VALIDATION][0];
    files->job.validation_sha256 = files->sha256s[JOBFILES_VALIDATION][0];
    files->job.more_validation =
        list_of(files, JOBFILES_VALIDATION, 1, counts[JOBFILES_VALIDATION]);
    return true;
}

/* ---- the whole ---------------------------------------------------------------------------------- */

/* The adapter of the model that the job goes on from. */
static bool find_start(const struct finding *at, struct error *err)
{
    struct jobfiles *files = at->files;
    struct model_record parent;

    if (!at->job->parent_model[0])
        return true;
    if (!models_get(at->store, at->job->parent_model, &parent, err) ||
        !artifact_path(files->start, sizeof(files->start), at->state_folder, parent.artifact,
                       err) ||
        !keeping_check_file(files->start, err)) {
        if (err)
            (void)snprintf(err->param, sizeof(err->param), "model");
        return false;
    }
    (void)snprintf(files->start_digest, sizeof(files->start_digest), "%s", parent.sha256);
    files->job.start_adapter_path = files->start;
    files->job.start_adapter_sha256 = files->start_digest;
    return true;
}

bool jobfiles_find(const struct scheduler_options *options, struct store *store,
                   const struct job_record *job, struct jobfiles *ret_files, struct error *err)
{
    const char *state = options->state_folder;
    const struct finding at = {state, store, job, ret_files};
    char artifact[STORE_ID_SIZE + sizeof(".safetensors")];

    (void)snprintf(artifact, sizeof(artifact), "%s.safetensors", job->id);
    *ret_files =
        (struct jobfiles){.job = {.base_folder = ret_files->base,
                                  .base_name = job->base_model,
                                  .checkpoint_folder = ret_files->checkpoints,
                                  .adapter_path = ret_files->adapter,
                                  .device_label = job->device_used,
                                  .memory_limit_bytes = options->memory_limit_bytes,
                                  .checkpoint_interval_ns = options->checkpoint_interval_ns,
                                  .checkpoint_interval_steps = options->checkpoint_steps}};
    if (!request_hyper_parse(job->hyperparameters_json, &ret_files->job.hyper, err) ||
        !bases_find(options->models_folder, job->base_model, ret_files->base,
                    sizeof(ret_files->base), err) ||
        !find_all_data(&at, err) || !find_start(&at, err) ||
        !artifact_path(ret_files->adapter, sizeof(ret_files->adapter), state, artifact, err) ||
        !jobfiles_find_checkpoints(state, job->id, ret_files->checkpoints,
                                   sizeof(ret_files->checkpoints), err))
        return false;
    ret_files->job.hyper.seed = (uint64_t)job->seed;
    return keeping_make_folder(ret_files->checkpoints, err);
}

uint64_t jobfiles_held_bytes(const char *state_folder, const char *job_id)
{
    char folder[JOBFILES_PATH_BYTES];
    const struct dirent *entry;
    struct stat about;
    uint64_t bytes = 0;
    DIR *open_folder;

    if (!jobfiles_find_checkpoints(state_folder, job_id, folder, sizeof(folder), NULL) ||
        !file_open_folder(folder, &open_folder, NULL))
        return 0;
    while ((entry = readdir(open_folder)) != NULL) {
        if (fstatat(dirfd(open_folder), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(about.st_mode))
            bytes += (uint64_t)about.st_size;
    }
    (void)closedir(open_folder); /* only read */
    return bytes;
}

void jobfiles_remove(const char *path)
{
    struct error err = {0};

    if (!file_remove_inside(path, &err))
        log_write(LOG_LEVEL_WARN, "%s", err.message);
}

void jobfiles_remove_resume(const char *state_folder, const char *job_id)
{
    char folder[JOBFILES_PATH_BYTES], path[JOBFILES_PATH_BYTES];
    const struct dirent *entry;
    DIR *open_folder;

    if (!jobfiles_find_checkpoints(state_folder, job_id, folder, sizeof(folder), NULL) ||
        !file_open_folder(folder, &open_folder, NULL))
        return; /* the job never ran, or that is none of its folders */
    while ((entry = readdir(open_folder)) != NULL) {
        if (strncmp(entry->d_name, RESUME_PREFIX, strlen(RESUME_PREFIX)) == 0 &&
            file_join(path, sizeof(path), folder, entry->d_name, NULL))
            jobfiles_remove(path);
    }
    (void)closedir(open_folder); /* only read */
    (void)rmdir(folder);         /* fails where epoch checkpoints stay */
}

void jobfiles_model_name(const struct job_record *job, char *ret_name, size_t capacity)
{
    size_t length = strlen(job->id);
    const char *tail = job->id + (length > NAME_CHARACTERS ? length - NAME_CHARACTERS : 0);

    (void)snprintf(ret_name, capacity, "ft:%s:local:%s:%s", job->base_model, job->suffix, tail);
}
