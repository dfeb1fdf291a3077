/*
 * main: wiring. Opens each part, starts it, waits until it is to end, stops in reverse.
 */
#include "api/server.h"
#include "daemon/base/buf.h"
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/base/log.h"
#include "daemon/base/notify.h"
#include "daemon/base/process.h"
#include "daemon/check.h"
#include "daemon/config.h"
#include "daemon/sched/datasets.h"
#include "daemon/sched/devicecheck.h"
#include "daemon/sched/devices.h"
#include "daemon/sched/disk.h"
#include "daemon/sched/events.h"
#include "daemon/sched/keeping.h"
#include "daemon/sched/losses.h"
#include "daemon/sched/restore.h"
#include "daemon/sched/scheduler.h"
#include "daemon/service.h"
#include "store/store.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define EXIT_USAGE 2  /* a bad setting: restarting does not help */
#define EXIT_ABSENT 3 /* a device that the settings demand is not there: it may come */
#define EXIT_STATE 4  /* a damaged or foreign database or folder: nothing but a person helps */
#define EXIT_MOVED 5  /* another state lies where ours was: a new start takes it up */
#define STOP_WAIT_NS (20 * INT64_C(1000000000)) /* for workers, when a manager grants the time */

#define DAY_S 86400

struct daemon_parts {
    int argument_count;
    char **arguments;
    struct config config;
    struct notify_socket passed[NOTIFY_SOCKETS_MAX];
    struct server_socket sockets[NOTIFY_SOCKETS_MAX]; /* the same, for the server */
    size_t socket_count;
    atomic_bool hurry; /* a stop is to be quick */
    struct devices devices;
    char database_path[LIMIT_PATH_BYTES];
    int lock; /* held while we own the state folder; -1: not ours */
    struct disk *disk;
    struct store *store;
    struct events_feed *feed;
    struct scheduler *scheduler;
    struct server *server;
};

static bool make_folders(const struct config *config, struct error *err)
{
    return file_make_folder(config->state_dir, err) && file_make_folder(config->models_dir, err) &&
           keeping_make_folders(config->state_dir, err);
}

/* One daemon per state folder. */
static bool take_lock(struct daemon_parts *parts, struct error *err)
{
    char path[LIMIT_PATH_BYTES];
    struct error why = {0};

    if (!file_join(path, sizeof(path), parts->config.state_dir, "lock", err))
        return false;
    if (!file_open(path, O_RDWR | O_CREAT | O_NOFOLLOW, &parts->lock, &why))
        return error_set(err, why.code == ERR_INVALID ? ERR_CORRUPT : why.code, "%s", why.message);
    if (flock(parts->lock, LOCK_EX | LOCK_NB) != 0)
        return error_set(err, ERR_CONFLICT, "another daemon uses '%s'", parts->config.state_dir);
    return true;
}

static struct server_options server_options(const struct daemon_parts *parts,
                                            const struct config *config)
{
    return (struct server_options){
        .sockets = parts->sockets,
        .socket_count = parts->socket_count,
        .listen = config->listen,
        .socket_path = config->socket_path,
        .state_folder = config->state_dir,
        .database_path = parts->database_path,
        .public_url = config->public_url[0] != '\0' ? config->public_url : NULL,
        .allowed_hosts = config->allowed_hosts[0] != '\0' ? config->allowed_hosts : NULL,
        .webhook_hosts = config->webhook_hosts,
        .api_key = config->api_key[0] != '\0' ? config->api_key : NULL,
        .upload_limit_bytes = config->upload_limit_bytes,
        .metrics_kept = config->metrics_kept,
        .connections_per_address = config->connections_per_address,
        .scheduler = parts->scheduler,
        .feed = parts->feed,
    };
}

/* On a full disk, too: its log wants a little room, which the ballast has. */
static bool open_store(struct daemon_parts *parts, struct error *err)
{
    return store_open(parts->database_path, true, &parts->store, err) ||
           (disk_make_room(parts->disk, err) &&
            store_open(parts->database_path, true, &parts->store, err));
}

