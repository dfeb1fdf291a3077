/*
 * main: wiring. Opens each part, starts it, waits for a signal, stops in reverse.
 */
#include "api/server.h"
#include "daemon/base/buf.h"
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/base/log.h"
#include "daemon/base/notify.h"
#include "daemon/config.h"
#include "daemon/sched/datasets.h"
#include "daemon/sched/devicecheck.h"
#include "daemon/sched/devices.h"
#include "daemon/sched/disk.h"
#include "daemon/sched/events.h"
#include "daemon/sched/restore.h"
#include "daemon/sched/scheduler.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define EXIT_USAGE 2 /* a bad setting: restarting does not help */

struct daemon_parts {
    struct config config;
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
    static const char *const names[] = {"uploads", "checkpoints", "artifacts"};
    char path[LIMIT_PATH_BYTES];

    if (!file_make_folder(config->state_dir, err) || !file_make_folder(config->models_dir, err))
        return false;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        if (!file_join(path, sizeof(path), config->state_dir, names[i], err) ||
            !file_make_folder(path, err))
            return false;
    }
    return true;
}

/* One daemon per state folder. */
static bool take_lock(struct daemon_parts *parts, struct error *err)
{
    char path[LIMIT_PATH_BYTES];

    if (!file_join(path, sizeof(path), parts->config.state_dir, "lock", err))
        return false;
    parts->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (parts->lock < 0)
        return error_set(err, ERR_IO, "open '%s': %s", path, strerror(errno));
    if (flock(parts->lock, LOCK_EX | LOCK_NB) != 0)
        return error_set(err, ERR_CONFLICT, "another daemon uses '%s'", parts->config.state_dir);
    return true;
}

static struct server_options server_options(const struct daemon_parts *parts)
{
    const struct config *config = &parts->config;

    return (struct server_options){
        .listen = config->listen,
        .socket_path = config->socket_path,
        .state_folder = config->state_dir,
        .database_path = parts->database_path,
        .public_url = config->public_url[0] != '\0' ? config->public_url : NULL,
        .allowed_hosts = config->allowed_hosts[0] != '\0' ? config->allowed_hosts : NULL,
        .webhook_hosts = config->webhook_hosts,
        .api_key = config->api_key[0] != '\0' ? config->api_key : NULL,
        .upload_limit_bytes = config->upload_limit_bytes,
        .scheduler = parts->scheduler,
        .feed = parts->feed,
    };
}

/* On a full disk, too: its log wants a little room, which the ballast has. */
static bool open_store(struct daemon_parts *parts, struct error *err)
{
    return store_open(parts->database_path, true, &parts->store, err) ||
           (disk_report(parts->disk, err) &&
            store_open(parts->database_path, true, &parts->store, err));
}

static bool start(struct daemon_parts *parts, struct error *err)
{
    const struct config *config = &parts->config;

    if (!json_self_test(err) || !make_folders(config, err) || !take_lock(parts, err) ||
        !disk_open(config->state_dir, config->disk_reserve_bytes, &parts->disk, err) ||
        !open_store(parts, err) ||
        !datasets_recover(config->state_dir, parts->store, err))
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
        .feed = parts->feed,
        .memory_limit_bytes = config->memory_limit_bytes,
        .jobs_per_device = config->jobs_per_device,
        .checkpoint_interval_ns = (int64_t)config->checkpoint_interval_s * 1000000000,
        .checkpoint_steps = config->checkpoint_steps,
    };
    if (!scheduler_start(&scheduler, &parts->scheduler, err))
        return false;

    struct server_options server = server_options(parts);
    return server_start(&server, &parts->server, err);
}

static void stop(struct daemon_parts *parts)
{
    server_stop(parts->server);
    scheduler_stop(parts->scheduler);
    events_feed_free(parts->feed);
    store_close(parts->store); /* the disk's record stays: threads left behind may look into it */
    if (parts->lock >= 0)
        (void)close(parts->lock); /* nothing was written to it */
}

