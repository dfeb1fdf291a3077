/*
 * Proves that every input of the collection gets the outcome its manifest tells: accepted with so
 * many examples, warned about by line, or refused with the line and the words. An input goes the
 * way of a user's file: upload first, then the trainer's reading. The manifest's digests of token
 * ids are not looked at: how they are made is not told.
 */
#include "daemon/base/buf.h"
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/model/tokenizer.h"
#include "daemon/train/dataset.h"
#include "tests/support/test.h"

#include <regex.h>

static struct tokenizer *tokenizer;

/* What a user is told, and what came of the file. */
struct outcome {
    bool accepted;
    struct dataset *dataset; /* NULL: refused at upload */
    struct dataset_report upload;
    struct buf words; /* the error and all warnings */
};

static void put_problems(const struct dataset_report *report, enum problem_level level,
                         struct buf *words)
{
    for (size_t i = 0; i < report->problem_kept[level]; i++) {
        const struct problem *problem = &report->problems[level][i];

        buf_format(words, "line %zu, column %zu, %s: %s\n", problem->line, problem->column,
                   problem->field, problem->reason);
    }
}

static void scan_file(const char *path, struct dataset_report *ret_report)
{
    struct dataset_scan *scan = NULL;
    struct mapping map = MAPPING_NONE;
    struct error err = {0};

    if (!mapping_open(&map, path, &err) || !dataset_scan_new(&scan, &err))
        fail_msg("%s", err.message);
    for (size_t at = 0; at < map.size; at += 4096)
        if (!dataset_scan_feed(scan, map.data + at, map.size - at < 4096 ? map.size - at : 4096,
                               &err))
            fail_msg("%s", err.message);
    if (!dataset_scan_finish(scan, ret_report, &err))
        fail_msg("%s", err.message);
    dataset_scan_free(scan);
    mapping_close(&map);
}

static void judge_file(const char *path, const struct dataset_options *options,
                       struct outcome *outcome)
{
    struct error err = {0};

    buf_init(&outcome->words, 1 << 20);
    scan_file(path, &outcome->upload);
    outcome->accepted = dataset_report_accept(&outcome->upload, true, DATA_RULES_STRICT, &err);
    if (outcome->accepted) {
        if (!dataset_read(path, tokenizer, options, &outcome->dataset, &err))
            fail_msg("%s: %s", path, err.message);
        outcome->accepted =
            dataset_report_accept(&outcome->dataset->report, false, DATA_RULES_STRICT, &err);
        put_problems(&outcome->dataset->report, PROBLEM_WARNING, &outcome->words);
    }
    if (!outcome->accepted)
        buf_format(&outcome->words, "%s\n", err.message);
    buf_append_text(&outcome->words, "");
}

/* ---- what the manifest wants ---------------------------------------------------------------- */

/* POSIX knows no \d. */
static void must_match(const char *file, const char *pattern, const char *words)
{
    char posix[512];
    regex_t regex;
    size_t used = 0;

    for (const char *next = pattern; *next; next++) {
        if (next[0] == '\\' && next[1] == 'd') {
            used += (size_t)snprintf(posix + used, sizeof(posix) - used, "[0-9]");
            next++;
        } else {
            posix[used++] = *next;
        }
        assert_true(used < sizeof(posix) - 8);
    }
    posix[used] = '\0';
    assert_int_equal(regcomp(&regex, posix, REG_EXTENDED | REG_ICASE | REG_NOSUB), 0);
    if (regexec(&regex, words, 0, NULL, 0) != 0)
        fail_msg("%s: '%s' is not in: %s", file, pattern, words);
    regfree(&regex);
}

static void check_words(const char *file, const struct json *judge, const char *words)
{
    const struct json *lines = json_member(judge, "line");
    const struct json *mentions = json_member(judge, "mentions");

    for (const struct json *line = lines ? json_first(lines) : NULL; line; line = json_next(line)) {
        char wanted[32];

        snprintf(wanted, sizeof(wanted), "line %.0f", json_number(line));
        if (!strstr(words, wanted))
            fail_msg("%s: '%s' is not in: %s", file, wanted, words);
    }
    for (const struct json *mention = mentions ? json_first(mentions) : NULL; mention;
         mention = json_next(mention))
        must_match(file, json_text(mention), words);
}

static bool holds(const struct mapping *map, const char *wanted)
{
    const char *text = (const char *)map->data, *end = text + map->size;
    bool found = false;

    while (text < end && !found) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        struct dataset_report report = {0};
        struct buf prompt, target;
        struct error err = {0};

        stop = stop ? stop : end;
        buf_init(&prompt, 1 << 20);
        buf_init(&target, 1 << 20);
        assert_true(dataset_render_line(text, (size_t)(stop - text), DATA_RULES_STRICT, &prompt,
                                        &target, &report, &err));
        found = (prompt.data && strstr(prompt.data, wanted)) ||
                (target.data && strstr(target.data, wanted));
        buf_release(&prompt);
        buf_release(&target);
        text = stop + 1;
    }
    return found;
}

