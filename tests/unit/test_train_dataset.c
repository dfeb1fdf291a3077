/*
 * Proves that a data set read as the reference reads it gives the reference's texts, tokens and
 * masks, line for line, and that over-long lines and ids out of range are dealt with by name.
 */
#include "daemon/base/arena.h"
#include "daemon/base/buf.h"
#include "daemon/base/file.h"
#include "daemon/base/strict.h"
#include "daemon/model/tokenizer.h"
#include "daemon/train/dataset.h"
#include "tests/support/test.h"

#include <sys/stat.h>
#include <unistd.h>

static struct tokenizer *tokenizer;

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

static struct dataset *read_file(const char *path, const struct tokenizer *with,
                                 const struct dataset_options *options)
{
    struct dataset *dataset = NULL;
    struct error err = {0};

    if (!dataset_read(path, with, options, &dataset, &err))
        fail_msg("%s: %s", path, err.message);
    return dataset;
}

/* Reads these lines through a file of their own. */
static struct dataset *read_text(const char *text, size_t size,
                                 const struct dataset_options *options)
{
    char path[] = "/tmp/needled-test-XXXXXX";
    struct error err = {0};
    struct dataset *dataset;
    int descriptor = mkstemp(path);

    assert_true(descriptor >= 0);
    assert_int_equal(close(descriptor), 0);
    if (!file_write(path, text, size, &err))
        fail_msg("%s", err.message);
    dataset = read_file(path, tokenizer, options);
    assert_int_equal(unlink(path), 0);
    return dataset;
}

static unsigned long number(const struct strict_value *value)
{
    char digits[24];

    assert_non_null(value);
    snprintf(digits, sizeof(digits), "%.*s", (int)value->size, value->text);
    return strtoul(digits, NULL, 10);
}

/* ---- against the reference ------------------------------------------------------------------ */

static void check_texts(const struct mapping *train, size_t line, const struct strict_value *golden)
{
    const char *text = (const char *)train->data, *end;
    const struct strict_value *wanted[2] = {strict_member(golden, "prompt"),
                                            strict_member(golden, "target")};
    struct buf got[2];
    struct dataset_report report = {0};
    struct error err = {0};

    for (size_t i = 1; i < line; i++)
        text = strchr(text, '\n') + 1;
    end = memchr(text, '\n', train->size - (size_t)(text - (const char *)train->data));
    buf_init(&got[0], 1 << 20);
    buf_init(&got[1], 1 << 20);
    if (!dataset_render_line(text, (size_t)(end - text), DATA_RULES_AS_REFERENCE, &got[0], &got[1],
                             &report, &err))
        fail_msg("line %zu: %s", line, err.message);
    for (int i = 0; i < 2; i++) {
        if (got[i].size != wanted[i]->size ||
            memcmp(got[i].data, wanted[i]->text, got[i].size) != 0)
            fail_msg("line %zu renders %s, the reference %.*s", line, got[i].data,
                     (int)wanted[i]->size, wanted[i]->text);
        buf_release(&got[i]);
    }
}

static void check_example(const struct example *example, const struct strict_value *golden,
                          size_t max_len)
{
    const struct strict_value *id = strict_member(golden, "ids")->child;
    const struct strict_value *mask = strict_member(golden, "mask")->child;
    size_t count = strict_member(golden, "ids")->count;

    count = count < max_len ? count : max_len;
    assert_int_equal(example->line, number(strict_member(golden, "line")));
    assert_int_equal(example->id_count, count);
    for (size_t i = 0; i < count; i++, id = id->next, mask = mask->next) {
        if (example->ids[i] != number(id))
            fail_msg("line %zu: token %zu is %u, the reference has %lu", example->line, i,
                     example->ids[i], number(id));
        assert_int_equal(i >= example->prompt_count, number(mask));
    }
}

