#include "client/words.h"

#include "client/http.h"
#include "client/table.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool refuse(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool refuse(const char *command, const char *format, ...)
{
    va_list arguments;

    (void)fputs("needlectl: ", stderr);
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fputc('\n', stderr);
    table_print_usage(stderr, command);
    return false;
}

/* Whether the synopsis has the option ("--limit", of `size` letters), and whether with a value. */
static bool option_known(const char *synopsis, const char *option, size_t size, bool *ret_valued)
{
    for (const char *at = strchr(synopsis, '['); at; at = strchr(at + 1, '[')) {
        if (strncmp(at + 1, option, size) != 0 || (at[1 + size] != ' ' && at[1 + size] != ']'))
            continue;
        *ret_valued = at[1 + size] == ' ';
        return true;
    }
    return false;
}

/* The words in capitals before the first option. */
static int words_wanted(const char *synopsis)
{
    int wanted = 0;

    while (isupper((unsigned char)*synopsis)) {
        wanted++;
        synopsis += strcspn(synopsis, " ");
        synopsis += strspn(synopsis, " ");
    }
    return wanted;
}

static bool read_option(const struct command *command, int count, char **arguments, int *at,
                        struct words *words)
{
    const char *option = arguments[*at], *equals = strchr(option, '=');
    const size_t size = equals ? (size_t)(equals - option) : strlen(option);
    const char *value = "";
    bool valued = false;

    if (!option_known(command->synopsis, option, size, &valued))
        return refuse(command->name, "'%s' has no option '%.*s'", command->name, (int)size, option);
    if (!valued && equals)
        return refuse(command->name, "option '%.*s' takes no value", (int)size, option);
    if (valued && equals) {
        value = equals + 1;
    } else if (valued) {
        if (*at + 1 >= count)
            return refuse(command->name, "option '%s' wants a value", option);
        value = arguments[++*at];
    }
    if (words->option_count == WORDS_OPTION_MAX)
        return refuse(command->name, "too many options, from '%s' on", option);
    words->option[words->option_count].name = option;
    words->option[words->option_count++].value = value;
    return true;
}

bool words_read(const char *command_name, int count, char **arguments, struct words *ret_words)
{
    const struct command *command = table_named(command_name);
    struct words words = {0};
    bool options_end = false;
    int wanted = words_wanted(command->synopsis);

    for (int i = strchr(command_name, ' ') ? 2 : 1; i < count; i++) {
        if (!options_end && strcmp(arguments[i], "--") == 0) {
            options_end = true;
        } else if (!options_end && arguments[i][0] == '-' && arguments[i][1] != '\0') {
            if (!read_option(command, count, arguments, &i, &words))
                return false;
        } else {
            if (words.count == wanted)
                return refuse(command->name, "'%s' is one argument too many", arguments[i]);
            words.word[words.count++] = arguments[i];
        }
    }
    if (words.count < wanted)
        return refuse(command->name, "'%s' wants %d argument%s, not %d", command_name, wanted,
                      wanted == 1 ? "" : "s", words.count);
    *ret_words = words;
    return true;
}

const char *words_value(const struct words *words, const char *option)
{
    const size_t size = strlen(option);

    for (int i = words->option_count - 1; i >= 0; i--) { /* the last one wins */
        const char *name = words->option[i].name;

        if (strncmp(name, option, size) == 0 && (name[size] == '\0' || name[size] == '='))
            return words->option[i].value;
    }
    return NULL;
}

/* "--max-len" as "max_len". */
static void name_field(const char *option, char *ret_name, size_t capacity)
{
    (void)snprintf(ret_name, capacity, "%s", option + strspn(option, "-"));
    for (char *at = ret_name; (at = strchr(at, '-')) != NULL; at++)
        *at = '_';
}

bool words_add_query(struct http *http, const struct words *words, char *path, size_t capacity,
                     const char *const *options, size_t option_count)
{
    for (size_t i = 0; i < option_count; i++) {
        const char *value = words_value(words, options[i]);
        const size_t used = strlen(path);
        char *escaped;
        char name[32];
        int size;

        if (!value)
            continue;
        escaped = http_escape(http, value);
        name_field(options[i], name, sizeof(name));
        size = snprintf(path + used, capacity - used, "%c%s=%s", strchr(path, '?') ? '&' : '?',
                        name, escaped ? escaped : "");
        free(escaped);
        if (!escaped || size < 0 || (size_t)size >= capacity - used) {
            (void)fprintf(stderr, "needlectl: the value of %s is too long\n", options[i]);
            return false;
        }
    }
    return true;
}
