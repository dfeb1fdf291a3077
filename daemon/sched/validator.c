#include "daemon/sched/validator.h"

#include "daemon/base/json.h"
#include "daemon/base/log.h"
#include "daemon/base/pulse.h"
#include "daemon/base/size.h"
#include "daemon/sched/bases.h"
#include "daemon/sched/datasets.h"
#include "daemon/sched/deaths.h"
#include "daemon/sched/disk.h"
#include "daemon/sched/jobfiles.h"
#include "daemon/sched/queue.h"
#include "daemon/sched/report.h"
#include "store/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_AGAIN_MS 5000 /* without news: after a failure that may have passed */
#define STEP_DISK_BYTES ((size_t)1024)
#define RESUME_KEPT 3 /* as the trainer keeps; one more is being written */

struct validator {
    pthread_t thread;
    const struct scheduler_options *options;
    struct mailbox *mailbox;
    struct asks *asks;
    struct store *store;
    struct pulse pulse;
};

/* What one job's validating makes. */
struct finding {
    struct validated found;
    struct jobfiles files;
    struct json *lines; /* of a refusal, or NULL */
    struct notes notes;
    struct error fault;
};

static struct json *data_json(const struct dataset_report *report)
{
    struct json *object = json_new_object();

    json_add_int(object, "lines", (int64_t)report->line_count);
    json_add_int(object, "examples", (int64_t)report->example_count);
    json_add_int(object, "skipped", (int64_t)report->skipped_count);
    json_add_int(object, "overlong", (int64_t)report->overlong_count);
    json_add_int(object, "without_target", (int64_t)report->targetless_count);
    json_add_int(object, "tokens", (int64_t)report->token_count);
    json_add_int(object, "target_tokens", (int64_t)report->target_count);
    json_add_int(object, "longest_line", (int64_t)report->longest);
    return object;
}

/* Adapter and epoch checkpoints, resume checkpoints with both moments, their temporaries, and what each
 * step leaves in the database and in the result file. */
static size_t disk_bytes(size_t adapter_bytes, const struct hyperparameters *hyper,
                         size_t example_count)
{
    const size_t files = hyper->n_epochs + 1 + 3 * (RESUME_KEPT + 1);
    const size_t steps = (example_count / hyper->batch_size + 1) * hyper->n_epochs;
    size_t bytes, told;

    return size_mul(adapter_bytes, files, &bytes) && size_mul(steps, STEP_DISK_BYTES, &told) &&
                   size_add(bytes, told, &bytes) && bytes < INT64_MAX
               ? bytes
               : INT64_MAX;
}

/* What placement.h goes by. */
static struct json *memory_json(const struct train_memory *memory)
{
    struct json *object = json_new_object();

    json_add_int(object, "least_bytes", (int64_t)memory->least_bytes);
    json_add_int(object, "wanted_bytes", (int64_t)memory->wanted_bytes);
    json_add_int(object, "base_bytes", (int64_t)memory->base_bytes);
    json_add_int(object, "card_wanted_bytes", (int64_t)memory->card_wanted_bytes);
    return object;
}

struct json *validator_plan(const struct scheduler_options *options, const struct job_record *job,
                            const struct hyperparameters *hyper, const struct validated *found)
{
    struct json *object = json_new_object();
    size_t adapter_bytes = 0;

    json_add(object, "memory_needs", memory_json(&found->memory));
    json_add(object, "training_data", data_json(&found->reports[JOBFILES_TRAINING]));
    if (job->validation_file[0])
        json_add(object, "validation_data", data_json(&found->reports[JOBFILES_VALIDATION]));
    if (found->reports[JOBFILES_TEST].file_count > 0)
        json_add(object, "test_data", data_json(&found->reports[JOBFILES_TEST]));
    if (bases_adapter_bytes(options->models_folder, job->base_model, hyper->lora_rank,
                            &adapter_bytes, NULL))
        json_add_int(object, "disk_bytes",
                     (int64_t)disk_bytes(adapter_bytes, hyper,
                                         found->reports[JOBFILES_TRAINING].example_count));
    return object;
}

/* The file's id where its record is gone. */
static void name_file(struct store *store, const char *id, char *ret_name, size_t capacity)
{
    struct file_record file;

    (void)snprintf(ret_name, capacity, "%s",
                   id[0] && files_get(store, id, &file, NULL) ? file.filename : id);
}

/* The names that a job's files of a kind were uploaded under, one at least. */
struct file_names {
    char texts[LIMIT_JOB_FILES][STORE_NAME_SIZE];
    const char *all[LIMIT_JOB_FILES];
};

