#include "client/commands.h"

#include "client/http.h"
#include "client/jobs.h"
#include "client/output.h"
#include "client/submission.h"
#include "client/watch.h"
#include "client/words.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 4096

int command_submit(struct http *http, int count, char **arguments)
{
    struct submission submission;
    cJSON *job = NULL;
    int status = submission_send(http, "/v1/fine_tuning/jobs", count, arguments, &submission, &job);

    if (status == COMMAND_OK && submission.json) {
        status = output_json(job);
    } else if (status == COMMAND_OK) {
        printf("created %s\n", output_text(job, "id"));
        (void)fflush(stdout);
        if (!words_value(&submission.words, "--no-watch"))
            status = (int)watch_job(http, output_text(job, "id"),
                                    words_value(&submission.words, "--curve") ? WATCH_CURVE
                                                                              : WATCH_PLAIN);
    }
    submission_release(&submission, job);
    return status;
}

static void print_estimate(const cJSON *estimate)
{
    const cJSON *needs = output_member(output_member(estimate, "plan"), "memory_needs");
    const char *device = output_text(estimate, "device");

    printf("%.0f examples, %.0f held out: %.0f steps\n", output_number(estimate, "examples"),
           output_number(estimate, "validation_examples"), output_number(estimate, "total_steps"));
    printf("%.0f tokens, %.0f of them trained\n", output_number(estimate, "tokens"),
           output_number(estimate, "trained_tokens"));
    printf("memory: %.0f MB, %.0f MB at least\n", output_number(needs, "wanted_bytes") / 1e6,
           output_number(needs, "least_bytes") / 1e6);
    printf("device: %s%s%s\n", device[0] != '\0' ? device : "none",
           output_text(estimate, "device_reason")[0] != '\0' ? ", " : "",
           output_text(estimate, "device_reason"));
    if (cJSON_IsNumber(output_member(estimate, "training_s")))
        printf("training: %.0f s at %.0f tokens/s\n", output_number(estimate, "training_s"),
               output_number(estimate, "tokens_per_second"));
    else
        printf("training: not known: %s\n", output_text(estimate, "time_reason"));
}

int command_estimate(struct http *http, int count, char **arguments)
{
    struct submission submission;
    cJSON *estimate = NULL;
    int status =
        submission_send(http, "/v1/fine_tuning/estimate", count, arguments, &submission, &estimate);

    if (status == COMMAND_OK) {
        submission_take_back(http, &submission);
        if (submission.json)
            status = output_json(estimate);
        else
            print_estimate(estimate);
    }
    submission_release(&submission, estimate);
    return status;
}

int command_watch(struct http *http, int count, char **arguments)
{
    enum watch_form form = WATCH_PLAIN;
    struct words words;

    if (!words_read("watch", count, arguments, &words))
        return COMMAND_USAGE;
    if (words_value(&words, "--json"))
        form = WATCH_JSON;
    else if (words_value(&words, "--curve"))
        form = WATCH_CURVE;
    return (int)watch_job(http, words.word[0], form);
}

static void print_jobs(const cJSON *list)
{
    const cJSON *job = NULL;

    printf("%-30s %-17s %-5s %-12s %-9s %s\n", "JOB", "STATUS", "PLACE", "STEPS", "DEVICE",
           "MODEL");
    cJSON_ArrayForEach(job, cJSON_GetObjectItemCaseSensitive(list, "data"))
    {
        const cJSON *done = cJSON_GetObjectItemCaseSensitive(job, "completed_steps");
        const cJSON *total = cJSON_GetObjectItemCaseSensitive(job, "total_steps");
        const char *model = output_text(job, "fine_tuned_model");
        char steps[32] = "-", place[32] = "-";

        if (output_number(job, "queue_position") > 0)
            (void)snprintf(place, sizeof(place), "%.0f", output_number(job, "queue_position"));
        if (cJSON_IsNumber(total) && total->valuedouble > 0)
            (void)snprintf(steps, sizeof(steps), "%.0f/%.0f",
                           cJSON_IsNumber(done) ? done->valuedouble : 0, total->valuedouble);
        printf("%-30s %-17s %-5s %-12s %-9s %s\n", output_text(job, "id"),
               output_text(job, "status"), place, steps, output_text(job, "device_used"),
               model[0] != '\0' ? model : output_text(job, "model"));
        if (output_text(job, "status_reason")[0] != '\0')
            printf("    %s\n", output_text(job, "status_reason"));
    }
}

/* "--metadata name=value", as often as it was given, and "--metadata null". */
static bool add_metadata(struct http *http, const struct words *words, char *path, size_t capacity)
{
    for (int i = 0; i < words->option_count; i++) {
        const char *value = words->option[i].value, *equals = strchr(value, '=');
        const size_t used = strlen(path);
        char name[128], rest[256];

        if (strncmp(words->option[i].name, "--metadata", strlen("--metadata")) != 0)
            continue;
        if (!equals && strcmp(value, "null") != 0) {
            (void)fprintf(stderr, "needlectl: --metadata wants NAME=VALUE or null, not '%s'\n",
                          value);
            return false;
        }
        if (!equals) {
            (void)snprintf(path + used, capacity - used, "&metadata=null");
            continue;
        }
        (void)snprintf(name, sizeof(name), "metadata[%.*s]", (int)(equals - value), value);
        http_join(http, "&", name, "=", rest, sizeof(rest));
        http_join(http, rest, equals + 1, "", path + used, capacity - used);
    }
    return true;
}

