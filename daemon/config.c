#include "daemon/config.h"

#include "daemon/base/file.h"
#include "daemon/base/hosts.h"
#include "daemon/base/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define KEY_FILE_BYTES ((size_t)4096)
#define METRICS_KEPT 500    /* 200 kB of the database for each job */
#define CHECKPOINTS_KEPT 16 /* of a job's epochs, and the best */
#define DAYS_MAX 36500
#define METRICS_KEPT_MIN 10 /* as store/upkeep.h wants it */
#define CHECKPOINT_INTERVAL_S 30
#define CRASH_LIMIT 2

const char config_usage[] =
    "usage: needled [options]\n"
    "\n"
    "  --config FILE       settings as a JSON object; the options below win over it\n"
    "  --state-dir DIR     database, uploads, checkpoints, artifacts\n"
    "                      (default: $XDG_STATE_HOME/needled or ~/.local/state/needled)\n"
    "  --models-dir DIR    base models, a folder each (default: models in the state dir)\n"
    "  --listen ADDR:PORT  default 127.0.0.1:7733; another address needs an API key\n"
    "  --platforms LIST    ordered, e.g. cuda,cpu (default: $NEEDLED_PLATFORMS, else cuda,cpu)\n"
    "  --simd LEVEL        plain, avx2 or avx512 (default: $NEEDLED_SIMD, else the best there is)\n"
    "  --jobs-per-device N jobs that share a device when they fit, 1 to 8; those on a CPU share "
    "its\n"
    "                      threads evenly (default: $NEEDLED_JOBS_PER_DEVICE, else 1)\n"
    "  --check-config      read the settings, say what they are, exit\n"
    "  --devices           show what this machine can compute with, exit\n"
    "  --devices --check   compare each device's ops and a tiny job with plain loops and the\n"
    "                      processor, exit; 0: all agree\n"
    "  --restore FILE      put a backup of the database back while no daemon runs, exit; the one\n"
    "                      that is there is kept aside\n"
    "  --version, --help\n"
    "\n"
    "keys of the settings file: state_dir models_dir socket_path listen platforms simd public_url\n"
    "allowed_hosts webhook_hosts api_key_file log_level jobs_per_device memory_limit_mb "
    "upload_limit_mb crash_limit connections_per_address\n"
    "checkpoint_interval_s checkpoint_steps disk_reserve_mb metrics_kept\n"
    "uploads_kept_days uploads_kept_mb models_kept_days models_kept_mb checkpoints_kept\n";

static bool copy_text(char *target, size_t capacity, const char *key, const char *text,
                      struct error *err)
{
    int length = snprintf(target, capacity, "%s", text);

    if (length < 0 || (size_t)length >= capacity)
        return error_set_param(err, ERR_INVALID, key, "'%s' is longer than %zu bytes", key,
                               capacity - 1);
    return true;
}

/* The file's first line, without the line end, becomes the key. */
static bool read_api_key(struct config *config, const char *path, struct error *err)
{
    struct mapping map = MAPPING_NONE;
    struct stat about;
    size_t size = 0;
    bool ok = false;

    if (!mapping_open(&map, path, err)) {
        error_wrap(err, "read the API key");
        goto out;
    }
    while (size < map.size && map.data[size] != '\n' && map.data[size] != '\r')
        size++;
    if (size == 0 || size >= sizeof(config->api_key) || map.size > KEY_FILE_BYTES) {
        error_set_param(err, ERR_INVALID, "api_key_file",
                        "'%s' must hold a key of 1 to %zu bytes on its first line", path,
                        sizeof(config->api_key) - 1);
        goto out;
    }
    config->key_file_is_open = fstat(map.descriptor, &about) == 0 && (about.st_mode & S_IROTH) != 0;
    for (size_t i = 0; i < size; i++) {
        if (map.data[i] <= ' ' || map.data[i] == 0x7f) { /* none could send it */
            error_set_param(err, ERR_INVALID, "api_key_file",
                            "'%s' has a blank or control character in the key on its first line",
                            path);
            goto out;
        }
    }
    memcpy(config->api_key, map.data, size);
    config->api_key[size] = '\0';
    ok = true;
out:
    mapping_close(&map);
    return ok;
}

