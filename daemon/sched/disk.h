/*
 * disk: whether the disk that holds the state takes what is written.
 *
 * Purpose    The rule, in words. A reserve stays free of jobs and uploads. A part of it are files, the
 *            ballast. The first write that fails takes the disk out of service: running jobs are queued
 *            again, nothing is started, creates and uploads are refused, reading goes on. A piece of the
 *            ballast is given up each time, so that deletes, cancels and the end of a job find room.
 *            From time to time the ballast is written again; once that works with the reserve free,
 *            the disk is in service and the queue goes on. A job that may open no more files is waited for in the
 *            same way; others that run go on. A state folder that is gone (home.h) takes the
 *            disk out of service too, and there is nothing that reads or writes what is in its place.
 * Ownership  disk_open / disk_close.
 * Threads    Any.
 * Failure    Full: ERR_NO_MEMORY with the word disk_full. Refusing writes (input/output errors, read-only):
 *            ERR_IO with the word disk_error. Gone: ERR_IO with the word state_gone. All are error_is_disk. No
 *            more open files: ERR_UNAVAILABLE with open_file_limit. A NULL disk never is any of it.
 */
#ifndef NEEDLED_DISK_H
#define NEEDLED_DISK_H

#include "daemon/base/error.h"

#include <stddef.h>
#include <stdint.h>

struct disk;
struct json;

/* A disk that is full or refuses writes is no failure, but its state. */
MUST_CHECK bool disk_open(const char *state_folder, uint64_t reserve_bytes, struct disk **ret_disk,
                          struct error *err);
void disk_close(struct disk *disk); /* the ballast stays; NULL is fine */
/* Once the state folder is whole, and before the first other thread: what is there now is the state. */
MUST_CHECK bool disk_settle(struct disk *disk, const char *database_path, struct error *err);

/* A write failed. An error that is not error_is_passing changes nothing. The first one gives a piece of the
 * ballast up; what is tried again and again in the background must not use up the others. True: there is
 * more room now, it may be tried again. */
bool disk_report(struct disk *disk, const struct error *why);
/* The same of a write that gives room back, or that must be: each may have a piece. */
bool disk_make_room(struct disk *disk, const struct error *why);
/* ERR_NO_MEMORY or ERR_IO with what failed, while the disk is out of service. */
MUST_CHECK bool disk_check_service(struct disk *disk, struct error *err);
/* Whether the state folder is still there, just now; what the disk refuses is no matter. */
MUST_CHECK bool disk_check_home(struct disk *disk, struct error *err);
/* Whether what failed is error_is_passing, and not its file's fault: one that is not where it was is found missing
 * where the state folder is gone, which *fault then says. */
bool disk_is_to_blame(struct disk *disk, struct error *fault);
/* The files that we have open are those of another database than the one that is there: only a new start
 * helps, and nothing is to be closed in order, which would remove the other's log. */
bool disk_is_replaced(const struct disk *disk);
/* The first two together, and ERR_NO_MEMORY with the figures where so many more bytes would touch the reserve,
 * or what is promised to jobs that run and have not written it yet. */
MUST_CHECK bool disk_check_room(struct disk *disk, uint64_t more_bytes, uint64_t promised_bytes,
                                struct error *err);
/* Now and then, from a thread that may wait for the disk: brings it back into service. */
void disk_look(struct disk *disk);

/* {"state": "ok", "low", "full", "failing" or "gone", "reason", "free_bytes", "reserve_bytes"}; *ret_reason is ""
 * for "ok". */
struct json *disk_json(struct disk *disk, char *ret_reason, size_t capacity);

#endif
