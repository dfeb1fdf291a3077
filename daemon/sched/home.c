#include "daemon/sched/home.h"

#include "daemon/base/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define DATABASE 1 /* its place among the entries */

static bool note_entry(const char *path, const char *name, struct home_entry *ret_entry,
                       struct error *err)
{
    struct stat about;

    if (stat(path, &about) != 0)
        return error_set(err, ERR_IO, "look at '%s': %s", path, strerrordesc_np(errno));
    ret_entry->name = name;
    ret_entry->device = about.st_dev;
    ret_entry->inode = about.st_ino;
    (void)snprintf(ret_entry->path, sizeof(ret_entry->path), "%s", path); /* was looked at: fits */
    return true;
}

bool home_note(struct home *home, const char *state_folder, const char *database_path,
               struct error *err)
{
    static const struct {
        const char *folder, *name;
    } inner[] = {{"uploads", "the folder 'uploads'"},
                 {"checkpoints", "the folder 'checkpoints'"},
                 {"artifacts", "the folder 'artifacts'"}};
    struct home_entry *entry = home->entries;
    char path[LIMIT_PATH_BYTES];

    home->count = 0;
    if (!note_entry(state_folder, "the state folder", entry++, err) ||
        !note_entry(database_path, "the database", entry++, err))
        return false;
    for (size_t i = 0; i < COUNT_OF(inner); i++) {
        if (!file_join(path, sizeof(path), state_folder, inner[i].folder, err) ||
            !note_entry(path, inner[i].name, entry++, err))
            return false;
    }
    home->count = (size_t)(entry - home->entries);
    return true;
}

static bool is_same(const struct home_entry *entry, const struct stat *about)
{
    return about->st_dev == entry->device && about->st_ino == entry->inode;
}

enum home_state home_look(const struct home *home, struct error *err)
{
    const struct home_entry *database = &home->entries[DATABASE];
    struct stat about;

    for (size_t i = 0; i < home->count; i++) {
        const struct home_entry *entry = &home->entries[i];

        if (stat(entry->path, &about) != 0)
            (void)error_set_word(err, ERR_IO, ERROR_STATE_GONE, "", "%s is gone: %s", entry->name,
                                 strerrordesc_np(errno));
        else if (!is_same(entry, &about))
            (void)error_set_word(err, ERR_IO, ERROR_STATE_GONE, "",
                                 "%s is gone: another is in its place", entry->name);
        else
            continue;
        return stat(database->path, &about) == 0 && !is_same(database, &about) ? HOME_REPLACED
                                                                               : HOME_GONE;
    }
    return HOME_SAME;
}