static void compare_with_reference(const char *folder, size_t max_len)
{
    struct dataset_options options = {
        .rules = DATA_RULES_AS_REFERENCE, .max_len = max_len, .vocab_size = 1024};
    char path[128];
    struct mapping tokens = MAPPING_NONE, train = MAPPING_NONE;
    struct tokenizer *own = NULL;
    struct dataset *dataset;
    struct error err = {0};
    size_t at = 0, index = 0;

    snprintf(path, sizeof(path), "%s/tokenizer.model", folder);
    assert_true(tokenizer_open(path, &own, &err));
    snprintf(path, sizeof(path), "%s/tokens.jsonl", folder);
    assert_true(mapping_open(&tokens, path, &err));
    snprintf(path, sizeof(path), "%s/train.jsonl", folder);
    assert_true(mapping_open(&train, path, &err));
    dataset = read_file(path, own, &options);
    assert_true(dataset_report_accept(&dataset->report, false, DATA_RULES_AS_REFERENCE, &err));
    assert_int_equal(dataset->example_count, 64);
    assert_int_equal(dataset->report.line_count, 70);
    assert_int_equal(dataset->report.blank_count, 3);
    assert_int_equal(dataset->report.skipped_count, 3);
    while (at < tokens.size) {
        const char *line = (const char *)tokens.data + at;
        size_t size = (size_t)((const char *)memchr(line, '\n', tokens.size - at) - line);
        struct arena arena;
        struct strict_report report;
        struct strict_value *golden = NULL;

        arena_init(&arena, (size_t)64 << 20);
        assert_true(strict_read(line, size, &arena, &report, &golden));
        assert_true(index < dataset->example_count);
        check_example(&dataset->examples[index], golden, max_len);
        check_texts(&train, dataset->examples[index].line, golden);
        arena_release(&arena);
        index++;
        at += size + 1;
    }
    assert_int_equal(index, 64);
    dataset_free(dataset);
    tokenizer_close(own);
    mapping_close(&tokens);
    mapping_close(&train);
}

static void every_usable_line_gives_the_texts_and_tokens_of_the_reference(void **state)
{
    (void)state;
    compare_with_reference(FIXTURES "needle3", 4096);
    compare_with_reference(FIXTURES "needle3/mini", 4096);
}

static void a_cap_cuts_on_the_right_and_keeps_the_order(void **state)
{
    (void)state;
    /* the reference pads to a bucket and cuts at it; a bucket below the cap is never shorter than
     * the longest line, so cutting at the cap alone is the same */
    compare_with_reference(FIXTURES "needle3", 128);
    compare_with_reference(FIXTURES "needle3/mini", 64);
    compare_with_reference(FIXTURES "needle3", 100);
}

static void strict_reading_names_the_lines_the_reference_passes_over(void **state)
{
    (void)state;
    struct dataset_options options = {
        .rules = DATA_RULES_STRICT, .max_len = 4096, .vocab_size = 1024};
    struct dataset *dataset = read_file(FIXTURES "needle3/train.jsonl", tokenizer, &options);
    struct error err = {0};
    const struct problem *problems = dataset->report.problems[PROBLEM_STRICT];
    static const struct {
        size_t line;
        const char *rule, *field;
    } wanted[] = {
        {24, "missing_field", "query"},
        {33, "no_answer", "messages"},
        {56, "duplicate_key", "answers[0].arguments.d"},
        {57, "marker", "query"},
        {57, "marker", "reasoning"},
        {60, "multi_turn", "messages"},
    };

    assert_int_equal(dataset->report.problem_count[PROBLEM_FATAL], 0);
    assert_int_equal(dataset->report.problem_count[PROBLEM_STRICT], COUNT_OF(wanted));
    for (size_t i = 0; i < COUNT_OF(wanted); i++) {
        assert_int_equal(problems[i].line, wanted[i].line);
        assert_string_equal(problems[i].rule, wanted[i].rule);
        assert_string_equal(problems[i].field, wanted[i].field);
    }
    assert_false(dataset_report_accept(&dataset->report, false, DATA_RULES_STRICT, &err));
    assert_true(dataset_report_accept(&dataset->report, true, DATA_RULES_STRICT, &err));
    dataset_free(dataset);
}