int command_jobs(struct http *http, int count, char **arguments)
{
    static const char *const options[] = {"--after", "--status", "--search"};
    char path[PATH_BYTES];
    const char *limit;
    struct words words;
    cJSON *list = NULL;

    if (count > 1 && strcmp(arguments[1], "get") == 0)
        return command_jobs_get(http, count, arguments);
    if (!words_read("jobs", count, arguments, &words))
        return COMMAND_USAGE;
    limit = words_value(&words, "--limit");
    (void)snprintf(path, sizeof(path), "/v1/fine_tuning/jobs?limit=%.20s", limit ? limit : "100");
    if (!words_add_query(http, &words, path, sizeof(path), options, COUNT_OF(options)) ||
        !add_metadata(http, &words, path, sizeof(path)))
        return COMMAND_USAGE;
    if (!http_call(http, path, NULL, &list))
        return output_refused(http);
    if (!words_value(&words, "--json"))
        print_jobs(list);
    return output_end(&words, list);
}

/* "/v1/fine_tuning/jobs/<id><rest>", with the id escaped. */
static void job_path(struct http *http, const char *id, const char *rest, char path[PATH_BYTES])
{
    http_join(http, "/v1/fine_tuning/jobs/", id, rest, path, PATH_BYTES);
}

int command_cancel(struct http *http, int count, char **arguments)
{
    char path[PATH_BYTES];
    struct words words;
    cJSON *job = NULL;

    if (!words_read("cancel", count, arguments, &words))
        return COMMAND_USAGE;
    job_path(http, words.word[0], "/cancel", path);
    if (!http_call(http, path, "", &job))
        return output_refused(http);
    if (!words_value(&words, "--json"))
        printf("%s %s\n", output_text(job, "id"), output_text(job, "status"));
    return output_end(&words, job);
}

/* A job's id stands for the model it made. */
static bool resolve_model(struct http *http, const char *name, char *ret_model, size_t capacity)
{
    char path[PATH_BYTES];
    cJSON *job = NULL;

    if (strncmp(name, "ftjob-", 6) != 0) {
        (void)snprintf(ret_model, capacity, "%s", name);
        return true;
    }
    job_path(http, name, "", path);
    if (!http_call(http, path, NULL, &job))
        return false;
    (void)snprintf(ret_model, capacity, "%s", output_text(job, "fine_tuned_model"));
    cJSON_Delete(job);
    return true;
}

int command_fetch(struct http *http, int count, char **arguments)
{
    const char *target;
    char model[256];
    char path[PATH_BYTES];
    struct words words;
    char *escaped;
    cJSON *record = NULL;
    uint64_t size = 0;

    if (!words_read("fetch", count, arguments, &words))
        return COMMAND_USAGE;
    target = words_value(&words, "-o");
    target = target ? target : "adapter.safetensors";
    if (!resolve_model(http, words.word[0], model, sizeof(model)))
        return output_refused(http);
    if (model[0] == '\0') {
        (void)fprintf(stderr, "needlectl: job %s has no model\n", words.word[0]);
        return COMMAND_REFUSED;
    }
    escaped = http_escape(http, model);
    (void)snprintf(path, sizeof(path), "/v1/models/%s", escaped ? escaped : "");
    if (!http_call(http, path, NULL, &record)) {
        free(escaped);
        return output_refused(http);
    }
    (void)snprintf(path, sizeof(path), "/v1/models/%s/adapter.safetensors", escaped ? escaped : "");
    free(escaped);
    if (!http_download(http, path, target, &size)) {
        cJSON_Delete(record);
        return output_not_saved(http);
    }
    if (!words_value(&words, "--json"))
        printf("%s: %llu bytes\n", target, (unsigned long long)size);
    return output_end(&words, record);
}

static void print_devices(const cJSON *list)
{
    const cJSON *item = NULL;

    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(list, "data"))
    {
        const cJSON *total = cJSON_GetObjectItemCaseSensitive(item, "memory_total_bytes");
        const char *job = output_text(item, "job");
        const char *level = output_text(item, "simd_level");
        const char *warning = output_text(item, "simd_warning");

        printf("%-8s %s, %.1f GiB, %s%s%s; %s\n", output_text(item, "id"),
               output_text(item, "name"),
               cJSON_IsNumber(total) ? total->valuedouble / (1 << 30) : 0, level,
               level[0] != '\0' ? ", " : "", output_text(item, "detail"),
               job[0] != '\0' ? job : "idle");
        if (warning[0] != '\0')
            printf("%-8s warning: %s\n", output_text(item, "id"), warning);
    }
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(list, "missing")) printf(
        "%-8s not available: %s\n", output_text(item, "platform"), output_text(item, "reason"));
}

int command_devices(struct http *http, int count, char **arguments)
{
    struct words words;
    cJSON *list = NULL;

    if (!words_read("devices", count, arguments, &words))
        return COMMAND_USAGE;
    if (!http_call(http, "/v1/devices", NULL, &list))
        return output_refused(http);
    if (!words_value(&words, "--json"))
        print_devices(list);
    return output_end(&words, list);
}