static bool default_folders(struct config *config, struct error *err)
{
    const char *given = getenv("STATE_DIRECTORY");
    const char *base = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    char text[LIMIT_PATH_BYTES];

    if (given != NULL && given[0] != '\0')
        return copy_text(config->state_dir, sizeof(config->state_dir), "state_dir", given, err);
    if (base != NULL && base[0] == '/') {
        (void)snprintf(text, sizeof(text), "%s/needled", base);
    } else if (home != NULL && home[0] == '/') {
        (void)snprintf(text, sizeof(text), "%s/.local/state/needled", home);
    } else {
        return error_set_param(err, ERR_INVALID, "state_dir",
                               "neither XDG_STATE_HOME nor HOME is set: give --state-dir");
    }
    return copy_text(config->state_dir, sizeof(config->state_dir), "state_dir", text, err);
}

static bool read_level(const char *name, enum log_level *ret_level, struct error *err)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};

    for (size_t i = 0; i < COUNT_OF(names); i++) {
        if (strcmp(name, names[i]) == 0) {
            *ret_level = (enum log_level)i;
            return true;
        }
    }
    return error_set_param(err, ERR_INVALID, "log_level",
                           "log_level '%s' is none of debug, info, warn, error", name);
}

/* source: where the text stands. */
static bool read_jobs_per_device(struct config *config, const char *source, const char *text,
                                 struct error *err)
{
    char *end = NULL;
    uintmax_t jobs;

    errno = 0;
    jobs = strtoumax(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || jobs < 1 ||
        jobs > LIMIT_JOBS_PER_DEVICE)
        return error_set_param(err, ERR_INVALID, "jobs_per_device",
                               "%s is '%.32s', needed is a number from 1 to %d", source, text,
                               LIMIT_JOBS_PER_DEVICE);
    config->jobs_per_device = (size_t)jobs;
    return true;
}

static bool read_environment(struct config *config, struct error *err)
{
    static const char name[] = "NEEDLED_JOBS_PER_DEVICE";
    const char *text = getenv(name);

    return text == NULL || text[0] == '\0' || read_jobs_per_device(config, name, text, err);
}

/* What is removed of itself. */
static bool read_retention(struct config *config, const struct json *json, struct error *err)
{
    return json_get_int(json, "uploads_kept_days", false, 0, DAYS_MAX, &config->uploads_kept_days,
                        err) &&
           json_get_int(json, "uploads_kept_mb", false, 0, INT32_MAX, &config->uploads_kept_mb,
                        err) &&
           json_get_int(json, "models_kept_days", false, 0, DAYS_MAX, &config->models_kept_days,
                        err) &&
           json_get_int(json, "models_kept_mb", false, 0, INT32_MAX, &config->models_kept_mb,
                        err) &&
           json_get_int(json, "checkpoints_kept", false, 0, INT32_MAX, &config->checkpoints_kept,
                        err);
}

static bool read_limits(struct config *config, const struct json *json, struct error *err)
{
    int64_t memory_mb = 0;
    int64_t upload_mb = (int64_t)(LIMIT_UPLOAD_BYTES >> 20);
    int64_t reserve_mb = (int64_t)(config->disk_reserve_bytes >> 20);
    int64_t jobs = (int64_t)config->jobs_per_device;
    int64_t interval_s = (int64_t)config->checkpoint_interval_s;
    int64_t steps = (int64_t)config->checkpoint_steps;
    int64_t kept = (int64_t)config->metrics_kept;
    int64_t crashes = (int64_t)config->crash_limit;

    if (!json_get_int(json, "jobs_per_device", false, 1, LIMIT_JOBS_PER_DEVICE, &jobs, err) ||
        !json_get_int(json, "memory_limit_mb", false, 0, 1 << 24, &memory_mb, err) ||
        !json_get_int(json, "upload_limit_mb", false, 1, 1 << 24, &upload_mb, err) ||
        !json_get_int(json, "connections_per_address", false, 0, LIMIT_CONNECTIONS,
                      &config->connections_per_address, err) ||
        !json_get_int(json, "checkpoint_interval_s", false, 1, LIMIT_CHECKPOINT_INTERVAL_S,
                      &interval_s, err) ||
        !json_get_int(json, "checkpoint_steps", false, 0, INT32_MAX, &steps, err) ||
        !json_get_int(json, "crash_limit", false, 0, INT32_MAX, &crashes, err) ||
        !json_get_int(json, "disk_reserve_mb", false, 0, 1 << 24, &reserve_mb, err) ||
        !json_get_int(json, "metrics_kept", false, 0, INT32_MAX, &kept, err) ||
        !read_retention(config, json, err))
        return false;
    if (kept > 0 && kept < METRICS_KEPT_MIN)
        return error_set_param(err, ERR_INVALID, "metrics_kept",
                               "metrics_kept is %" PRId64 ", needed is 0 (all) or %d at least",
                               kept, METRICS_KEPT_MIN);
    config->metrics_kept = (size_t)kept;
    config->disk_reserve_bytes = (uint64_t)reserve_mb << 20;
    config->checkpoint_interval_s = (size_t)interval_s;
    config->checkpoint_steps = (size_t)steps;
    config->crash_limit = (size_t)crashes;
    config->jobs_per_device = (size_t)jobs;
    config->memory_limit_bytes = (size_t)memory_mb << 20;
    config->upload_limit_bytes = (size_t)upload_mb << 20;
    return true;
}

