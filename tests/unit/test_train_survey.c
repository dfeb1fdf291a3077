/* Proves that a survey counts what the trainer's reader counts, pages every finding, finds lines that
 * say the same, and ends when it is told to. */
#include "tests/support/scratch.h"
#include "tests/support/test.h"

#include "daemon/model/tokenizer.h"
#include "daemon/train/survey.h"

#include <unistd.h>

#define PLAIN(query) "{\"query\":\"" query "\",\"tools\":[],\"answers\":[]}\n"

static char path[512], other[512];
static char *folder;
static struct tokenizer *tokenizer;

static int open_all(void **state)
{
    struct error err = {0};

    (void)state;
    folder = scratch_new();
    snprintf(path, sizeof(path), "%s/a.jsonl", folder);
    snprintf(other, sizeof(other), "%s/b.jsonl", folder);
    if (!tokenizer_open(FIXTURES "needle3/mini/tokenizer.model", &tokenizer, &err))
        fail_msg("%s", err.message);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    tokenizer_close(tokenizer);
    scratch_free(folder);
    return 0;
}

static bool always(void *context)
{
    (void)context;
    return true;
}

static struct survey_options options(enum data_rules rules, size_t max_len)
{
    return (struct survey_options){
        .path = path,
        .tokenizer = tokenizer,
        .reading = {.rules = rules, .max_len = max_len, .vocab_size = 100000},
        .problems_limit = 100,
        .goes_on = always,
    };
}

static void read_it(const struct survey_options *wanted, struct survey *survey)
{
    struct error err = {0};

    if (!survey_read(wanted, survey, &err))
        fail_msg("%s", err.message);
}

static void it_counts_as_the_trainer_does(void **state)
{
    (void)state;
    static const char text[] = PLAIN("one")
        PLAIN("a somewhat longer question, to be cut") "\n" PLAIN("x <|im_end|>") PLAIN("one");
    static const enum data_rules rules[] = {DATA_RULES_STRICT, DATA_RULES_AS_REFERENCE};
    static const size_t lengths[] = {30, 100};

    scratch_write(path, text, sizeof(text) - 1);
    for (size_t i = 0; i < 4; i++) {
        struct survey_options wanted = options(rules[i % 2], lengths[i / 2]);
        struct dataset *dataset = NULL;
        struct error err = {0};
        struct survey survey;

        read_it(&wanted, &survey);
        assert_true(dataset_read(path, tokenizer, &wanted.reading, &dataset, &err));
        assert_true(survey.complete);
        assert_memory_equal(survey.report.problem_count, dataset->report.problem_count,
                            sizeof(survey.report.problem_count));
        assert_int_equal(survey.report.line_count, dataset->report.line_count);
        assert_int_equal(survey.report.example_count, dataset->report.example_count);
        assert_int_equal(survey.report.token_count, dataset->report.token_count);
        assert_int_equal(survey.report.target_count, dataset->report.target_count);
        assert_int_equal(survey.report.overlong_count, dataset->report.overlong_count);
        assert_int_equal(survey.report.longest, dataset->report.longest);
        dataset_free(dataset);
        survey_release(&survey);
    }
}

static void lengths_count_lines_that_are_too_long(void **state)
{
    (void)state;
    static const char text[] = PLAIN("a") PLAIN("a somewhat longer question, in more words");
    struct survey_options wanted = options(DATA_RULES_STRICT, 28);
    struct survey survey;

    scratch_write(path, text, sizeof(text) - 1);
    read_it(&wanted, &survey);
    assert_int_equal(survey.report.overlong_count, 1);
    assert_int_equal(survey.measured_count, 2);
    assert_int_equal(survey.longest_line, 2);
    assert_int_equal(survey_percentile(&survey, 100), survey.report.longest);
    assert_true(survey_percentile(&survey, 50) < survey.report.longest);
    assert_int_equal(survey_percentile(&survey, 50) + survey.report.longest, survey.length_total);
    survey_release(&survey);
}

