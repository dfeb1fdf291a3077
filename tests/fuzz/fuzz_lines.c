/* A data set's lines: the upload's reader gives the same report in any pieces, a line renders the same
 * twice, and a job's reader takes what is there under both rule sets, with a tokenizer. */
#include "tests/fuzz/fuzz.h"

#include "daemon/base/buf.h"
#include "daemon/model/tokenizer.h"
#include "daemon/train/dataset.h"

#include <string.h>

#define SHOWN_MAX ((size_t)1 << 22)
#define VOCABULARY 512

static void scan(const uint8_t *bytes, size_t size, size_t piece, struct dataset_report *ret_report)
{
    struct dataset_scan *scan = NULL;
    struct error err = {0};
    bool ok = dataset_scan_new(&scan, &err);

    for (size_t at = 0; ok && at < size; at += piece)
        ok = dataset_scan_feed(scan, bytes + at, size - at < piece ? size - at : piece, &err);
    ok = ok && dataset_scan_finish(scan, ret_report, &err);
    fuzz_promise_reason(ok, &err);
    fuzz_promise(ok, "an upload's lines can be read");
    dataset_scan_free(scan);
}

static bool is_same(const struct dataset_report *a, const struct dataset_report *b)
{
    bool same = a->line_count == b->line_count && a->blank_count == b->blank_count &&
                a->example_count == b->example_count;

    for (size_t level = 0; level < PROBLEM_LEVEL_COUNT; level++) {
        same = same && a->problem_count[level] == b->problem_count[level] &&
               a->problem_kept[level] == b->problem_kept[level];
        for (size_t i = 0; same && i < a->problem_kept[level]; i++) {
            const struct problem *left = &a->problems[level][i], *right = &b->problems[level][i];

            same = left->line == right->line && left->column == right->column &&
                   strcmp(left->field, right->field) == 0 && strcmp(left->rule, right->rule) == 0 &&
                   strcmp(left->reason, right->reason) == 0;
        }
    }
    return same;
}

static void render(const uint8_t *bytes, size_t size, enum data_rules rules)
{
    static struct dataset_report report;
    struct buf prompt[2], target[2];
    bool ok[2];

    for (int i = 0; i < 2; i++) {
        struct error err = {0};

        buf_init(&prompt[i], SHOWN_MAX);
        buf_init(&target[i], SHOWN_MAX);
        report = (struct dataset_report){0};
        ok[i] = dataset_render_line((const char *)bytes, size, rules, &prompt[i], &target[i],
                                    &report, &err);
        fuzz_promise_reason(ok[i], &err);
    }
    fuzz_promise(ok[0] == ok[1] && prompt[0].size == prompt[1].size &&
                     target[0].size == target[1].size,
                 "a line renders the same twice");
    for (int i = 0; i < 2; i++) {
        buf_release(&prompt[i]);
        buf_release(&target[i]);
    }
}

static void read_for_a_job(const char *path, enum data_rules rules)
{
    static struct tokenizer *tokenizer;
    const struct dataset_options options = {
        .rules = rules,
        .overlong = rules == DATA_RULES_STRICT ? OVERLONG_REFUSE : OVERLONG_TRUNCATE,
        .max_len = 96,
        .vocab_size = VOCABULARY};
    struct dataset *dataset = NULL;
    struct error err = {0};
    bool ok;

    if (!tokenizer)
        fuzz_promise(tokenizer_open(FUZZ_MINI "tokenizer.model", &tokenizer, &err), err.message);
    ok = dataset_read(path, tokenizer, &options, &dataset, &err);
    fuzz_promise_reason(ok, &err);
    for (size_t i = 0; ok && i < dataset->example_count; i++) {
        const struct example *example = &dataset->examples[i];

        fuzz_promise(example->id_count <= options.max_len &&
                         example->prompt_count <= example->id_count,
                     "an example fits");
        for (size_t at = 0; at < example->id_count; at++)
            fuzz_promise(example->ids[at] < VOCABULARY, "an id is below the vocabulary's end");
    }
    dataset_free(dataset);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct dataset_report whole, pieces;
    const char *path;

    scan(bytes, size, size + 1, &whole);
    scan(bytes, size, 1 + (size > 0 ? bytes[0] % 7 : 0), &pieces);
    fuzz_promise(is_same(&whole, &pieces), "the report is the same in pieces");
    render(bytes, size, DATA_RULES_STRICT);
    render(bytes, size, DATA_RULES_AS_REFERENCE);
    path = fuzz_file("lines.jsonl", bytes, size);
    read_for_a_job(path, DATA_RULES_STRICT);
    read_for_a_job(path, DATA_RULES_AS_REFERENCE);
    return 0;
}
