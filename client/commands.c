#include "client/commands.h"

#include "client/http.h"
#include "client/output.h"
#include "client/watch.h"

#include <cjson/cJSON.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* "--set name=value": numbers go as numbers, the rest as text. */
static bool add_setting(cJSON *hyperparameters, const char *setting)
{
    const char *equals = strchr(setting, '=');
    char name[64];
    char *end = NULL;
    double number;

    if (equals == NULL || equals == setting || (size_t)(equals - setting) >= sizeof(name))
        return false;
    (void)snprintf(name, sizeof(name), "%.*s", (int)(equals - setting), setting);
    number = strtod(equals + 1, &end);
    if (equals[1] != '\0' && *end == '\0' && isfinite(number))
        return cJSON_AddNumberToObject(hyperparameters, name, number) != NULL;
    return cJSON_AddStringToObject(hyperparameters, name, equals + 1) != NULL;
}

static bool add_seed(cJSON *body, const char *text)
{
    char *end = NULL;
    double seed = strtod(text, &end);

    if (text[0] == '\0' || *end != '\0' || !isfinite(seed)) {
        (void)fprintf(stderr, "needlectl: --seed wants a number, not '%s'\n", text);
        return false;
    }
    return cJSON_AddNumberToObject(body, "seed", seed) != NULL;
}

struct submission {
    const char *data, *validation;
    cJSON *body, *hyperparameters;
    cJSON *uploaded; /* ids of this call's uploads */
    bool watch, curve, json;
};

static bool read_submission(struct submission *submission, int count, char **arguments)
{
    static const struct option options[] = {
        {"model", required_argument, NULL, 'm'},  {"validation", required_argument, NULL, 'v'},
        {"suffix", required_argument, NULL, 's'}, {"device", required_argument, NULL, 'd'},
        {"seed", required_argument, NULL, 'e'},   {"set", required_argument, NULL, 'S'},
        {"no-watch", no_argument, NULL, 'n'},     {"curve", no_argument, NULL, 'c'},
        {"json", no_argument, NULL, 'j'},         {NULL, 0, NULL, 0},
    };
    static char program[] = "needlectl"; /* what getopt's own complaints begin with */
    const char *model = "needle-3";
    int option;

    arguments[0] = program;
    optind = 1;
    while ((option = getopt_long(count, arguments, "m:v:s:d:S:", options, NULL)) != -1) {
        switch (option) {
        case 'm':
            model = optarg;
            break;
        case 'v':
            submission->validation = optarg;
            break;
        case 's':
            (void)cJSON_AddStringToObject(submission->body, "suffix", optarg);
            break;
        case 'd':
            (void)cJSON_AddStringToObject(submission->body, "device", optarg);
            break;
        case 'e':
            if (!add_seed(submission->body, optarg))
                return false;
            break;
        case 'S':
            if (!add_setting(submission->hyperparameters, optarg))
                return false;
            break;
        case 'n':
            submission->watch = false;
            break;
        case 'c':
            submission->curve = true;
            break;
        case 'j':
            submission->json = true;
            break;
        default:
            return false;
        }
    }
    (void)cJSON_AddStringToObject(submission->body, "model", model);
    if (optind + 1 != count)
        return false;
    submission->data = arguments[optind];
    return true;
}

/* Puts a file's id into the body under `key`: that of a file that is there already, or of an upload. */
static bool upload(struct http *http, struct submission *submission, const char *path,
                   const char *key)
{
    cJSON *file = NULL;
    bool ok;

    if (strncmp(path, "file-", 5) == 0 && access(path, F_OK) != 0)
        return cJSON_AddStringToObject(submission->body, key, path) != NULL;
    ok = http_upload(http, path, &file);
    if (ok) {
        if (!submission->json)
            printf("uploaded %s as %s\n", path, output_text(file, "id"));
        (void)cJSON_AddStringToObject(submission->body, key, output_text(file, "id"));
        (void)cJSON_AddItemToArray(submission->uploaded,
                                   cJSON_CreateString(output_text(file, "id")));
    }
    cJSON_Delete(file);
    return ok;
}