static bool read_settings(struct config *config, const struct json *json, struct error *err)
{
    static const char *const known[] = {"state_dir",
                                        "models_dir",
                                        "socket_path",
                                        "listen",
                                        "platforms",
                                        "public_url",
                                        "allowed_hosts",
                                        "api_key_file",
                                        "log_level",
                                        "memory_limit_mb",
                                        "upload_limit_mb",
                                        "simd",
                                        "jobs_per_device",
                                        "webhook_hosts",
                                        "checkpoint_interval_s",
                                        "checkpoint_steps",
                                        "disk_reserve_mb",
                                        "metrics_kept",
                                        "uploads_kept_days",
                                        "uploads_kept_mb",
                                        "models_kept_days",
                                        "models_kept_mb",
                                        "checkpoints_kept",
                                        "crash_limit",
                                        "connections_per_address",
                                        NULL};
    const struct {
        const char *key;
        char *target;
        size_t capacity;
    } texts[] = {
        {"state_dir", config->state_dir, sizeof(config->state_dir)},
        {"models_dir", config->models_dir, sizeof(config->models_dir)},
        {"socket_path", config->socket_path, sizeof(config->socket_path)},
        {"listen", config->listen, sizeof(config->listen)},
        {"platforms", config->platforms, sizeof(config->platforms)},
        {"simd", config->simd, sizeof(config->simd)},
        {"public_url", config->public_url, sizeof(config->public_url)},
        {"allowed_hosts", config->allowed_hosts, sizeof(config->allowed_hosts)},
        {"webhook_hosts", config->webhook_hosts, sizeof(config->webhook_hosts)},
    };
    const char *key_file = NULL;
    const char *level = NULL;

    if (json_kind_of(json) != JSON_OBJECT)
        return error_set(err, ERR_INVALID, "the settings must be one JSON object");
    if (!json_only_fields(json, known, err))
        return false;
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        const char *text = NULL;

        if (!json_get_string(json, texts[i].key, false, &text, err))
            return false;
        if (text != NULL && !copy_text(texts[i].target, texts[i].capacity, texts[i].key, text, err))
            return false;
    }
    if (!json_get_string(json, "log_level", false, &level, err) ||
        !json_get_string(json, "api_key_file", false, &key_file, err))
        return false;
    if (level != NULL && !read_level(level, &config->log_level, err))
        return false;
    if (key_file != NULL && !read_api_key(config, key_file, err))
        return false;
    return read_limits(config, json, err);
}

static bool read_file(struct config *config, const char *path, struct error *err)
{
    struct mapping map = MAPPING_NONE;
    struct json *json = NULL;
    bool ok = false;

    if (!mapping_open(&map, path, err))
        goto out;
    if (!json_parse((const char *)map.data, map.size, &json, err) ||
        !read_settings(config, json, err)) {
        error_wrap(err, "settings '%s'", path);
        goto out;
    }
    ok = true;
out:
    json_free(json);
    mapping_close(&map);
    return ok;
}

/* Options without a value. */
static bool read_flag(const char *name, struct config *config)
{
    static const struct {
        const char *name;
        enum config_action action;
    } flags[] = {
        {"--check-config", CONFIG_CHECK},
        {"--devices", CONFIG_DEVICES},
        {"--version", CONFIG_VERSION},
        {"--help", CONFIG_HELP},
        {"-h", CONFIG_HELP},
    };

    for (size_t i = 0; i < COUNT_OF(flags); i++) {
        if (strcmp(name, flags[i].name) == 0) {
            config->action = flags[i].action;
            return true;
        }
    }
    if (strcmp(name, "--check") != 0)
        return false;
    config->check_devices = true;
    return true;
}

