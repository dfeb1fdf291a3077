#include "daemon/sched/strays.h"

#include "daemon/base/error.h"
#include "daemon/base/file.h"
#include "daemon/base/limits.h"
#include "daemon/base/log.h"
#include "daemon/sched/keeping.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "strays"

bool strays_put(const char *state_folder, const char *path, const char *name)
{
    char folder[LIMIT_PATH_BYTES], target[LIMIT_PATH_BYTES], flat[NAME_MAX + 1];
    struct error err = {0};

    (void)snprintf(flat, sizeof(flat), "%s", name);
    for (char *at = flat; (at = strchr(at, '/')) != NULL;)
        *at = '-';
    if (!file_join(folder, sizeof(folder), state_folder, FOLDER, &err) ||
        !file_make_folder(folder, &err) || !keeping_check_folder(folder, &err) ||
        !file_join(target, sizeof(target), folder, flat, &err)) {
        log_write(LOG_LEVEL_WARN, "'%s', which no record names, stays: %s", path, err.message);
        return false;
    }
    if (rename(path, target) != 0) {
        log_write(LOG_LEVEL_WARN, "'%s', which no record names, stays: %s", path,
                  strerrordesc_np(errno));
        return false;
    }
    (void)utimensat(AT_FDCWD, target, NULL, AT_SYMLINK_NOFOLLOW); /* since when it lies there */
    return true;
}

void strays_sweep(const char *state_folder, int64_t now_unix_s)
{
    char folder[LIMIT_PATH_BYTES];
    const struct dirent *entry;
    size_t removed_count = 0;
    DIR *open_folder;

    if (!file_join(folder, sizeof(folder), state_folder, FOLDER, NULL))
        return;
    open_folder = opendir(folder);
    if (!open_folder)
        return; /* there never was one */
    while ((entry = readdir(open_folder)) != NULL) {
        struct stat about;

        if (fstatat(dirfd(open_folder), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(about.st_mode) && about.st_mtime < now_unix_s - STRAYS_KEPT_S)
            removed_count += unlinkat(dirfd(open_folder), entry->d_name, 0) == 0;
    }
    (void)closedir(open_folder); /* only read */
    if (removed_count > 0)
        log_write(LOG_LEVEL_INFO, "files in strays that lay there for a week, removed: %zu",
                  removed_count);
}
