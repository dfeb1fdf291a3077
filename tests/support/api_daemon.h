/*
 * api_daemon: the HTTP side on a free port over a state folder of its own, for tests of the api room.
 *
 * Purpose    Real store, real scheduler, real feed, real sockets. Bases named `needle` and `needle-3`
 *            (the small one of the fixtures) stand in the models folder.
 * Ownership  api_daemon_open / api_daemon_close.
 * Threads    The test's; the server has its own.
 * Failure    Fails the test.
 */
#ifndef NEEDLED_API_DAEMON_H
#define NEEDLED_API_DAEMON_H

#include "tests/support/scratch.h"
#include "tests/support/test.h"
#include "tests/support/web.h"

#include "api/server.h"
#include "daemon/base/log.h"
#include "daemon/sched/devices.h"
#include "daemon/sched/events.h"
#include "daemon/sched/scheduler.h"
#include "store/files.h"
#include "store/jobs.h"
#include "store/store.h"

#include <dirent.h>
#include <math.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

struct api_daemon {
    /* Set before the opening: the scheduler works on a database of its own and has no device, so
     * that jobs written into the served one are the test's alone. */
    bool own_jobs;
    char *folder;
    char database[512], scheduled_database[512], models[512], socket[512];
    struct devices devices;
    struct scheduler *scheduler;
    struct events_feed *feed;
    struct server *server;
    struct store *store; /* the test's own */
    int port;
};

static inline void api_daemon_must(bool ok, const struct error *err)
{
    if (!ok)
        fail_msg("%s", err->message);
}

static inline void api_daemon_copy(const char *source, const char *target)
{
    size_t size = 0;
    char *bytes = scratch_read(source, &size);

    scratch_write(target, bytes, size);
    free(bytes);
}

