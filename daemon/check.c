#include "daemon/check.h"

#include "daemon/base/limits.h"
#include "daemon/config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* "/a/b" becomes "/a", "/a" becomes "/", "a" becomes "."; false: there is nothing above. */
static bool go_up(char *path)
{
    char *slash;
    size_t size = strlen(path);

    while (size > 1 && path[size - 1] == '/')
        path[--size] = '\0';
    if (strcmp(path, "/") == 0 || strcmp(path, ".") == 0)
        return false;
    slash = strrchr(path, '/');
    if (!slash)
        memcpy(path, ".", sizeof("."));
    else
        slash[slash == path] = '\0';
    return true;
}

/* The folder, or what is there of the way to it, into ret_found: it can be made below a folder alone. */
static bool check_folder(const char *setting, const char *path, char ret_found[LIMIT_PATH_BYTES],
                         struct error *err)
{
    struct stat about;
    bool is_there;

    (void)snprintf(ret_found, LIMIT_PATH_BYTES, "%s", path); /* as long as it */
    while (!(is_there = stat(ret_found, &about) == 0) && (errno == ENOENT || errno == ENOTDIR) &&
           go_up(ret_found))
        ;
    if (is_there && !S_ISDIR(about.st_mode))
        return error_set_param(err, ERR_INVALID, setting, "%s is '%s', and '%s' is no folder",
                               setting, path, ret_found);
    if (is_there && access(ret_found, W_OK) != 0 && errno == EROFS)
        return error_set_param(err, ERR_INVALID, setting,
                               "%s is '%s', and '%s' is mounted read-only", setting, path,
                               ret_found);
    return true;
}

/* Its folder is there, or is the state's, which is made. */
static bool check_socket(const struct config *config, struct error *err)
{
    char folder[LIMIT_PATH_BYTES];
    struct stat about;

    if (lstat(config->socket_path, &about) == 0)
        return S_ISSOCK(about.st_mode) ||
               error_set_param(err, ERR_INVALID, "socket_path",
                               "socket_path is '%s', which is there and is no socket",
                               config->socket_path);
    (void)snprintf(folder, sizeof(folder), "%s", config->socket_path);
    if (!go_up(folder) || strcmp(folder, config->state_dir) == 0)
        return true;
    if (stat(folder, &about) == 0 ? S_ISDIR(about.st_mode) : errno != ENOENT && errno != ENOTDIR)
        return true;
    return error_set_param(err, ERR_INVALID, "socket_path",
                           "socket_path is '%s', and there is no folder '%s'", config->socket_path,
                           folder);
}

static bool check_reserve(const struct config *config, const char *folder, struct error *err)
{
    struct statvfs disk;
    uint64_t size_bytes;

    if (statvfs(folder, &disk) != 0)
        return true;
    size_bytes = (uint64_t)disk.f_blocks * disk.f_frsize;
    return size_bytes == 0 || config->disk_reserve_bytes < size_bytes ||
           error_set_param(err, ERR_INVALID, "disk_reserve_mb",
                           "disk_reserve_mb is %" PRIu64 ", the whole disk of '%s' has %" PRIu64
                           " MB: no job would ever find room",
                           config->disk_reserve_bytes >> 20, config->state_dir, size_bytes >> 20);
}

bool check_folders(const struct config *config, struct error *err)
{
    char found[LIMIT_PATH_BYTES];

    return check_folder("state_dir", config->state_dir, found, err) &&
           check_folder("models_dir", config->models_dir, found, err);
}

bool check_machine(const struct config *config, struct error *err)
{
    char found[LIMIT_PATH_BYTES];

    return check_folders(config, err) && check_socket(config, err) &&
           check_folder("state_dir", config->state_dir, found, err) &&
           check_reserve(config, found, err);
}
