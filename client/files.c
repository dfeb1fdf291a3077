#include "client/files.h"

#include "client/commands.h"
#include "client/http.h"
#include "client/output.h"

#include <cjson/cJSON.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 4096
#define WORDS_MAX 3 /* that are no options */

struct words {
    const char *word[WORDS_MAX];
    int count;
    bool json;
    const char *target, *search, *expires;
    /* Of a query: name and value, in the order of the options. */
    char query[PATH_BYTES];
    size_t query_size;
};

/* Appends "&name=value", escaped, with "_" for the option's "-"; false when it does not fit. */
static bool add_query(struct http *http, struct words *words, const char *option, const char *value)
{
    char *escaped = http_escape(http, value);
    char name[32];
    int size;

    (void)snprintf(name, sizeof(name), "%s", option);
    for (char *at = name; (at = strchr(at, '-')) != NULL; at++)
        *at = '_';

    if (escaped == NULL)
        return false;
    size = snprintf(words->query + words->query_size, sizeof(words->query) - words->query_size,
                    "%c%s=%s", words->query_size == 0 ? '?' : '&', name, escaped);
    free(escaped);
    if (size < 0 || (size_t)size >= sizeof(words->query) - words->query_size)
        return false;
    words->query_size += (size_t)size;
    return true;
}

/* Options that become fields of the query have the field's name, with hyphens. */
static bool read_words(struct http *http, int count, char **arguments, struct words *words)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'},
        {"output", required_argument, NULL, 'o'},
        {"expires", required_argument, NULL, 'e'},
        {"search", required_argument, NULL, 'q'},
        {"limit", required_argument, NULL, 'q'},
        {"model", required_argument, NULL, 'q'},
        {"max-len", required_argument, NULL, 'q'},
        {"data-rules", required_argument, NULL, 'q'},
        {"overlong", required_argument, NULL, 'q'},
        {"validation-file", required_argument, NULL, 'q'},
        {"problems-after", required_argument, NULL, 'q'},
        {"problems-limit", required_argument, NULL, 'q'},
        {NULL, 0, NULL, 0},
    };
    static char program[] = "needlectl"; /* what getopt's own complaints begin with */
    int option, index = 0;

    *words = (struct words){0};
    arguments[0] = program;
    optind = 1;
    while ((option = getopt_long(count, arguments, "o:", options, &index)) != -1) {
        switch (option) {
        case 'j':
            words->json = true;
            break;
        case 'o':
            words->target = optarg;
            break;
        case 'e':
            words->expires = optarg;
            break;
        case 'q':
            if (!add_query(http, words, options[index].name, optarg))
                return false;
            break;
        default:
            return false;
        }
    }
    while (optind < count && words->count < WORDS_MAX)
        words->word[words->count++] = arguments[optind++];
    return optind == count;
}

static bool get(struct http *http, const char *path, const struct words *words, cJSON **ret_answer)
{
    char whole[2 * PATH_BYTES];

    (void)snprintf(whole, sizeof(whole), "%s%s", path, words->query);
    return http_call(http, whole, NULL, ret_answer);
}

/* "/v1/files/<id><rest>", with the id escaped. */
static void file_path(struct http *http, const char *id, const char *rest, char path[PATH_BYTES])
{
    char *escaped = http_escape(http, id);

    (void)snprintf(path, PATH_BYTES, "/v1/files/%s%s", escaped != NULL ? escaped : "", rest);
    free(escaped);
}

int command_upload(struct http *http, int count, char **arguments)
{
    struct words words;
    cJSON *file = NULL;
    char *end = NULL;
    double expires_s = 0;
    int status = COMMAND_OK;

    if (read_words(http, count, arguments, &words) && words.expires != NULL)
        expires_s = strtod(words.expires, &end);
    if (words.count != 1 || words.query_size > 0 ||
        (end != NULL && (*end != '\0' || !(expires_s >= 1 && expires_s < 1e9))))
        return output_usage("upload FILE [--expires SECONDS] [--json]");
    if (!http_upload_for(http, words.word[0], (long)expires_s, &file))
        return output_refused(http);
    if (words.json)
        status = output_json(file);
    else
        printf("uploaded %s as %s\n", words.word[0], output_text(file, "id"));
    cJSON_Delete(file);
    return status;
}

/* ---- files -------------------------------------------------------------------------------------- */

