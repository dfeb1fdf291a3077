#include "client/commands.h"

#include "client/http.h"
#include "client/watch.h"

#include <cjson/cJSON.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int refused(const struct http *http)
{
    (void)fprintf(stderr, "needlectl: %s\n", http_error(http));
    return http_status(http) == 0 ? COMMAND_USAGE : COMMAND_REFUSED;
}

static int usage(const char *text)
{
    (void)fprintf(stderr, "usage: needlectl %s\n", text);
    return COMMAND_USAGE;
}

static const char *text_of(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

    return cJSON_IsString(item) ? item->valuestring : "";
}

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
    bool watch, curve;
};

static bool read_submission(struct submission *submission, int count, char **arguments)
{
    static const struct option options[] = {
        {"model", required_argument, NULL, 'm'},
        {"validation", required_argument, NULL, 'v'},
        {"suffix", required_argument, NULL, 's'},
        {"device", required_argument, NULL, 'd'},
        {"seed", required_argument, NULL, 'e'},
        {"set", required_argument, NULL, 'S'},
        {"no-watch", no_argument, NULL, 'n'},
        {"curve", no_argument, NULL, 'c'},
        {NULL, 0, NULL, 0},
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

/* Uploads a file and puts its id into the body under `key`. */
static bool upload(struct http *http, const char *path, cJSON *body, const char *key)
{
    cJSON *file = NULL;
    bool ok = http_upload(http, path, &file);

    if (ok) {
        printf("uploaded %s as %s\n", path, text_of(file, "id"));
        ok = cJSON_AddStringToObject(body, key, text_of(file, "id")) != NULL;
    }
    cJSON_Delete(file);
    return ok;
}

/* After a refused create: the uploads of this call go again, so that a retry leaves no copies. */
static void take_back(struct http *http, const cJSON *body)
{
    static const char *const keys[] = {"training_file", "validation_file"};
    char path[256];

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const char *id = text_of(body, keys[i]);

        (void)snprintf(path, sizeof(path), "/v1/files/%s", id);
        if (id[0] != '\0')
            (void)http_delete(http, path); /* a copy left behind is harmless */
    }
}

int command_submit(struct http *http, int count, char **arguments)
{
    struct submission submission = {
        .watch = true, .body = cJSON_CreateObject(), .hyperparameters = cJSON_CreateObject()};
    cJSON *method = cJSON_CreateObject();
    cJSON *supervised = cJSON_AddObjectToObject(method, "supervised");
    cJSON *job = NULL;
    char *text = NULL;
    int status = COMMAND_USAGE;

    (void)cJSON_AddStringToObject(method, "type", "supervised");
    (void)cJSON_AddItemToObject(supervised, "hyperparameters", submission.hyperparameters);
    (void)cJSON_AddItemToObject(submission.body, "method", method);
    if (!read_submission(&submission, count, arguments)) {
        status = usage(
            "submit DATA.jsonl [--model NAME] [--validation FILE] [--suffix TEXT] [--seed N]\n"
            "       [--device NAME] [--set hyperparameter=value]... [--no-watch] [--curve]");
        goto out;
    }
    if (!upload(http, submission.data, submission.body, "training_file") ||
        (submission.validation != NULL &&
         !upload(http, submission.validation, submission.body, "validation_file"))) {
        status = refused(http);
        goto out;
    }
    text = cJSON_PrintUnformatted(submission.body);
    if (text == NULL || !http_call(http, "/v1/fine_tuning/jobs", text, &job)) {
        status = refused(http);
        take_back(http, submission.body);
        goto out;
    }
    printf("created %s\n", text_of(job, "id"));
    (void)fflush(stdout);
    status =
        submission.watch ? (int)watch_job(http, text_of(job, "id"), submission.curve) : COMMAND_OK;
out:
    free(text);
    cJSON_Delete(job);
    cJSON_Delete(submission.body);
    return status;
}

int command_watch(struct http *http, int count, char **arguments)
{
    bool curve = count == 3 && strcmp(arguments[2], "--curve") == 0;

    if (count != 2 && !curve)
        return usage("watch JOB [--curve]");
    return (int)watch_job(http, arguments[1], curve);
}

int command_jobs(struct http *http, int count, char **arguments)
{
    cJSON *list = NULL;
    const cJSON *job = NULL;

    (void)arguments; /* takes none */
    if (count != 1)
        return usage("jobs");
    if (!http_call(http, "/v1/fine_tuning/jobs?limit=100", NULL, &list))
        return refused(http);
    printf("%-30s %-17s %-12s %-9s %s\n", "JOB", "STATUS", "STEPS", "DEVICE", "MODEL");
    cJSON_ArrayForEach(job, cJSON_GetObjectItemCaseSensitive(list, "data"))
    {
        const cJSON *done = cJSON_GetObjectItemCaseSensitive(job, "completed_steps");
        const cJSON *total = cJSON_GetObjectItemCaseSensitive(job, "total_steps");
        const char *model = text_of(job, "fine_tuned_model");
        char steps[32] = "-";

        if (cJSON_IsNumber(total) && total->valuedouble > 0)
            (void)snprintf(steps, sizeof(steps), "%.0f/%.0f",
                           cJSON_IsNumber(done) ? done->valuedouble : 0, total->valuedouble);
        printf("%-30s %-17s %-12s %-9s %s\n", text_of(job, "id"), text_of(job, "status"), steps,
               text_of(job, "device_used"), model[0] != '\0' ? model : text_of(job, "model"));
        if (text_of(job, "status_reason")[0] != '\0')
            printf("    %s\n", text_of(job, "status_reason"));
    }
    cJSON_Delete(list);
    return COMMAND_OK;
}

int command_cancel(struct http *http, int count, char **arguments)
{
    char path[256];
    cJSON *job = NULL;

    if (count != 2)
        return usage("cancel JOB");
    (void)snprintf(path, sizeof(path), "/v1/fine_tuning/jobs/%s/cancel", arguments[1]);
    if (!http_call(http, path, "", &job))
        return refused(http);
    printf("%s %s\n", text_of(job, "id"), text_of(job, "status"));
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
    (void)snprintf(ret_model, capacity, "%s", text_of(job, "fine_tuned_model"));
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
        return usage("fetch JOB-OR-MODEL [-o FILE]");
    if (!resolve_model(http, arguments[1], model, sizeof(model)))
        return refused(http);
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
        int status = refused(http);

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
        return usage("devices");
    if (!http_call(http, "/v1/devices", NULL, &list))
        return refused(http);
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(list, "data"))
    {
        const cJSON *total = cJSON_GetObjectItemCaseSensitive(item, "memory_total_bytes");
        const char *job = text_of(item, "job");
        const char *level = text_of(item, "simd_level");
        const char *warning = text_of(item, "simd_warning");

        printf("%-8s %s, %.1f GiB, %s%s%s; %s\n", text_of(item, "id"), text_of(item, "name"),
               cJSON_IsNumber(total) ? total->valuedouble / (1 << 30) : 0, level,
               level[0] != '\0' ? ", " : "", text_of(item, "detail"),
               job[0] != '\0' ? job : "idle");
        if (warning[0] != '\0')
            printf("%-8s warning: %s\n", text_of(item, "id"), warning);
    }
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(list, "missing"))
        printf("%-8s not available: %s\n", text_of(item, "platform"), text_of(item, "reason"));
    cJSON_Delete(list);
    return COMMAND_OK;
}
