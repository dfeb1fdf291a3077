/*
 * words: a command's arguments and options, read by its synopsis in the table.
 *
 * Purpose    Options stand anywhere, as --name VALUE or --name=VALUE; behind -- all are arguments.
 * Ownership  Texts are those of the program's arguments.
 * Threads    The program's only one.
 * Failure    False, with the reason and the usage on stderr.
 */
#ifndef NEEDLED_CLIENT_WORDS_H
#define NEEDLED_CLIENT_WORDS_H

#include <stdbool.h>
#include <stddef.h>

#define WORDS_MAX 4 /* that are no options */
#define WORDS_OPTION_MAX 24

struct http;

struct words {
    const char *word[WORDS_MAX];
    int count;
    struct {
        const char *name; /* as it was typed: "--limit", "--limit=3", "-o" */
        const char *value;
    } option[WORDS_OPTION_MAX];
    int option_count;
};

/* command is a name in the table; arguments begin with its words. As many arguments must stand there as
 * its synopsis has words in capitals outside brackets. */
bool words_read(const char *command, int count, char **arguments, struct words *ret_words);
/* Of an option ("--limit"): its value, "" for one without, NULL when it was not given. */
const char *words_value(const struct words *words, const char *option);
/* Appends what was given of the options as fields of a query: --max-len 9 becomes max_len=9. False when
 * it does not fit (said on stderr). */
bool words_add_query(struct http *http, const struct words *words, char *path, size_t capacity,
                     const char *const *options, size_t option_count);

#endif