/* The uploads of this call go again, so that a retry leaves no copies. */
static void take_back(struct http *http, const struct submission *submission)
{
    const cJSON *id = NULL;
    char path[256];

    cJSON_ArrayForEach(id, submission->uploaded)
    {
        (void)snprintf(path, sizeof(path), "/v1/files/%s", id->valuestring);
        (void)http_delete(http, path); /* a copy left behind is harmless */
    }
}

#define SUBMISSION                                                                                 \
    " DATA [--model NAME] [--validation DATA] [--suffix TEXT] [--seed N]\n"                        \
    "       [--device NAME] [--set hyperparameter=value]..."

/* Reads the arguments, uploads what is no file's id, and makes the call. COMMAND_OK: *ret_answer. */
static int submit(struct http *http, const char *path, const char *usage, int count,
                  char **arguments, struct submission *submission, cJSON **ret_answer)
{
    cJSON *method = cJSON_CreateObject();
    cJSON *supervised = cJSON_AddObjectToObject(method, "supervised");
    char *text = NULL;
    int status;

    *submission = (struct submission){.watch = true,
                                      .body = cJSON_CreateObject(),
                                      .hyperparameters = cJSON_CreateObject(),
                                      .uploaded = cJSON_CreateArray()};
    (void)cJSON_AddStringToObject(method, "type", "supervised");
    (void)cJSON_AddItemToObject(supervised, "hyperparameters", submission->hyperparameters);
    (void)cJSON_AddItemToObject(submission->body, "method", method);
    if (!read_submission(submission, count, arguments))
        return output_usage(usage);
    if (!upload(http, submission, submission->data, "training_file") ||
        (submission->validation != NULL &&
         !upload(http, submission, submission->validation, "validation_file")))
        return output_refused(http);
    text = cJSON_PrintUnformatted(submission->body);
    if (text != NULL && http_call(http, path, text, ret_answer)) {
        free(text);
        return COMMAND_OK;
    }
    status = output_refused(http);
    free(text);
    take_back(http, submission);
    return status;
}

static void release(struct submission *submission, cJSON *answer)
{
    cJSON_Delete(answer);
    cJSON_Delete(submission->body);
    cJSON_Delete(submission->uploaded);
}

int command_submit(struct http *http, int count, char **arguments)
{
    struct submission submission;
    cJSON *job = NULL;
    int status =
        submit(http, "/v1/fine_tuning/jobs", "submit" SUBMISSION " [--no-watch] [--curve] [--json]",
               count, arguments, &submission, &job);

    if (status == COMMAND_OK && submission.json) {
        status = output_json(job);
    } else if (status == COMMAND_OK) {
        printf("created %s\n", output_text(job, "id"));
        (void)fflush(stdout);
        if (submission.watch)
            status = (int)watch_job(http, output_text(job, "id"), submission.curve);
    }
    release(&submission, job);
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
    int status = submit(http, "/v1/fine_tuning/estimate", "estimate" SUBMISSION " [--json]", count,
                        arguments, &submission, &estimate);

    if (status == COMMAND_OK) {
        take_back(http, &submission);
        if (submission.json)
            status = output_json(estimate);
        else
            print_estimate(estimate);
    }
    release(&submission, estimate);
    return status;
}

int command_watch(struct http *http, int count, char **arguments)
{
    bool curve = count == 3 && strcmp(arguments[2], "--curve") == 0;

    if (count != 2 && !curve)
        return output_usage("watch JOB [--curve]");
    return (int)watch_job(http, arguments[1], curve);
}

