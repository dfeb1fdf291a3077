#include "client/submission.h"

#include "client/commands.h"
#include "client/http.h"
#include "client/output.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_BYTES 64

/* Of "name=value": false when there is none of them. */
static bool split_setting(const char *setting, char *ret_name, size_t capacity,
                          const char **ret_value)
{
    const char *equals = strchr(setting, '=');

    if (equals == NULL || equals == setting || (size_t)(equals - setting) >= capacity)
        return false;
    (void)snprintf(ret_name, capacity, "%.*s", (int)(equals - setting), setting);
    *ret_value = equals + 1;
    return true;
}

/* Numbers go as numbers, the rest as text. */
static cJSON *value_json(const char *text)
{
    char *end = NULL;
    const double number = strtod(text, &end);

    if (text[0] != '\0' && *end == '\0' && isfinite(number))
        return cJSON_CreateNumber(number);
    return cJSON_CreateString(text);
}

/* "--set name=value" */
static bool add_setting(cJSON *hyperparameters, const char *setting)
{
    const char *value;
    char name[NAME_BYTES];

    return split_setting(setting, name, sizeof(name), &value) &&
           cJSON_AddItemToObject(hyperparameters, name, value_json(value));
}

/* "--vary name=value,value": a list, of the seed at the top. */
static bool add_list(struct submission *submission, const char *setting)
{
    char name[NAME_BYTES], value[NAME_BYTES];
    const char *at;
    cJSON *list;

    if (!split_setting(setting, name, sizeof(name), &at))
        return false;
    list = cJSON_AddArrayToObject(
        strcmp(name, "seed") == 0 ? submission->body : submission->hyperparameters, name);
    for (;;) {
        const size_t size = strcspn(at, ",");

        if (size == 0 || size >= sizeof(value))
            return false;
        (void)snprintf(value, sizeof(value), "%.*s", (int)size, at);
        (void)cJSON_AddItemToArray(list, value_json(value));
        if (at[size] == '\0')
            return true;
        at += size + 1;
    }
}

/* All the settings that were given, and lists of values. */
static bool add_settings(struct submission *submission)
{
    const struct words *words = &submission->words;

    for (int i = 0; i < words->option_count; i++) {
        const char *value = words->option[i].value;

        if (strncmp(words->option[i].name, "--set", 5) == 0 &&
            !add_setting(submission->hyperparameters, value)) {
            (void)fprintf(stderr, "needlectl: --set wants name=value, not '%s'\n", value);
            return false;
        }
        if (strncmp(words->option[i].name, "--vary", 6) == 0 && !add_list(submission, value)) {
            (void)fprintf(stderr, "needlectl: --vary wants name=value,value, not '%s'\n", value);
            return false;
        }
    }
    return true;
}

static bool add_number(cJSON *body, const struct words *words, const char *field)
{
    const char *text;
    char option[32];
    char *end = NULL;
    double number;

    (void)snprintf(option, sizeof(option), "--%s", field);
    text = words_value(words, option);
    if (!text)
        return true;
    number = strtod(text, &end);
    if (text[0] == '\0' || *end != '\0' || !isfinite(number)) {
        (void)fprintf(stderr, "needlectl: %s wants a number, not '%s'\n", option, text);
        return false;
    }
    return cJSON_AddNumberToObject(body, field, number) != NULL;
}

/* The body's fields but for the files. */
static bool read_submission(struct submission *submission, const char *command, int count,
                            char **arguments)
{
    static const char *const texts[] = {"suffix", "device"};
    struct words *words = &submission->words;
    const char *model;

    if (!words_read(command, count, arguments, words))
        return false;
    submission->json = words_value(words, "--json") != NULL;
    model = words_value(words, "--model");
    (void)cJSON_AddStringToObject(submission->body, "model", model ? model : "needle-3");
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        char option[32];
        const char *value;

        (void)snprintf(option, sizeof(option), "--%s", texts[i]);
        value = words_value(words, option);
        if (value)
            (void)cJSON_AddStringToObject(submission->body, texts[i], value);
    }
    return add_number(submission->body, words, "seed") &&
           add_number(submission->body, words, "priority") && add_settings(submission);
}

