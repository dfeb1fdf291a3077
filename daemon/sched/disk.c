#include "daemon/sched/disk.h"

#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/base/limits.h"
#include "daemon/base/log.h"
#include "daemon/sched/home.h"

#include <dirent.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PIECE_COUNT                                                                                \
    4 /* of the ballast: each helps once, also where others fill the disk up again */
#define PIECE_MIN_BYTES ((uint64_t)64 << 10)
#define PIECE_MAX_BYTES ((uint64_t)4 << 20)
#define WRITE_BYTES ((size_t)64 << 10)
#define BETWEEN_NS INT64_C(1000000000) /* between pieces: one is enough for all that fail at once */
#define FIRST_WAIT_NS INT64_C(4000000000) /* between tries, twice as long each time, */
#define LAST_WAIT_NS INT64_C(64000000000) /* up to this */
#define RELAPSE_NS                                                                                 \
    INT64_C(128000000000) /* a fault so soon after the last goes on where that ended */

struct disk {
    char folder[LIMIT_PATH_BYTES];
    uint64_t reserve_bytes, piece_bytes;
    size_t piece_max;           /* PIECE_COUNT, or less where something else bears a piece's name */
    _Atomic size_t piece_count; /* on disk; they are taken from the end */
    struct home home;           /* written before there are threads */
    pthread_mutex_t lock;
    int64_t given_ns;              /* guarded by lock: when the last piece was given up */
    struct error fault;            /* guarded by lock: ERR_NONE in service */
    int64_t next_look_ns, wait_ns; /* guarded by lock */
    int64_t back_ns;               /* guarded by lock: in service since */
};

/* ---- room -------------------------------------------------------------------------------------------- */

/* False: the system does not say. */
static bool read_free(const struct disk *disk, uint64_t *ret_bytes)
{
    struct statvfs about;

    if (statvfs(disk->folder, &about) != 0)
        return false;
    *ret_bytes = (uint64_t)about.f_bavail * about.f_frsize;
    return true;
}

static uint64_t sum(uint64_t a, uint64_t b)
{
    uint64_t both;

    return __builtin_add_overflow(a, b, &both) ? UINT64_MAX : both;
}

static bool check_free(const struct disk *disk, uint64_t more_bytes, uint64_t promised_bytes,
                       struct error *err)
{
    const uint64_t wanted_bytes = sum(sum(more_bytes, disk->reserve_bytes), promised_bytes);
    uint64_t free_bytes = 0;
    char promised[96] = "";

    if (!read_free(disk, &free_bytes))
        return true;
    /* The ballast is part of the reserve. A figure: no order. */
    free_bytes +=
        disk->piece_bytes * atomic_load_explicit(&disk->piece_count, memory_order_relaxed);
    if (free_bytes >= wanted_bytes)
        return true;
    if (promised_bytes > 0)
        (void)snprintf(promised, sizeof(promised),
                       " and %" PRIu64 " for what running jobs still write", promised_bytes);
    return error_set_word(err, ERR_NO_MEMORY, ERROR_DISK_FULL, "",
                          "disk full: %" PRIu64 " bytes are needed where the state lies, %" PRIu64
                          " of them as a reserve%s, %" PRIu64 " are free",
                          wanted_bytes, disk->reserve_bytes, promised, free_bytes);
}

/* ---- the ballast ------------------------------------------------------------------------------------- */

static bool name_piece(const struct disk *disk, size_t piece, char ret_path[LIMIT_PATH_BYTES],
                       struct error *err)
{
    char name[32];

    (void)snprintf(name, sizeof(name), "ballast-%zu", piece);
    return file_join(ret_path, LIMIT_PATH_BYTES, disk->folder, name, err);
}

/* Zeros, not a hole: it is the room that counts. */
static bool write_piece(struct disk *disk, size_t piece, struct error *err)
{
    char path[LIMIT_PATH_BYTES];
    struct file_writer *writer = NULL;
    char *zeros = calloc(1, WRITE_BYTES);
    bool ok = zeros || error_set(err, ERR_NO_MEMORY, "no memory to try the disk");

    ok = ok && name_piece(disk, piece, path, err) && file_writer_open(path, &writer, err);
    for (uint64_t left = disk->piece_bytes; ok && left > 0;) {
        const size_t size = left < WRITE_BYTES ? (size_t)left : WRITE_BYTES;

        ok = file_writer_append(writer, zeros, size, err);
        left -= size;
    }
    free(zeros);
    if (ok)
        return file_writer_commit(writer, NULL, NULL, err);
    file_writer_discard(writer);
    return false;
}

