#include "daemon/base/log.h"

#include "daemon/base/clock.h"
#include "daemon/base/journal.h"
#include "daemon/base/repeats.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MESSAGE_BYTES 1024
#define LINE_BYTES 8192 /* every byte of key, value and message escaped fits */

static _Atomic enum log_level level_min = LOG_LEVEL_INFO; /* relaxed: it guards nothing */
static bool under_journal;
static int journal = -1; /* -1: lines go to stderr */

static const char *const level_names[] = {"debug", "info", "warn", "error"};
static const char *const level_priorities[] = {"<7>", "<6>", "<4>", "<3>"};

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&level_min, level, memory_order_relaxed);
    if (under_journal || !journal_is_stderr())
        return;
    under_journal = true;
    log_set_journal(journal_open());
}

void log_set_journal(int descriptor)
{
    journal = descriptor;
}

struct line {
    char text[LINE_BYTES];
    size_t size;
};

static void put_char(struct line *line, char byte)
{
    if (line->size < sizeof(line->text) - 2) /* the closing quote and the line feed always fit */
        line->text[line->size++] = byte;
}

static void put_text(struct line *line, const char *text)
{
    while (*text)
        put_char(line, *text++);
}

static void put_quoted(struct line *line, const char *text)
{
    put_char(line, '"');
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        char escape[8];

        if (byte == '"' || byte == '\\')
            (void)snprintf(escape, sizeof(escape), "\\%c", byte);
        else if (byte == '\n')
            (void)snprintf(escape, sizeof(escape), "\\n");
        else if (byte < 0x20 || byte == 0x7f)
            (void)snprintf(escape, sizeof(escape), "\\x%02x", byte);
        else
            (void)snprintf(escape, sizeof(escape), "%c", byte);
        put_text(line, escape);
    }
    line->text[line->size++] = '"';
}

/* Identifiers stand bare, so that a search for job=ftjob-12 finds them. */
static void put_value(struct line *line, const char *text)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/";

    if (*text && !text[strspn(text, plain)])
        put_text(line, text);
    else
        put_quoted(line, text);
}

static void write_whole(const char *text, size_t size)
{
    while (write(STDERR_FILENO, text, size) < 0 && errno == EINTR)
        ;
}

static void write_line(enum log_level level, const char *key, const char *value,
                       const char *message)
{
    static const int priorities[] = {7, 6, 4, 3};
    struct line line = {.size = 0};
    char short_value[256];
    size_t start;

    if (under_journal)
        put_text(&line, level_priorities[level]);
    put_text(&line, "level=");
    put_text(&line, level_names[level]);
    put_char(&line, ' ');
    start = line.size;
    if (key) {
        (void)snprintf(short_value, sizeof(short_value), "%s", value ? value : "");
        put_text(&line, key);
        put_char(&line, '=');
        put_value(&line, short_value);
        put_char(&line, ' ');
    }
    put_text(&line, "msg=");
    put_quoted(&line, message);
    line.text[line.size] = '\0'; /* in the line feed's place */
    if (journal >= 0 &&
        journal_send(journal, &(struct journal_entry){.priority = priorities[level],
                                                      .text = line.text + start,
                                                      .key = key,
                                                      .value = key ? short_value : NULL}))
        return;
    line.text[line.size++] = '\n';
    write_whole(line.text, line.size);
}

/* What is left out. A debug line is there because somebody asked for all of them. */
static struct repeats repeats; /* guarded by repeats_lock */
static pthread_mutex_t repeats_lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_wanted(enum log_level level, const char *key, const char *value, const char *message)
{
    const struct repeats_line line = {(int)level, key, value, message};
    bool wanted;

    if (level == LOG_LEVEL_DEBUG)
        return true;
    (void)pthread_mutex_lock(&repeats_lock);
    wanted = repeats_take(&repeats, &line, clock_monotonic_ns());
    (void)pthread_mutex_unlock(&repeats_lock);
    return wanted;
}

void log_settle(bool is_last)
{
    const int64_t now_ns = is_last ? INT64_MAX : clock_monotonic_ns();
    struct repeats_count count;
    char message[MESSAGE_BYTES];

    for (;;) {
        bool found;

        (void)pthread_mutex_lock(&repeats_lock);
        found = repeats_settle(&repeats, now_ns, &count);
        (void)pthread_mutex_unlock(&repeats_lock);
        if (!found)
            return;
        if (count.text[0] == '\0')
            (void)snprintf(message, sizeof(message),
                           "%" PRId64 " more lines of level %s were left out of the log",
                           count.left_out, level_names[count.level]);
        else
            (void)snprintf(message, sizeof(message), "repeated %" PRId64 " times more: %s",
                           count.left_out, count.text);
        write_line((enum log_level)count.level, count.value[0] != '\0' ? count.key : NULL,
                   count.value, message);
    }
}

static void write_formatted(enum log_level level, const char *key, const char *value,
                            const char *format, va_list args)
{
    char message[MESSAGE_BYTES];

    if (level < atomic_load_explicit(&level_min, memory_order_relaxed))
        return;
    (void)vsnprintf(message, sizeof(message), format, args);
    if (is_wanted(level, key, value, message))
        write_line(level, key, value, message);
}

void log_write(enum log_level level, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    write_formatted(level, NULL, NULL, format, args);
    va_end(args);
}

void log_write_for(enum log_level level, const char *key, const char *value, const char *format,
                   ...)
{
    va_list args;

    va_start(args, format);
    write_formatted(level, key, value, format, args);
    va_end(args);
}
