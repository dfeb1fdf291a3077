#include "daemon/sched/scheduler.h"

#include "daemon/base/buf.h"
#include "daemon/base/clock.h"
#include "daemon/base/json.h"
#include "daemon/base/log.h"
#include "daemon/base/pulse.h"
#include "daemon/sched/bases.h"
#include "daemon/sched/disk.h"
#include "daemon/sched/estimate.h"
#include "daemon/sched/forecast.h"
#include "daemon/sched/inspect.h"
#include "daemon/sched/jobfiles.h"
#include "daemon/sched/keeping.h"
#include "daemon/sched/order.h"
#include "daemon/sched/pauses.h"
#include "daemon/sched/queue.h"
#include "daemon/sched/submission.h"
#include "daemon/sched/sweep.h"
#include "daemon/sched/validator.h"
#include "daemon/sched/worker.h"
#include "store/attempts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STOP_NS 1200000000 /* unless set: the process has two seconds in all */
#define STATUS_MAX ((size_t)16 << 10)
#define STOP_LOOK_NS 2000000 /* between looks */
#define JOB_FILES 6          /* of a job at once: base, data, checkpoint, its folder, its place */
#define GPU_FILES 64         /* of a device's driver */

struct scheduler {
    struct scheduler_options options;
    struct mailbox *mailbox;
    struct queue *queue;
    pthread_t thread;
    bool has_thread;
    struct worker *workers[SLOTS_MAX];
    size_t worker_count;
    struct validator *validator;
};

/* ---- start and stop ------------------------------------------------------------------------------- */

static void *serve(void *context)
{
    struct scheduler *scheduler = context;

    (void)pthread_setname_np(pthread_self(), "scheduler"); /* for people alone */
    mailbox_serve(scheduler->mailbox, scheduler->queue);
    return NULL;
}

static bool start_threads(struct scheduler *scheduler, struct error *err)
{
    int code = pthread_create(&scheduler->thread, NULL, serve, scheduler);

    if (code != 0)
        return error_set(err, ERR_NO_MEMORY, "start the scheduler: %s", strerrordesc_np(code));
    scheduler->has_thread = true;
    for (size_t i = 0; i < scheduler->queue->slots.count; i++) {
        if (!worker_start(scheduler->queue, i, &scheduler->workers[i], err))
            return false;
        scheduler->worker_count++;
    }
    if (!validator_start(&scheduler->options, scheduler->mailbox, &scheduler->validator, err))
        return false;
    mailbox_tell_news(scheduler->mailbox); /* what was there before the start */
    return true;
}

bool scheduler_start(const struct scheduler_options *options, struct scheduler **ret_scheduler,
                     struct error *err)
{
    struct scheduler *scheduler = calloc(1, sizeof(*scheduler));

    if (!scheduler)
        return error_set(err, ERR_NO_MEMORY, "no memory for the scheduler");
    scheduler->options = *options;
    scheduler->mailbox = mailbox_new();
    if (!scheduler->mailbox) {
        error_set(err, ERR_NO_MEMORY, "no memory for the scheduler");
        goto fail;
    }
    if (!queue_open(&scheduler->options, scheduler->mailbox, &scheduler->queue, err) ||
        !start_threads(scheduler, err))
        goto fail;
    *ret_scheduler = scheduler;
    return true;
fail:
    scheduler_stop(scheduler);
    return false; /* NOLINT(clang-analyzer-unix.Malloc): kept where a thread could not be joined */
}

static bool join_before(const struct scheduler *scheduler, pthread_t thread, int64_t deadline_ns)
{
    const atomic_bool *hurry = scheduler->options.hurry;
    const struct timespec pause = {.tv_nsec = STOP_LOOK_NS};

    while (pthread_tryjoin_np(thread, NULL) != 0) {
        if (clock_monotonic_ns() >= deadline_ns || (hurry && atomic_load(hurry)))
            return false;
        (void)nanosleep(&pause, NULL); /* cut short is fine */
    }
    return true;
}