static void check_accepted(const char *file, const char *path, const struct json *judge,
                           const struct outcome *outcome)
{
    const struct json *examples = json_member(judge, "examples");
    const struct json *rendered = json_member(judge, "rendered");
    struct mapping map = MAPPING_NONE;
    struct error err = {0};

    if (examples && outcome->dataset->example_count != (size_t)json_number(examples))
        fail_msg("%s: %zu examples", file, outcome->dataset->example_count);
    if (json_member(judge, "equal_tokens")) {
        const struct example *a = &outcome->dataset->examples[0];
        const struct example *b = &outcome->dataset->examples[1];

        assert_int_equal(a->id_count, b->id_count);
        assert_int_equal(a->prompt_count, b->prompt_count);
        assert_memory_equal(a->ids, b->ids, a->id_count * sizeof(*a->ids));
    }
    assert_true(mapping_open(&map, path, &err));
    for (const struct json *text = rendered ? json_first(rendered) : NULL; text;
         text = json_next(text))
        if (!holds(&map, json_text(text)))
            fail_msg("%s: '%s' is not rendered", file, json_text(text));
    mapping_close(&map);
}

static void check_entry(const char *file, const struct json *entry)
{
    const struct json *judge = json_member(entry, "judge");
    const char *kind = json_text(json_member(judge, "kind"));
    const struct json *hyper = json_member(judge, "hyper");
    const char *use = json_text(json_member(entry, "use")), *overlong = "";
    struct dataset_options options = {
        .rules = DATA_RULES_STRICT, .max_len = 1024, .vocab_size = 1024};
    struct outcome outcome = {0};
    struct error err = {0};
    char path[256];

    snprintf(path, sizeof(path), FIXTURES "inputs/%s", file);
    if (hyper)
        assert_true(json_get_string(hyper, "overlong", false, &overlong, &err));
    if (strcmp(overlong, "drop") == 0)
        options.overlong = OVERLONG_DROP;
    if (strcmp(overlong, "truncate") == 0)
        options.overlong = OVERLONG_TRUNCATE;
    if (strstr(use, "max_len 256"))
        options.max_len = 256;
    judge_file(path, &options, &outcome);
    if (strcmp(kind, "accepted") == 0 || strcmp(kind, "warned") == 0) {
        if (!outcome.accepted)
            fail_msg("%s is refused: %s", file, outcome.words.data);
        check_accepted(file, path, judge, &outcome);
    } else if (strcmp(kind, "refused") == 0) {
        if (outcome.accepted)
            fail_msg("%s is accepted", file);
    } else {
        assert_true(strcmp(kind, "refused_or_warned") == 0 ||
                    strcmp(kind, "accepted_or_refused") == 0);
    }
    if (strcmp(kind, "accepted_or_refused") == 0) {
        assert_false(outcome.accepted); /* we do not unpack */
        check_words(file, json_member(judge, "refused"), outcome.words.data);
    } else if (strcmp(kind, "accepted") != 0) {
        check_words(file, judge, outcome.words.data);
    }
    dataset_free(outcome.dataset);
    buf_release(&outcome.words);
}

static void every_input_gets_the_outcome_its_manifest_tells(void **state)
{
    (void)state;
    struct mapping map = MAPPING_NONE;
    struct json *manifest = NULL;
    const struct json *entries;
    struct error err = {0};
    size_t checked = 0;

    if (!mapping_open(&map, FIXTURES "inputs/manifest.json", &err) ||
        !json_parse((const char *)map.data, map.size, &manifest, &err))
        fail_msg("%s", err.message);
    entries = json_member(manifest, "entries");
    for (const struct json *entry = json_first(entries); entry; entry = json_next(entry)) {
        const struct json *name = json_member(entry, "file");

        if (!name || strncmp(json_text(name), "jsonl/", 6) != 0)
            continue;
        check_entry(json_text(name), entry);
        checked++;
    }
    assert_int_equal(checked, 36);
    json_free(manifest);
    mapping_close(&map);
}

/* ---- when a refusal comes ------------------------------------------------------------------- */

static void what_no_rule_set_takes_is_refused_at_upload_and_the_rest_is_kept(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        bool kept;
    } cases[] = {
        {"invalid-utf8.jsonl", false},
        {"trailing-comma.jsonl", false},
        {"nul-byte.jsonl", false},
        {"concat-objects.jsonl", false},
        {"empty.jsonl", false},
        {"json-array.json", false},
        {"data.csv", false},
        {"plain.jsonl.gz", false},
        {"deep-nesting.jsonl", false},
        {"truncated-last.jsonl", false},
        {"dup-key.jsonl", true},
        {"missing-query.jsonl", true},
        {"nan-literal.jsonl", true},
        {"chat-unknown-role.jsonl", true},
        {"marker-in-query.jsonl", true},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct dataset_report report;
        struct error err = {0};
        char path[256];

        snprintf(path, sizeof(path), FIXTURES "inputs/jsonl/%s", cases[i].file);
        scan_file(path, &report);
        if (dataset_report_accept(&report, true, DATA_RULES_STRICT, &err) != cases[i].kept)
            fail_msg("%s: %s", cases[i].file, err.message);
        assert_int_equal(report.problem_count[PROBLEM_FATAL] > 0, !cases[i].kept);
        assert_int_equal(report.problem_count[PROBLEM_STRICT] > 0, cases[i].kept);
    }
}

static int open_tokenizer(void **state)
{
    (void)state;
    struct error err = {0};

    return tokenizer_open(FIXTURES "needle3/tokenizer.model", &tokenizer, &err) ? 0 : -1;
}

static int close_tokenizer(void **state)
{
    (void)state;
    tokenizer_close(tokenizer);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_input_gets_the_outcome_its_manifest_tells),
        cmocka_unit_test(what_no_rule_set_takes_is_refused_at_upload_and_the_rest_is_kept),
    };

    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
