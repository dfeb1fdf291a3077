/*
 * error: what went wrong, once, in words a user can act on.
 *
 * Purpose    Carries a code (what to do), the field at fault and a message up to whoever decides.
 * Ownership  A plain value the caller owns; nothing to release.
 * Threads    Any; the value belongs to its caller.
 * Failure    Cannot fail; long messages are cut at the end of the array.
 */
#ifndef NEEDLED_ERROR_H
#define NEEDLED_ERROR_H

#include <stdbool.h>

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(format_index, first_index)                                                     \
    __attribute__((format(printf, format_index, first_index)))
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum error_code {
    ERR_NONE,
    ERR_INVALID,     /* the caller's input is wrong: change it */
    ERR_NOT_FOUND,   /* no such thing */
    ERR_CONFLICT,    /* not in this state */
    ERR_LIMIT,       /* a stated bound was passed */
    ERR_NO_MEMORY,   /* memory or disk space is short */
    ERR_IO,          /* the system refused; message says which file and why */
    ERR_CORRUPT,     /* a file or record is damaged */
    ERR_DEVICE,      /* a compute device failed */
    ERR_UNAVAILABLE, /* not now: try later */
    ERR_CANCELLED,   /* somebody asked us to stop */
    ERR_INTERNAL,    /* our own fault */
};

struct error {
    enum error_code code;
    char param[64]; /* the request or record field at fault, "" when none */
    char word[32];  /* a stable word for programs where the code says too little, or "" */
    char message[512];
};

/* Both are false, which the compiler sees too, so that a failing check reads
 * `return error_set(err, ...)`. err may be NULL. */
#define error_set(err, code, ...) (error_record((err), (code), "", __VA_ARGS__), error_false())
#define error_set_param(err, code, param, ...)                                                     \
    (error_record((err), (code), (param), __VA_ARGS__), error_false())
/* The same with a word: "file_in_use", "invalid_upload". param may be "". */
#define error_set_word(err, code, word, param, ...)                                                \
    (error_record((err), (code), (param), __VA_ARGS__), error_name((err), (word)), error_false())
void error_record(struct error *err, enum error_code code, const char *param, const char *format,
                  ...) PRINTF_LIKE(4, 5);
void error_name(struct error *err, const char *word);
static inline bool error_false(void)
{
    return false;
}

/* The words of a write that failed for the disk's sake: it may go on when the disk takes writes again. */
#define ERROR_DISK_FULL "disk_full"
#define ERROR_DISK_FAULT "disk_error"
#define ERROR_STATE_GONE "state_gone" /* the folder that it would go to is not there any more */
bool error_is_disk(const struct error *err);
/* The word for a system call's errno, "" when it is not the disk that is at fault. The limit of a file's
 * size that a process may have (ulimit -f) is as good as a full disk. */
const char *error_disk_word(int number);
/* Which of the two a full one is: "disk full" or "file size limit"; "" for any other errno. */
const char *error_disk_limit(int number);

/* The word of what failed because no more files may be open (ulimit -n, or the system's own limit). */
#define ERROR_OPEN_FILES "open_file_limit"
bool error_is_open_files(const struct error *err);
bool error_number_is_open_files(int number); /* of a system call's errno */
/* The disk's or that: what was tried is no worse for it, and works another time. */
bool error_is_passing(const struct error *err);

/* Puts "text: " before the message; code, param and word stay. */
void error_wrap(struct error *err, const char *format, ...) PRINTF_LIKE(2, 3);

/* Where the message names a path below folder ("/var/lib/needled/uploads/file-1"), what is before it
 * becomes `shown` ("uploads/file-1" for ""): for readers to whom the machine's folders say nothing. */
void error_hide_folder(struct error *err, const char *folder, const char *shown);
/* In place: of an absolute path the last name alone stays ("/opt/a/b.so: bad" is "b.so: bad"). Devices keep
 * theirs ("/dev/nvidiactl"), which is the same everywhere. For texts of libraries, not for users' own. */
void error_hide_paths(char *text);

const char *error_code_name(enum error_code code); /* "invalid", "not_found", ... */

#endif