static bool write_ballast(struct disk *disk, struct error *err)
{
    size_t count;

    while ((count = atomic_load(&disk->piece_count)) < disk->piece_max) {
        if (!write_piece(disk, count, err))
            return false;
        if (!atomic_compare_exchange_strong(&disk->piece_count, &count, count + 1))
            return true; /* somebody needs them just now */
    }
    return true;
}

/* False: there is none left. */
static bool give_up_piece(struct disk *disk)
{
    char path[LIMIT_PATH_BYTES];
    size_t count = atomic_load(&disk->piece_count);

    while (count > 0 && !atomic_compare_exchange_weak(&disk->piece_count, &count, count - 1))
        ; /* count was read again */
    return count > 0 && name_piece(disk, count - 1, path, NULL) && unlink(path) == 0;
}

/* ---- in and out of service --------------------------------------------------------------------------- */

static bool is_gone(const struct error *fault)
{
    return strcmp(fault->word, ERROR_STATE_GONE) == 0;
}

static void log_fault(const struct disk *disk, const struct error *why)
{
    if (is_gone(why))
        log_write(
            LOG_LEVEL_ERROR,
            "%s. It was '%s'. Running jobs stop and nothing is taken or answered from it until "
            "it is back",
            why->message, disk->folder);
    else if (error_is_open_files(why))
        log_write(
            LOG_LEVEL_ERROR,
            "no more files can be opened (ulimit -n, LimitNOFILE=): %s. Jobs wait, creates and "
            "uploads are refused until some can",
            why->message);
    else
        log_write(LOG_LEVEL_ERROR,
                  "the disk of '%s' %s: %s. Jobs wait, creates and uploads are refused; reading, "
                  "deleting and cancelling go on",
                  disk->folder,
                  strcmp(why->word, ERROR_DISK_FULL) == 0 ? "is full" : "takes no writes",
                  why->message);
}

static bool report(struct disk *disk, const struct error *why, bool is_urgent)
{
    const int64_t now_ns = clock_monotonic_ns();
    uint64_t free_bytes = 0;
    bool full, is_short, give, news;

    if (!disk || !error_is_passing(why))
        return false;
    is_short = read_free(disk, &free_bytes) && free_bytes < disk->piece_bytes;
    full = strcmp(why->word, ERROR_DISK_FULL) == 0;
    (void)pthread_mutex_lock(&disk->lock);
    /* Where there is no folder it does not matter any more what its disk refused. */
    news = disk->fault.code == ERR_NONE || (is_gone(why) && !is_gone(&disk->fault));
    if (news) {
        disk->fault = *why;
        if (now_ns - disk->back_ns > RELAPSE_NS || disk->back_ns == 0)
            disk->wait_ns = 0; /* else as long as the last time, and longer */
        disk->next_look_ns = now_ns + disk->wait_ns;
    }
    give = full && (news || (is_urgent && (is_short || now_ns - disk->given_ns >= BETWEEN_NS)));
    if (give)
        disk->given_ns = now_ns;
    (void)pthread_mutex_unlock(&disk->lock);
    if (news)
        log_fault(disk, why);
    return give && give_up_piece(disk);
}

bool disk_report(struct disk *disk, const struct error *why)
{
    return report(disk, why, false);
}

bool disk_make_room(struct disk *disk, const struct error *why)
{
    return report(disk, why, true);
}

bool disk_check_service(struct disk *disk, struct error *err)
{
    struct error fault;

    if (!disk)
        return true;
    (void)pthread_mutex_lock(&disk->lock);
    fault = disk->fault;
    (void)pthread_mutex_unlock(&disk->lock);
    if (fault.code == ERR_NONE)
        return true;
    error_hide_folder(&fault, disk->folder, ""); /* jobs' records and clients are told it */
    if (error_is_open_files(&fault))
        error_wrap(&fault, "open-file limit");
    else if (!is_gone(&fault) && strncmp(fault.message, "disk ", strlen("disk ")) != 0)
        error_wrap(&fault, strcmp(fault.word, ERROR_DISK_FULL) == 0 ? "disk full" : "disk failing");
    if (err)
        *err = fault;
    return false;
}