static bool start(struct daemon_parts *parts, struct error *err)
{
    const struct config *config = &parts->config;

    if (!json_self_test(err) || !make_folders(config, err) || !take_lock(parts, err) ||
        !losses_check_new(config->state_dir, parts->database_path, err) ||
        !disk_open(config->state_dir, config->disk_reserve_bytes, &parts->disk, err) ||
        !open_store(parts, err) || !losses_check(config->state_dir, parts->store, err) ||
        !keeping_recover(config->state_dir, parts->store, err) ||
        !disk_settle(parts->disk, parts->database_path, err))
        return false;
    parts->feed = events_feed_new();
    if (parts->feed == NULL)
        return error_set(err, ERR_NO_MEMORY, "no memory for the event feed");

    struct scheduler_options scheduler = {
        .state_folder = config->state_dir,
        .models_folder = config->models_dir,
        .database_path = parts->database_path,
        .devices = &parts->devices,
        .disk = parts->disk,
        .retention = {.upload_age_s = config->uploads_kept_days * DAY_S,
                      .upload_bytes = config->uploads_kept_mb << 20,
                      .model_age_s = config->models_kept_days * DAY_S,
                      .model_bytes = config->models_kept_mb << 20,
                      .checkpoints_per_job = config->checkpoints_kept},
        .feed = parts->feed,
        .memory_limit_bytes = config->memory_limit_bytes,
        .jobs_per_device = config->jobs_per_device,
        .checkpoint_interval_ns = (int64_t)config->checkpoint_interval_s * 1000000000,
        .checkpoint_steps = config->checkpoint_steps,
        .stop_wait_ns = notify_is_heard() ? STOP_WAIT_NS : 0,
        .hurry = &parts->hurry,
        .crash_limit = config->crash_limit,
    };
    if (!scheduler_start(&scheduler, &parts->scheduler, err))
        return false;

    struct server_options server = server_options(parts, config);
    return server_start(&server, &parts->server, err);
}

static void stop(struct daemon_parts *parts)
{
    server_stop(parts->server);
    scheduler_stop(parts->scheduler);
    events_feed_free(parts->feed);
    /* The last one that closes a database removes its log by name, which may be another's by now. */
    if (disk_check_home(parts->disk, NULL))
        store_close(parts->store);
    /* the disk's record stays: threads left behind may look into it */
    if (parts->lock >= 0)
        (void)close(parts->lock); /* nothing was written to it */
}

static int exit_status_of(const struct error *err)
{
    switch (err->code) {
    case ERR_INVALID:
        return EXIT_USAGE;
    case ERR_CORRUPT:
        return EXIT_STATE;
    case ERR_UNAVAILABLE:
        return EXIT_ABSENT;
    case ERR_NONE:
    case ERR_NOT_FOUND:
    case ERR_CONFLICT:
    case ERR_LIMIT:
    case ERR_NO_MEMORY:
    case ERR_IO:
    case ERR_DEVICE:
    case ERR_CANCELLED:
    case ERR_INTERNAL:
        break;
    }
    return 1;
}

/* For SIGHUP: takes over what may change while the daemon runs, and names what has to wait. */
static bool reload(void *context, struct error *err)
{
    static struct config wanted; /* too large for a careful stack; main's thread alone is here */
    struct daemon_parts *parts = context;
    char waiting[256];

    if (!config_read(parts->argument_count, parts->arguments, &wanted, err))
        return false;
    const struct server_options server = server_options(parts, &wanted);

    if (!server_reload(parts->server, &server, err))
        return false;
    scheduler_set_memory_limit(parts->scheduler, wanted.memory_limit_bytes);
    log_set_level(wanted.log_level);
    config_take_changes(&parts->config, &wanted, waiting, sizeof(waiting));
    if (waiting[0])
        log_write(LOG_LEVEL_WARN, "these settings come into force at the next start: %s", waiting);
    log_write(LOG_LEVEL_INFO, "the settings were read again");
    return true;
}

static bool take_sockets(struct daemon_parts *parts, struct error *err)
{
    if (!notify_take_sockets(parts->passed, &parts->socket_count, err))
        return false;
    for (size_t i = 0; i < parts->socket_count; i++)
        parts->sockets[i] =
            (struct server_socket){parts->passed[i].descriptor, parts->passed[i].name};
    return true;
}

