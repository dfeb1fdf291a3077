/*
 * needlectl: the daemon from the command line.
 */
#include "client/commands.h"
#include "client/http.h"
#include "client/table.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_URL "http://127.0.0.1:7733"

static void print_help(FILE *stream)
{
    (void)fputs("usage: needlectl [--server URL] COMMAND ...\n"
                "       needlectl COMMAND --help, or needlectl help COMMAND: its options\n\n",
                stream);
    table_print_help(stream);
    (void)fputs(
        "\nURL is http://ADDRESS:PORT or unix:/PATH (default: $NEEDLED_URL, else " DEFAULT_URL
        ").\n"
        "The API key, where one is needed, comes from $NEEDLED_API_KEY.\n"
        "--json prints the answer as JSON.\n"
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

static int run(const char *url, int count, char **arguments)
{
    const struct command *command = table_find(count, arguments);
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
    http = http_open(url, getenv("NEEDLED_API_KEY"));
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

int main(int count, char **arguments)
{
    const char *url = getenv("NEEDLED_URL");
    int first = 1;
    int status;

    if (count > 2 && strcmp(arguments[1], "--server") == 0) {
        url = arguments[2];
        first = 3;
    }
    if (count > first && strcmp(arguments[first], "--version") == 0) {
        puts("needlectl " NEEDLED_VERSION);
        return COMMAND_OK;
    }
    if (count <= first || strcmp(arguments[first], "--help") == 0 ||
        strcmp(arguments[first], "-h") == 0) {
        bool asked = count > first;

        print_help(asked ? stdout : stderr);
        return asked ? COMMAND_OK : COMMAND_USAGE;
    }
    if (strcmp(arguments[first], "help") == 0)
        return help(count - first, arguments + first);
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
    status =
        run(url != NULL && url[0] != '\0' ? url : DEFAULT_URL, count - first, arguments + first);
    curl_global_cleanup();
    return status;
}
