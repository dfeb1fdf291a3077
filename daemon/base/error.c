#include "daemon/base/error.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void fill(struct error *err, enum error_code code, const char *param, const char *format,
                 va_list args)
{
    char message[sizeof(err->message)]; /* the arguments may point into err itself */
    char name[sizeof(err->param)];

    vsnprintf(message, sizeof(message), format, args);
    snprintf(name, sizeof(name), "%s", param);
    err->code = code;
    memcpy(err->message, message, sizeof(message));
    memcpy(err->param, name, sizeof(name));
}

bool error_set(struct error *err, enum error_code code, const char *format, ...)
{
    va_list args;

    assert(code != ERR_NONE);
    if (!err)
        return false;
    va_start(args, format);
    fill(err, code, "", format, args);
    va_end(args);
    return false;
}

bool error_set_param(struct error *err, enum error_code code, const char *param, const char *format,
                     ...)
{
    va_list args;

    assert(code != ERR_NONE);
    assert(param);
    if (!err)
        return false;
    va_start(args, format);
    fill(err, code, param, format, args);
    va_end(args);
    return false;
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
        snprintf(message + length, sizeof(message) - (size_t)length, ": %s", err->message);
    memcpy(err->message, message, sizeof(message));
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
