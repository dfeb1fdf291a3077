#include "tests/support/bench.h"

#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/sched/datasets.h"
#include "store/files.h"
#include "tests/support/scratch.h"

#include <time.h>
#include <unistd.h>

#define LOOK_US 5000
#define PATIENCE_S 240 /* the sanitizers are slow; nothing waits so long when all is well */

/* ---- the bench -------------------------------------------------------------------------------- */

static void hear(void *context)
{
    struct bench *bench = context;

    (void)pthread_mutex_lock(&bench->lock);
    bench->news++;
    (void)pthread_cond_broadcast(&bench->changed);
    (void)pthread_mutex_unlock(&bench->lock);
}

static void copy_file(const char *source, const char *folder, const char *name)
{
    char target[1024];
    size_t size = 0;
    char *bytes = scratch_read(source, &size);

    (void)snprintf(target, sizeof(target), "%s/%s", folder, name);
    scratch_write(target, bytes, size);
    free(bytes);
}

static void make_folder(char *ret_path, size_t capacity, const char *parent, const char *name)
{
    struct error err = {0};

    (void)snprintf(ret_path, capacity, "%s/%s", parent, name);
    if (!file_make_folder(ret_path, &err))
        fail_msg("%s", err.message);
}

struct bench *bench_new(void)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    struct error err = {0};
    char path[768];

    assert_non_null(bench);
    bench->scratch = scratch_new();
    make_folder(bench->state, sizeof(bench->state), bench->scratch, "state");
    make_folder(bench->models, sizeof(bench->models), bench->scratch, "models");
    make_folder(path, sizeof(path), bench->state, "uploads");
    make_folder(path, sizeof(path), bench->state, "artifacts");
    make_folder(path, sizeof(path), bench->state, "checkpoints");
    make_folder(path, sizeof(path), bench->models, "needle-3");
    copy_file(FIXTURES "needle3/base.safetensors", path, "base.safetensors");
    copy_file(FIXTURES "needle3/tokenizer.model", path, "tokenizer.model");
    (void)snprintf(bench->database, sizeof(bench->database), "%s/needled.db", bench->state);
    if (!store_open(bench->database, true, &bench->store, &err) ||
        !devices_detect("cpu", &bench->devices, &err))
        fail_msg("%s", err.message);
    bench->feed = events_feed_new();
    assert_non_null(bench->feed);
    (void)pthread_mutex_init(&bench->lock, NULL);
    (void)pthread_cond_init(&bench->changed, NULL);
    bench->listener.wake = hear;
    bench->listener.context = bench;
    events_feed_add(bench->feed, &bench->listener);
    bench->options = (struct scheduler_options){.state_folder = bench->state,
                                                .models_folder = bench->models,
                                                .database_path = bench->database,
                                                .devices = &bench->devices,
                                                .feed = bench->feed,
                                                /* Left threads would outlive the bench. */
                                                .stop_wait_ns = PATIENCE_S * (int64_t)1000000000};
    bench_start(bench);
    return bench;
}

void bench_start(struct bench *bench)
{
    struct error err = {0};

    if (!scheduler_start(&bench->options, &bench->scheduler, &err))
        fail_msg("%s", err.message);
}

void bench_stop(struct bench *bench)
{
    hold_end(true);
    scheduler_stop(bench->scheduler);
    hold_end(false);
    bench->scheduler = NULL;
}

void bench_free(struct bench *bench)
{
    hold_let_go();
    bench_stop(bench);
    events_feed_remove(bench->feed, &bench->listener);
    events_feed_free(bench->feed);
    store_close(bench->store);
    (void)pthread_cond_destroy(&bench->changed);
    (void)pthread_mutex_destroy(&bench->lock);
    scratch_free(bench->scratch);
    free(bench);
}

/* ---- what a client does ----------------------------------------------------------------------- */

const char *bench_upload(struct bench *bench, const char *text, size_t size)
{
    static struct file_record file;
    struct upload *upload = NULL;
    struct error err = {0};

    if (!upload_open(bench->state, "data.jsonl", "fine-tune", &upload, &err))
        fail_msg("%s", err.message);
    if (!upload_append(upload, text, size, &err)) {
        upload_abort(upload);
        fail_msg("%s", err.message);
    }
    if (!upload_finish(upload, bench->store, &(struct upload_terms){.owner = ""}, &file, NULL,
                       &err))
        fail_msg("%s", err.message);
    return file.id;
}

const char *bench_upload_lines(struct bench *bench, size_t count)
{
    static const char line[] =
        "{\"query\":\"timer %zu min\",\"tools\":[{\"name\":\"set_timer\",\"parameters\":{}}],"
        "\"answers\":[{\"name\":\"set_timer\",\"arguments\":{\"minutes\":%zu}}]}\n";
    size_t size = 0, capacity = count * (sizeof(line) + 40);
    char *text = malloc(capacity);
    const char *id;

    assert_non_null(text);
    for (size_t i = 0; i < count; i++)
        size += (size_t)snprintf(text + size, capacity - size, line, i, i);
    id = bench_upload(bench, text, size);
    free(text);
    return id;
}

