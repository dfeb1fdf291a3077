/*
 * needlectl: the daemon from the command line.
 */
#include "client/commands.h"
#include "client/events.h"
#include "client/files.h"
#include "client/http.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_URL "http://127.0.0.1:7733"

static const char help[] =
    "usage: needlectl [--server URL] COMMAND ...\n"
    "\n"
    "  submit DATA         upload a data set (or name a file's id), create a job, watch it\n"
    "  estimate DATA       what that job would take; nothing is made\n"
    "  watch JOB           follow a job until it ends; Ctrl-C leaves it running\n"
    "  jobs                the newest jobs\n"
    "  events              what happened in all jobs; --follow goes on\n"
    "  cancel JOB          end a job; what it wrote stays\n"
    "  upload FILE         upload a data set\n"
    "  files               the files there are; files get, delete, download FILE\n"
    "  report FILE         what a job would find in it; with --model lengths in tokens\n"
    "  example FILE LINE   a line as it is rendered, tokenised and trained\n"
    "  fetch JOB-OR-MODEL  download the adapter\n"
    "  devices             what the daemon computes with\n"
    "\n"
    "URL is http://ADDRESS:PORT or unix:/PATH (default: $NEEDLED_URL, else " DEFAULT_URL ").\n"
    "The API key, where one is needed, comes from $NEEDLED_API_KEY.\n"
    "Exit status: 0 done, 1 refused or failed, 2 bad usage or no connection, 3 cancelled,\n"
    "130 left by Ctrl-C while the job goes on.\n";

static const struct {
    const char *name;
    int (*run)(struct http *http, int count, char **arguments);
} commands[] = {
    {"submit", command_submit},   {"watch", command_watch},       {"jobs", command_jobs},
    {"cancel", command_cancel},   {"fetch", command_fetch},       {"devices", command_devices},
    {"upload", command_upload},   {"files", command_files},       {"report", command_report},
    {"example", command_example}, {"estimate", command_estimate}, {"events", command_events},
};

static int run(const char *url, int count, char **arguments)
{
    struct http *http;
    int status = COMMAND_USAGE;
    size_t i = 0;
    const size_t command_count = sizeof(commands) / sizeof(commands[0]);

    while (i < command_count && strcmp(arguments[0], commands[i].name) != 0)
        i++;
    if (i == command_count) {
        (void)fprintf(stderr, "needlectl: no command '%s' (see --help)\n", arguments[0]);
        return COMMAND_USAGE;
    }
    http = http_open(url, getenv("NEEDLED_API_KEY"));
    if (http == NULL)
        (void)fputs("needlectl: no memory\n", stderr);
    else
        status = commands[i].run(http, count, arguments);
    http_close(http);
    return status;
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

        (void)fputs(help, asked ? stdout : stderr);
        return asked ? COMMAND_OK : COMMAND_USAGE;
    }
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
    status =
        run(url != NULL && url[0] != '\0' ? url : DEFAULT_URL, count - first, arguments + first);
    curl_global_cleanup();
    return status;
}
