/* Proves: a curve that fits is answered whole, one that does not keeps its ends, its extremes and its
 * gaps in as many points as were asked for, and every point is a step that was. */
#include "store/jobs.h"
#include "store/series.h"
#include "tests/support/scratch.h"
#include "tests/support/test.h"

#include <math.h>

#define JOB "ftjob-1"
#define MANY 100000
#define BATCH 1000

struct fixture {
    char *folder;
    struct store *store;
    int64_t told; /* events of JOB */
};

static struct error fault; /* of the last CHECK */

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if (!(call))                                                                               \
            fail_msg("%s: %s", #call, fault.message);                                              \
    } while (0)

static int set_up(void **state)
{
    static char hyper[] = "{}";
    static const struct event_draft event = {.type = "message", .message = "created"};
    const struct job_record job = {.id = JOB,
                                   .base_model = "needle-3",
                                   .device_wanted = "auto",
                                   .numerics = "w4a8",
                                   .hyperparameters_json = hyper};
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    assert_non_null(fixture);
    fixture->folder = scratch_new();
    CHECK(store_open(scratch_path(fixture->folder, "needled.db"), true, &fixture->store, &fault));
    CHECK(jobs_insert(fixture->store, &job, &event, &fault));
    fixture->told = 1;
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    store_close(fixture->store);
    scratch_free(fixture->folder);
    free(fixture);
    return 0;
}

static double loss_of(int64_t step)
{
    if (step == 61234)
        return 99; /* a peak of one step */
    if (step == 33333)
        return -5;
    return 3 + sin((double)step / 777);
}

/* Step by step from first to last; no_loss (0: none) has a loss that is no number. */
static void tell_steps(struct fixture *fixture, int64_t first, int64_t last, int64_t no_loss)
{
    static struct event_draft events[BATCH];
    static char texts[BATCH][256];
    size_t count = 0;

    for (int64_t step = first; step <= last; step++) {
        char loss[40];

        snprintf(loss, sizeof(loss), "%.17g", loss_of(step));
        snprintf(texts[count], sizeof(texts[0]),
                 "{\"step\":%lld,\"train_loss\":%s,\"learning_rate\":0.5,\"grad_norm\":%d,"
                 "\"tokens_per_second\":null,\"time\":%lld.25,"
                 "\"memory_used_bytes\":2000000000}",
                 (long long)step, step == no_loss ? "null" : loss, step == 70001 ? 1000 : 1,
                 (long long)(1000 + step));
        events[count] =
            (struct event_draft){.type = "metrics", .message = "step", .data_json = texts[count]};
        count++;
        if (count == BATCH || step == last) {
            CHECK(events_append(fixture->store, JOB, events, count, step, 0, 0, &fault));
            fixture->told += (int64_t)count;
            count = 0;
        }
    }
}

static void tell_validation(struct fixture *fixture, int64_t step, double loss)
{
    char text[160];
    struct event_draft event = {.type = "validation", .message = "epoch", .data_json = text};

    snprintf(text, sizeof(text), "{\"step\":%lld,\"full_valid_loss\":%.17g}", (long long)step,
             loss);
    CHECK(events_append(fixture->store, JOB, &event, 1, -1, 0, 0, &fault));
    fixture->told++;
}

static struct series read_series(struct fixture *fixture, int64_t first, int64_t last,
                                 size_t points)
{
    struct series series;

    CHECK(series_read(fixture->store, &(struct series_wish){JOB, first, last, points}, &series,
                      &fault));
    return series;
}

static const struct series_row *find_step(const struct series *series, int64_t step)
{
    for (size_t i = 0; i < series->count; i++) {
        if (series->rows[i].step == step)
            return &series->rows[i];
    }
    return NULL;
}

static void check_order(const struct series *series)
{
    for (size_t i = 1; i < series->count; i++) {
        if (series->rows[i].step <= series->rows[i - 1].step)
            fail_msg("step %lld follows %lld", (long long)series->rows[i].step,
                     (long long)series->rows[i - 1].step);
    }
}

