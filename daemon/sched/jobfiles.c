#include "daemon/sched/jobfiles.h"

#include "daemon/base/file.h"
#include "daemon/base/log.h"
#include "daemon/sched/bases.h"
#include "daemon/sched/datasets.h"
#include "daemon/sched/request.h"
#include "daemon/sched/scheduler.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RESUME_PREFIX "resume-" /* as the trainer names them */
#define NAME_CHARACTERS 8       /* of the job's id, at the end of the model's name */

static bool find_checkpoints(const char *state_folder, const char *job_id, char *ret_path,
                             size_t capacity, struct error *err)
{
    char all[JOBFILES_PATH_BYTES];

    return file_join(all, sizeof(all), state_folder, "checkpoints", err) &&
           file_join(ret_path, capacity, all, job_id, err);
}

bool jobfiles_find(const struct scheduler_options *options, const struct job_record *job,
                   struct jobfiles *ret_files, struct error *err)
{
    const char *state = options->state_folder;
    char artifact[STORE_ID_SIZE + sizeof(".safetensors")];

    (void)snprintf(artifact, sizeof(artifact), "%s.safetensors", job->id);
    *ret_files = (struct jobfiles){
        .job = {.base_folder = ret_files->base,
                .base_name = job->base_model,
                .training_path = ret_files->training,
                .validation_path = job->validation_file[0] ? ret_files->validation : NULL,
                .checkpoint_folder = ret_files->checkpoints,
                .adapter_path = ret_files->adapter,
                .device_label = job->device_used,
                .memory_limit_bytes = options->memory_limit_bytes}};
    if (!request_hyper_parse(job->hyperparameters_json, &ret_files->job.hyper, err) ||
        !bases_find(options->models_folder, job->base_model, ret_files->base,
                    sizeof(ret_files->base), err) ||
        !dataset_path(ret_files->training, sizeof(ret_files->training), state, job->training_file,
                      err) ||
        (job->validation_file[0] &&
         !dataset_path(ret_files->validation, sizeof(ret_files->validation), state,
                       job->validation_file, err)) ||
        !artifact_path(ret_files->adapter, sizeof(ret_files->adapter), state, artifact, err) ||
        !find_checkpoints(state, job->id, ret_files->checkpoints, sizeof(ret_files->checkpoints),
                          err))
        return false;
    ret_files->job.hyper.seed = (uint64_t)job->seed;
    return file_make_folder(ret_files->checkpoints, err);
}

void jobfiles_remove(const char *path)
{
    struct error err = {0};

    if (!file_remove(path, &err))
        log_write(LOG_LEVEL_WARN, "%s", err.message);
}

void jobfiles_remove_resume(const char *state_folder, const char *job_id)
{
    char folder[JOBFILES_PATH_BYTES], path[JOBFILES_PATH_BYTES];
    const struct dirent *entry;
    DIR *open_folder;

    if (!find_checkpoints(state_folder, job_id, folder, sizeof(folder), NULL))
        return;
    open_folder = opendir(folder);
    if (!open_folder)
        return; /* the job never ran */
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