/* Options with a value; `config_pass` takes --config alone, the other pass everything else, so that
 * the command line wins over the file wherever --config stands. */
static bool read_arguments(struct config *config, int count, char **arguments, bool config_pass,
                           struct error *err)
{
    char jobs[32] = "";
    const struct {
        const char *name, *key;
        char *target;
        size_t capacity;
    } options[] = {
        {"--state-dir", "state_dir", config->state_dir, sizeof(config->state_dir)},
        {"--models-dir", "models_dir", config->models_dir, sizeof(config->models_dir)},
        {"--listen", "listen", config->listen, sizeof(config->listen)},
        {"--platforms", "platforms", config->platforms, sizeof(config->platforms)},
        {"--simd", "simd", config->simd, sizeof(config->simd)},
        {"--jobs-per-device", "jobs_per_device", jobs, sizeof(jobs)},
        {"--restore", "restore", config->restore_path, sizeof(config->restore_path)},
    };

    for (int i = 1; i < count; i++) {
        size_t option = 0;

        if (read_flag(arguments[i], config))
            continue;
        while (option < COUNT_OF(options) && strcmp(arguments[i], options[option].name) != 0)
            option++;
        if (option == COUNT_OF(options) && strcmp(arguments[i], "--config") != 0)
            return error_set(err, ERR_INVALID, "unknown option '%s' (see --help)", arguments[i]);
        if (i + 1 == count)
            return error_set(err, ERR_INVALID, "option '%s' wants a value", arguments[i]);
        i++;
        if (option == COUNT_OF(options)) {
            if (config_pass && !read_file(config, arguments[i], err))
                return false;
        } else if (!config_pass && !copy_text(options[option].target, options[option].capacity,
                                              options[option].key, arguments[i], err)) {
            return false;
        }
    }
    if (config->restore_path[0] != '\0' && config->action == CONFIG_RUN)
        config->action = CONFIG_RESTORE;
    return jobs[0] == '\0' || read_jobs_per_device(config, "--jobs-per-device", jobs, err);
}

/* What follows from the state folder or the service manager when it was not set. */
static bool derive(struct config *config, struct error *err)
{
    const char *runtime = getenv("RUNTIME_DIRECTORY");
    const char *credentials = getenv("CREDENTIALS_DIRECTORY");
    char path[LIMIT_PATH_BYTES];

    if (config->models_dir[0] == '\0' && !file_join(config->models_dir, sizeof(config->models_dir),
                                                    config->state_dir, "models", err))
        return false;
    if (runtime == NULL || runtime[0] == '\0')
        runtime = config->state_dir;
    if (config->socket_path[0] == '\0' &&
        !file_join(config->socket_path, sizeof(config->socket_path), runtime, "needled.sock", err))
        return false;
    if (credentials != NULL && config->api_key[0] == '\0') {
        if (!file_join(path, sizeof(path), credentials, "api_key", err))
            return false;
        if (access(path, F_OK) == 0)
            return read_api_key(config, path, err);
        if (errno == ENOENT)
            return true; /* it is optional, but not in silence */
        if (config->action != CONFIG_CHECK)
            return read_api_key(config, path, err);
        /* A unit's credentials are its main process's alone: whoever checks for it takes one for given. */
        config->key_is_hidden = true;
        (void)snprintf(config->api_key, sizeof(config->api_key), "?");
    }
    return true;
}

/* What could never work, whatever the machine. */
static bool check_texts(const struct config *config, struct error *err)
{
    const size_t socket_max = sizeof(((struct sockaddr_un *)0)->sun_path) - 1;

    if (strlen(config->socket_path) > socket_max)
        return error_set_param(
            err, ERR_INVALID, "socket_path",
            "socket_path is '%.200s', %zu bytes; a socket's path has at most %zu",
            config->socket_path, strlen(config->socket_path), socket_max);
    return hosts_check_url("public_url", config->public_url, err) &&
           hosts_check_list("allowed_hosts", config->allowed_hosts, false, err) &&
           hosts_check_list("webhook_hosts", config->webhook_hosts, true, err);
}

