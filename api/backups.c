#include "api/handlers.h"
#include "api/request.h"
#include "api/stores.h"
#include "daemon/base/file.h"
#include "daemon/base/limits.h"
#include "daemon/base/log.h"
#include "daemon/sched/scheduler.h"
#include "store/backup.h"

#include <sys/stat.h>
#include <unistd.h>

/* What jobs and uploads leave free is not a backup's either. */
static bool check_room(const struct services *services, struct error *err)
{
    struct stat database = {0};

    return stat(stores_path(services->stores), &database) != 0 || /* the copy tells what is wrong */
           scheduler_check_disk(services->scheduler, (uint64_t)database.st_size, err);
}

/* The copy has a name only while it is written: the answer keeps it open. One that a killed daemon left is
 * removed with its other temporary files. */
bool backups_handle_get(struct request *request, struct error *err)
{
    const struct services *services = request->services;
    char path[LIMIT_PATH_BYTES];
    bool ok;

    if (!file_join(path, sizeof(path), services->state_folder, "uploads/backup.tmp", err) ||
        !check_room(services, err) || !stores_begin_copy(services->stores, err))
        return false;
    ok = backup_write(request->store, path, err) &&
         response_set_file(&request->response, path, "application/vnd.sqlite3", "needled-backup.db",
                           err);
    (void)unlink(path); /* absent where it failed */
    stores_end_copy(services->stores);
    if (ok)
        log_write(LOG_LEVEL_INFO, "a copy of the database was made for a backup");
    return ok;
}
