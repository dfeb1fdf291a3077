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

#define COPIES_MAX 1000 /* of one name: then it stays where it is */

/* Under its name, or with ".2", ".3" after it: what lies there stays. */
static bool move(const char *path, const char *target, char ret_moved[LIMIT_PATH_BYTES])
{
    for (int copy = 1; copy <= COPIES_MAX; copy++) {
        struct stat about;
        int length = copy == 1 ? snprintf(ret_moved, LIMIT_PATH_BYTES, "%s", target)
                               : snprintf(ret_moved, LIMIT_PATH_BYTES, "%s.%d", target, copy);

        if (length < 0 || length >= LIMIT_PATH_BYTES) {
            errno = ENAMETOOLONG;
            return false;
        }
        if (renameat2(AT_FDCWD, path, AT_FDCWD, ret_moved, RENAME_NOREPLACE) == 0)
            return true;
        if (errno == EEXIST)
            continue;
        if (errno != EINVAL && errno != ENOSYS)
            return false;
        if (lstat(ret_moved, &about) != 0) /* a file system without it; nobody else is here */
            return rename(path, ret_moved) == 0;
    }
    errno = EEXIST;
    return false;
}

bool strays_put(const char *state_folder, const char *path, const char *name)
{
    char folder[LIMIT_PATH_BYTES], target[LIMIT_PATH_BYTES], moved[LIMIT_PATH_BYTES];
    char flat[NAME_MAX + 1];
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
    if (!move(path, target, moved)) {
        log_write(LOG_LEVEL_WARN, "'%s', which no record names, stays: %s", path,
                  strerrordesc_np(errno));
        return false;
    }
    (void)utimensat(AT_FDCWD, moved, NULL, AT_SYMLINK_NOFOLLOW); /* since when it lies there */
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
