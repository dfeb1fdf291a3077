#include "daemon/base/error.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void error_record(struct error *err, enum error_code code, const char *param, const char *format,
                  ...)
{
    char message[sizeof(err->message)]; /* the arguments may point into err itself */
    char name[sizeof(err->param)];
    va_list args;

    assert(code != ERR_NONE);
    assert(param);
    if (!err)
        return;
    va_start(args, format);
    (void)vsnprintf(message, sizeof(message), format, args); /* cut is fine */
    va_end(args);
    (void)snprintf(name, sizeof(name), "%s", param); /* cut is fine */
    err->code = code;
    err->word[0] = '\0';
    memcpy(err->message, message, sizeof(message));
    memcpy(err->param, name, sizeof(name));
}

void error_name(struct error *err, const char *word)
{
    if (err)
        (void)snprintf(err->word, sizeof(err->word), "%s", word); /* ours, and short */
}

void error_wrap(struct error *err, const char *format, ...)
{
    char message[sizeof(err->message)];
    va_list args;
    int length;

    if (!err)
        return;
    va_start(args, format);
    length = vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    if (length >= 0 && (size_t)length < sizeof(message))
        (void)snprintf(message + length, sizeof(message) - (size_t)length, ": %s", err->message);
    memcpy(err->message, message, sizeof(message));
}

bool error_is_disk(const struct error *err)
{
    return err &&
           (strcmp(err->word, ERROR_DISK_FULL) == 0 || strcmp(err->word, ERROR_DISK_FAULT) == 0 ||
            strcmp(err->word, ERROR_STATE_GONE) == 0);
}

bool error_is_open_files(const struct error *err)
{
    return err && strcmp(err->word, ERROR_OPEN_FILES) == 0;
}

bool error_number_is_open_files(int number)
{
    return number == EMFILE || number == ENFILE;
}

bool error_is_passing(const struct error *err)
{
    return error_is_disk(err) || error_is_open_files(err);
}

const char *error_disk_word(int number)
{
    switch (number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return ERROR_DISK_FULL;
    case EIO:
    case EROFS:
        return ERROR_DISK_FAULT;
    }
    return "";
}

const char *error_disk_limit(int number)
{
    if (strcmp(error_disk_word(number), ERROR_DISK_FULL) != 0)
        return "";
    return number == EFBIG ? "file size limit" : "disk full";
}

void error_hide_folder(struct error *err, const char *folder, const char *shown)
{
    char told[sizeof(err->message)];
    size_t size = strlen(folder), used = 0;

    while (size > 0 && folder[size - 1] == '/')
        size--;
    for (const char *at = err->message; *at && used + 1 < sizeof(told);) {
        if (size > 0 && strncmp(at, folder, size) == 0 && at[size] == '/') {
            (void)snprintf(told + used, sizeof(told) - used, "%s", shown); /* cut is fine */
            used += strlen(told + used);
            at += size + 1;
        } else {
            told[used++] = *at++;
        }
    }
    told[used] = '\0';
    memcpy(err->message, told, used + 1);
}

void error_hide_paths(char *text)
{
    char *to = text;
    char before = ' ';

    for (const char *at = text; *at;) {
        const bool starts = *at == '/' && strchr(" '\"(=:", before) != NULL && at[1] != '/';
        const size_t size = starts ? strcspn(at, before == '\'' ? "'" : " '\"():;,") : 1;
        const char *name = at;

        if (starts && size > 1 && strncmp(at, "/dev/", 5) != 0) {
            for (const char *next = at; next < at + size - 1; next++) /* one at its end stays */
                name = *next == '/' ? next + 1 : name;
        }
        before = at[size - 1];
        memmove(to, name, (size_t)(at + size - name));
        to += at + size - name;
        at += size;
    }
    *to = '\0';
}

const char *error_code_name(enum error_code code)
{
    switch (code) {
    case ERR_NONE:
        return "none";
    case ERR_INVALID:
        return "invalid";
    case ERR_NOT_FOUND:
        return "not_found";
    case ERR_CONFLICT:
        return "conflict";
    case ERR_LIMIT:
        return "limit";
    case ERR_NO_MEMORY:
        return "no_memory";
    case ERR_IO:
        return "io";
    case ERR_CORRUPT:
        return "corrupt";
    case ERR_DEVICE:
        return "device";
    case ERR_UNAVAILABLE:
        return "unavailable";
    case ERR_CANCELLED:
        return "cancelled";
    case ERR_INTERNAL:
        return "internal";
    }
    return "unknown";
}
