/* Proves that lines parsed on a thread of their own give the report that parsing in place gives, and that
 * threads are counted, given back, and not taken beyond their number. */
#include "tests/support/test.h"

#include "daemon/sched/scanner.h"
#include "daemon/train/dataset.h"

#include <assert.h>
#include <stdlib.h>

#define LINE "{\"query\":\"is it raining in a town\",\"tools\":[],\"answers\":[]}\n"
#define BAD "{\"query\":\"is it raining in a town\",\"tools\":[],\"answers\":[}}\n"
static_assert(sizeof(LINE) == sizeof(BAD), "one takes the other's place");

static const size_t line_size = sizeof(LINE) - 1;

/* Lines of which each 5000th is none. */
static char *make_text(size_t count)
{
    char *text = malloc(count * line_size);

    assert_non_null(text);
    for (size_t i = 0; i < count; i++)
        memcpy(text + i * line_size, i % 5000 == 4999 ? BAD : LINE, line_size);
    return text;
}

static struct dataset_report *scan(const char *text, size_t size, atomic_int *helpers, size_t piece,
                                   int expected_helpers)
{
    struct dataset_report *report = calloc(1, sizeof(*report));
    struct scanner *scanner = NULL;
    struct error err = {0};

    assert_non_null(report);
    assert_true(scanner_new(&scanner, &err));
    scanner_set_helpers(scanner, helpers);
    for (size_t at = 0; at < size; at += piece)
        assert_true(scanner_feed(scanner, text + at, size - at < piece ? size - at : piece, &err));
    if (helpers)
        assert_int_equal(atomic_load(helpers), expected_helpers);
    assert_true(scanner_finish(scanner, report, &err));
    scanner_free(scanner);
    return report;
}

static void a_thread_finds_what_the_caller_finds(void **state)
{
    (void)state;
    static const size_t pieces[] = {1000, 30000, 65536, 200000};
    const size_t count = (SCANNER_SMALL_BYTES + ((size_t)2 << 20)) / line_size;
    char *text = make_text(count);
    struct dataset_report *wanted = scan(text, count * line_size, NULL, 65536, 0);

    assert_int_equal(wanted->line_count, count);
    assert_int_equal(wanted->problem_count[PROBLEM_FATAL], count / 5000);
    assert_true(count / 5000 >= 15);
    for (size_t i = 0; i < COUNT_OF(pieces); i++) {
        atomic_int helpers = 0;
        struct dataset_report *report = scan(text, count * line_size, &helpers, pieces[i], 1);

        assert_int_equal(atomic_load(&helpers), 0);
        assert_memory_equal(report, wanted, sizeof(*report));
        free(report);
    }
    free(wanted);
    free(text);
}

static void a_small_file_and_one_too_many_take_no_thread(void **state)
{
    (void)state;
    atomic_int helpers = 0;
    char *text = make_text(SCANNER_SMALL_BYTES / line_size + 10000);

    free(scan(text, SCANNER_SMALL_BYTES, &helpers, 65536, 0));
    atomic_store(&helpers, SCANNER_HELPERS_MAX);
    free(scan(text, SCANNER_SMALL_BYTES + 5000 * line_size, &helpers, 65536, SCANNER_HELPERS_MAX));
    assert_int_equal(atomic_load(&helpers), SCANNER_HELPERS_MAX);
    free(text);
}

static void one_that_is_broken_off_gives_its_thread_back(void **state)
{
    (void)state;
    const size_t size = SCANNER_SMALL_BYTES + 6000 * line_size;
    char *text = make_text(size / line_size);
    struct scanner *scanner = NULL;
    atomic_int helpers = 0;
    struct error err = {0};

    assert_true(scanner_new(&scanner, &err));
    scanner_set_helpers(scanner, &helpers);
    for (size_t at = 0; at + 65536 < size; at += 65536)
        assert_true(scanner_feed(scanner, text + at, 65536, &err));
    assert_int_equal(atomic_load(&helpers), 1);
    scanner_free(scanner);
    assert_int_equal(atomic_load(&helpers), 0);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_finds_what_the_caller_finds),
        cmocka_unit_test(a_small_file_and_one_too_many_take_no_thread),
        cmocka_unit_test(one_that_is_broken_off_gives_its_thread_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
