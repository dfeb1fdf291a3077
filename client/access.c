#include "client/access.h"

#include "client/commands.h"
#include "client/http.h"
#include "client/output.h"
#include "client/words.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PATH_BYTES 1024
#define HOOKS "/v1/webhook_endpoints"

/* "<list>/<id><rest>", with the id escaped. */
static void make_path(struct http *http, const char *list, const char *id, const char *rest,
                      char path[PATH_BYTES])
{
    char *escaped = http_escape(http, id);

    (void)snprintf(path, PATH_BYTES, "%s/%s%s", list, escaped != NULL ? escaped : "", rest);
    free(escaped);
}

/* Makes a call with that body, which is taken over. */
static bool post(struct http *http, const char *path, cJSON *body, cJSON **ret_answer)
{
    char *text = body != NULL ? cJSON_PrintUnformatted(body) : NULL;
    bool ok = text != NULL && http_call(http, path, text, ret_answer);

    free(text);
    cJSON_Delete(body);
    return ok;
}

/* "2026-11-30 13:04", in UTC; "-" for none. */
static const char *print_time(const cJSON *object, const char *name, char text[32])
{
    const time_t unix_s = (time_t)output_number(object, name);
    struct tm parts;

    if (unix_s <= 0 || gmtime_r(&unix_s, &parts) == NULL ||
        strftime(text, 32, "%Y-%m-%d %H:%M", &parts) == 0)
        (void)snprintf(text, 32, "-");
    return text;
}

/* ---- keys --------------------------------------------------------------------------------------- */

/* A limit as a number of the body; false, with the reason on stderr, for what is none. */
static bool add_limit(cJSON *body, const struct words *words, const char *option, const char *field)
{
    const char *text = words_value(words, option);
    char *end = NULL;
    double number;

    if (text == NULL)
        return true;
    number = strtod(text, &end);
    if (*text == '\0' || *end != '\0' || !(number >= 1 && number <= 9007199254740992.0)) {
        (void)fprintf(stderr, "needlectl: %s wants a number from 1 on, not '%s'\n", option, text);
        return false;
    }
    return cJSON_AddNumberToObject(body, field, number) != NULL;
}

int command_key_create(struct http *http, int count, char **arguments)
{
    cJSON *body = cJSON_CreateObject(), *key = NULL;
    struct words words;
    const char *scope;

    if (!words_read("key create", count, arguments, &words) ||
        !add_limit(body, &words, "--jobs", "jobs_max") ||
        !add_limit(body, &words, "--bytes", "bytes_max")) {
        cJSON_Delete(body);
        return COMMAND_USAGE;
    }
    scope = words_value(&words, "--scope");
    (void)cJSON_AddStringToObject(body, "name", words.word[0]);
    if (scope != NULL)
        (void)cJSON_AddStringToObject(body, "scope", scope);
    if (!post(http, "/v1/keys", body, &key))
        return output_refused(http);
    if (!words_value(&words, "--json")) {
        (void)fprintf(stderr, "%s, scope %s; the key is shown this once:\n", output_text(key, "id"),
                      output_text(key, "scope"));
        puts(output_text(key, "key"));
    }
    return output_end(&words, key);
}

int command_key_list(struct http *http, int count, char **arguments)
{
    static const char *const options[] = {"--after", "--limit"};
    char path[PATH_BYTES] = "/v1/keys", used[32], revoked[32];
    struct words words;
    cJSON *list = NULL;
    const cJSON *key = NULL;

    if (!words_read("key list", count, arguments, &words) ||
        !words_add_query(http, &words, path, sizeof(path), options, COUNT_OF(options)))
        return COMMAND_USAGE;
    if (!http_call(http, path, NULL, &list))
        return output_refused(http);
    if (!words_value(&words, "--json")) {
        printf("%-22s %-7s %-7s %-17s %-17s %s\n", "KEY", "SCOPE", "ENDS IN", "LAST USED (UTC)",
               "REVOKED (UTC)", "NAME");
        cJSON_ArrayForEach(key, output_member(list, "data")) printf(
            "%-22s %-7s %-7s %-17s %-17s %s\n", output_text(key, "id"), output_text(key, "scope"),
            output_text(key, "hint"), print_time(key, "last_used_at", used),
            print_time(key, "revoked_at", revoked), output_text(key, "name"));
    }
    return output_end(&words, list);
}

int command_key_revoke(struct http *http, int count, char **arguments)
{
    char path[PATH_BYTES];
    struct words words;
    cJSON *answer = NULL;

    if (!words_read("key revoke", count, arguments, &words))
        return COMMAND_USAGE;
    make_path(http, "/v1/keys", words.word[0], "", path);
    if (!http_delete(http, path, &answer))
        return output_refused(http);
    if (!words_value(&words, "--json"))
        printf("%s revoked\n", words.word[0]);
    return output_end(&words, answer);
}

/* ---- webhooks ----------------------------------------------------------------------------------- */

/* "a,b" as texts of an array; NULL: every type there is. */
static bool add_types(struct http *http, cJSON *body, const char *types)
{
    cJSON *list = NULL, *array;

    if (types == NULL) {
        if (!http_call(http, "/v1/webhook_event_types", NULL, &list))
            return false;
        array = cJSON_DetachItemFromObjectCaseSensitive(list, "data");
        cJSON_Delete(list);
        return cJSON_AddItemToObject(body, "event_types", array);
    }
    array = cJSON_AddArrayToObject(body, "event_types");
    while (*types != '\0') {
        const size_t size = strcspn(types, ",");
        char type[64];

        (void)snprintf(type, sizeof(type), "%.*s", (int)(size < sizeof(type) ? size : 63), types);
        (void)cJSON_AddItemToArray(array, cJSON_CreateString(type));
        types += size + (types[size] == ',' ? 1 : 0);
    }
    return true;
}

