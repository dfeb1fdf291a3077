/*
 * needlectl: the daemon from the command line.
 */
#include "client/commands.h"
#include "client/http.h"
#include "client/table.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_URL "http://127.0.0.1:7733"
#define KEY_BYTES 512 /* longer than any key */

static void print_help(FILE *stream)
{
    (void)fputs("usage: needlectl [--server URL] COMMAND ...\n"
                "       needlectl COMMAND --help, or needlectl help COMMAND: its options\n\n",
                stream);
    table_print_help(stream);
    (void)fputs(
        "\nURL is http://ADDRESS:PORT or unix:/PATH (default: $NEEDLED_URL, else " DEFAULT_URL
        ").\n"
        "The API key, where one is needed, comes from $NEEDLED_API_KEY, else from the credential\n"
        "api_key of the systemd unit it runs in.\n"
        "--json, anywhere, prints the answer as JSON.\n"
        "Exit status: 0 done, 1 refused or failed, 2 bad usage, no file or no connection,\n"
        "3 cancelled, 130 left by Ctrl-C while the job goes on.\n",
        stream);
}

static bool asks_for_help(int count, char **arguments)
{
    for (int i = 1; i < count && strcmp(arguments[i], "--") != 0; i++) {
        if (strcmp(arguments[i], "--help") == 0)
            return true;
    }
    return false;
}

/* From $NEEDLED_API_KEY, or, for who runs as a unit's service, the first line of its credential: variables
 * of a unit are shown to everybody. NULL: none; false: there is one that cannot be used. */
static bool find_key(char text[KEY_BYTES], const char **ret_key)
{
    const char *given = getenv("NEEDLED_API_KEY");
    const char *folder = getenv("CREDENTIALS_DIRECTORY");
    char path[PATH_MAX];
    size_t length;
    FILE *file;
    bool ok;

    *ret_key = given;
    if (given || !folder)
        return true;
    (void)snprintf(path, sizeof(path), "%s/api_key", folder);
    file = fopen(path, "re");
    if (!file && errno == ENOENT)
        return true;
    ok = file && fgets(text, KEY_BYTES, file);
    length = ok ? strcspn(text, "\r\n") : 0;
    ok = length > 0 && length < KEY_BYTES - 1;
    text[length] = '\0';
    if (file)
        (void)fclose(file); /* it was read only */
    if (!ok)
        (void)fprintf(stderr, "needlectl: '%s' cannot be read, or holds no key\n", path);
    *ret_key = text;
    return ok;
}

static int run(const char *url, int count, char **arguments)
{
    const struct command *command = table_find(count, arguments);
    char text[KEY_BYTES];
    const char *key = NULL;
    struct http *http;
    int status = COMMAND_USAGE;

    if (!command) {
        (void)fprintf(stderr, "needlectl: no command '%s' (see --help)\n", arguments[0]);
        return COMMAND_USAGE;
    }
    if (asks_for_help(count, arguments)) {
        table_print_usage(stdout, command->name);
        return COMMAND_OK;
    }
    if (!find_key(text, &key))
        return COMMAND_USAGE;
    http = http_open(url, key);
    if (http == NULL)
        (void)fputs("needlectl: no memory\n", stderr);
    else
        status = command->run(http, count, arguments);
    http_close(http);
    return status;
}

/* "help", alone or with a command. */
static int help(int count, char **arguments)
{
    const struct command *command = table_find(count - 1, arguments + 1);

    if (count > 1 && !command) {
        (void)fprintf(stderr, "needlectl: no command '%s' (see --help)\n", arguments[1]);
        return COMMAND_USAGE;
    }
    if (command)
        table_print_usage(stdout, command->name);
    else
        print_help(stdout);
    return COMMAND_OK;
}

/* What stands before the command: --server URL, and --json, which goes with the command's own options.
 * Returns the place of the command. */
static int read_front(int count, char **arguments, const char **url, bool *ret_json)
{
    int at = 1;

    for (;;) {
        if (at + 1 < count && strcmp(arguments[at], "--server") == 0) {
            *url = arguments[at + 1];
            at += 2;
        } else if (at < count && strcmp(arguments[at], "--json") == 0) {
            *ret_json = true;
            at++;
        } else {
            return at;
        }
    }
}

/* The command's arguments with --json, where it stood before or inside the command's name, as the first
 * of its options. An array for the caller to free(), or NULL without memory. */
static char **order(int count, char **arguments, bool json, int *ret_count)
{
    static char option[] = "--json";
    char **ordered = calloc((size_t)count + 2, sizeof(*ordered));
    int used = 0, name_words = 0;

    if (ordered == NULL)
        return NULL;
    for (int i = 0; i < count; i++) {
        if (name_words < 2 && strcmp(arguments[i], option) == 0) {
            json = true;
            continue;
        }
        name_words += name_words < 2 ? (arguments[i][0] == '-' ? 2 : 1) : 0;
        ordered[used++] = arguments[i];
    }
    if (json) {
        const struct command *command = table_find(used, ordered);
        const int at = command == NULL ? used : strchr(command->name, ' ') != NULL ? 2 : 1;

        memmove(ordered + at + 1, ordered + at, (size_t)(used - at) * sizeof(*ordered));
        ordered[at] = option;
        used++;
    }
    *ret_count = used;
    return ordered;
}

/* What was printed may not have got anywhere, as on a full disk. */
static int finish(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    perror("needlectl: standard output");
    return status == COMMAND_OK ? COMMAND_USAGE : status;
}

/* Closed standard descriptors would be those of the first files and connections. Taken in the wrong direction,
 * so that what was to go there still fails. */
static void occupy_standard(void)
{
    for (int i = STDIN_FILENO; i <= STDERR_FILENO; i++) {
        if (fcntl(i, F_GETFD) < 0)
            (void)!open("/dev/null", i == STDIN_FILENO ? O_WRONLY : O_RDONLY); /* the lowest: i */
    }
}

int main(int count, char **arguments)
{
    const char *url = getenv("NEEDLED_URL");
    char **ordered;
    bool json = false;
    int first = read_front(count, arguments, &url, &json), ordered_count = 0;
    int status;

    occupy_standard();
    if (count > first && strcmp(arguments[first], "--version") == 0) {
        puts("needlectl " NEEDLED_VERSION);
        return finish(COMMAND_OK);
    }
    if (count <= first || strcmp(arguments[first], "--help") == 0 ||
        strcmp(arguments[first], "-h") == 0) {
        bool asked = count > first;

        print_help(asked ? stdout : stderr);
        return finish(asked ? COMMAND_OK : COMMAND_USAGE);
    }
    if (strcmp(arguments[first], "help") == 0)
        return finish(help(count - first, arguments + first));
    ordered = order(count - first, arguments + first, json, &ordered_count);
    if (ordered == NULL) {
        (void)fputs("needlectl: no memory\n", stderr);
        return COMMAND_REFUSED;
    }
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
    status = run(url != NULL && url[0] != '\0' ? url : DEFAULT_URL, ordered_count, ordered);
    curl_global_cleanup();
    free(ordered);
    return finish(status);
}