void scheduler_stop(struct scheduler *scheduler)
{
    struct error err = {0};
    int64_t deadline_ns = clock_monotonic_ns();
    bool joined = true;

    if (!scheduler)
        return;
    deadline_ns += scheduler->options.stop_wait_ns ? scheduler->options.stop_wait_ns : STOP_NS;
    if (scheduler->has_thread && !mailbox_call(scheduler->mailbox, queue_stop, NULL, &err))
        log_write(LOG_LEVEL_ERROR, "stop: %s", err.message);
    if (scheduler->mailbox)
        mailbox_stop_news(scheduler->mailbox);
    for (size_t i = 0; i < scheduler->worker_count; i++)
        joined =
            join_before(scheduler, worker_thread(scheduler->workers[i]), deadline_ns) && joined;
    if (scheduler->validator)
        joined =
            join_before(scheduler, validator_thread(scheduler->validator), deadline_ns) && joined;
    if (!joined && !mailbox_call(scheduler->mailbox, queue_abandon, NULL, &err))
        log_write(LOG_LEVEL_ERROR, "stop: %s", err.message);
    if (scheduler->has_thread) {
        mailbox_close(scheduler->mailbox);
        (void)pthread_join(scheduler->thread, NULL); /* ours, and joined once */
    }
    if (!joined) {
        /* A thread deep in a large data set, or any after a second signal: the process ends under
         * it, and what it holds must outlive it. */
        log_write(LOG_LEVEL_WARN, "a worker or the reading of data is not waited for any longer");
        return;
    }
    for (size_t i = 0; i < scheduler->worker_count; i++)
        worker_free(scheduler->workers[i]);
    validator_free(scheduler->validator);
    queue_close(scheduler->queue);
    mailbox_free(scheduler->mailbox);
    free(scheduler);
}

/* ---- requests --------------------------------------------------------------------------------------- */

static bool make(struct scheduler *scheduler, struct store *store, const struct json *request,
                 struct submission *submission, struct error *err)
{
    return submission_find_repeat(store, submission, err) &&
           (submission->repeated_id[0] ||
            (disk_check_home(scheduler->options.disk, err) &&
             disk_check_service(scheduler->options.disk, err) &&
             submission_read(&scheduler->options, store, request, &submission->job, err) &&
             mailbox_call(scheduler->mailbox, submission_keep, submission, err)));
}

/* The first of its jobs stands for it. */
static bool make_sweep(struct scheduler *scheduler, struct store *store, const struct json *request,
                       struct submission *submission, struct error *err)
{
    struct sweep *sweep;
    bool ok;

    if (!submission_find_repeat(store, submission, err))
        return false;
    if (submission->repeated_id[0])
        return true;
    if (!disk_check_home(scheduler->options.disk, err) ||
        !disk_check_service(scheduler->options.disk, err))
        return false;
    sweep = calloc(1, sizeof(*sweep));
    if (!sweep)
        return error_set(err, ERR_NO_MEMORY, "no memory for a sweep");
    sweep->asked = *submission;
    ok = sweep_read(&scheduler->options, store, request, sweep, err) &&
         mailbox_call(scheduler->mailbox, sweep_keep, sweep, err);
    if (ok) {
        memcpy(submission->repeated_id, sweep->asked.repeated_id, sizeof(submission->repeated_id));
        memcpy(submission->job.id, sweep->jobs[0].id, sizeof(submission->job.id));
    }
    sweep_release(sweep);
    free(sweep);
    return ok;
}

bool scheduler_submit(struct scheduler *scheduler, const struct json *request,
                      const struct job_terms *terms, struct job_made *ret_made, struct error *err)
{
    struct submission submission;
    struct store *store = NULL;
    bool ok;

    if (!submission_begin(request, terms, &submission, err))
        return false;
    ok = store_open(scheduler->options.database_path, false, &store, err) &&
         (terms->is_sweep || sweep_is_meant(request) ? make_sweep : make)(scheduler, store, request,
                                                                          &submission, err);
    if (ok) {
        ret_made->repeated = submission.repeated_id[0] != '\0';
        (void)snprintf(ret_made->id, sizeof(ret_made->id), "%s",
                       ret_made->repeated ? submission.repeated_id : submission.job.id);
    }
    store_close(store);
    job_record_release(&submission.job);
    return ok;
}

/* Has the function run for the job of that id. */
static bool ask_for(struct scheduler *scheduler, mailbox_function *function, const char *job_id,
                    struct error *err)
{
    char id[STORE_ID_SIZE];

    (void)snprintf(id, sizeof(id), "%s", job_id);
    if (strcmp(id, job_id) != 0)
        return error_set(err, ERR_NOT_FOUND, "no job '%.64s'", job_id);
    return mailbox_call(scheduler->mailbox, function, id, err);
}

bool scheduler_pause(struct scheduler *scheduler, const char *job_id, struct error *err)
{
    return ask_for(scheduler, pauses_pause, job_id, err);
}

bool scheduler_resume(struct scheduler *scheduler, const char *job_id, struct error *err)
{
    return ask_for(scheduler, pauses_resume, job_id, err);
}

bool scheduler_cancel(struct scheduler *scheduler, const char *job_id, struct error *err)
{
    if (!ask_for(scheduler, queue_cancel, job_id, err))
        return false;
    jobfiles_remove_resume(scheduler->options.state_folder, job_id); /* a worker cleans up again */
    return true;
}

