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

#define COPIES_MAX 1000 /* of one name: then it stays where it is */

/* Under its name, or with ".2", ".3" after it: what lies there stays. */
static bool move(const char *path, int folder, const char *name, char ret_moved[NAME_MAX + 1])
{
    for (int copy = 1; copy <= COPIES_MAX; copy++) {
        struct stat about;
        int length = copy == 1 ? snprintf(ret_moved, NAME_MAX + 1, "%s", name)
                               : snprintf(ret_moved, NAME_MAX + 1, "%s.%d", name, copy);

        if (length < 0 || length > NAME_MAX) {
            errno = ENAMETOOLONG;
            return false;
        }
        if (renameat2(AT_FDCWD, path, folder, ret_moved, RENAME_NOREPLACE) == 0)
            return true;
        if (errno == EEXIST)
            continue;
        if (errno != EINVAL && errno != ENOSYS)
            return false;
        /* A file system without it; nobody else is here. */
        if (fstatat(folder, ret_moved, &about, AT_SYMLINK_NOFOLLOW) != 0)
            return renameat(AT_FDCWD, path, folder, ret_moved) == 0;
    }
    errno = EEXIST;
    return false;
}

bool strays_put(const char *state_folder, const char *path, const char *name)
{
    char folder[LIMIT_PATH_BYTES], flat[NAME_MAX + 1], moved[NAME_MAX + 1];
    struct error err = {0};
    DIR *strays = NULL;
    bool ok;

    (void)snprintf(flat, sizeof(flat), "%s", name);
    for (char *at = flat; (at = strchr(at, '/')) != NULL;)
        *at = '-';
    if (!file_join(folder, sizeof(folder), state_folder, STRAYS_FOLDER, &err) ||
        !keeping_make_folder(folder, &err) || !file_open_folder(folder, &strays, &err)) {
        log_write(LOG_LEVEL_WARN, "'%s', which no record names, stays: %s", path, err.message);
        return false;
    }
    ok = move(path, dirfd(strays), flat, moved);
    if (ok) /* since when it lies there */
        (void)utimensat(dirfd(strays), moved, NULL, AT_SYMLINK_NOFOLLOW);
    else
        log_write(LOG_LEVEL_WARN, "'%s', which no record names, stays: %s", path,
                  strerrordesc_np(errno));
    (void)closedir(strays); /* only read */
    return ok;
}

void strays_sweep(const char *state_folder, int64_t now_unix_s)
{
    char folder[LIMIT_PATH_BYTES];
    const struct dirent *entry;
    size_t removed_count = 0;
    DIR *open_folder;

    if (!file_join(folder, sizeof(folder), state_folder, STRAYS_FOLDER, NULL) ||
        !file_open_folder(folder, &open_folder, NULL))
        return; /* there never was one; the start refuses what else there may be */
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