bool disk_check_home(struct disk *disk, struct error *err)
{
    struct error why = {0};

    if (!disk || home_look(&disk->home, &why) == HOME_SAME)
        return true;
    (void)disk_report(disk, &why); /* which has no use for the ballast */
    if (err)
        *err = why;
    return false;
}

bool disk_is_to_blame(struct disk *disk, struct error *fault)
{
    struct error gone = {0};

    if (!disk_check_home(disk, &gone))
        *fault = gone;
    return error_is_passing(fault);
}

bool disk_is_replaced(const struct disk *disk)
{
    return home_look(&disk->home, NULL) == HOME_REPLACED;
}

bool disk_check_room(struct disk *disk, uint64_t more_bytes, uint64_t promised_bytes,
                     struct error *err)
{
    return !disk || (disk_check_home(disk, err) && disk_check_service(disk, err) &&
                     check_free(disk, more_bytes, promised_bytes, err));
}

static bool was_gone(struct disk *disk)
{
    bool gone;

    (void)pthread_mutex_lock(&disk->lock);
    gone = is_gone(&disk->fault);
    (void)pthread_mutex_unlock(&disk->lock);
    return gone;
}

/* Whether it is time to try; the next time is set. */
static bool is_due(struct disk *disk)
{
    const int64_t now_ns = clock_monotonic_ns();
    bool due;

    (void)pthread_mutex_lock(&disk->lock);
    due = disk->fault.code != ERR_NONE && now_ns >= disk->next_look_ns;
    if (due) {
        disk->wait_ns = 2 * disk->wait_ns < LAST_WAIT_NS ? 2 * disk->wait_ns : LAST_WAIT_NS;
        if (disk->wait_ns < FIRST_WAIT_NS)
            disk->wait_ns = FIRST_WAIT_NS;
        disk->next_look_ns = now_ns + disk->wait_ns;
    }
    (void)pthread_mutex_unlock(&disk->lock);
    return due;
}

/* False: it is known to take none, without a try. */
static bool may_take_writes(struct disk *disk)
{
    struct statvfs about;
    struct error err = {0};

    if (statvfs(disk->folder, &about) != 0 || (about.f_flag & ST_RDONLY) == 0)
        return true;
    (void)error_set_word(&err, ERR_IO, ERROR_DISK_FAULT, "", "it is mounted read-only");
    (void)disk_report(disk, &err); /* which has no use for the ballast */
    return false;
}

static void set_in_service(struct disk *disk, const char *news)
{
    (void)pthread_mutex_lock(&disk->lock);
    disk->fault = (struct error){0};
    disk->back_ns = clock_monotonic_ns();
    (void)pthread_mutex_unlock(&disk->lock);
    log_write(LOG_LEVEL_INFO, "the disk of '%s' %s: the queue goes on", disk->folder, news);
}

/* Where nothing of the ballast was given up a piece is written anew: something must be. */
static bool try_to_write(struct disk *disk, struct error *err)
{
    const size_t count = atomic_load(&disk->piece_count);

    if (count < disk->piece_max)
        return write_ballast(disk, err);
    return count == 0 || write_piece(disk, count - 1, err);
}

void disk_look(struct disk *disk)
{
    struct error err = {0};
    bool out;

    if (!disk || !disk_check_home(disk, NULL))
        return;
    if (was_gone(disk)) { /* it is back, whatever room there is */
        set_in_service(disk, "is back");
        if (!try_to_write(disk, &err))
            (void)disk_report(disk, &err);
        return;
    }
    if (!may_take_writes(disk))
        return;
    out = is_due(disk);
    if (!out &&
        (!disk_check_service(disk, NULL) || atomic_load(&disk->piece_count) == disk->piece_max))
        return;
    if (!check_free(disk, 0, 0, &err))
        return; /* one that is short of room stays as it is */
    if (!try_to_write(disk, &err))
        (void)disk_report(disk, &err);
    else if (out)
        set_in_service(disk, "takes writes again");
}

/* ---- start, end, shown ------------------------------------------------------------------------------- */