bool scheduler_cancel_sweep(struct scheduler *scheduler, const char *sweep_id, struct error *err)
{
    struct sweep_end end = {0};

    (void)snprintf(end.sweep_id, sizeof(end.sweep_id), "%s", sweep_id); /* cut, it is nobody's */
    if (!mailbox_call(scheduler->mailbox, sweep_cancel, &end, err))
        return false;
    for (size_t i = 0; i < end.count; i++)
        jobfiles_remove_resume(scheduler->options.state_folder, end.job_ids[i]);
    return true;
}

bool scheduler_move(struct scheduler *scheduler, const char *job_id, const struct json *body,
                    struct error *err)
{
    struct order_wish wish = {0};

    (void)snprintf(wish.job_id, sizeof(wish.job_id), "%s", job_id); /* cut, it is nobody's */
    return order_read(body, &wish, err) && mailbox_call(scheduler->mailbox, order_move, &wish, err);
}

bool scheduler_look_ahead(struct scheduler *scheduler, struct store *store,
                          const struct job_record *jobs, size_t count,
                          struct job_outlook *ret_outlooks, struct error *err)
{
    bool ok = forecast_jobs(scheduler->queue, store, jobs, count, ret_outlooks, err);

    for (size_t i = 0; ok && i < count; i++) {
        struct attempt_record attempt = {0};

        ok = job_state_is_final(jobs[i].state) || attempts_get(store, jobs[i].id, &attempt, err);
        ret_outlooks[i].kept_step = attempt.kept_step;
        ret_outlooks[i].kept_unix_s = attempt.kept_unix_s;
        ret_outlooks[i].kept_bytes = attempt.kept_bytes;
    }
    return ok;
}

/* ---- questions about data ---------------------------------------------------------------------------- */

static bool inspect(struct scheduler *scheduler, asks_function *function,
                    const struct inspect_request *request, const atomic_bool *stop,
                    struct json **ret_answer, struct error *err)
{
    struct inspect_ask ask = {.request = request};
    struct error own = {0}; /* the answering thread looks into it */
    bool ok = validator_ask(scheduler->validator, function, &ask, stop, &own);

    if (ok)
        *ret_answer = ask.answer;
    else if (err)
        *err = own;
    return ok;
}

bool scheduler_report(struct scheduler *scheduler, const struct inspect_request *request,
                      const atomic_bool *stop, struct json **ret_answer, struct error *err)
{
    return inspect(scheduler, inspect_report, request, stop, ret_answer, err);
}

bool scheduler_example(struct scheduler *scheduler, const struct inspect_request *request,
                       const atomic_bool *stop, struct json **ret_answer, struct error *err)
{
    return inspect(scheduler, inspect_example, request, stop, ret_answer, err);
}

bool scheduler_estimate(struct scheduler *scheduler, const struct json *request,
                        const atomic_bool *stop, struct json **ret_answer, struct json **ret_lines,
                        struct error *err)
{
    struct error own = {0}; /* the checks look into it */
    struct estimate estimate = {0};
    struct store *store = NULL;
    bool ok;

    ok = store_open(scheduler->options.database_path, false, &store, &own) &&
         submission_read(&scheduler->options, store, request, &estimate.job, &own) &&
         validator_ask(scheduler->validator, estimate_read, &estimate, stop, &own) &&
         mailbox_call(scheduler->mailbox, estimate_place, &estimate, &own);
    if (ok) {
        *ret_answer = estimate_json(&estimate, store, &own);
        ok = *ret_answer != NULL;
    } else if (ret_lines) {
        *ret_lines = estimate.lines;
        estimate.lines = NULL;
    }
    if (!ok && err)
        *err = own;
    store_close(store);
    estimate_release(&estimate);
    return ok;
}

/* ---- watched over --------------------------------------------------------------------------------------- */

void scheduler_set_memory_limit(struct scheduler *scheduler, size_t limit_bytes)
{
    atomic_store(&scheduler->options.memory_limit_bytes, limit_bytes);
    mailbox_tell_news(scheduler->mailbox); /* a job that waits may fit now */
}

void scheduler_write_status(struct scheduler *scheduler, char *ret_text, size_t size)
{
    struct buf text;

    buf_init(&text, STATUS_MAX);
    slots_print_status(&scheduler->queue->slots, &text);
    (void)snprintf(ret_text, size, "%.*s", (int)text.size, text.size > 0 ? text.data : "");
    buf_release(&text);
}