static void name_files(struct store *store, const struct job_record *job, enum jobfiles_kind kind,
                       struct file_names *names)
{
    struct jobfiles_list list;

    *names = (struct file_names){.all = {""}};
    if (!jobfiles_list_ids(job, kind, &list, NULL))
        return; /* nothing was read of them either */
    for (size_t i = 0; i < list.count; i++) {
        name_file(store, list.ids[i], names->texts[i], sizeof(names->texts[i]));
        names->all[i] = names->texts[i];
    }
}

/* The kind of files a fault is about, by the trainer's word for it; of another fault, training. */
static enum jobfiles_kind kind_of(const struct error *fault, bool *ret_is_file)
{
    static const char *const words[] = {"training_file", "validation_file", "test_file"};

    for (enum jobfiles_kind kind = 0; kind < JOBFILES_KIND_COUNT; kind++) {
        *ret_is_file = strcmp(fault->param, words[kind]) == 0;
        if (*ret_is_file)
            return kind;
    }
    return JOBFILES_TRAINING;
}

struct json *validator_explain(struct store *store, const struct job_record *job,
                               const struct validated *found, struct error *fault)
{
    bool is_file;
    const enum jobfiles_kind kind = kind_of(fault, &is_file);
    struct file_names names;
    struct json *lines;

    name_files(store, job, kind, &names);
    if (is_file && found->reports[kind].file_count <= 1) /* else the message says which of them */
        report_name_file(names.all[0], fault);
    if (is_file)
        (void)snprintf(fault->param, sizeof(fault->param), "%s", jobfiles_param(job, kind));
    lines = report_lines_json(&found->reports[kind], names.all, false);
    if (lines && json_count(lines) > 0)
        return lines;
    json_free(lines);
    return NULL;
}

static bool hand_in(struct validator *validator, const struct job_record *job, bool accepted,
                    struct finding *finding, struct error *err)
{
    enum data_rules rules = finding->files.job.hyper.data_rules;
    struct json *warnings = json_new_array();
    struct json *plan = NULL;
    char *warnings_text = NULL, *plan_text = NULL, *lines_text = NULL;
    struct queue_verdict verdict = {.job_id = job->id, .notes = &finding->notes};
    bool ok;

    if (accepted)
        plan = validator_plan(validator->options, job, &finding->files.job.hyper, &finding->found);
    for (enum jobfiles_kind kind = 0; kind < JOBFILES_KIND_COUNT; kind++) {
        struct file_names names;

        name_files(validator->store, job, kind, &names);
        report_warnings(&finding->found.reports[kind], jobfiles_param(job, kind), names.all, rules,
                        warnings, &finding->notes);
    }
    ok = json_print_text(warnings, &warnings_text, err) &&
         (!plan || json_print_text(plan, &plan_text, err)) &&
         (!finding->lines || json_print_text(finding->lines, &lines_text, err));
    if (ok) {
        verdict.fault = accepted ? NULL : &finding->fault;
        verdict.lines_json = lines_text;
        verdict.plan_json = plan_text;
        verdict.warnings_json = warnings_text;
        ok = mailbox_call(validator->mailbox, queue_judge, &verdict, err);
    }
    free(warnings_text);
    free(plan_text);
    free(lines_text);
    json_free(warnings);
    json_free(plan);
    return ok;
}

static bool read_files(struct validator *validator, const struct job_record *job,
                       struct finding *finding)
{
    struct jobfiles *files = &finding->files;
    struct validated *found = &finding->found;
    struct error *fault = &finding->fault;

    return jobfiles_find(validator->options, validator->store, job, files, fault) &&
           train_validate(&files->job, &found->reports[JOBFILES_TRAINING],
                          &found->reports[JOBFILES_VALIDATION], &found->memory, fault) &&
           (files->test.count == 0 ||
            train_check_files(&files->job, &files->test, &found->reports[JOBFILES_TEST], fault));
}

/* The next start knows by it whose files were read when the daemon died. */
static bool begin(struct validator *validator, const struct job_record *job, struct error *err)
{
    char id[STORE_ID_SIZE];

    (void)snprintf(id, sizeof(id), "%s", job->id);
    if (mailbox_call(validator->mailbox, deaths_begin_reading, id, err))
        return true;
    if (err->code != ERR_CANCELLED)
        log_write_for(LOG_LEVEL_WARN, "job", job->id, "its files are not read yet: %s",
                      err->message);
    return false;
}