/* Changes the served database past the daemon, which may be writing too. */
static inline void api_daemon_change(const struct api_daemon *daemon, const char *sql)
{
    sqlite3 *db = NULL;

    assert_int_equal(sqlite3_open(daemon->database, &db), SQLITE_OK);
    assert_int_equal(sqlite3_busy_timeout(db, 10000), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* Members of *wish that are not set here are the server's options: api_key, limits, hosts. */
static inline void api_daemon_open(struct api_daemon *daemon, struct server_options wish)
{
    static const char *const bases[] = {"needle", "needle-3"};
    static const char *const folders[] = {"uploads", "checkpoints", "artifacts"};
    struct error err = {0};
    char path[600];

    log_set_level(LOG_LEVEL_ERROR);
    assert_null(daemon->folder);
    daemon->folder = scratch_new();
    snprintf(daemon->database, sizeof(daemon->database), "%s/needled.db", daemon->folder);
    snprintf(daemon->models, sizeof(daemon->models), "%s/models", daemon->folder);
    snprintf(daemon->socket, sizeof(daemon->socket), "%s/needled.sock", daemon->folder);
    assert_int_equal(mkdir(daemon->models, 0700), 0);
    for (size_t i = 0; i < COUNT_OF(bases); i++) {
        snprintf(path, sizeof(path), "%s/%s", daemon->models, bases[i]);
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(path, sizeof(path), "%s/%s/base.safetensors", daemon->models, bases[i]);
        api_daemon_copy(FIXTURES "needle3/mini/base.safetensors", path);
        snprintf(path, sizeof(path), "%s/%s/tokenizer.model", daemon->models, bases[i]);
        api_daemon_copy(FIXTURES "needle3/mini/tokenizer.model", path);
    }

    for (size_t i = 0; i < COUNT_OF(folders); i++) {
        snprintf(path, sizeof(path), "%s/%s", daemon->folder, folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    api_daemon_must(store_open(daemon->database, true, &daemon->store, &err), &err);
    api_daemon_must(devices_detect("cpu", &daemon->devices, &err), &err);
    snprintf(daemon->scheduled_database, sizeof(daemon->scheduled_database), "%s/%s",
             daemon->folder, daemon->own_jobs ? "other.db" : "needled.db");
    if (daemon->own_jobs) {
        struct store *other = NULL;

        daemon->devices.count = 0;
        api_daemon_must(store_open(daemon->scheduled_database, true, &other, &err), &err);
        store_close(other);
    }
    daemon->feed = events_feed_new();
    assert_non_null(daemon->feed);
    api_daemon_must(
        scheduler_start(&(struct scheduler_options){.state_folder = daemon->folder,
                                                    .models_folder = daemon->models,
                                                    .database_path = daemon->scheduled_database,
                                                    .devices = &daemon->devices,
                                                    .feed = daemon->feed,
                                                    /* left threads would outlive the test */
                                                    .stop_wait_ns = INT64_C(120000000000)},
                        &daemon->scheduler, &err),
        &err);
    wish.listen = wish.listen ? wish.listen : "127.0.0.1:0";
    wish.socket_path = daemon->socket;
    wish.state_folder = daemon->folder;
    wish.database_path = daemon->database;
    wish.scheduler = daemon->scheduler;
    wish.feed = daemon->feed;
    api_daemon_must(server_start(&wish, &daemon->server, &err), &err);
    daemon->port = server_port(daemon->server);
}

static inline void api_daemon_close(struct api_daemon *daemon)
{
    server_stop(daemon->server);
    scheduler_stop(daemon->scheduler);
    events_feed_free(daemon->feed);
    store_close(daemon->store);
    scratch_free(daemon->folder);
    *daemon = (struct api_daemon){0};
}

/* A job in the store alone: its events are the test's to write (own_jobs). */
static inline void api_daemon_add_job(struct api_daemon *daemon, const char *id)
{
    struct job_record job = {.created_unix_s = 1700000000, .last_train_loss = (double)NAN};
    struct event_draft event = {EVENT_INFO, "state", "job created", NULL, 0};
    struct file_record file = {.id = "file-of-none", .purpose = "fine-tune-results"};
    struct error err = {0};

    assert_true(daemon->own_jobs);
    if (!files_get(daemon->store, file.id, &file, &err))
        api_daemon_must(files_insert(daemon->store, &file, NULL, &err), &err);
    snprintf(job.id, sizeof(job.id), "%s", id);
    snprintf(job.base_model, sizeof(job.base_model), "needle");
    snprintf(job.training_file, sizeof(job.training_file), "%s", file.id);
    snprintf(job.device_wanted, sizeof(job.device_wanted), "auto");
    snprintf(job.numerics, sizeof(job.numerics), "w4a8");
    job.hyperparameters_json = strdup("{\"n_epochs\":3}");
    api_daemon_must(jobs_insert(daemon->store, &job, &event, &err), &err);
    free(job.hyperparameters_json);
}

/* Appends count metrics events and tells the feed. */
static inline void api_daemon_add_events(struct api_daemon *daemon, const char *job_id, int count)
{
    struct error err = {0};

    for (int i = 0; i < count; i++) {
        struct event_draft event = {EVENT_INFO, "metrics", "step", "{\"step\":1}", 0};

        api_daemon_must(events_append(daemon->store, job_id, &event, 1, -1, 0, 0, &err), &err);
    }
    events_feed_publish(daemon->feed, job_id);
}

/* The job ends; `done` is its last event. */
static inline void api_daemon_end_job(struct api_daemon *daemon, const char *job_id)
{
    struct job_change change = JOB_CHANGE_NONE;
    struct event_draft event = {EVENT_INFO, "done", "the job has ended", NULL, 0};
    struct error err = {0};

    api_daemon_must(jobs_move(daemon->store, job_id, JOB_VALIDATING_FILES, JOB_CANCELLED, &change,
                              &event, 1, &err),
                    &err);
    events_feed_publish(daemon->feed, job_id);
}

/* Entries of <state folder>/uploads, whatever their names. */
static inline int api_daemon_count_uploads(const struct api_daemon *daemon)
{
    char path[600];
    struct dirent *entry;
    DIR *folder;
    int count = 0;

    snprintf(path, sizeof(path), "%s/uploads", daemon->folder);
    folder = opendir(path);
    if (!folder)
        return 0;
    while ((entry = readdir(folder)))
        count += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    closedir(folder);
    return count;
}

/* ---- the daemon that each test of a file has for itself ---- */

__attribute__((unused)) static struct api_daemon d;

/* Its jobs are the test's: no scheduler touches them. */
__attribute__((unused)) static int api_daemon_set_up(void **state)
{
    (void)state;
    d.own_jobs = true;
    api_daemon_open(&d, (struct server_options){0});
    return 0;
}

/* Jobs run. */
__attribute__((unused)) static int api_daemon_set_up_whole(void **state)
{
    (void)state;
    api_daemon_open(&d, (struct server_options){0});
    return 0;
}

__attribute__((unused)) static int api_daemon_tear_down(void **state)
{
    (void)state;
    api_daemon_close(&d);
    return 0;
}

#endif
