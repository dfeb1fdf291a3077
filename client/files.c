#include "client/files.h"

#include "client/commands.h"
#include "client/http.h"
#include "client/output.h"
#include "client/words.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 4096

/* "/v1/files/<id><rest>", with the id escaped. */
static void file_path(struct http *http, const char *id, const char *rest, char path[PATH_BYTES])
{
    http_join(http, "/v1/files/", id, rest, path, PATH_BYTES);
}

int command_upload(struct http *http, int count, char **arguments)
{
    struct words words;
    const char *expires;
    cJSON *file = NULL;
    char *end = NULL;
    double expires_s = 0;

    if (!words_read("upload", count, arguments, &words))
        return COMMAND_USAGE;
    expires = words_value(&words, "--expires");
    if (expires)
        expires_s = strtod(expires, &end);
    if (expires && (*end != '\0' || !(expires_s >= 1 && expires_s < 1e9))) {
        (void)fprintf(stderr, "needlectl: --expires wants seconds, not '%s'\n", expires);
        return COMMAND_USAGE;
    }
    if (!http_upload_for(http, words.word[0], (long)expires_s, &file))
        return output_refused(http);
    if (!words_value(&words, "--json"))
        printf("uploaded %s as %s\n", words.word[0], output_text(file, "id"));
    return output_end(&words, file);
}

/* ---- files -------------------------------------------------------------------------------------- */

static void print_file(const cJSON *file)
{
    printf("%-30s %12.0f %8.0f  %s\n", output_text(file, "id"), output_number(file, "bytes"),
           output_number(file, "line_count"), output_text(file, "filename"));
}

static int list_files(struct http *http, int count, char **arguments)
{
    static const char *const options[] = {"--search", "--purpose", "--order", "--after", "--limit"};
    char path[PATH_BYTES] = "/v1/files";
    struct words words;
    cJSON *list = NULL;
    const cJSON *file = NULL;

    if (!words_read("files", count, arguments, &words) ||
        !words_add_query(http, &words, path, sizeof(path), options, COUNT_OF(options)))
        return COMMAND_USAGE;
    if (!http_call(http, path, NULL, &list))
        return output_refused(http);
    if (!words_value(&words, "--json")) {
        printf("%-30s %12s %8s  %s\n", "FILE", "BYTES", "LINES", "NAME");
        cJSON_ArrayForEach(file, output_member(list, "data")) print_file(file);
    }
    return output_end(&words, list);
}

static int get_file(struct http *http, int count, char **arguments)
{
    char path[PATH_BYTES];
    struct words words;
    cJSON *file = NULL;

    if (!words_read("files get", count, arguments, &words))
        return COMMAND_USAGE;
    file_path(http, words.word[0], "", path);
    if (!http_call(http, path, NULL, &file))
        return output_refused(http);
    if (!words_value(&words, "--json"))
        print_file(file);
    return output_end(&words, file);
}

static int delete_file(struct http *http, int count, char **arguments)
{
    char path[PATH_BYTES];
    struct words words;
    cJSON *answer = NULL;

    if (!words_read("files delete", count, arguments, &words))
        return COMMAND_USAGE;
    file_path(http, words.word[0], "", path);
    if (strncmp(words.word[0], "upload-", strlen("upload-")) == 0)
        http_join(http, "/v1/uploads/", words.word[0], "", path, sizeof(path));
    if (!http_delete(http, path, &answer))
        return output_refused(http);
    if (!words_value(&words, "--json"))
        printf("%s deleted\n", words.word[0]);
    return output_end(&words, answer);
}

static int download_file(struct http *http, int count, char **arguments)
{
    const char *target;
    char path[PATH_BYTES];
    struct words words;
    cJSON *file = NULL;
    uint64_t size = 0;
    int status;

    if (!words_read("files download", count, arguments, &words))
        return COMMAND_USAGE;
    file_path(http, words.word[0], "", path);
    if (!http_call(http, path, NULL, &file))
        return output_refused(http);
    target = words_value(&words, "-o");
    if (!target)
        target = output_text(file, "filename"); /* a label: it has no folder part */
    if (!words_value(&words, "-o") && access(target, F_OK) == 0) { /* the name is its uploader's */
        (void)fprintf(stderr, "needlectl: '%s' is there already: -o PATH writes over it\n", target);
        cJSON_Delete(file);
        return COMMAND_USAGE;
    }
    file_path(http, words.word[0], "/content", path);
    if (!http_download(http, path, target, &size)) {
        status = output_not_saved(http);
        cJSON_Delete(file);
        return status;
    }
    if (!words_value(&words, "--json"))
        printf("%s: %llu bytes\n", target, (unsigned long long)size);
    return output_end(&words, file);
}

int command_files(struct http *http, int count, char **arguments)
{
    static const struct {
        const char *name;
        int (*run)(struct http *http, int count, char **arguments);
    } kinds[] = {{"get", get_file}, {"delete", delete_file}, {"download", download_file}};

    for (size_t i = 0; count > 1 && i < COUNT_OF(kinds); i++) {
        if (strcmp(arguments[1], kinds[i].name) == 0)
            return kinds[i].run(http, count, arguments);
    }
    return list_files(http, count, arguments);
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
    static const char *const options[] = {
        "--model",           "--max-len",        "--data-rules",    "--overlong",
        "--validation-file", "--problems-after", "--problems-limit"};
    char path[PATH_BYTES];
    struct words words;
    cJSON *report = NULL;
    bool accepted;
    int status;

    if (!words_read("report", count, arguments, &words))
        return COMMAND_USAGE;
    file_path(http, words.word[0], "/report", path);
    if (!words_add_query(http, &words, path, sizeof(path), options, COUNT_OF(options)))
        return COMMAND_USAGE;
    if (!http_call(http, path, NULL, &report))
        return output_refused(http);
    accepted = cJSON_IsTrue(output_member(report, "accepted"));
    if (!words_value(&words, "--json"))
        print_report(report);
    status = output_end(&words, report);
    return status == COMMAND_OK && !accepted ? COMMAND_REFUSED : status;
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
    static const char *const options[] = {"--model", "--max-len", "--data-rules", "--overlong"};
    char path[PATH_BYTES], rest[64];
    struct words words;
    cJSON *example = NULL;

    if (!words_read("example", count, arguments, &words))
        return COMMAND_USAGE;
    (void)snprintf(rest, sizeof(rest), "/examples/%.40s", words.word[1]);
    file_path(http, words.word[0], rest, path);
    if (!words_add_query(http, &words, path, sizeof(path), options, COUNT_OF(options)))
        return COMMAND_USAGE;
    if (!http_call(http, path, NULL, &example))
        return output_refused(http);
    if (!words_value(&words, "--json"))
        print_example(example);
    return output_end(&words, example);
}
