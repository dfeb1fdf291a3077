#include "daemon/base/log.h"

#include "daemon/base/journal.h"

#include <errno.h>
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

static void write_line(enum log_level level, const char *key, const char *value, const char *format,
                       va_list args)
{
    static const int priorities[] = {7, 6, 4, 3};
    struct line line = {.size = 0};
    char message[MESSAGE_BYTES];
    char short_value[256];
    size_t start;

    if (level < atomic_load_explicit(&level_min, memory_order_relaxed))
        return;
    (void)vsnprintf(message, sizeof(message), format, args);
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

void log_write(enum log_level level, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    write_line(level, NULL, NULL, format, args);
    va_end(args);
}

void log_write_for(enum log_level level, const char *key, const char *value, const char *format,
                   ...)
{
    va_list args;

    va_start(args, format);
    write_line(level, key, value, format, args);
    va_end(args);
}
