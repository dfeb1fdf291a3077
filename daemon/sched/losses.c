#include "daemon/sched/losses.h"

#include "daemon/base/file.h"
#include "daemon/base/limits.h"
#include "store/figures.h"
#include "store/inspect.h"
#include "store/settings.h"
#include "store/store.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define RESTORED "restored" /* the setting's name */
#define SIDE_PATH_BYTES (LIMIT_PATH_BYTES + 8)

static const char advice[] =
    "put a backup back with needled --restore FILE; to begin anew, move needled.db*, uploads, "
    "checkpoints and artifacts to another place first";

static const char knows_nothing[] = "the database needled.db knows of no file and no job";

struct traces { /* of an earlier database */
    size_t uploads, jobs, adapters;
};

/* Entries of that folder whose names begin so, but for temporaries. */
static size_t count_entries(const char *state_folder, const char *name, const char *begin)
{
    char folder[LIMIT_PATH_BYTES];
    const struct dirent *entry;
    size_t count = 0;
    DIR *open_folder;

    if (!file_join(folder, sizeof(folder), state_folder, name, NULL) ||
        !file_open_folder(folder, &open_folder, NULL))
        return 0;
    while ((entry = readdir(open_folder)) != NULL)
        count += strncmp(entry->d_name, begin, strlen(begin)) == 0 &&
                 strstr(entry->d_name, ".tmp") == NULL;
    (void)closedir(open_folder); /* only read */
    return count;
}

static struct traces find_traces(const char *state_folder)
{
    return (struct traces){.uploads = count_entries(state_folder, "uploads", "file-"),
                           .jobs = count_entries(state_folder, "checkpoints", "ftjob-"),
                           .adapters = count_entries(state_folder, "artifacts", "ftjob-")};
}

static bool refuse(const char *what, const struct traces *traces, struct error *err)
{
    return error_set(err, ERR_CORRUPT,
                     "%s, but uploads of an earlier one are there: %zu, folders of its jobs: %zu, "
                     "adapters: %zu. Nothing was touched: %s",
                     what, traces->uploads, traces->jobs, traces->adapters, advice);
}

bool losses_check_new(const char *state_folder, const char *database_path, struct error *err)
{
    static const char *const sides[] = {"-wal", "-shm"};
    const struct traces traces = find_traces(state_folder);
    char side[SIDE_PATH_BYTES];
    struct stat about;

    if (lstat(database_path, &about) == 0) /* looked at before anything is written */
        return traces.jobs + traces.adapters == 0 || !inspect_is_bare(database_path, RESTORED) ||
               refuse(knows_nothing, &traces, err);
    if (errno != ENOENT)
        return true; /* the open tells why it cannot be looked at */
    if (traces.uploads + traces.jobs + traces.adapters > 0)
        return refuse("the database needled.db is gone", &traces, err);
    for (size_t i = 0; i < COUNT_OF(sides); i++) {
        (void)snprintf(side, sizeof(side), "%s%s", database_path, sides[i]); /* made to fit */
        if (lstat(side, &about) == 0)
            return error_set(err, ERR_CORRUPT,
                             "the database needled.db is gone, but its needled.db%s is there. "
                             "Nothing was touched: %s",
                             sides[i], advice);
    }
    return true;
}

bool losses_check(const char *state_folder, struct store *store, struct error *err)
{
    const struct traces traces = find_traces(state_folder);
    char restored[SETTING_VALUE_SIZE];
    bool empty = false;

    if (traces.jobs + traces.adapters == 0 && (traces.uploads == 0 || !store_lost_log(store)))
        return true;
    if (!figures_are_none(store, &empty, err))
        return false;
    if (!empty)
        return true;
    if (!settings_exchange(store, RESTORED, "", restored, err))
        return false;
    return restored[0] != '\0' || refuse(knows_nothing, &traces, err);
}

bool losses_allow(struct store *store, struct error *err)
{
    char before[SETTING_VALUE_SIZE];

    return settings_exchange(store, RESTORED, "yes", before, err);
}