static int print_secret(const struct words *words, cJSON *webhook)
{
    if (!words_value(words, "--json")) {
        (void)fprintf(stderr, "%s; the signing secret is shown this once:\n",
                      output_text(webhook, "id"));
        puts(output_text(webhook, "signing_secret"));
    }
    return output_end(words, webhook);
}

int command_webhook_create(struct http *http, int count, char **arguments)
{
    cJSON *body = cJSON_CreateObject(), *webhook = NULL;
    struct words words;
    const char *name;

    if (!words_read("webhook create", count, arguments, &words)) {
        cJSON_Delete(body);
        return COMMAND_USAGE;
    }
    name = words_value(&words, "--name");
    (void)cJSON_AddStringToObject(body, "name", name != NULL ? name : "needlectl");
    (void)cJSON_AddStringToObject(body, "url", words.word[0]);
    if (!add_types(http, body, words_value(&words, "--types"))) {
        cJSON_Delete(body);
        return output_refused(http);
    }
    if (!post(http, HOOKS, body, &webhook))
        return output_refused(http);
    return print_secret(&words, webhook);
}

int command_webhook_list(struct http *http, int count, char **arguments)
{
    static const char *const options[] = {"--after", "--limit"};
    char path[PATH_BYTES] = HOOKS;
    struct words words;
    cJSON *list = NULL;
    const cJSON *webhook = NULL;

    if (!words_read("webhook list", count, arguments, &words) ||
        !words_add_query(http, &words, path, sizeof(path), options, COUNT_OF(options)))
        return COMMAND_USAGE;
    if (!http_call(http, path, NULL, &list))
        return output_refused(http);
    if (!words_value(&words, "--json")) {
        printf("%-28s %-4s %-5s %s\n", "WEBHOOK", "ON", "JOBS", "URL");
        cJSON_ArrayForEach(webhook, output_member(list, "data"))
            printf("%-28s %-4s %-5s %s (%s)\n", output_text(webhook, "id"),
                   cJSON_IsTrue(output_member(webhook, "enabled")) ? "yes" : "no",
                   output_text(webhook, "jobs"), output_text(webhook, "url"),
                   output_text(webhook, "name"));
    }
    return output_end(&words, list);
}

int command_webhook_delete(struct http *http, int count, char **arguments)
{
    char path[PATH_BYTES];
    struct words words;
    cJSON *answer = NULL;

    if (!words_read("webhook delete", count, arguments, &words))
        return COMMAND_USAGE;
    make_path(http, HOOKS, words.word[0], "", path);
    if (!http_delete(http, path, &answer))
        return output_refused(http);
    if (!words_value(&words, "--json"))
        printf("%s deleted\n", words.word[0]);
    return output_end(&words, answer);
}

int command_webhook_test(struct http *http, int count, char **arguments)
{
    char path[PATH_BYTES];
    struct words words;
    cJSON *answer = NULL;

    if (!words_read("webhook test", count, arguments, &words))
        return COMMAND_USAGE;
    make_path(http, HOOKS, words.word[0], "/test", path);
    if (!post(http, path, cJSON_CreateObject(), &answer))
        return output_refused(http);
    if (!words_value(&words, "--json"))
        printf("%s answered %.0f\n", words.word[0], output_number(answer, "status_code"));
    return output_end(&words, answer);
}

int command_webhook_rotate(struct http *http, int count, char **arguments)
{
    cJSON *body = cJSON_CreateObject(), *webhook = NULL;
    char path[PATH_BYTES];
    struct words words;

    if (!words_read("webhook rotate", count, arguments, &words)) {
        cJSON_Delete(body);
        return COMMAND_USAGE;
    }
    (void)cJSON_AddBoolToObject(body, "keep_old_secret_active_for_24_hours",
                                words_value(&words, "--keep-old") != NULL);
    make_path(http, HOOKS, words.word[0], "/rotate_secret", path);
    if (!post(http, path, body, &webhook))
        return output_refused(http);
    return print_secret(&words, webhook);
}

int command_webhook_deliveries(struct http *http, int count, char **arguments)
{
    static const char *const options[] = {"--limit"};
    char path[PATH_BYTES], made[32];
    struct words words;
    cJSON *list = NULL;
    const cJSON *delivery = NULL;

    if (!words_read("webhook deliveries", count, arguments, &words))
        return COMMAND_USAGE;
    make_path(http, HOOKS, words.word[0], "/deliveries", path);
    if (!words_add_query(http, &words, path, sizeof(path), options, COUNT_OF(options)))
        return COMMAND_USAGE;
    if (!http_call(http, path, NULL, &list))
        return output_refused(http);
    if (!words_value(&words, "--json")) {
        printf("%-17s %-10s %-8s %-26s %s\n", "MADE (UTC)", "STATUS", "ATTEMPTS", "TYPE", "JOB");
        cJSON_ArrayForEach(delivery, output_member(list, "data"))
        {
            const cJSON *event = output_member(delivery, "event");

            printf("%-17s %-10s %-8.0f %-26s %s\n", print_time(delivery, "created_at", made),
                   output_text(delivery, "status"), output_number(delivery, "attempts"),
                   output_text(event, "type"), output_text(output_member(event, "data"), "id"));
            if (output_text(delivery, "last_error")[0] != '\0')
                printf("    %s\n", output_text(delivery, "last_error"));
        }
    }
    return output_end(&words, list);
}