/* A file of this machine, not the id of one that is there. */
static bool is_local(const char *path)
{
    return path != NULL && (strncmp(path, "file-", 5) != 0 || access(path, F_OK) == 0);
}

/* The daemon looks at all but the files first: asked about one that is not there, it refuses that one
 * alone when the rest is right. A base is asked for by itself, since it comes after the files. */
static bool is_right_but_for_files(struct http *http, struct submission *submission,
                                   const char *path)
{
    static const char nothing[] = "file-0";
    const char *model = output_text(submission->body, "model");
    char model_path[256];
    cJSON *answer = NULL;
    char *text;
    bool made;

    (void)cJSON_AddStringToObject(submission->body, "training_file", nothing);
    text = cJSON_PrintUnformatted(submission->body);
    cJSON_DeleteItemFromObjectCaseSensitive(submission->body, "training_file");
    made = text != NULL && http_call(http, path, text, &answer);
    free(text);
    cJSON_Delete(answer);
    answer = NULL;
    if (!made && (http_status(http) != 400 || strstr(http_error(http), nothing) == NULL))
        return false;
    http_join(http, "/v1/models/", model, "", model_path, sizeof(model_path));
    if (strchr(model, ':') == NULL && !http_call(http, model_path, NULL, &answer))
        return false;
    cJSON_Delete(answer);
    return true;
}

/* What is cheap to find comes before bytes are sent. COMMAND_OK: they may be. */
static int look_first(struct http *http, struct submission *submission, const char *path)
{
    const char *const files[] = {submission->words.word[0],
                                 words_value(&submission->words, "--validation")};
    bool any = false;

    for (size_t i = 0; i < COUNT_OF(files); i++) {
        if (!is_local(files[i]))
            continue;
        any = true;
        if (access(files[i], R_OK) != 0) {
            (void)fprintf(stderr, "needlectl: cannot read %s: %s\n", files[i], strerror(errno));
            return COMMAND_USAGE;
        }
    }
    return !any || is_right_but_for_files(http, submission, path) ? COMMAND_OK
                                                                  : output_refused(http);
}

/* Puts a file's id into the body under `key`: that of a file that is there already, or of an upload. */
static bool upload(struct http *http, struct submission *submission, const char *path,
                   const char *key)
{
    cJSON *file = NULL;
    bool ok;

    if (!is_local(path))
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

void submission_take_back(struct http *http, const struct submission *submission)
{
    const cJSON *id = NULL;
    char path[256];

    cJSON_ArrayForEach(id, submission->uploaded)
    {
        (void)snprintf(path, sizeof(path), "/v1/files/%s", id->valuestring);
        (void)http_delete(http, path, NULL); /* a copy left behind is harmless */
    }
}

int submission_send(struct http *http, const char *path, int count, char **arguments,
                    struct submission *submission, cJSON **ret_answer)
{
    const char *validation;
    cJSON *method = cJSON_CreateObject();
    cJSON *supervised = cJSON_AddObjectToObject(method, "supervised");
    char *text = NULL;
    int status;

    *submission = (struct submission){.body = cJSON_CreateObject(),
                                      .hyperparameters = cJSON_CreateObject(),
                                      .uploaded = cJSON_CreateArray()};
    (void)cJSON_AddStringToObject(method, "type", "supervised");
    (void)cJSON_AddItemToObject(supervised, "hyperparameters", submission->hyperparameters);
    (void)cJSON_AddItemToObject(submission->body, "method", method);
    if (!read_submission(submission, arguments[0], count, arguments))
        return COMMAND_USAGE;
    status = look_first(http, submission, path);
    if (status != COMMAND_OK)
        return status;
    validation = words_value(&submission->words, "--validation");
    if (!upload(http, submission, submission->words.word[0], "training_file") ||
        (validation && !upload(http, submission, validation, "validation_file")))
        return output_refused(http);
    text = cJSON_PrintUnformatted(submission->body);
    if (text != NULL && http_call(http, path, text, ret_answer)) {
        free(text);
        return COMMAND_OK;
    }
    status = output_refused(http);
    free(text);
    submission_take_back(http, submission);
    return status;
}

void submission_release(struct submission *submission, cJSON *answer)
{
    cJSON_Delete(answer);
    cJSON_Delete(submission->body);
    cJSON_Delete(submission->uploaded);
}
