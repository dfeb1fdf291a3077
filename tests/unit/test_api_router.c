/* Proves that api/openapi.yaml and the table of routes name the same calls. */
#include "tests/support/scratch.h"
#include "tests/support/test.h"

#include "api/router.h"

#include <ctype.h>

#define CALL_MAX 128

struct calls {
    char items[CALL_MAX][160]; /* "GET /v1/files/{}" */
    size_t count;
};

/* "/v1/files/{file_id}" -> "/v1/files/{}" */
static void strip_names(char *path)
{
    char *out = path;
    bool inside = false;

    for (char *in = path; *in; in++) {
        if (*in == '}')
            inside = false;
        if (!inside)
            *out++ = *in;
        if (*in == '{')
            inside = true;
    }
    *out = '\0';
}

/* The file's own layout: a path stands at two blanks, a method below it at four. */
static void read_calls(struct calls *calls)
{
    static const char *const methods[] = {"get", "post", "delete", "put", "patch"};
    char path[128] = "", *text, *line, *rest = NULL;
    size_t size = 0;

    text = scratch_read("api/openapi.yaml", &size);
    for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, "  /", 3) == 0) {
            snprintf(path, sizeof(path), "%.*s", (int)strcspn(line + 2, ":"), line + 2);
            strip_names(path);
        }
        for (size_t i = 0; i < COUNT_OF(methods); i++) {
            size_t length = strlen(methods[i]);

            if (strncmp(line, "    ", 4) != 0 || strncmp(line + 4, methods[i], length) != 0 ||
                strcmp(line + 4 + length, ":") != 0)
                continue;
            assert_true(calls->count < CALL_MAX);
            snprintf(calls->items[calls->count], sizeof(calls->items[0]), "%s %s", methods[i],
                     path);
            for (char *at = calls->items[calls->count]; *at != ' '; at++)
                *at = (char)toupper(*at);
            calls->count++;
        }
    }
    free(text);
}

static void the_description_names_what_is_served(void **state)
{
    (void)state;
    static struct calls described;
    const struct route *routes;
    size_t count = 0;

    read_calls(&described);
    routes = router_routes(&count);
    for (size_t i = 0; i < count; i++) {
        char call[160];
        bool found = false;

        snprintf(call, sizeof(call), "%s %s", routes[i].method, routes[i].path);
        for (size_t j = 0; j < described.count; j++)
            found = found || strcmp(call, described.items[j]) == 0;
        if (!found)
            fail_msg("%s is served and not described", call);
    }
    assert_int_equal(described.count, count);
}

/* Whether "#/components/<section>/<name>" is there: a section stands at two blanks, its names at four. */
static bool is_described(const char *text, const char *reference)
{
    static const char start[] = "#/components/";
    char section[64], name[64], wanted[80];
    const char *at, *end;

    if (strncmp(reference, start, strlen(start)) != 0 ||
        sscanf(reference + strlen(start), "%63[a-zA-Z]/%63[a-zA-Z0-9]", section, name) != 2)
        return false;
    snprintf(wanted, sizeof(wanted), "\n  %s:\n", section);
    at = strstr(strstr(text, "\ncomponents:"), wanted);
    if (!at)
        return false;
    for (end = at + strlen(wanted) - 1; strncmp(end, "\n   ", 4) == 0; end = strchr(end + 1, '\n'))
        ;
    snprintf(wanted, sizeof(wanted), "\n    %s:", name);
    at = strstr(at, wanted);
    return at && at < end;
}

static void the_description_refers_to_what_it_has(void **state)
{
    (void)state;
    static const char mark[] = "$ref: \"";
    size_t size = 0, count = 0;
    char *text = scratch_read("api/openapi.yaml", &size);

    for (const char *at = text; (at = strstr(at, mark)) != NULL; count++) {
        at += strlen(mark);
        if (!is_described(text, at))
            fail_msg("%.*s", (int)strcspn(at, "\""), at);
    }
    assert_true(count > 100);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_description_names_what_is_served),
        cmocka_unit_test(the_description_refers_to_what_it_has),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