/* What else is called so is told, and left alone. */
static void tell_odd_pieces(const struct disk *disk)
{
    const struct dirent *entry;
    DIR *folder = opendir(disk->folder);

    while (folder && (entry = readdir(folder)) != NULL) {
        const char *number = entry->d_name + strlen("ballast-");

        if (strncmp(entry->d_name, "ballast-", strlen("ballast-")) != 0)
            continue;
        if (number[0] < '0' || number[0] >= '0' + (char)disk->piece_max || number[1] != '\0')
            log_write(LOG_LEVEL_WARN,
                      "'%s' in the state folder is none of the ballast that is kept there: it is "
                      "left alone, and what it takes is not given up on a full disk",
                      entry->d_name);
    }
    if (folder)
        (void)closedir(folder); /* only read */
}

/* Those of the last start; one of another size, as after a change of the reserve, is written anew. */
static size_t count_pieces(struct disk *disk)
{
    char path[LIMIT_PATH_BYTES];
    struct stat about;
    size_t count = 0;

    disk->piece_max = 0;
    while (disk->piece_max < PIECE_COUNT && name_piece(disk, disk->piece_max, path, NULL)) {
        const bool is_there = lstat(path, &about) == 0;

        if (is_there && (!S_ISREG(about.st_mode) || about.st_uid != geteuid()))
            break;
        if (is_there && count == disk->piece_max && (uint64_t)about.st_size == disk->piece_bytes)
            count++;
        disk->piece_max++;
    }
    tell_odd_pieces(disk);
    return count;
}

bool disk_open(const char *state_folder, uint64_t reserve_bytes, struct disk **ret_disk,
               struct error *err)
{
    struct disk *disk = calloc(1, sizeof(*disk));
    struct error why = {0};
    uint64_t piece_bytes = reserve_bytes / (4 * PIECE_COUNT), free_bytes = 0;

    if (!disk)
        return error_set(err, ERR_NO_MEMORY, "no memory to look after the disk");
    if (piece_bytes > PIECE_MAX_BYTES)
        piece_bytes = PIECE_MAX_BYTES;
    if (piece_bytes < PIECE_MIN_BYTES)
        piece_bytes = PIECE_MIN_BYTES;
    (void)snprintf(disk->folder, sizeof(disk->folder), "%s", state_folder);
    disk->piece_bytes = piece_bytes;
    disk->reserve_bytes =
        reserve_bytes > PIECE_COUNT * piece_bytes ? reserve_bytes : PIECE_COUNT * piece_bytes;
    (void)pthread_mutex_init(&disk->lock, NULL);         /* cannot fail without attributes */
    atomic_init(&disk->piece_count, count_pieces(disk)); /* of the last start */
    if (read_free(disk, &free_bytes) && free_bytes < disk->piece_bytes)
        error_set_word(&why, ERR_NO_MEMORY, ERROR_DISK_FULL, "",
                       "%" PRIu64 " bytes are free at the start", free_bytes);
    else if (check_free(disk, 0, 0, NULL))
        (void)write_ballast(disk, &why); /* its failure is told with the other */
    (void)disk_make_room(disk, &why);    /* a start writes a little */
    *ret_disk = disk;
    return true;
}

bool disk_settle(struct disk *disk, const char *database_path, struct error *err)
{
    return home_note(&disk->home, disk->folder, database_path, err);
}

void disk_close(struct disk *disk)
{
    if (!disk)
        return;
    (void)pthread_mutex_destroy(&disk->lock);
    free(disk);
}

struct json *disk_json(struct disk *disk, char *ret_reason, size_t capacity)
{
    struct json *object = json_new_object();
    struct error why = {0};
    const char *state = "ok";
    uint64_t free_bytes = 0;

    if (!disk_check_home(disk, &why))
        state = "gone";
    else if (!disk_check_service(disk, &why))
        state = is_gone(&why)                            ? "gone"
                : strcmp(why.word, ERROR_DISK_FULL) == 0 ? "full"
                                                         : "failing";
    else if (disk && !check_free(disk, 0, 0, &why))
        state = "low";
    (void)snprintf(ret_reason, capacity, "%s", why.message);
    json_add_string(object, "state", state);
    json_add_string(object, "reason", why.message[0] ? why.message : NULL);
    if (disk && read_free(disk, &free_bytes))
        json_add_int(object, "free_bytes", (int64_t)free_bytes);
    else
        json_add_null(object, "free_bytes");
    json_add_int(object, "reserve_bytes", disk ? (int64_t)disk->reserve_bytes : 0);
    return object;
}