/* ---- length and vocabulary ------------------------------------------------------------------ */

static const char short_and_long[] = "{\"query\":\"a\",\"tools\":[],\"answers\":[]}\n"
                                     "{\"query\":\"a b c d e f g h i j k l m n o p q r s t u v w x "
                                     "y z a b c d e f g h i j k l m n o "
                                     "p q r s t u v w x y z\",\"tools\":[],\"answers\":[]}\n"
                                     "{\"query\":\"b\",\"tools\":[],\"answers\":[]}\n";

static void an_over_long_line_is_refused_left_out_or_cut_and_always_named(void **state)
{
    (void)state;
    static const struct {
        enum data_rules rules;
        enum overlong overlong;
        size_t example_count;
        enum problem_level level;
        bool accepted;
    } cases[] = {
        {DATA_RULES_STRICT, OVERLONG_REFUSE, 2, PROBLEM_STRICT, false},
        {DATA_RULES_STRICT, OVERLONG_DROP, 2, PROBLEM_WARNING, true},
        {DATA_RULES_STRICT, OVERLONG_TRUNCATE, 3, PROBLEM_WARNING, true},
        {DATA_RULES_AS_REFERENCE, OVERLONG_REFUSE, 3, PROBLEM_WARNING, true},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct dataset_options options = {.rules = cases[i].rules,
                                          .overlong = cases[i].overlong,
                                          .max_len = 40,
                                          .vocab_size = 1024};
        struct dataset *dataset = read_text(short_and_long, strlen(short_and_long), &options);
        const struct dataset_report *report = &dataset->report;
        const struct problem *problem = &report->problems[cases[i].level][0];
        struct error err = {0};
        bool ok = dataset_report_accept(report, false, cases[i].rules, &err);

        assert_int_equal(ok, cases[i].accepted);
        if (!ok)
            assert_non_null(strstr(err.message, "line 2: "));
        assert_int_equal(report->overlong_count, 1);
        assert_int_equal(report->problem_count[cases[i].level], 1);
        assert_int_equal(problem->line, 2);
        assert_string_equal(problem->rule, "overlong");
        assert_non_null(strstr(problem->reason, "longer than max_len 40"));
        assert_int_equal(dataset->example_count, cases[i].example_count);
        assert_int_equal(report->targetless_count, cases[i].example_count == 3);
        if (cases[i].example_count == 3) {
            assert_int_equal(dataset->examples[1].id_count, 40);
            assert_int_equal(dataset->examples[1].prompt_count, 40);
        }
        assert_true(report->longest > 60);
        assert_true(report->target_count > 0 && report->target_count < report->token_count);
        dataset_free(dataset);
    }
}

static void a_data_set_without_target_tokens_is_refused(void **state)
{
    (void)state;
    struct dataset_options options = {.rules = DATA_RULES_STRICT,
                                      .overlong = OVERLONG_TRUNCATE,
                                      .max_len = 8,
                                      .vocab_size = 1024};
    struct dataset *dataset = read_text(short_and_long, strlen(short_and_long), &options);
    struct error err = {0};

    assert_int_equal(dataset->report.targetless_count, 3);
    assert_false(dataset_report_accept(&dataset->report, false, DATA_RULES_STRICT, &err));
    assert_non_null(strstr(err.message, "no example keeps any target token"));
    assert_non_null(strstr(err.message, "max_len"));
    dataset_free(dataset);
}