int command_jobs(struct http *http, int count, char **arguments)
{
    cJSON *list = NULL;
    const cJSON *job = NULL;

    (void)arguments; /* takes none */
    if (count != 1)
        return output_usage("jobs");
    if (!http_call(http, "/v1/fine_tuning/jobs?limit=100", NULL, &list))
        return output_refused(http);
    printf("%-30s %-17s %-12s %-9s %s\n", "JOB", "STATUS", "STEPS", "DEVICE", "MODEL");
    cJSON_ArrayForEach(job, cJSON_GetObjectItemCaseSensitive(list, "data"))
    {
        const cJSON *done = cJSON_GetObjectItemCaseSensitive(job, "completed_steps");
        const cJSON *total = cJSON_GetObjectItemCaseSensitive(job, "total_steps");
        const char *model = output_text(job, "fine_tuned_model");
        char steps[32] = "-";

        if (cJSON_IsNumber(total) && total->valuedouble > 0)
            (void)snprintf(steps, sizeof(steps), "%.0f/%.0f",
                           cJSON_IsNumber(done) ? done->valuedouble : 0, total->valuedouble);
        printf("%-30s %-17s %-12s %-9s %s\n", output_text(job, "id"), output_text(job, "status"),
               steps, output_text(job, "device_used"),
               model[0] != '\0' ? model : output_text(job, "model"));
        if (output_text(job, "status_reason")[0] != '\0')
            printf("    %s\n", output_text(job, "status_reason"));
    }
    cJSON_Delete(list);
    return COMMAND_OK;
}

int command_cancel(struct http *http, int count, char **arguments)
{
    char path[256];
    cJSON *job = NULL;

    if (count != 2)
        return output_usage("cancel JOB");
    (void)snprintf(path, sizeof(path), "/v1/fine_tuning/jobs/%s/cancel", arguments[1]);
    if (!http_call(http, path, "", &job))
        return output_refused(http);
    printf("%s %s\n", output_text(job, "id"), output_text(job, "status"));
    cJSON_Delete(job);
    return COMMAND_OK;
}

/* A job's id stands for the model it made. */
static bool resolve_model(struct http *http, const char *name, char *ret_model, size_t capacity)
{
    char path[256];
    cJSON *job = NULL;

    if (strncmp(name, "ftjob-", 6) != 0) {
        (void)snprintf(ret_model, capacity, "%s", name);
        return true;
    }
    (void)snprintf(path, sizeof(path), "/v1/fine_tuning/jobs/%s", name);
    if (!http_call(http, path, NULL, &job))
        return false;
    (void)snprintf(ret_model, capacity, "%s", output_text(job, "fine_tuned_model"));
    cJSON_Delete(job);
    return true;
}

int command_fetch(struct http *http, int count, char **arguments)
{
    const char *target = "adapter.safetensors";
    char model[256];
    char path[1024];
    char *escaped;
    uint64_t size = 0;
    bool ok;

    if (count == 4 && strcmp(arguments[2], "-o") == 0)
        target = arguments[3];
    else if (count != 2)
        return output_usage("fetch JOB-OR-MODEL [-o FILE]");
    if (!resolve_model(http, arguments[1], model, sizeof(model)))
        return output_refused(http);
    if (model[0] == '\0') {
        (void)fprintf(stderr, "needlectl: job %s has no model\n", arguments[1]);
        return COMMAND_REFUSED;
    }
    escaped = http_escape(http, model);
    (void)snprintf(path, sizeof(path), "/v1/models/%s/adapter.safetensors",
                   escaped != NULL ? escaped : model);
    free(escaped);
    ok = http_download(http, path, target, &size);
    if (!ok) {
        int status = output_refused(http);

        return http_status(http) == 200 ? COMMAND_REFUSED : status;
    }
    printf("%s: %llu bytes\n", target, (unsigned long long)size);
    return COMMAND_OK;
}

int command_devices(struct http *http, int count, char **arguments)
{
    cJSON *list = NULL;
    const cJSON *item = NULL;

    (void)arguments; /* takes none */
    if (count != 1)
        return output_usage("devices");
    if (!http_call(http, "/v1/devices", NULL, &list))
        return output_refused(http);
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
    cJSON_Delete(list);
    return COMMAND_OK;
}
