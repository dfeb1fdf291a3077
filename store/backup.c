#include "store/backup.h"

#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "daemon/base/limits.h"
#include "store/inspect.h"
#include "store/sql.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define SIDE_PATH_BYTES (LIMIT_PATH_BYTES + BACKUP_ASIDE_SIZE + 16)

static bool system_fail(const char *doing, const char *path, struct error *err)
{
    const int number = errno;
    const char *limit = error_disk_limit(number);

    return error_set(err, limit[0] ? ERR_NO_MEMORY : ERR_IO, "%s '%s': %s%s%s", doing, path, limit,
                     limit[0] ? ": " : "", strerrordesc_np(number));
}

static bool sync_file(const char *path, struct error *err)
{
    int descriptor;
    bool ok;

    if (!file_open(path, O_RDONLY | O_NOFOLLOW, &descriptor, err))
        return false;
    ok = fsync(descriptor) == 0 || system_fail("sync", path, err);
    (void)close(descriptor); /* was synced, or the failure is told */
    return ok;
}

/* ---- writing ------------------------------------------------------------------------------------ */

/* An empty file of ours alone; SQLite would make one that others may read. */
static bool make_file(const char *path, struct error *err)
{
    int descriptor;

    if (!file_remove(path, err)) /* of a copy that was cut off */
        return false;
    descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (descriptor < 0)
        return system_fail("create", path, err);
    (void)close(descriptor); /* nothing was written */
    return true;
}

static bool copy_failed(int code, const char *path, sqlite3 *target, struct error *err)
{
    const int number = (code & 0xff) == SQLITE_FULL ? ENOSPC : sqlite3_system_errno(target);
    const char *limit = error_disk_limit(number);

    return error_set(err, limit[0] ? ERR_NO_MEMORY : ERR_IO, "copy the database to '%s': %s%s%s",
                     path, limit, limit[0] ? ": " : "",
                     target ? sqlite3_errmsg(target) : "no memory");
}

/* All pages in one step, which is one moment. The file counts once it is whole: nothing is kept of a copy
 * that was cut off, so it needs no journal. */
static bool copy_pages(sqlite3 *source, const char *path, struct error *err)
{
    sqlite3_backup *copy = NULL;
    sqlite3 *target = NULL;
    bool ok;
    int code = sqlite3_open_v2(path, &target, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);

    if (code == SQLITE_OK)
        code = sqlite3_exec(target, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF", NULL,
                            NULL, NULL);
    if (code == SQLITE_OK) {
        copy = sqlite3_backup_init(target, "main", source, "main");
        code = copy ? sqlite3_backup_step(copy, -1) : sqlite3_errcode(target);
        (void)sqlite3_backup_finish(copy); /* repeats the failure we have */
    }
    ok = code == SQLITE_DONE || copy_failed(code, path, target, err);
    (void)sqlite3_close(target); /* no statement is left */
    return ok;
}

/* Before the disk is filled: others write to it too. */
static bool check_room(sqlite3 *source, const char *path, struct error *err)
{
    sqlite3_stmt *statement = NULL;
    char folder[SIDE_PATH_BYTES];
    struct statvfs disk;
    int64_t size = 0;
    int code = sqlite3_prepare_v2(source,
                                  "SELECT page_count * page_size FROM pragma_page_count,"
                                  " pragma_page_size",
                                  -1, &statement, NULL);

    if (code == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW)
        size = sqlite3_column_int64(statement, 0);
    (void)sqlite3_finalize(statement);                  /* the copy itself tells what is wrong */
    (void)snprintf(folder, sizeof(folder), "%s", path); /* made to fit */
    if (statvfs(dirname(folder), &disk) != 0 ||
        (double)disk.f_bavail * (double)disk.f_frsize >= (double)size)
        return true;
    return error_set(err, ERR_NO_MEMORY, "disk full: a copy of %lld bytes does not fit beside '%s'",
                     (long long)size, path);
}

static bool write_whole(sqlite3 *source, const char *path, struct error *err)
{
    char temporary[SIDE_PATH_BYTES];

    if (strlen(path) >= LIMIT_PATH_BYTES)
        return error_set(err, ERR_LIMIT, "path '%.64s...' is too long", path);
    (void)snprintf(temporary, sizeof(temporary), "%s.tmp", path); /* made to fit */
    if (!check_room(source, path, err) || !make_file(temporary, err))
        return false;
    if (!copy_pages(source, temporary, err) || !sync_file(temporary, err))
        goto fail;
    if (rename(temporary, path) != 0) {
        system_fail("rename", temporary, err);
        goto fail;
    }
    return store_sync_folder(path, err);
fail:
    (void)unlink(temporary); /* a further try removes it too */
    return false;
}

bool backup_write(struct store *store, const char *path, struct error *err)
{
    assert(!store->in_transaction);
    return write_whole(store->db, path, err);
}

