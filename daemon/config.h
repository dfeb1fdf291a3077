/*
 * config: where the daemon's settings come from.
 *
 * Purpose    Defaults that work for a user without root, then the environment, then the JSON file of
 *            --config, then the command line; the later one wins. Systemd's STATE_DIRECTORY, RUNTIME_DIRECTORY and
 *            CREDENTIALS_DIRECTORY are honoured.
 * Ownership  A plain value.
 * Threads    Read before the first thread starts.
 * Failure    An unknown key, a wrong type or a missing argument is named (param = the key).
 */
#ifndef NEEDLED_CONFIG_H
#define NEEDLED_CONFIG_H

#include "daemon/base/limits.h"
#include "daemon/base/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum config_action {
    CONFIG_RUN,
    CONFIG_CHECK,   /* --check-config */
    CONFIG_DEVICES, /* --devices */
    CONFIG_RESTORE, /* --restore */
    CONFIG_VERSION, /* --version */
    CONFIG_HELP,    /* --help */
};

struct config {
    enum config_action action;
    bool check_devices;                /* --check, with --devices */
    char state_dir[LIMIT_PATH_BYTES];  /* database, uploads, checkpoints, artifacts */
    char models_dir[LIMIT_PATH_BYTES]; /* <base>/base.safetensors, <base>/tokenizer.model */
    char socket_path[LIMIT_PATH_BYTES];
    char restore_path[LIMIT_PATH_BYTES]; /* of the backup to be put back */
    char listen[128];                    /* "127.0.0.1:7733" */
    char platforms[128];                 /* "": from the environment */
    char simd[32];                       /* "": from the environment */
    char public_url[256];                /* "": from the request */
    char allowed_hosts[1024];            /* "": loopback names only */
    char webhook_hosts[1024];            /* "": no webhook is called */
    char api_key[256];     /* "": none; from the file named by api_key_file or a credential */
    bool key_file_is_open; /* every user of the machine can read that file */
    bool key_is_hidden;    /* for a check: it may not read the credential, which stands for one */
    enum log_level log_level;
    size_t jobs_per_device;    /* at once: 1 to LIMIT_JOBS_PER_DEVICE */
    size_t memory_limit_bytes; /* of one job; 0: what the device has */
    size_t upload_limit_bytes;
    int64_t connections_per_address; /* 0: no limit; below 0: what server.h chooses */
    uint64_t disk_reserve_bytes;     /* that jobs and uploads leave free */
    /* Uploads and models that no job needs: how old, how many MB in all; 0: any. */
    int64_t uploads_kept_days, uploads_kept_mb, models_kept_days, models_kept_mb;
    int64_t checkpoints_kept;     /* epoch checkpoints of a job, and the best; 0: all */
    size_t metrics_kept;          /* of a finished job's steps, at least 10; 0: all */
    size_t checkpoint_interval_s; /* between a job's resume checkpoints */
    size_t checkpoint_steps;      /* the same in steps, whichever comes first; 0: by time alone */
    size_t crash_limit;           /* deaths of the daemon in one place of a job; 0: no limit */
};

MUST_CHECK bool config_read(int argument_count, char **arguments, struct config *ret_config,
                            struct error *err);
/* Takes into *config what of *wanted may change while the daemon runs: the API key, log_level,
 * allowed_hosts, webhook_hosts, memory_limit_mb, upload_limit_mb. The names of others that differ, with
 * ", " between them, go to ret_waiting (cut). */
void config_take_changes(struct config *config, const struct config *wanted, char *ret_waiting,
                         size_t size);
extern const char config_usage[];

#endif