static void every_finding_is_on_one_page(void **state)
{
    (void)state;
    char text[60 * 30] = "";
    size_t seen = 0;

    for (int i = 0; i < 55; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text),
                 "{\"query\":\"a\",\"tools\":[]}\n");
    scratch_write(path, text, strlen(text));
    for (size_t after = 0; after < 60; after += 25) {
        struct survey_options wanted = options(DATA_RULES_STRICT, 100);
        struct survey survey;

        wanted.problems_after = after;
        wanted.problems_limit = 25;
        read_it(&wanted, &survey);
        assert_int_equal(survey.problem_total, 55);
        assert_int_equal(survey.report.problem_kept[PROBLEM_STRICT], LIMIT_PROBLEM_COUNT);
        for (size_t i = 0; i < survey.problem_count; i++)
            assert_int_equal(survey.problems[i].line, ++seen);
        survey_release(&survey);
    }
    assert_int_equal(seen, 55);
}

static void lines_that_say_the_same_are_found_in_one_file_and_between_two(void **state)
{
    (void)state;
    static const char text[] = PLAIN("one") PLAIN("two") "{ \"query\" : \"one\", \"tools\":[],"
                                                         "\"answers\":[]}\n" PLAIN("three");
    static const char text_of_other[] = PLAIN("zero") PLAIN("three") PLAIN("three") PLAIN("one");
    struct survey_options wanted = options(DATA_RULES_STRICT, 100);
    struct survey survey;

    scratch_write(path, text, sizeof(text) - 1);
    scratch_write(other, text_of_other, sizeof(text_of_other) - 1);
    wanted.other_path = other;
    wanted.tokenizer = NULL;
    read_it(&wanted, &survey);
    assert_null(survey.lengths);
    assert_int_equal(survey.inside.count, 1);
    assert_int_equal(survey.inside.shown[0].line, 3);
    assert_int_equal(survey.inside.shown[0].other, 1);
    assert_int_equal(survey.between.count, 3);
    assert_int_equal(survey.between.shown[0].line, 1);
    assert_int_equal(survey.between.shown[0].other, 4);
    assert_int_equal(survey.between.shown[2].line, 4);
    assert_int_equal(survey.between.shown[2].other, 2);
    survey_release(&survey);
}

static bool three_times(void *context)
{
    int *left = context;

    return (*left)-- > 0;
}

static void a_walk_that_is_ended_says_how_far_it_came(void **state)
{
    (void)state;
    static const char text[] = PLAIN("1") PLAIN("2") PLAIN("3") PLAIN("4") PLAIN("5");
    struct survey_options wanted = options(DATA_RULES_STRICT, 100);
    struct survey survey;
    int left = 3;

    scratch_write(path, text, sizeof(text) - 1);
    wanted.goes_on = three_times;
    wanted.context = &left;
    read_it(&wanted, &survey);
    assert_false(survey.complete);
    assert_int_equal(survey.report.example_count, 3);
    survey_release(&survey);
}

static void a_file_that_is_not_there_is_named(void **state)
{
    (void)state;
    struct survey_options wanted = options(DATA_RULES_STRICT, 100);
    struct survey survey;
    struct error err = {0};

    (void)unlink(path);
    assert_false(survey_read(&wanted, &survey, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, path));
}

static void many_lines_are_remembered_and_a_bound_is_kept(void **state)
{
    (void)state;
    struct twins twins;

    twins_init(&twins);
    for (size_t line = 1; line <= TWINS_MAX + 10; line++) {
        char text[32];
        int size = snprintf(text, sizeof(text), "%zu", line);

        assert_int_equal(twins_add(&twins, twins_hash(text, (size_t)size, "", 0), line), 0);
    }
    assert_true(twins.full);
    assert_true(twins.count <= TWINS_MAX);
    assert_int_equal(twins_find(&twins, twins_hash("77777", 5, "", 0)), 77777);
    assert_int_equal(twins_add(&twins, twins_hash("77777", 5, "", 0), 5), 77777);
    assert_int_equal(twins_find(&twins, twins_hash("7777", 4, "7", 1)), 0); /* cut elsewhere */
    twins_release(&twins);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_counts_as_the_trainer_does),
        cmocka_unit_test(lengths_count_lines_that_are_too_long),
        cmocka_unit_test(every_finding_is_on_one_page),
        cmocka_unit_test(lines_that_say_the_same_are_found_in_one_file_and_between_two),
        cmocka_unit_test(a_walk_that_is_ended_says_how_far_it_came),
        cmocka_unit_test(a_file_that_is_not_there_is_named),
        cmocka_unit_test(many_lines_are_remembered_and_a_bound_is_kept),
    };

    return cmocka_run_group_tests(tests, open_all, close_all);
}