/* ---- putting back ------------------------------------------------------------------------------- */

/* The copy beside the database; its source may have a log of its own, so SQLite reads it. */
static bool copy_backup(const char *backup, const char *target, struct error *err)
{
    struct inspection found;
    sqlite3 *source = NULL;
    bool ok;

    if (!inspect_file(backup, "restore from another file", &found, err))
        return false;
    if (inspect_open(backup, &source) == SQLITE_OK)
        ok = write_whole(source, target, err);
    else
        ok = error_set(err, ERR_IO, "open '%s': %s", backup, sqlite3_errmsg(source));
    (void)sqlite3_close(source); /* no statement is left */
    return ok;
}

static void join(char ret_path[SIDE_PATH_BYTES], const char *path, const char *aside,
                 const char *suffix)
{
    (void)snprintf(ret_path, SIDE_PATH_BYTES, "%s%s%s", path, aside, suffix); /* made to fit */
}

/* Root puts it back for the daemon's user, whose folder it is. */
static bool give_to_owner(const char *path, struct error *err)
{
    char folder[SIDE_PATH_BYTES];
    struct stat info;

    if (geteuid() != 0)
        return true;
    (void)snprintf(folder, sizeof(folder), "%s", path); /* made to fit */
    return (stat(dirname(folder), &info) == 0 && lchown(path, info.st_uid, info.st_gid) == 0) ||
           system_fail("give to the owner of its folder", path, err);
}

/* A second name for a file, so that it is there under one of them whatever happens. */
static bool keep(const char *path, const char *aside, const char *suffix, bool *ret_there,
                 struct error *err)
{
    char from[SIDE_PATH_BYTES], to[SIDE_PATH_BYTES];

    join(from, path, "", suffix);
    join(to, path, aside, suffix);
    *ret_there = link(from, to) == 0;
    return *ret_there || errno == ENOENT || system_fail("keep", from, err);
}

/* The one of its two names that it had. */
static void put_back(const char *path, const char *aside, const char *suffix)
{
    char from[SIDE_PATH_BYTES], to[SIDE_PATH_BYTES];

    join(from, path, aside, suffix);
    join(to, path, "", suffix);
    if (link(from, to) == 0 || errno == EEXIST)
        (void)unlink(from); /* one that stays is a copy too many */
}

static bool remove_side(const char *path, const char *suffix, struct error *err)
{
    char side[SIDE_PATH_BYTES];

    join(side, path, "", suffix);
    return file_remove(side, err);
}

/* A name that is not taken: two restores may fall into one second. */
static void name_aside(const char *path, char ret_aside[BACKUP_ASIDE_SIZE])
{
    const time_t now = (time_t)clock_unix_s();
    char stem[BACKUP_ASIDE_SIZE - 8], taken[SIDE_PATH_BYTES];
    struct tm utc = {0};

    (void)gmtime_r(&now, &utc); /* years of four digits */
    (void)strftime(stem, sizeof(stem), ".replaced-%Y%m%dT%H%M%SZ", &utc);
    (void)snprintf(ret_aside, BACKUP_ASIDE_SIZE, "%s", stem);
    for (int number = 2; number < 100; number++) {
        join(taken, path, ret_aside, "");
        if (access(taken, F_OK) != 0)
            return;
        (void)snprintf(ret_aside, BACKUP_ASIDE_SIZE, "%s-%d", stem, number);
    }
}

/* The new database takes the name last: its log would be that of the old one. */
bool backup_restore(const char *backup, const char *path, char ret_aside[BACKUP_ASIDE_SIZE],
                    struct error *err)
{
    char fresh[SIDE_PATH_BYTES], aside[BACKUP_ASIDE_SIZE];
    bool there = false, has_log = false;

    if (strlen(path) >= LIMIT_PATH_BYTES - BACKUP_ASIDE_SIZE)
        return error_set(err, ERR_LIMIT, "database path '%.64s...' is too long", path);
    (void)snprintf(fresh, sizeof(fresh), "%s.restored", path); /* made to fit */
    name_aside(path, aside);
    if (!copy_backup(backup, fresh, err))
        return false;
    if (!give_to_owner(fresh, err))
        goto fail;
    if (!keep(path, aside, "", &there, err) || !keep(path, aside, "-wal", &has_log, err) ||
        !store_sync_folder(path, err) || !remove_side(path, "-wal", err) ||
        !remove_side(path, "-shm", err))
        goto fail;
    if (rename(fresh, path) != 0) {
        system_fail("rename", fresh, err);
        goto fail;
    }
    if (!store_sync_folder(path, err))
        return false;
    (void)snprintf(ret_aside, BACKUP_ASIDE_SIZE, "%s", there ? aside : "");
    return true;
fail:
    if (has_log)
        put_back(path, aside, "-wal");
    if (there)
        put_back(path, aside, "");
    (void)unlink(fresh); /* a further try writes over it */
    return false;
}