static void print_file(const cJSON *file)
{
    printf("%-30s %12.0f %8.0f  %s\n", output_text(file, "id"), output_number(file, "bytes"),
           output_number(file, "line_count"), output_text(file, "filename"));
}

static int list_files(struct http *http, const struct words *words)
{
    cJSON *list = NULL;
    const cJSON *file = NULL;
    int status = COMMAND_OK;

    if (!get(http, "/v1/files", words, &list))
        return output_refused(http);
    if (words->json) {
        status = output_json(list);
    } else {
        printf("%-30s %12s %8s  %s\n", "FILE", "BYTES", "LINES", "NAME");
        cJSON_ArrayForEach(file, output_member(list, "data")) print_file(file);
    }
    cJSON_Delete(list);
    return status;
}

static int get_file(struct http *http, const struct words *words)
{
    char path[PATH_BYTES];
    cJSON *file = NULL;
    int status = COMMAND_OK;

    file_path(http, words->word[1], "", path);
    if (!get(http, path, words, &file))
        return output_refused(http);
    if (words->json)
        status = output_json(file);
    else
        print_file(file);
    cJSON_Delete(file);
    return status;
}

static int delete_file(struct http *http, const struct words *words)
{
    char path[PATH_BYTES];

    file_path(http, words->word[1], "", path);
    if (!http_delete(http, path))
        return output_refused(http);
    if (words->json)
        printf("{\"id\":\"%s\",\"object\":\"file\",\"deleted\":true}\n", words->word[1]);
    else
        printf("%s deleted\n", words->word[1]);
    return COMMAND_OK;
}

static int download_file(struct http *http, const struct words *words)
{
    const char *target = words->target;
    char path[PATH_BYTES];
    cJSON *file = NULL;
    uint64_t size = 0;
    int status = COMMAND_OK;

    file_path(http, words->word[1], "", path);
    if (!http_call(http, path, NULL, &file))
        return output_refused(http);
    if (target == NULL)
        target = output_text(file, "filename"); /* a label: it has no folder part */
    file_path(http, words->word[1], "/content", path);
    if (!http_download(http, path, target, &size)) {
        status = output_refused(http);
        if (http_status(http) == 200)
            status = COMMAND_REFUSED;
    } else if (words->json) {
        status = output_json(file);
    } else {
        printf("%s: %llu bytes\n", target, (unsigned long long)size);
    }
    cJSON_Delete(file);
    return status;
}

int command_files(struct http *http, int count, char **arguments)
{
    static const struct {
        const char *name;
        int (*run)(struct http *http, const struct words *words);
    } kinds[] = {{"get", get_file}, {"delete", delete_file}, {"download", download_file}};
    struct words words;

    if (!read_words(http, count, arguments, &words))
        words.count = -1;
    if (words.count == 0 || (words.count == 1 && strcmp(words.word[0], "list") == 0))
        return list_files(http, &words);
    for (size_t i = 0; words.count == 2 && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(words.word[0], kinds[i].name) == 0)
            return kinds[i].run(http, &words);
    }
    return output_usage("files [list [--search TEXT] [--limit N]] [--json]\n"
                        "       needlectl files get|delete FILE [--json]\n"
                        "       needlectl files download FILE [-o PATH] [--json]");
}

/* ---- data --------------------------------------------------------------------------------------- */

static void print_problem(const cJSON *problem)
{
    printf("%-8s line %.0f", output_text(problem, "level"), output_number(problem, "line"));
    if (output_number(problem, "column") > 0)
        printf(", column %.0f", output_number(problem, "column"));
    if (output_text(problem, "field")[0] != '\0')
        printf(", %s", output_text(problem, "field"));
    printf(": %s\n", output_text(problem, "reason"));
}

static void print_tokens(const cJSON *tokens)
{
    const cJSON *part = NULL;

    if (!cJSON_IsObject(tokens))
        return;
    printf("tokens of a line: half up to %.0f, 99 %% up to %.0f, longest %.0f (line %.0f)\n",
           output_number(tokens, "p50"), output_number(tokens, "p99"),
           output_number(tokens, "longest"), output_number(tokens, "longest_line"));
    cJSON_ArrayForEach(part, output_member(tokens, "histogram"))
    {
        if (output_number(part, "to") > 0)
            printf("  %6.0f to %-6.0f %10.0f\n", output_number(part, "from"),
                   output_number(part, "to"), output_number(part, "lines"));
        else
            printf("  %6.0f and more %8.0f\n", output_number(part, "from"),
                   output_number(part, "lines"));
    }
    printf("%.0f tokens an epoch, %.0f of them trained\n", output_number(tokens, "kept"),
           output_number(tokens, "trained"));
}