bool config_read(int argument_count, char **arguments, struct config *ret_config, struct error *err)
{
    static struct config config; /* too large for a careful stack; main reads it once */

    config = (struct config){.log_level = LOG_LEVEL_INFO,
                             .jobs_per_device = 1,
                             .checkpoint_interval_s = CHECKPOINT_INTERVAL_S,
                             .disk_reserve_bytes = LIMIT_DISK_RESERVE_BYTES,
                             .metrics_kept = METRICS_KEPT,
                             .crash_limit = CRASH_LIMIT,
                             .checkpoints_kept = CHECKPOINTS_KEPT,
                             .connections_per_address = -1,
                             .upload_limit_bytes = LIMIT_UPLOAD_BYTES};
    if (!read_environment(&config, err) ||
        !copy_text(config.listen, sizeof(config.listen), "listen", "127.0.0.1:7733", err) ||
        !read_arguments(&config, argument_count, arguments, true, err) ||
        !read_arguments(&config, argument_count, arguments, false, err))
        return false;
    if (config.check_devices && config.action != CONFIG_DEVICES)
        return error_set(err, ERR_INVALID, "option '--check' goes with --devices");
    if (config.state_dir[0] == '\0' && config.action == CONFIG_DEVICES) {
        if (!default_folders(&config, NULL))
            config.state_dir[0] = '\0'; /* only what is remembered of devices would come from it */
    } else if (config.state_dir[0] == '\0' && config.action != CONFIG_VERSION &&
               config.action != CONFIG_HELP && !default_folders(&config, err)) {
        return false;
    }
    if (config.state_dir[0] != '\0' && config.action != CONFIG_DEVICES && !derive(&config, err))
        return false;
    if (!check_texts(&config, err))
        return false;
    *ret_config = config;
    return true;
}

void config_take_changes(struct config *config, const struct config *wanted, char *ret_waiting,
                         size_t size)
{
    const struct {
        const char *name;
        bool differs;
    } fixed[] = {
        {"state_dir", strcmp(config->state_dir, wanted->state_dir) != 0},
        {"models_dir", strcmp(config->models_dir, wanted->models_dir) != 0},
        {"socket_path", strcmp(config->socket_path, wanted->socket_path) != 0},
        {"listen", strcmp(config->listen, wanted->listen) != 0},
        {"platforms", strcmp(config->platforms, wanted->platforms) != 0},
        {"simd", strcmp(config->simd, wanted->simd) != 0},
        {"public_url", strcmp(config->public_url, wanted->public_url) != 0},
        {"jobs_per_device", config->jobs_per_device != wanted->jobs_per_device},
        {"crash_limit", config->crash_limit != wanted->crash_limit},
        {"connections_per_address",
         config->connections_per_address != wanted->connections_per_address},
        {"checkpoint_interval_s", config->checkpoint_interval_s != wanted->checkpoint_interval_s},
        {"checkpoint_steps", config->checkpoint_steps != wanted->checkpoint_steps},
        {"disk_reserve_mb", config->disk_reserve_bytes != wanted->disk_reserve_bytes},
        {"metrics_kept", config->metrics_kept != wanted->metrics_kept},
        {"uploads_kept_days", config->uploads_kept_days != wanted->uploads_kept_days},
        {"uploads_kept_mb", config->uploads_kept_mb != wanted->uploads_kept_mb},
        {"models_kept_days", config->models_kept_days != wanted->models_kept_days},
        {"models_kept_mb", config->models_kept_mb != wanted->models_kept_mb},
        {"checkpoints_kept", config->checkpoints_kept != wanted->checkpoints_kept},
    };
    size_t length = 0;

    ret_waiting[0] = '\0';
    for (size_t i = 0; i < COUNT_OF(fixed); i++) {
        if (fixed[i].differs && length < size)
            length += (size_t)snprintf(ret_waiting + length, size - length, "%s%s",
                                       length > 0 ? ", " : "", fixed[i].name);
    }
    memcpy(config->api_key, wanted->api_key, sizeof(config->api_key));
    memcpy(config->allowed_hosts, wanted->allowed_hosts, sizeof(config->allowed_hosts));
    memcpy(config->webhook_hosts, wanted->webhook_hosts, sizeof(config->webhook_hosts));
    config->key_file_is_open = wanted->key_file_is_open;
    config->log_level = wanted->log_level;
    config->memory_limit_bytes = wanted->memory_limit_bytes;
    config->upload_limit_bytes = wanted->upload_limit_bytes;
}
