#include "client/output.h"

#include "client/commands.h"
#include "client/http.h"
#include "client/words.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

int output_refused(const struct http *http)
{
    (void)fprintf(stderr, "needlectl: %s\n", http_error(http));
    return http_status(http) == 0 ? COMMAND_USAGE : COMMAND_REFUSED;
}

int output_not_saved(const struct http *http)
{
    const int status = output_refused(http);

    return http_status(http) == 200 ? COMMAND_REFUSED : status;
}

const struct cJSON *output_member(const struct cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

const char *output_text(const struct cJSON *object, const char *name)
{
    const cJSON *item = output_member(object, name);

    return cJSON_IsString(item) ? item->valuestring : "";
}

double output_number(const struct cJSON *object, const char *name)
{
    const cJSON *item = output_member(object, name);

    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

int output_json(const struct cJSON *answer)
{
    char *text = cJSON_PrintUnformatted(answer);

    if (text == NULL) {
        (void)fputs("needlectl: no memory\n", stderr);
        return COMMAND_USAGE;
    }
    puts(text);
    free(text);
    return COMMAND_OK;
}

int output_end(const struct words *words, struct cJSON *answer)
{
    const int status = words_value(words, "--json") ? output_json(answer) : COMMAND_OK;

    cJSON_Delete(answer);
    return status;
}
