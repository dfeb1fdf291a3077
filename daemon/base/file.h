/*
 * file: files read by mapping and written whole.
 *
 * Purpose    A file under its final name is complete and on disk: temporary name in the same
 *            folder, write, fsync, rename, fsync of the folder. Also SHA-256 and folders.
 * Ownership  mapping_open / mapping_close; file_writer_open / file_writer_commit or _discard.
 * Threads    One object, one thread.
 * Failure    Messages name the path and the system's reason; a full disk is ERR_NO_MEMORY and
 *            says "disk full"; no more open files is ERR_UNAVAILABLE. Symbolic links are not followed for writing (O_NOFOLLOW), and what is
 *            called "of ours" is not reached through a folder that is one.
 */
#ifndef NEEDLED_FILE_H
#define NEEDLED_FILE_H

#include "daemon/base/error.h"

#include <dirent.h>
#include <stddef.h>
#include <stdint.h>

#define SHA256_HEX_SIZE 65 /* 64 digits and the NUL */

struct mapping {
    const unsigned char *data; /* NULL when the file is empty */
    size_t size;
    int descriptor;
};
#define MAPPING_NONE ((struct mapping){.descriptor = -1})

/* Opens a regular file, never waiting for the other end of a pipe that has its name; the one way in which files of
 * the state and of bases are opened (tests/lint). flags: as for open(2); one that O_CREAT makes has mode 0600.
 * ERR_INVALID: no regular file; ERR_CORRUPT: a symbolic link, with O_NOFOLLOW. */
MUST_CHECK bool file_open(const char *path, int flags, int *ret_descriptor, struct error *err);
/* Turns errno into an error that names the path: what was tried, on what, and why not. False. */
bool file_fail(struct error *err, const char *what, const char *path);

MUST_CHECK bool mapping_open(struct mapping *map, const char *path, struct error *err);
void mapping_close(struct mapping *map); /* MAPPING_NONE is fine; leaves MAPPING_NONE */

/* A file being written under a temporary name. Size and SHA-256 are counted on the way. */
struct file_writer;
MUST_CHECK bool file_writer_open(const char *path, struct file_writer **ret_writer,
                                 struct error *err);
MUST_CHECK bool file_writer_append(struct file_writer *writer, const void *bytes, size_t size,
                                   struct error *err);
/* Makes the file whole under its final name and frees the writer, also on failure. ret_sha256 may
 * be NULL. */
MUST_CHECK bool file_writer_commit(struct file_writer *writer, uint64_t *ret_size_bytes,
                                   char ret_sha256[SHA256_HEX_SIZE], struct error *err);
void file_writer_discard(struct file_writer *writer); /* removes the temporary; NULL is fine */

/* Writes a whole file from memory. */
MUST_CHECK bool file_write(const char *path, const void *bytes, size_t size, struct error *err);

/* SHA-256 as lower-case hex, of bytes in memory and of a file's content. */
void file_sha256_of(const void *bytes, size_t size, char ret_sha256[SHA256_HEX_SIZE]);
MUST_CHECK bool file_sha256(const char *path, char ret_sha256[SHA256_HEX_SIZE], struct error *err);

/* Creates the folder and its parents with mode 0700 where missing. */
MUST_CHECK bool file_make_folder(const char *path, struct error *err);

/* Opens a folder of ours; closedir it. ERR_CORRUPT: it is a symbolic link, or no folder. */
MUST_CHECK bool file_open_folder(const char *path, DIR **ret_folder, struct error *err);

/* Removes a file; one that is not there is fine. */
MUST_CHECK bool file_remove(const char *path, struct error *err);
/* The same in a folder of ours: nothing is removed where that is a link. */
MUST_CHECK bool file_remove_inside(const char *path, struct error *err);

/* Joins folder and name into ret_path; fails on overflow. */
MUST_CHECK bool file_join(char *ret_path, size_t capacity, const char *folder, const char *name,
                          struct error *err);

/* Writes `prefix` and `digit_count` random letters and digits (getrandom) plus a NUL. */
MUST_CHECK bool file_random_id(char *ret_id, size_t capacity, const char *prefix,
                               size_t digit_count, struct error *err);

#endif
