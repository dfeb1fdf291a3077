#include "client/call.h"

#include "client/commands.h"
#include "client/http.h"
#include "client/output.h"
#include "client/words.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

int command_call(struct http *http, int count, char **arguments)
{
    const char *method, *path, *data;
    struct words words;
    cJSON *answer = NULL;
    bool ok;
    int status;

    if (!words_read("call", count, arguments, &words))
        return COMMAND_USAGE;
    method = words.word[0];
    path = words.word[1];
    data = words_value(&words, "--data");
    if (path[0] != '/') {
        (void)fprintf(stderr, "needlectl: a path begins with '/', as in /v1/models; not '%s'\n",
                      path);
        return COMMAND_USAGE;
    }
    if (data && strcmp(method, "POST") != 0) {
        (void)fprintf(stderr, "needlectl: --data goes with POST, not with %s\n", method);
        return COMMAND_USAGE;
    }
    if (strcmp(method, "GET") == 0) {
        ok = http_call(http, path, NULL, &answer);
    } else if (strcmp(method, "POST") == 0) {
        ok = http_call(http, path, data ? data : "", &answer);
    } else if (strcmp(method, "DELETE") == 0) {
        ok = http_delete(http, path, &answer);
    } else {
        (void)fprintf(stderr, "needlectl: GET, POST or DELETE, not '%s'\n", method);
        return COMMAND_USAGE;
    }
    if (!ok)
        return output_refused(http);
    status = output_json(answer);
    cJSON_Delete(answer);
    return status;
}