bool bench_submit(struct bench *bench, char ret_id[STORE_ID_SIZE], struct error *err,
                  const char *format, ...)
{
    char body[8192];
    struct json *json = NULL;
    struct job_made made;
    va_list arguments;
    bool ok;

    va_start(arguments, format);
    (void)vsnprintf(body, sizeof(body), format, arguments);
    va_end(arguments);
    for (char *at = body; *at; at++) {
        if (*at == '\'')
            *at = '"';
    }
    if (!json_parse(body, strlen(body), &json, err))
        fail_msg("%s: %s", body, err->message);
    ok = scheduler_submit(bench->scheduler, json, &(struct job_terms){.owner = ""}, &made, err);
    if (ok)
        (void)snprintf(ret_id, STORE_ID_SIZE, "%s", made.id);
    json_free(json);
    return ok;
}

void bench_submit_small(struct bench *bench, const char *file, const char *more,
                        char ret_id[STORE_ID_SIZE])
{
    struct error err = {0};

    if (!bench_submit(bench, ret_id, &err,
                      "{'model':'needle-3','training_file':'%s','suffix':'small',"
                      "'hyperparameters':{'lora_rank':2%s%s}}",
                      file, more[0] ? "," : "", more))
        fail_msg("%s", err.message);
}

/* ---- waiting ---------------------------------------------------------------------------------- */

static uint64_t news_of(struct bench *bench)
{
    uint64_t news;

    (void)pthread_mutex_lock(&bench->lock);
    news = bench->news;
    (void)pthread_mutex_unlock(&bench->lock);
    return news;
}

static void wait_for_news(struct bench *bench, uint64_t seen, const char *job_id)
{
    struct timespec until;
    int code = 0;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    (void)pthread_mutex_lock(&bench->lock);
    while (bench->news == seen && code == 0)
        code = pthread_cond_timedwait(&bench->changed, &bench->lock, &until);
    (void)pthread_mutex_unlock(&bench->lock);
    if (code != 0)
        fail_msg("no news of job %s for %d s", job_id, PATIENCE_S);
}

void bench_get(struct bench *bench, const char *job_id, struct job_record *ret_job)
{
    struct error err = {0};

    if (!jobs_get(bench->store, job_id, ret_job, &err))
        fail_msg("%s", err.message);
}

enum job_state bench_wait(struct bench *bench, const char *job_id, enum job_state wanted)
{
    for (;;) {
        uint64_t seen = news_of(bench);
        struct job_record job;

        bench_get(bench, job_id, &job);
        job_record_release(&job);
        if (job.state == wanted || job_state_is_final(job.state)) {
            if (wanted != JOB_STATE_COUNT && job.state != wanted)
                fail_msg("job %s is %s, not %s: %s", job_id, job_state_name(job.state),
                         job_state_name(wanted), job.error_message);
            return job.state;
        }
        wait_for_news(bench, seen, job_id);
    }
}

void bench_wait_reason(struct bench *bench, const char *job_id, const char *words)
{
    for (int64_t waited_us = 0;; waited_us += LOOK_US) {
        struct job_record job;
        bool found;

        bench_get(bench, job_id, &job);
        found = strstr(job.state_reason, words) != NULL;
        if (!found && waited_us > PATIENCE_S * INT64_C(1000000))
            fail_msg("job %s is %s: '%s', not '%s'", job_id, job_state_name(job.state),
                     job.state_reason, words);
        job_record_release(&job);
        if (found)
            return;
        (void)usleep(LOOK_US); /* a reason need not be news */
    }
}

int64_t bench_wait_event(struct bench *bench, const char *job_id, const char *type,
                         int64_t after_number)
{
    for (;;) {
        uint64_t seen = news_of(bench);
        struct event_record *events = NULL;
        struct error err = {0};
        size_t count = 0;
        int64_t found = 0;

        if (!events_since(bench->store, job_id, after_number, 1000000, &events, &count, &err))
            fail_msg("%s", err.message);
        for (size_t i = 0; i < count && found == 0; i++) {
            if (strcmp(events[i].type, type) == 0)
                found = events[i].number;
            else if (strcmp(events[i].type, "done") == 0)
                fail_msg("job %s ended without an event '%s'", job_id, type);
        }
        events_free(events, count);
        if (found > 0)
            return found;
        wait_for_news(bench, seen, job_id);
    }
}

struct event_record *bench_events(struct bench *bench, const char *job_id, size_t *ret_count)
{
    struct event_record *events = NULL;
    struct error err = {0};

    if (!events_since(bench->store, job_id, 0, 1000000, &events, ret_count, &err))
        fail_msg("%s", err.message);
    return events;
}

size_t bench_count_events(struct bench *bench, const char *job_id, const char *type,
                          const char *word)
{
    size_t count = 0, found = 0;
    struct event_record *events = bench_events(bench, job_id, &count);

    for (size_t i = 0; i < count; i++)
        found += (!type || strcmp(events[i].type, type) == 0) && strstr(events[i].message, word);
    events_free(events, count);
    return found;
}
