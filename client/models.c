#include "client/models.h"

#include "client/commands.h"
#include "client/http.h"
#include "client/output.h"
#include "client/words.h"

#include <cjson/cJSON.h>
#include <stdio.h>

#define PATH_BYTES 4096

static void print_model(const cJSON *model)
{
    const char *parent = output_text(model, "parent_model");

    printf("%-52s %6.0f %12.0f  %s\n", output_text(model, "id"), output_number(model, "depth"),
           output_number(model, "bytes"), parent[0] ? parent : output_text(model, "base_model"));
}

int command_models(struct http *http, int count, char **arguments)
{
    static const char *const options[] = {"--search", "--limit"};
    char path[PATH_BYTES] = "/v1/models";
    const cJSON *model = NULL;
    struct words words;
    cJSON *list = NULL;

    if (!words_read("models", count, arguments, &words) ||
        !words_add_query(http, &words, path, sizeof(path), options, COUNT_OF(options)))
        return COMMAND_USAGE;
    if (!http_call(http, path, NULL, &list))
        return output_refused(http);
    if (!words_value(&words, "--json")) {
        printf("%-52s %6s %12s  %s\n", "MODEL", "DEPTH", "BYTES", "FROM");
        cJSON_ArrayForEach(model, output_member(list, "data")) print_model(model);
    }
    return output_end(&words, list);
}

int command_models_get(struct http *http, int count, char **arguments)
{
    char path[PATH_BYTES];
    struct words words;
    cJSON *model = NULL;

    if (!words_read("models get", count, arguments, &words))
        return COMMAND_USAGE;
    http_join(http, "/v1/models/", words.word[0], "", path, sizeof(path));
    if (!http_call(http, path, NULL, &model))
        return output_refused(http);
    if (!words_value(&words, "--json"))
        print_model(model);
    return output_end(&words, model);
}

int command_models_delete(struct http *http, int count, char **arguments)
{
    char path[PATH_BYTES];
    struct words words;
    cJSON *answer = NULL;

    if (!words_read("models delete", count, arguments, &words))
        return COMMAND_USAGE;
    http_join(http, "/v1/models/", words.word[0], "", path, sizeof(path));
    if (!http_delete(http, path, &answer))
        return output_refused(http);
    if (!words_value(&words, "--json"))
        printf("%s deleted\n", words.word[0]);
    return output_end(&words, answer);
}

int command_billing(struct http *http, int count, char **arguments)
{
    const cJSON *limit = NULL;
    struct words words;
    cJSON *billing = NULL;

    if (!words_read("billing", count, arguments, &words))
        return COMMAND_USAGE;
    if (!http_call(http, "/v1/billing", NULL, &billing))
        return output_refused(http);
    cJSON_ArrayForEach(limit, output_member(billing, "limits"))
    {
        if (words_value(&words, "--json"))
            break;
        printf("%-10s %.0f", limit->string,
               output_number(output_member(billing, "usage"), limit->string));
        if (cJSON_IsNumber(limit))
            printf(" of %.0f\n", limit->valuedouble);
        else
            printf(", no limit\n");
    }
    return output_end(&words, billing);
}
