#include "client/events.h"

#include "client/commands.h"
#include "client/follow.h"
#include "client/http.h"
#include "client/output.h"
#include "client/words.h"

#include <cjson/cJSON.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct options {
    bool follow, json;
    const char *after, *types, *limit;
};

/* Ctrl-C says how to go on. Two texts in turn, so that the one it finds is whole. */
static char farewells[2][512];
static volatile sig_atomic_t farewell_index;

static void leave(int signal_number)
{
    const char *text = farewells[farewell_index];

    (void)!write(STDERR_FILENO, text, strlen(text)); /* nothing is left to be done about it */
    _exit(128 + signal_number);
}

static void prepare_farewell(const struct options *options, const char *id)
{
    const int next = farewell_index == 0;

    (void)snprintf(farewells[next], sizeof(farewells[next]),
                   "\njobs go on; to go on here: needlectl events --follow --after %s%s%s%s\n", id,
                   options->types ? " --types " : "", options->types ? options->types : "",
                   options->json ? " --json" : ""); /* cut is fine */
    farewell_index = next;
}

static void print_event(const struct options *options, const cJSON *event)
{
    const time_t when = (time_t)output_number(event, "created_at");
    const char *level = output_text(event, "level");
    char clock[32] = "";
    struct tm parts;

    if (options->json) {
        (void)output_json(event); /* its status is of no use in the middle of a list */
        return;
    }
    if (gmtime_r(&when, &parts))
        (void)strftime(clock, sizeof(clock), "%Y-%m-%dT%H:%M:%SZ", &parts);
    printf("%s  %s  %-10s  %s%s%s\n", clock, output_text(event, "fine_tuning_job_id"),
           output_text(event, "type"), strcmp(level, "info") == 0 ? "" : level,
           strcmp(level, "info") == 0 ? "" : ": ", output_text(event, "message"));
}

static bool take_event(void *context, const struct sse_event *event)
{
    const struct options *options = context;
    cJSON *json = cJSON_Parse(event->data);

    print_event(options, json);
    (void)fflush(stdout);
    prepare_farewell(options, event->id);
    cJSON_Delete(json);
    return true;
}

static bool read_options(struct options *options, int count, char **arguments)
{
    struct words words;

    if (!words_read("events", count, arguments, &words))
        return false;
    *options = (struct options){
        .follow = words_value(&words, "--follow"),
        .json = words_value(&words, "--json"),
        .after = words_value(&words, "--after"),
        .types = words_value(&words, "--types"),
        .limit = words_value(&words, "--limit"),
    };
    return true;
}

/* "name=value" behind ? or &, escaped. */
static void add_field(struct http *http, char *path, size_t capacity, const char *name,
                      const char *value)
{
    char *escaped = value ? http_escape(http, value) : NULL;
    size_t used = strlen(path);

    if (escaped)
        (void)snprintf(path + used, capacity - used, "%c%s=%s", strchr(path, '?') ? '&' : '?', name,
                       escaped); /* a longer one is refused by the server */
    free(escaped);
}

/* The newest, in the order in which they came; the last one's id for going on. */
static int show_page(struct http *http, const struct options *options, char *ret_last,
                     size_t capacity)
{
    char path[1024] = "/v1/events";
    cJSON *page = NULL;
    const cJSON *data;

    if (!options->follow)
        add_field(http, path, sizeof(path), "after", options->after);
    add_field(http, path, sizeof(path), "types", options->types);
    add_field(http, path, sizeof(path), "limit", options->limit);
    if (!http_call(http, path, NULL, &page))
        return output_refused(http);
    data = output_member(page, "data");
    for (int i = cJSON_GetArraySize(data) - 1; i >= 0; i--)
        print_event(options, cJSON_GetArrayItem(data, i));
    (void)snprintf(ret_last, capacity, "%s", output_text(cJSON_GetArrayItem(data, 0), "id"));
    cJSON_Delete(page);
    (void)fflush(stdout);
    return COMMAND_OK;
}

int command_events(struct http *http, int count, char **arguments)
{
    struct options options = {0};
    char path[1024] = "/v1/events?stream=true", after[64] = "0";
    int status = COMMAND_OK;

    if (!read_options(&options, count, arguments))
        return COMMAND_USAGE;
    if (options.follow && options.after)
        (void)snprintf(after, sizeof(after), "%s", options.after);
    else
        status = show_page(http, &options, after, sizeof(after));
    if (!options.follow || status != COMMAND_OK)
        return status;

    if (after[0] == '\0')
        (void)snprintf(after, sizeof(after), "0"); /* nothing has happened yet */
    add_field(http, path, sizeof(path), "types", options.types);
    prepare_farewell(&options, after);
    (void)signal(SIGINT, leave);
    if (follow_stream(http, path, after, take_event, &options) == FOLLOW_LOST) {
        (void)fprintf(stderr, "needlectl: %s%s", http_error(http), farewells[farewell_index]);
        return COMMAND_USAGE;
    }
    return output_refused(http);
}