bool scheduler_find_stuck(const struct scheduler *scheduler, int64_t limit_ns, char *ret_who,
                          size_t size)
{
    const struct slots *slots = &scheduler->queue->slots;
    size_t slot = 0;

    if (slots_find_stuck(slots, limit_ns, &slot)) {
        (void)snprintf(ret_who, size, "the job on %s", slots_device(slots, slot)->id);
        return true;
    }
    if (pulse_rest_ns(validator_pulse(scheduler->validator), clock_monotonic_ns()) > limit_ns) {
        (void)snprintf(ret_who, size, "the thread that reads data sets");
        return true;
    }
    return false;
}

/* ---- shown -------------------------------------------------------------------------------------------- */

bool scheduler_list_bases(struct scheduler *scheduler, char ***ret_names, size_t *ret_count,
                          struct error *err)
{
    return bases_list(scheduler->options.models_folder, ret_names, ret_count, err);
}

struct json *scheduler_base_json(struct scheduler *scheduler, const char *name)
{
    return bases_json(scheduler->options.models_folder, name);
}

int64_t scheduler_base_depth(struct scheduler *scheduler, const char *name)
{
    return bases_depth(scheduler->options.models_folder, name);
}

struct json *scheduler_devices_json(struct scheduler *scheduler)
{
    const struct devices *devices = scheduler->options.devices;
    struct json *object = json_new_object(), *missing = json_new_array();

    json_add_string(object, "object", "list");
    json_add(object, "data", slots_json(&scheduler->queue->slots, scheduler->queue->inventory));
    for (size_t i = 0; i < devices->missing_count; i++) {
        struct missing_platform missing_one = devices->missing[i];
        struct json *platform = json_new_object();

        error_hide_paths(missing_one.reason); /* the log has it whole */
        json_add_string(platform, "platform", missing_one.name);
        json_add_string(platform, "reason", missing_one.reason);
        json_add(missing, NULL, platform);
    }
    json_add(object, "missing", missing);
    json_add_bool(object, "gpu_active", slots_gpu_in_service(&scheduler->queue->slots));
    json_add_bool(object, "has_more", false);
    return object;
}

size_t scheduler_job_files(const struct scheduler *scheduler)
{
    const struct slots *slots = &scheduler->queue->slots;
    size_t count = 0;

    for (size_t i = 0; i < slots->device_count; i++)
        count += slots->devices[i].slot_count * JOB_FILES +
                 (devices_is_gpu(slots->devices[i].device->kind) ? GPU_FILES : 0);
    return count;
}

bool scheduler_check_disk(struct scheduler *scheduler, uint64_t more_bytes, struct error *err)
{
    struct disk *disk = scheduler->options.disk;

    return disk_check_home(disk, err) && (more_bytes > 0 ? disk_check_room(disk, more_bytes, 0, err)
                                                         : disk_check_service(disk, err));
}

bool scheduler_check_state(struct scheduler *scheduler, struct error *err)
{
    return disk_check_home(scheduler->options.disk, err);
}

bool scheduler_report_disk(struct scheduler *scheduler, const struct error *why, bool is_urgent)
{
    if (error_is_open_files(why))
        return false; /* of a request, which is answered so: no job lacks anything */
    return (is_urgent ? disk_make_room : disk_report)(scheduler->options.disk, why);
}

void scheduler_look_at_disk(struct scheduler *scheduler)
{
    const bool was = disk_check_service(scheduler->options.disk, NULL);

    disk_look(scheduler->options.disk);
    if (!was && disk_check_service(scheduler->options.disk, NULL))
        mailbox_tell_news(scheduler->mailbox);
}

bool scheduler_sweep(struct scheduler *scheduler, struct store *store, struct error *err)
{
    return keeping_sweep(&scheduler->options, store, err);
}

struct json *scheduler_health_json(struct scheduler *scheduler, bool *ret_healthy)
{
    struct json *object = json_new_object(), *disk;
    char reason[sizeof(((struct error *)0)->message)];
    struct error err = {0};
    size_t in_service = slots_devices_in_service(&scheduler->queue->slots);
    bool answers = mailbox_call(scheduler->mailbox, queue_ping, NULL, &err);

    disk = disk_json(scheduler->options.disk, reason, sizeof(reason));

    *ret_healthy = answers && in_service > 0 && disk_check_home(scheduler->options.disk, NULL);
    json_add_string(object, "status", !*ret_healthy ? "failing" : reason[0] ? "degraded" : "ok");
    json_add_string(object, "reason", reason[0] ? reason : NULL);
    json_add_string(object, "database", answers ? "ok" : err.message);
    json_add_string(object, "durability", "wal, synchronous=full");
    json_add(object, "disk", disk);
    json_add_int(object, "devices_in_service", (int64_t)in_service);
    json_add_int(object, "devices", (int64_t)scheduler->queue->slots.device_count);
    return object;
}
