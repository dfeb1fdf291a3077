/*
 * table: every command of needlectl, with its arguments and options.
 *
 * Purpose    One line a command, from which its name is found, its options are read (words.h), and usage,
 *            --help and the shells' completion are made. The man page is held to it by a test.
 * Ownership  Static.
 * Threads    Any.
 * Failure    table_find: NULL for an unknown command.
 */
#ifndef NEEDLED_CLIENT_TABLE_H
#define NEEDLED_CLIENT_TABLE_H

#include <stddef.h>
#include <stdio.h>

struct http;

struct command {
    const char *name; /* one word, or two: "files delete" */
    /* "FILE [--model NAME] [-o PATH] [--json]": words in capitals, options in brackets. */
    const char *synopsis;
    const char *summary;
    /* arguments[0] is the command's first word. Returns the exit status. */
    int (*run)(struct http *http, int count, char **arguments);
};

const struct command *table_commands(size_t *ret_count);
/* The longest name that the arguments begin with. */
const struct command *table_find(int count, char *const *arguments);
/* The command of that name, or NULL. */
const struct command *table_named(const char *name);
/* A line or more each: the command, and those that its first word begins. */
void table_print_usage(FILE *stream, const char *name);
void table_print_help(FILE *stream);

#endif