/* False: the verdict could not be kept, or the files not be read. */
static bool judge(struct validator *validator, const struct job_record *job)
{
    struct finding *finding = calloc(1, sizeof(*finding));
    struct error err = {0};
    bool accepted, kept = false;

    if (!finding)
        return false;
    notes_init(&finding->notes);
    if (!begin(validator, job, &err)) {
        (void)disk_report(validator->options->disk, &err); /* looked at again in a while */
        free(finding);
        return false;
    }
    accepted = read_files(validator, job, finding);
    if (!accepted && disk_is_to_blame(validator->options->disk, &finding->fault)) { /* later */
        err = finding->fault;
        goto out;
    }
    if (!accepted)
        finding->lines = validator_explain(validator->store, job, &finding->found, &finding->fault);
    kept = hand_in(validator, job, accepted, finding, &err);
    if (!kept && (err.code == ERR_CONFLICT || err.code == ERR_CANCELLED))
        kept = true; /* cancelled meanwhile, or the daemon stops */
out:
    (void)disk_report(validator->options->disk, &err); /* looked at again in a while */
    if (!kept)
        log_write_for(LOG_LEVEL_ERROR, "job", job->id, "keep the verdict: %s", err.message);
    notes_release(&finding->notes);
    json_free(finding->lines);
    free(finding);
    return kept;
}

/* One job; false when there is none to do now. */
static bool work(struct validator *validator)
{
    const struct job_place first = JOB_PLACE_FIRST;
    struct job_record *jobs = NULL;
    struct error err = {0};
    size_t count = 0;
    bool done;

    if (!disk_check_home(validator->options->disk, NULL) ||
        !disk_check_service(validator->options->disk, NULL))
        return false; /* no verdict could be kept */
    if (!jobs_list_state(validator->store, JOB_VALIDATING_FILES, &first, 1, &jobs, &count, &err)) {
        log_write(LOG_LEVEL_ERROR, "look for jobs to validate: %s", err.message);
        return false;
    }
    done = count == 1 && judge(validator, &jobs[0]);
    jobs_free(jobs, count);
    return done;
}

static void *serve(void *context)
{
    struct validator *validator = context;
    const struct asks_parts parts = {validator->options, validator->store, NULL};
    uint64_t seen = 0;

    (void)pthread_setname_np(pthread_self(), "validator"); /* a help in lists of threads */
    pulse_begin(&validator->pulse);
    while (mailbox_wait_news(validator->mailbox, &seen, LOOK_AGAIN_MS)) {
        bool more = true;

        while (more && !mailbox_is_stopping(validator->mailbox)) {
            more = asks_serve(validator->asks, &parts);
            more =
                work(validator) || more; /* in turn, so that neither waits for all of the other */
        }
    }
    asks_close(validator->asks);
    pulse_end();
    return NULL;
}

bool validator_start(const struct scheduler_options *options, struct mailbox *mailbox,
                     struct validator **ret_validator, struct error *err)
{
    struct validator *validator = calloc(1, sizeof(*validator));
    int code;

    if (!validator)
        return error_set(err, ERR_NO_MEMORY, "no memory for the validator");
    validator->options = options;
    validator->mailbox = mailbox;
    validator->asks = asks_new();
    if (!validator->asks) {
        free(validator);
        return error_set(err, ERR_NO_MEMORY, "no memory for the validator");
    }
    if (!store_open(options->database_path, false, &validator->store, err)) {
        validator_free(validator);
        return false;
    }
    mailbox_watch(mailbox, &validator->pulse);
    code = pthread_create(&validator->thread, NULL, serve, validator);
    if (code != 0) {
        error_set(err, ERR_NO_MEMORY, "start the validator: %s", strerrordesc_np(code));
        validator_free(validator);
        return false;
    }
    *ret_validator = validator;
    return true;
}

static void wake(void *context)
{
    mailbox_tell_news(context);
}

bool validator_ask(struct validator *validator, asks_function *function, void *arguments,
                   const atomic_bool *stop, struct error *err)
{
    return asks_put(validator->asks, function, arguments, stop, wake, validator->mailbox, err);
}

const struct pulse *validator_pulse(const struct validator *validator)
{
    return &validator->pulse;
}

pthread_t validator_thread(const struct validator *validator)
{
    return validator->thread;
}

void validator_free(struct validator *validator)
{
    if (!validator)
        return;
    mailbox_watch(validator->mailbox, NULL);
    store_close(validator->store);
    asks_free(validator->asks);
    free(validator);
}