static void log_start(const struct daemon_parts *parts)
{
    log_write(LOG_LEVEL_INFO, "needled %s, cJSON %s, SQLite %s", NEEDLED_VERSION,
              json_library_version(), store_library_version());
    if (store_opening_note(parts->store)[0] != '\0')
        log_write(LOG_LEVEL_INFO, "%s", store_opening_note(parts->store));
    if (store_lost_log(parts->store))
        log_write(
            LOG_LEVEL_WARN,
            "the database's log, needled.db-wal, was cut, damaged or gone: what was changed last "
            "before this start may be missing");
    if (parts->config.key_file_is_open)
        log_write(LOG_LEVEL_WARN,
                  "the file of the API key can be read by every user of this machine: "
                  "chmod 600 keeps it to its owner");
    for (size_t i = 0; i < parts->devices.missing_count; i++)
        log_write(parts->devices.missing[i].is_hidden ? LOG_LEVEL_WARN : LOG_LEVEL_INFO,
                  "%s is not available: %s", parts->devices.missing[i].name,
                  parts->devices.missing[i].reason);
    if (parts->socket_count > 0)
        log_write(LOG_LEVEL_INFO, "serving %zu sockets passed to us and no other",
                  parts->socket_count);
    log_write(LOG_LEVEL_INFO, "state in '%s', port %d", parts->config.state_dir,
              server_port(parts->server));
}

static bool is_moved(void *context)
{
    const struct daemon_parts *parts = context;

    return disk_is_replaced(parts->disk);
}

/* Until it is to end; returns the exit status. */
static int wait_for_end(struct daemon_parts *parts)
{
    const struct service_parts service = {.server = parts->server,
                                          .scheduler = parts->scheduler,
                                          .reload = reload,
                                          .is_over = is_moved,
                                          .context = parts};
    int number;

    log_start(parts);
    number = service_wait(&service);
    if (number != 0) {
        log_write(LOG_LEVEL_INFO, "stopping: %s", strsignal(number));
        return 0;
    }
    log_write(LOG_LEVEL_ERROR,
              "stopping: another database lies in '%s', which a new start takes up",
              parts->config.state_dir);
    return EXIT_MOVED;
}

static int run(struct daemon_parts *parts)
{
    struct error err = {0};
    bool started;
    int status;

    service_begin_start();
    started = start(parts, &err);
    service_end_start();
    if (started) {
        status = wait_for_end(parts);
    } else {
        if (error_is_open_files(&err))
            error_wrap(&err, "the limit of open files (ulimit -n, LimitNOFILE=) is too low");
        log_write(LOG_LEVEL_ERROR, "cannot start: %s", err.message);
        status = err.code == ERR_UNAVAILABLE ? 1 : exit_status_of(&err); /* no device: a lock */
    }
    service_begin_stop(&parts->hurry);
    stop(parts);
    service_end_stop();
    return status;
}

/* Takes the text; returns the exit status. */
static int print_text(struct buf *text)
{
    int status = 1;

    if (!text->failed && text->size > 0 && fwrite(text->data, 1, text->size, stdout) == text->size)
        status = 0;
    buf_release(text);
    return status;
}

static int print_devices(const struct devices *devices, const char *state_folder)
{
    struct buf text;

    buf_init(&text, (size_t)1 << 20);
    devices_print(devices, &text);
    devicecheck_print(devices, state_folder, &text);
    return print_text(&text);
}

static int restore(struct daemon_parts *parts)
{
    const struct config *config = &parts->config;
    struct error err = {0};
    struct buf text;

    buf_init(&text, (size_t)1 << 20);
    if (!file_join(parts->database_path, sizeof(parts->database_path), config->state_dir,
                   "needled.db", &err) ||
        !make_folders(config, &err) || !take_lock(parts, &err) ||
        !restore_database(config->state_dir, parts->database_path, config->restore_path, &text,
                          &err)) {
        (void)fprintf(stderr, "needled: nothing was restored: %s%s\n", err.message,
                      err.code == ERR_CONFLICT ? "; stop it first" : "");
        buf_release(&text);
        return 1;
    }
    return print_text(&text);
}

static void print_row(void *context, const char *row)
{
    bool *failed = context;

    *failed = puts(row) < 0 || fflush(stdout) != 0 || *failed;
}

static int check_devices(const struct devices *devices, const char *state_folder)
{
    bool failed = false;

    return devicecheck_table(devices, state_folder, print_row, &failed) && !failed ? 0 : 1;
}

