#include "client/jobs.h"

#include "client/commands.h"
#include "client/http.h"
#include "client/output.h"
#include "client/words.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES 4096
#define JOBS "/v1/fine_tuning/jobs/"

static void print_line(const char *name, const cJSON *member)
{
    char *text = NULL;

    if (member == NULL || cJSON_IsNull(member) ||
        (cJSON_IsArray(member) && cJSON_GetArraySize(member) == 0))
        return;
    if (cJSON_IsString(member)) {
        printf("%-18s %s\n", name, member->valuestring);
        return;
    }
    text = cJSON_PrintUnformatted(member);
    printf("%-18s %s\n", name, text ? text : "");
    cJSON_free(text);
}

int command_jobs_get(struct http *http, int count, char **arguments)
{
    static const char *const shown[] = {
        "id",
        "name",
        "status",
        "status_reason",
        "error",
        "model",
        "base_model",
        "fine_tuned_model",
        "training_files",
        "validation_files",
        "test_files",
        "device",
        "device_used",
        "queue_position",
        "completed_steps",
        "total_steps",
        "train_loss",
        "trained_tokens",
        "attempts",
        "resume_checkpoint",
        "hyperparameters",
        "seed",
        "metadata",
        "result_files",
        "sweep_id",
    };
    char path[PATH_BYTES];
    struct words words;
    cJSON *job = NULL;

    if (!words_read("jobs get", count, arguments, &words))
        return COMMAND_USAGE;
    http_join(http, JOBS, words.word[0], "", path, sizeof(path));
    if (!http_call(http, path, NULL, &job))
        return output_refused(http);
    for (size_t i = 0; !words_value(&words, "--json") && i < COUNT_OF(shown); i++)
        print_line(shown[i], output_member(job, shown[i]));
    return output_end(&words, job);
}

static int change(struct http *http, const char *command, int count, char **arguments)
{
    char path[PATH_BYTES], rest[32];
    struct words words;
    cJSON *job = NULL;

    if (!words_read(command, count, arguments, &words))
        return COMMAND_USAGE;
    (void)snprintf(rest, sizeof(rest), "/%s", command);
    http_join(http, JOBS, words.word[0], rest, path, sizeof(path));
    if (!http_call(http, path, "", &job))
        return output_refused(http);
    if (!words_value(&words, "--json"))
        printf("%s %s\n", output_text(job, "id"), output_text(job, "status"));
    return output_end(&words, job);
}

int command_pause(struct http *http, int count, char **arguments)
{
    return change(http, "pause", count, arguments);
}

int command_resume(struct http *http, int count, char **arguments)
{
    return change(http, "resume", count, arguments);
}

static void print_loss(const cJSON *metrics, const char *name)
{
    const cJSON *loss = output_member(metrics, name);

    if (cJSON_IsNumber(loss))
        printf(" %12.4f", loss->valuedouble);
    else
        printf(" %12s", "-");
}

int command_checkpoints(struct http *http, int count, char **arguments)
{
    char path[PATH_BYTES];
    const cJSON *checkpoint = NULL;
    struct words words;
    cJSON *list = NULL;

    if (!words_read("checkpoints", count, arguments, &words))
        return COMMAND_USAGE;
    http_join(http, JOBS, words.word[0], "/checkpoints?limit=1000", path, sizeof(path));
    if (!http_call(http, path, NULL, &list))
        return output_refused(http);
    if (!words_value(&words, "--json")) {
        printf("%-32s %8s %12s %12s  %s\n", "CHECKPOINT", "STEP", "TRAIN LOSS", "VALID LOSS",
               "MODEL");
        cJSON_ArrayForEach(checkpoint, output_member(list, "data"))
        {
            const cJSON *metrics = output_member(checkpoint, "metrics");

            printf("%-32s %8.0f", output_text(checkpoint, "id"),
                   output_number(checkpoint, "step_number"));
            print_loss(metrics, "train_loss");
            print_loss(metrics, "full_valid_loss");
            printf("  %s\n", output_text(checkpoint, "fine_tuned_model_checkpoint"));
        }
    }
    return output_end(&words, list);
}

/* '-' for what was not computed. */
static void print_value(const cJSON *columns, const char *name, int index)
{
    const cJSON *value = cJSON_GetArrayItem(output_member(columns, name), index);

    if (cJSON_IsNumber(value))
        printf(" %14.6g", value->valuedouble);
    else
        printf(" %14s", "-");
}

int command_metrics(struct http *http, int count, char **arguments)
{
    static const char *const taken[] = {"--points"};
    static const char *const shown[] = {"train_loss", "learning_rate", "grad_norm",
                                        "tokens_per_second"};
    char path[PATH_BYTES];
    struct words words;
    cJSON *answer = NULL;

    if (!words_read("metrics", count, arguments, &words))
        return COMMAND_USAGE;
    http_join(http, JOBS, words.word[0], "/metrics", path, sizeof(path));
    if (!words_add_query(http, &words, path, sizeof(path), taken, COUNT_OF(taken)))
        return COMMAND_USAGE;
    if (!http_call(http, path, NULL, &answer))
        return output_refused(http);
    if (!words_value(&words, "--json")) {
        const cJSON *columns = output_member(answer, "columns");
        const cJSON *steps = output_member(columns, "step");

        printf("%10s %14s %14s %14s %14s\n", "STEP", "TRAIN LOSS", "LEARNING RATE", "GRAD NORM",
               "TOKENS/S");
        for (int i = 0; i < cJSON_GetArraySize(steps); i++) {
            printf("%10.0f", cJSON_GetNumberValue(cJSON_GetArrayItem(steps, i)));
            for (size_t j = 0; j < COUNT_OF(shown); j++)
                print_value(columns, shown[j], i);
            printf("\n");
        }
    }
    return output_end(&words, answer);
}

int command_result(struct http *http, int count, char **arguments)
{
    const cJSON *file;
    const char *target;
    char path[PATH_BYTES], name[256];
    struct words words;
    cJSON *job = NULL;
    uint64_t size = 0;

    if (!words_read("result", count, arguments, &words))
        return COMMAND_USAGE;
    http_join(http, JOBS, words.word[0], "", path, sizeof(path));
    if (!http_call(http, path, NULL, &job))
        return output_refused(http);
    file = cJSON_GetArrayItem(output_member(job, "result_files"), 0);
    if (!cJSON_IsString(file)) {
        (void)fprintf(stderr, "needlectl: job %s has no result file: it is %s\n", words.word[0],
                      output_text(job, "status"));
        cJSON_Delete(job);
        return COMMAND_REFUSED;
    }
    (void)snprintf(name, sizeof(name), "%s.csv", output_text(job, "id"));
    target = words_value(&words, "-o");
    target = target ? target : name;
    http_join(http, "/v1/files/", file->valuestring, "/content", path, sizeof(path));
    if (!http_download(http, path, target, &size)) {
        cJSON_Delete(job);
        return output_not_saved(http);
    }
    if (!words_value(&words, "--json"))
        printf("%s: %llu bytes\n", target, (unsigned long long)size);
    return output_end(&words, job);
}