static void print_pairs(const cJSON *pairs, const char *what, const char *other)
{
    const cJSON *pair = NULL;

    if (output_number(pairs, "count") <= 0)
        return;
    printf("%.0f %s\n", output_number(pairs, "count"), what);
    cJSON_ArrayForEach(pair, output_member(pairs, "data")) printf(
        "  line %.0f is line %.0f\n", output_number(pair, "line"), output_number(pair, other));
}

static void print_report(const cJSON *report)
{
    const cJSON *problems = output_member(report, "problems"), *problem = NULL;

    printf("%s: %.0f lines, %.0f blank, %.0f examples, %.0f skipped%s\n",
           output_text(report, "filename"), output_number(report, "lines"),
           output_number(report, "blank_lines"), output_number(report, "examples"),
           output_number(report, "skipped_lines"),
           cJSON_IsTrue(output_member(report, "complete")) ? "" : " (read in part: it takes long)");
    print_tokens(output_member(report, "tokens"));
    cJSON_ArrayForEach(problem, output_member(problems, "data")) print_problem(problem);
    if (cJSON_IsTrue(output_member(problems, "has_more")))
        printf("%.0f findings in all (--problems-after, --problems-limit)\n",
               output_number(problems, "total"));
    print_pairs(output_member(report, "duplicates"), "lines say what an earlier one says",
                "same_as");
    print_pairs(output_member(report, "shared"), "lines are in the validation file too",
                "validation_line");
    if (cJSON_IsTrue(output_member(report, "accepted")))
        puts("a job would take it");
    else
        printf("a job would refuse it: %s\n", output_text(report, "refusal"));
}

int command_report(struct http *http, int count, char **arguments)
{
    char path[PATH_BYTES];
    struct words words;
    cJSON *report = NULL;
    int status;

    if (!read_words(http, count, arguments, &words) || words.count != 1)
        return output_usage(
            "report FILE [--model NAME] [--max-len N] [--data-rules RULES]\n"
            "       [--overlong WHAT] [--validation-file FILE] [--problems-after N]\n"
            "       [--problems-limit N] [--json]");
    file_path(http, words.word[0], "/report", path);
    if (!get(http, path, &words, &report))
        return output_refused(http);
    status = cJSON_IsTrue(output_member(report, "accepted")) ? COMMAND_OK : COMMAND_REFUSED;
    if (!words.json)
        print_report(report);
    else if (output_json(report) != COMMAND_OK)
        status = COMMAND_USAGE;
    cJSON_Delete(report);
    return status;
}

static void print_example(const cJSON *example)
{
    const cJSON *item = NULL;

    printf("%s%s\n", output_text(example, "prompt"), output_text(example, "target"));
    cJSON_ArrayForEach(item, output_member(example, "tokens"))
        printf("%6.0f %s %s\n", output_number(item, "id"),
               output_number(item, "mask") > 0 ? "trained" : "       ", output_text(item, "piece"));
    if (output_number(example, "token_count") > 0)
        printf("%.0f tokens, %.0f kept, %.0f trained\n", output_number(example, "token_count"),
               output_number(example, "kept_count"), output_number(example, "trained_count"));
    cJSON_ArrayForEach(item, output_member(example, "problems")) print_problem(item);
    if (!cJSON_IsTrue(output_member(example, "usable")))
        puts("no job gets this line");
}

int command_example(struct http *http, int count, char **arguments)
{
    char path[PATH_BYTES], rest[64];
    struct words words;
    cJSON *example = NULL;
    int status = COMMAND_OK;

    if (!read_words(http, count, arguments, &words) || words.count != 2)
        return output_usage("example FILE LINE [--model NAME] [--max-len N] [--data-rules RULES]\n"
                            "       [--overlong WHAT] [--json]");
    (void)snprintf(rest, sizeof(rest), "/examples/%.40s", words.word[1]);
    file_path(http, words.word[0], rest, path);
    if (!get(http, path, &words, &example))
        return output_refused(http);
    if (words.json)
        status = output_json(example);
    else
        print_example(example);
    cJSON_Delete(example);
    return status;
}