static int print_config(const struct config *config)
{
    const char *open_platforms = "(environment, else cuda,cpu)";

    printf("state_dir        %s\nmodels_dir       %s\nsocket_path      %s\nlisten           %s\n",
           config->state_dir, config->models_dir, config->socket_path, config->listen);
    printf("simd             %s\n",
           config->simd[0] != '\0' ? config->simd : "(environment, else the best there is)");
    printf("platforms        %s\npublic_url       %s\nallowed_hosts    %s\napi_key          %s\n",
           config->platforms[0] != '\0' ? config->platforms : open_platforms,
           config->public_url[0] != '\0' ? config->public_url : "(from each request)",
           config->allowed_hosts[0] != '\0' ? config->allowed_hosts : "(loopback names)",
           config->api_key[0] == '\0' ? "none"
           : config->key_is_hidden    ? "(a credential that only the service may read, if any)"
           : config->key_file_is_open ? "set (its file can be read by every user: chmod 600)"
                                      : "set");
    printf("webhook_hosts    %s\n", config->webhook_hosts[0] != '\0'
                                        ? config->webhook_hosts
                                        : "(none: no webhook is called)");
    printf("jobs_per_device  %zu\nmemory_limit_mb  %zu\nupload_limit_mb  %zu\n",
           config->jobs_per_device, config->memory_limit_bytes >> 20,
           config->upload_limit_bytes >> 20);
    if (config->connections_per_address < 0)
        printf("connections_per_address (none on loopback and behind a proxy, else %d)\n",
               LIMIT_CONNECTIONS_PER_ADDRESS);
    else
        printf("connections_per_address %" PRId64 "\n", config->connections_per_address);
    printf("disk_reserve_mb  %" PRIu64 "\n", config->disk_reserve_bytes >> 20);
    printf("metrics_kept     %zu\ncheckpoints_kept %" PRId64 "\n", config->metrics_kept,
           config->checkpoints_kept);
    printf("uploads_kept_days %" PRId64 "\nuploads_kept_mb  %" PRId64 "\nmodels_kept_days %" PRId64
           "\nmodels_kept_mb   %" PRId64 "\n",
           config->uploads_kept_days, config->uploads_kept_mb, config->models_kept_days,
           config->models_kept_mb);
    printf("checkpoint_interval_s %zu\ncheckpoint_steps %zu\ncrash_limit      %zu\n",
           config->checkpoint_interval_s, config->checkpoint_steps, config->crash_limit);
    return 0;
}

static int complain(const struct error *err)
{
    (void)fprintf(stderr, "needled: %s\n", err->message);
    return exit_status_of(err);
}

/* Returns the exit status. */
static int act(int argument_count, char **arguments)
{
    static struct daemon_parts parts = {.lock = -1};
    struct server_options options;
    struct error err = {0};

    parts.argument_count = argument_count;
    parts.arguments = arguments;
    if (!process_begin(&err))
        return complain(&err);
    if (!config_read(argument_count, arguments, &parts.config, &err)) {
        (void)fprintf(stderr, "needled: %s\n", err.message);
        return EXIT_USAGE;
    }
    switch (parts.config.action) {
    case CONFIG_VERSION:
        printf("needled %s\n", NEEDLED_VERSION);
        return 0;
    case CONFIG_HELP:
        (void)fputs(config_usage, stdout);
        return 0;
    case CONFIG_RESTORE:
        return restore(&parts);
    case CONFIG_CHECK:
    case CONFIG_DEVICES:
    case CONFIG_RUN:
        break;
    }
    log_set_level(parts.config.log_level);
    if (!devices_detect(parts.config.platforms[0] != '\0' ? parts.config.platforms : NULL,
                        &parts.devices, &err) ||
        !devices_choose_simd(&parts.devices, parts.config.simd, &err))
        return complain(&err);
    if (parts.config.action == CONFIG_DEVICES)
        return parts.config.check_devices ? check_devices(&parts.devices, parts.config.state_dir)
                                          : print_devices(&parts.devices, parts.config.state_dir);
    if (parts.config.action == CONFIG_RUN && !take_sockets(&parts, &err))
        return complain(&err);
    options = server_options(&parts, &parts.config);
    if (!file_join(parts.database_path, sizeof(parts.database_path), parts.config.state_dir,
                   "needled.db", &err) ||
        !server_check(&options, &err))
        return complain(&err);
    if (parts.config.action == CONFIG_CHECK)
        return check_machine(&parts.config, &err) ? print_config(&parts.config) : complain(&err);
    if (!check_folders(&parts.config, &err))
        return complain(&err);
    return service_take_signals(&err) ? run(&parts) : complain(&err);
}

int main(int argument_count, char **arguments)
{
    process_end(act(argument_count, arguments));
}
