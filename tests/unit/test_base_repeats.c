/*
 * repeats and log: a line that comes again and again is left out and counted, never lost silently.
 */
#include "daemon/base/log.h"
#include "daemon/base/repeats.h"
#include "tests/support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define START_NS INT64_C(5000000000)
#define MINUTE_NS INT64_C(60000000000)

static struct repeats repeats;

static int forget(void **state)
{
    (void)state;
    repeats = (struct repeats){0};
    return 0;
}

/* How many of so many are written. */
static int take(int level, const char *key, const char *value, const char *text, int count,
                int64_t now_ns)
{
    const struct repeats_line line = {level, key, value, text};
    int written = 0;

    for (int i = 0; i < count; i++)
        written += repeats_take(&repeats, &line, now_ns);
    return written;
}

static void the_same_line_is_left_out_from_a_bound_on_and_counted(void **state)
{
    struct repeats_count count;

    (void)state;
    assert_int_equal(take(2, "device", "cuda:0", "is silent", 1000, START_NS), REPEATS_SAME_MAX);
    assert_false(repeats_settle(&repeats, START_NS + MINUTE_NS - 1, &count));
    assert_int_equal(take(2, "device", "cuda:0", "is silent", 5, START_NS + MINUTE_NS), 0);
    assert_true(repeats_settle(&repeats, START_NS + MINUTE_NS, &count));
    assert_int_equal(count.left_out, 1005 - REPEATS_SAME_MAX);
    assert_int_equal(count.level, 2);
    assert_string_equal(count.key, "device");
    assert_string_equal(count.value, "cuda:0");
    assert_string_equal(count.text, "is silent");
    assert_false(repeats_settle(&repeats, START_NS + 9 * MINUTE_NS, &count));
    assert_int_equal(take(2, "device", "cuda:0", "is silent", 1, START_NS + MINUTE_NS), 1);
}

static void lines_that_differ_do_not_count_together(void **state)
{
    struct repeats_count count;

    (void)state;
    (void)take(1, "job", "ftjob-1", "succeeded", REPEATS_SAME_MAX + 1, START_NS);
    assert_int_equal(take(1, "job", "ftjob-2", "succeeded", 1, START_NS), 1);
    assert_int_equal(take(1, "job", "ftjob-1", "failed", 1, START_NS), 1);
    assert_int_equal(take(2, "job", "ftjob-1", "succeeded", 1, START_NS), 1);
    assert_int_equal(take(1, NULL, NULL, "succeeded", 1, START_NS), 1);
    /* Requests have each their id, and hammer all the same. */
    (void)take(1, "request", "req-1", "POST /v1/files 401", REPEATS_SAME_MAX, START_NS);
    assert_int_equal(take(1, "request", "req-2", "POST /v1/files 401", 1, START_NS), 0);
    while (repeats_settle(&repeats, INT64_MAX, &count))
        assert_int_equal(count.left_out, 1);
    assert_string_equal(count.value, ""); /* of the last, the requests' */
}

static void a_level_has_a_bound_however_its_lines_differ(void **state)
{
    struct repeats_count count = {0};
    char text[32];
    int written = 0;

    (void)state;
    for (int i = 0; i < 2 * REPEATS_ALL_MAX; i++) {
        snprintf(text, sizeof(text), "line %d", i);
        written += take(2, NULL, NULL, text, 1, START_NS);
    }
    assert_int_equal(written, REPEATS_ALL_MAX);
    assert_int_equal(take(3, NULL, NULL, "another level", 1, START_NS), 1);
    assert_true(repeats_settle(&repeats, START_NS + MINUTE_NS, &count));
    assert_int_equal(count.left_out, REPEATS_ALL_MAX);
    assert_string_equal(count.text, "");
    assert_false(repeats_settle(&repeats, START_NS + MINUTE_NS, &count));
    assert_int_equal(take(2, NULL, NULL, "later", 1, START_NS + MINUTE_NS), 1);
}

static void a_count_is_kept_while_many_other_lines_come(void **state)
{
    struct repeats_count count;
    char text[32];

    (void)state;
    (void)take(2, NULL, NULL, "hammered", REPEATS_SAME_MAX + 7, START_NS);
    for (int i = 0; i < 3 * REPEATS_LINES; i++) {
        snprintf(text, sizeof(text), "line %d", i);
        assert_int_equal(take(2, NULL, NULL, text, 2, START_NS), 2);
    }
    assert_int_equal(take(2, NULL, NULL, "hammered", 1, START_NS), 0);
    assert_true(repeats_settle(&repeats, START_NS + MINUTE_NS, &count));
    assert_int_equal(count.left_out, 8);
}

static size_t count_lines(const char *text, const char *wanted)
{
    size_t count = 0;

    for (; (text = strstr(text, wanted)) != NULL; text += strlen(wanted))
        count++;
    return count;
}

static void the_log_tells_how_many_it_left_out(void **state)
{
    static char text[65536];
    FILE *file = tmpfile();
    const int kept = dup(STDERR_FILENO);
    size_t size;

    (void)state;
    assert_non_null(file);
    assert_true(dup2(fileno(file), STDERR_FILENO) >= 0);
    (void)unsetenv("JOURNAL_STREAM");
    log_set_level(LOG_LEVEL_DEBUG);
    for (int i = 0; i < REPEATS_SAME_MAX + 123; i++) {
        log_write_for(LOG_LEVEL_WARN, "device", "cpu:0", "it \"fails\"");
        log_write(LOG_LEVEL_DEBUG, "asked for");
    }
    log_settle(false); /* the minute is not over */
    log_settle(true);
    log_settle(true);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    rewind(file);
    size = fread(text, 1, sizeof(text) - 1, file);
    text[size] = '\0';
    assert_int_equal(count_lines(text, "level=warn device=cpu:0 msg=\"it \\\"fails\\\"\"\n"),
                     REPEATS_SAME_MAX);
    assert_int_equal(count_lines(text, "level=warn device=cpu:0 msg=\"repeated 123 times more: "
                                       "it \\\"fails\\\"\"\n"),
                     1);
    assert_int_equal(count_lines(text, "asked for"), REPEATS_SAME_MAX + 123);
    (void)fclose(file);
    (void)close(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_same_line_is_left_out_from_a_bound_on_and_counted, forget),
        cmocka_unit_test_setup(lines_that_differ_do_not_count_together, forget),
        cmocka_unit_test_setup(a_level_has_a_bound_however_its_lines_differ, forget),
        cmocka_unit_test_setup(a_count_is_kept_while_many_other_lines_come, forget),
        cmocka_unit_test(the_log_tells_how_many_it_left_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