static void an_id_the_model_cannot_read_or_predict_is_refused_under_both_rules(void **state)
{
    (void)state;
    for (int rules = DATA_RULES_STRICT; rules <= DATA_RULES_AS_REFERENCE; rules++) {
        struct dataset_options options = {
            .rules = (enum data_rules)rules, .max_len = 400, .vocab_size = 900};
        struct dataset *dataset = read_text(short_and_long, strlen(short_and_long), &options);
        struct error err = {0};

        assert_int_equal(dataset->report.problem_count[PROBLEM_FATAL], 3);
        assert_false(dataset_report_accept(&dataset->report, false, options.rules, &err));
        assert_non_null(strstr(err.message, "can read ids below 900"));
        dataset_free(dataset);
        options.vocab_size = 1024;
        options.label_limit = 900;
        dataset = read_text(short_and_long, strlen(short_and_long), &options);
        assert_false(dataset_report_accept(&dataset->report, false, options.rules, &err));
        assert_non_null(strstr(err.message, "can predict ids below 900"));
        dataset_free(dataset);
    }
}

static void the_file_is_named_by_its_hash(void **state)
{
    (void)state;
    struct dataset_options options = {
        .rules = DATA_RULES_STRICT, .max_len = 400, .vocab_size = 1024};
    struct dataset *dataset = read_file(FIXTURES "needle3/train.jsonl", tokenizer, &options);
    char sha256[SHA256_HEX_SIZE];
    struct error err = {0};

    assert_true(file_sha256(FIXTURES "needle3/train.jsonl", sha256, &err));
    assert_string_equal(dataset->sha256, sha256);
    dataset_free(dataset);
}

/* ---- our own data --------------------------------------------------------------------------- */

static void generated_lines_are_clean_and_fit_the_small_tokenizer(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t max_len; /* of this tokenizer, which was made for shorter texts */
    } kinds[] = {
        {"mixed", 2048}, {"long", 2304}, {"one-app", 1024}, {"shuffled", 1024}, {"demo", 150}};
    char self[256] = "", command[512], path[] = "/tmp/needled-test-XXXXXX";
    int descriptor = mkstemp(path);

    assert_true(descriptor >= 0);
    assert_int_equal(close(descriptor), 0);
    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    *strrchr(self, '/') = '\0'; /* the generator is built beside the tests */
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        struct dataset_options options = {
            .rules = DATA_RULES_STRICT, .max_len = kinds[i].max_len, .vocab_size = 1024};
        struct dataset *dataset;
        struct error err = {0};

        snprintf(command, sizeof(command), "%s/make_lines 400 11 %s > %s", self, kinds[i].name,
                 path);
        if (system(command) != 0) {
            assert_int_equal(unlink(path), 0);
            skip(); /* not built: make builds it with the tests */
        }
        dataset = read_file(path, tokenizer, &options);
        if (!dataset_report_accept(&dataset->report, false, DATA_RULES_STRICT, &err))
            fail_msg("%s: %s", kinds[i].name, err.message);
        assert_int_equal(dataset->example_count, 400);
        assert_int_equal(dataset->report.problem_count[PROBLEM_WARNING], 0);
        dataset_free(dataset);
    }
    assert_int_equal(unlink(path), 0);
}

static void a_pipe_in_a_files_place_is_not_waited_for(void **state)
{
    (void)state;
    char folder[] = "/tmp/needled-test-XXXXXX", path[64];
    const struct dataset_options options = {.rules = DATA_RULES_STRICT, .max_len = 8};
    struct dataset_report report = {0};
    struct error err = {0};

    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(dataset_walk(path, NULL, &options, NULL, &report, &err));
    assert_non_null(strstr(err.message, "not a regular file"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_usable_line_gives_the_texts_and_tokens_of_the_reference),
        cmocka_unit_test(a_cap_cuts_on_the_right_and_keeps_the_order),
        cmocka_unit_test(strict_reading_names_the_lines_the_reference_passes_over),
        cmocka_unit_test(an_over_long_line_is_refused_left_out_or_cut_and_always_named),
        cmocka_unit_test(a_data_set_without_target_tokens_is_refused),
        cmocka_unit_test(an_id_the_model_cannot_read_or_predict_is_refused_under_both_rules),
        cmocka_unit_test(the_file_is_named_by_its_hash),
        cmocka_unit_test(a_pipe_in_a_files_place_is_not_waited_for),
        cmocka_unit_test(generated_lines_are_clean_and_fit_the_small_tokenizer),
    };

    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