static int run(struct daemon_parts *parts, const sigset_t *signals)
{
    struct error err = {0};
    int status = 1;
    int signal_number = 0;

    if (!start(parts, &err)) {
        log_write(LOG_LEVEL_ERROR, "cannot start: %s", err.message);
        if (err.code == ERR_INVALID)
            status = EXIT_USAGE;
        goto out;
    }
    log_write(LOG_LEVEL_INFO, "needled %s, cJSON %s, SQLite %s", NEEDLED_VERSION,
              json_library_version(), store_library_version());
    if (store_opening_note(parts->store)[0] != '\0')
        log_write(LOG_LEVEL_INFO, "%s", store_opening_note(parts->store));
    if (parts->config.key_file_is_open)
        log_write(LOG_LEVEL_WARN,
                  "the file of the API key can be read by every user of this machine: "
                  "chmod 600 keeps it to its owner");
    for (size_t i = 0; i < parts->devices.missing_count; i++)
        log_write(LOG_LEVEL_INFO, "%s is not available: %s", parts->devices.missing[i].name,
                  parts->devices.missing[i].reason);
    log_write(LOG_LEVEL_INFO, "state in '%s', port %d", parts->config.state_dir,
              server_port(parts->server));
    notify_send("READY=1\nSTATUS=serving");
    (void)sigwait(signals, &signal_number); /* fails for a bad set only, and ours is fixed */
    log_write(LOG_LEVEL_INFO, "stopping: %s", strsignal(signal_number));
    notify_send("STOPPING=1");
    status = 0;
out:
    stop(parts);
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
           : config->key_file_is_open ? "set (its file can be read by every user: chmod 600)"
                                      : "set");
    printf("webhook_hosts    %s\n", config->webhook_hosts[0] != '\0'
                                        ? config->webhook_hosts
                                        : "(none: no webhook is called)");
    printf("jobs_per_device  %zu\nmemory_limit_mb  %zu\nupload_limit_mb  %zu\n",
           config->jobs_per_device, config->memory_limit_bytes >> 20,
           config->upload_limit_bytes >> 20);
    printf("disk_reserve_mb  %" PRIu64 "\n", config->disk_reserve_bytes >> 20);
    printf("checkpoint_interval_s %zu\ncheckpoint_steps %zu\n", config->checkpoint_interval_s,
           config->checkpoint_steps);
    return 0;
}

/* Signals are taken by sigwait on this thread; every later thread inherits the mask. */
static void block_signals(sigset_t *ret_signals)
{
    (void)sigemptyset(ret_signals); /* cannot fail for valid numbers */
    (void)sigaddset(ret_signals, SIGTERM);
    (void)sigaddset(ret_signals, SIGINT);
    (void)pthread_sigmask(SIG_BLOCK, ret_signals, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
}

int main(int argument_count, char **arguments)
{
    static struct daemon_parts parts = {.lock = -1};
    struct server_options options;
    struct error err = {0};
    sigset_t signals;

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
        !devices_choose_simd(&parts.devices, parts.config.simd, &err)) {
        (void)fprintf(stderr, "needled: %s\n", err.message);
        return EXIT_USAGE;
    }
    if (parts.config.action == CONFIG_DEVICES)
        return parts.config.check_devices ? check_devices(&parts.devices, parts.config.state_dir)
                                          : print_devices(&parts.devices, parts.config.state_dir);
    options = server_options(&parts);
    if (!file_join(parts.database_path, sizeof(parts.database_path), parts.config.state_dir,
                   "needled.db", &err) ||
        !server_check(&options, &err)) {
        (void)fprintf(stderr, "needled: %s\n", err.message);
        return EXIT_USAGE;
    }
    if (parts.config.action == CONFIG_CHECK)
        return print_config(&parts.config);
    block_signals(&signals);
    return run(&parts, &signals);
}