static void a_curve_that_fits_is_whole(void **state)
{
    struct fixture *fixture = *state;
    struct series series;

    tell_steps(fixture, 1, 40, 0);
    tell_validation(fixture, 40, 2.5);
    tell_steps(fixture, 51, 80, 60); /* ten are not there */
    series = read_series(fixture, 1, 80, 80);
    assert_int_equal(series.count, 70);
    assert_int_equal(series.step_count, 70);
    assert_int_equal(series.last_number, fixture->told);
    check_order(&series);
    assert_null(find_step(&series, 45));
    assert_true(isnan(find_step(&series, 60)->values[SERIES_TRAIN_LOSS]));
    assert_true(find_step(&series, 7)->values[SERIES_TRAIN_LOSS] == loss_of(7));
    assert_true(find_step(&series, 7)->values[SERIES_TIME] == 1007.25);
    assert_true(isnan(find_step(&series, 7)->values[SERIES_TOKENS_PER_SECOND]));
    assert_true(find_step(&series, 7)->values[SERIES_MEMORY_USED] == 2e9);
    assert_int_equal(series.valid_count, 1);
    assert_int_equal(series.valid_rows[0].step, 40);
    assert_true(series.valid_rows[0].values[SERIES_VALID_LOSS] == 2.5);
    series_release(&series);
}

static void a_long_curve_keeps_what_stands_out(void **state)
{
    struct fixture *fixture = *state;
    static const int64_t kept[] = {1, 33333, 50001, 61234, 70001};
    struct series series;

    tell_steps(fixture, 1, MANY, 50001);
    for (int64_t step = 1000; step <= MANY; step += 1000)
        tell_validation(fixture, step, (double)MANY / (double)step);
    series = read_series(fixture, 1, MANY, 400);
    check_order(&series);
    assert_int_equal(series.step_count, MANY);
    assert_true(series.count <= 440 && series.count >= 200);
    for (size_t i = 0; i < COUNT_OF(kept); i++) {
        if (!find_step(&series, kept[i]))
            fail_msg("step %lld is gone", (long long)kept[i]);
    }
    for (size_t i = 0; i < series.count; i++) {
        const double loss = series.rows[i].values[SERIES_TRAIN_LOSS];

        assert_true(series.rows[i].step == 50001 || loss == loss_of(series.rows[i].step));
    }
    assert_true(series.valid_count >= 90 && series.valid_count <= 200);
    series_release(&series);

    series = read_series(fixture, 60001, 61000, 1000); /* nearer, it is whole */
    assert_int_equal(series.count, 1000);
    assert_int_equal(series.rows[0].step, 60001);
    series_release(&series);

    series = read_series(fixture, 1, MANY, 1);
    assert_true(series.count >= 1 && series.count <= 5);
    series_release(&series);
}

static void what_comes_while_it_is_read_is_left_to_the_stream(void **state)
{
    struct fixture *fixture = *state;
    struct series series;

    tell_steps(fixture, 1, 30, 0);
    series = read_series(fixture, 1, 20, 100); /* the record said 20 when it was looked at */
    assert_int_equal(series.count, 20);
    assert_int_equal(series.last_number, 21);
    series_release(&series);
}

static void a_step_that_is_told_again_is_taken_once(void **state)
{
    struct fixture *fixture = *state;
    struct series series;

    tell_steps(fixture, 1, 30, 0);
    tell_steps(fixture, 21, 40, 0);
    series = read_series(fixture, 1, 40, 100);
    assert_int_equal(series.count, 40);
    assert_int_equal(series.step_count, 40);
    check_order(&series);
    assert_int_equal(series.last_number, fixture->told);
    series_release(&series);
}

static void a_job_without_steps_has_no_points(void **state)
{
    struct series series = read_series(*state, 1, 1, 100);

    assert_int_equal(series.count, 0);
    assert_int_equal(series.valid_count, 0);
    series_release(&series);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_curve_that_fits_is_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_long_curve_keeps_what_stands_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_comes_while_it_is_read_is_left_to_the_stream, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_step_that_is_told_again_is_taken_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_job_without_steps_has_no_points, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
