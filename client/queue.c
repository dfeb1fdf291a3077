#include "client/queue.h"

#include "client/commands.h"
#include "client/http.h"
#include "client/output.h"
#include "client/submission.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 4096
#define VALUES_BYTES 256

/* "<prefix><id><rest>", with the id escaped. */
static void make_path(struct http *http, const char *prefix, const char *id, const char *rest,
                      char path[PATH_BYTES])
{
    char *escaped = http_escape(http, id);

    (void)snprintf(path, PATH_BYTES, "%s%s%s", prefix, escaped ? escaped : "", rest);
    free(escaped);
}

/* ---- places ------------------------------------------------------------------------------------------- */

/* What was given of the options, for the daemon to judge; NULL without memory. */
static char *move_body(const struct words *words)
{
    static const char *const fields[] = {"position", "before", "after", "to", "priority"};
    cJSON *body = cJSON_CreateObject();
    char *text;

    for (size_t i = 0; i < COUNT_OF(fields); i++) {
        char option[32], *end = NULL;
        const char *value;
        double number;

        (void)snprintf(option, sizeof(option), "--%s", fields[i]);
        value = words_value(words, option);
        if (!value)
            continue;
        number = strtod(value, &end);
        if (value[0] != '\0' && *end == '\0' && isfinite(number))
            (void)cJSON_AddNumberToObject(body, fields[i], number);
        else
            (void)cJSON_AddStringToObject(body, fields[i], value);
    }
    text = cJSON_PrintUnformatted(body);
    cJSON_Delete(body);
    return text;
}

int command_move(struct http *http, int count, char **arguments)
{
    char path[PATH_BYTES];
    struct words words;
    cJSON *job = NULL;
    char *body;
    bool ok;

    if (!words_read("move", count, arguments, &words))
        return COMMAND_USAGE;
    make_path(http, "/v1/fine_tuning/jobs/", words.word[0], "/move", path);
    body = move_body(&words);
    ok = body && http_call(http, path, body, &job);
    free(body);
    if (!ok)
        return output_refused(http);
    if (!words_value(&words, "--json"))
        printf("%s place %.0f, priority %.0f\n", output_text(job, "id"),
               output_number(job, "queue_position"), output_number(job, "priority"));
    return output_end(&words, job);
}

/* ---- sweeps ------------------------------------------------------------------------------------------- */

/* "lora_rank 8, seed 1" */
static void print_values(const cJSON *values, char text[VALUES_BYTES])
{
    const cJSON *value = NULL;
    size_t size = 0;

    text[0] = '\0';
    cJSON_ArrayForEach(value, values)
    {
        char number[32];
        const bool is_text = cJSON_IsString(value);
        int added;

        (void)snprintf(number, sizeof(number), "%g", value->valuedouble);
        added = snprintf(text + size, VALUES_BYTES - size, "%s%s %s", size ? ", " : "",
                         value->string, is_text ? value->valuestring : number);
        if (added < 0 || (size_t)added >= VALUES_BYTES - size)
            return; /* cut */
        size += (size_t)added;
    }
}

static void print_figure(const cJSON *row, const char *name, int digits)
{
    if (cJSON_IsNumber(output_member(row, name)))
        printf(" %8.*f", digits, output_number(row, name));
    else
        printf(" %8s", "-");
}

static void print_sweep(const cJSON *sweep)
{
    const cJSON *row = NULL;

    printf("%s %s\n", output_text(sweep, "id"), output_text(sweep, "status"));
    printf("  %-30s %-17s %9s %8s %8s %8s %8s  %s\n", "JOB", "STATUS", "STEPS", "TRAIN", "VALID",
           "ACCURACY", "SECONDS", "VALUES");
    cJSON_ArrayForEach(row, output_member(sweep, "jobs"))
    {
        char values[VALUES_BYTES];

        print_values(output_member(row, "values"), values);
        printf("%c %-30s %-17s %4.0f/%-4.0f", cJSON_IsTrue(output_member(row, "best")) ? '*' : ' ',
               output_text(row, "id"), output_text(row, "status"),
               output_number(row, "completed_steps"), output_number(row, "total_steps"));
        print_figure(row, "train_loss", 4);
        print_figure(row, "full_valid_loss", 4);
        print_figure(row, "full_valid_mean_token_accuracy", 4);
        print_figure(row, "elapsed_s", 0);
        printf("  %s\n", values);
    }
    if (output_text(sweep, "best_job")[0] != '\0')
        printf("* the lowest %s\n", output_text(sweep, "best_by"));
}

int command_sweep(struct http *http, int count, char **arguments)
{
    struct submission submission;
    cJSON *sweep = NULL;
    int status =
        submission_send(http, "/v1/fine_tuning/sweeps", count, arguments, &submission, &sweep);

    if (status == COMMAND_OK && submission.json)
        status = output_json(sweep);
    else if (status == COMMAND_OK)
        print_sweep(sweep);
    submission_release(&submission, sweep);
    return status;
}

static int list_sweeps(struct http *http, int count, char **arguments)
{
    static const char *const options[] = {"--limit", "--after"};
    char path[PATH_BYTES] = "/v1/fine_tuning/sweeps";
    const cJSON *sweep = NULL;
    struct words words;
    cJSON *list = NULL;

    if (!words_read("sweeps", count, arguments, &words) ||
        !words_add_query(http, &words, path, sizeof(path), options, COUNT_OF(options)))
        return COMMAND_USAGE;
    if (!http_call(http, path, NULL, &list))
        return output_refused(http);
    if (!words_value(&words, "--json")) {
        printf("%-32s %-17s %4s  %s\n", "SWEEP", "STATUS", "JOBS", "BEST");
        cJSON_ArrayForEach(sweep, output_member(list, "data")) printf(
            "%-32s %-17s %4d  %s\n", output_text(sweep, "id"), output_text(sweep, "status"),
            cJSON_GetArraySize(output_member(sweep, "jobs")), output_text(sweep, "best_job"));
    }
    return output_end(&words, list);
}

/* Shows the sweep that the call answers. */
static int call_sweep(struct http *http, const char *command, int count, char **arguments)
{
    const bool cancels = strcmp(command, "sweeps cancel") == 0;
    char path[PATH_BYTES];
    struct words words;
    cJSON *sweep = NULL;

    if (!words_read(command, count, arguments, &words))
        return COMMAND_USAGE;
    make_path(http, "/v1/fine_tuning/sweeps/", words.word[0], cancels ? "/cancel" : "", path);
    if (!http_call(http, path, cancels ? "" : NULL, &sweep))
        return output_refused(http);
    if (!words_value(&words, "--json"))
        print_sweep(sweep);
    return output_end(&words, sweep);
}

int command_sweeps(struct http *http, int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "get") == 0)
        return call_sweep(http, "sweeps get", count, arguments);
    if (count > 1 && strcmp(arguments[1], "cancel") == 0)
        return call_sweep(http, "sweeps cancel", count, arguments);
    return list_sweeps(http, count, arguments);
}
