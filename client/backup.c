#include "client/backup.h"

#include "client/commands.h"
#include "client/http.h"
#include "client/output.h"
#include "client/words.h"

#include <cjson/cJSON.h>
#include <stdio.h>

int command_backup(struct http *http, int count, char **arguments)
{
    struct words words;
    uint64_t size = 0;
    cJSON *answer;

    if (!words_read("backup", count, arguments, &words))
        return COMMAND_USAGE;
    if (!http_download_secret(http, "/v1/backup", words.word[0], &size))
        return output_not_saved(http);
    if (!words_value(&words, "--json"))
        printf("%s: %llu bytes; needled --restore puts it back\n", words.word[0],
               (unsigned long long)size);
    answer = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(answer, "object", "backup"); /* without memory: an empty answer */
    (void)cJSON_AddStringToObject(answer, "path", words.word[0]);
    (void)cJSON_AddNumberToObject(answer, "bytes", (double)size);
    return output_end(&words, answer);
}
