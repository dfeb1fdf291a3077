/* Proves that every recorded learning rate comes out with its very digits. */
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/train/schedule.h"
#include "tests/support/test.h"

static void check_rates(const struct json *record, double peak, const char *rates_name)
{
    const struct json *rates = json_member(record, rates_name);
    const size_t total = (size_t)json_number(json_member(record, "total_steps"));
    const struct schedule schedule = schedule_make(total, peak);
    size_t step = 0;

    assert_int_equal(schedule.warmup_steps, json_number(json_member(record, "warmup_steps")));
    for (const struct json *e = json_first(rates); e; e = json_next(e), step++) {
        const double rate = (double)schedule_learning_rate(&schedule, step);
        if (!(rate == json_number(e)))
            fail_msg("step %zu of %zu: %.17g, wanted %.17g", step, total, rate, json_number(e));
    }
    assert_int_equal(step, total + 1);
}

static struct json *parse(const char *text, size_t size)
{
    struct json *json = NULL;
    struct error err = {0};

    if (!json_parse(text, size, &json, &err))
        fail_msg("%s", err.message);
    return json;
}

static void the_recorded_schedules_are_reproduced(void **state)
{
    (void)state;
    struct mapping map = MAPPING_NONE;
    struct error err = {0};
    size_t count = 0;

    if (!mapping_open(&map, FIXTURES "needle3/schedules.jsonl", &err))
        fail_msg("%s", err.message);
    const char *line = (const char *)map.data, *end = line + map.size;
    while (line < end) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop)
            stop = end;
        struct json *record = parse(line, (size_t)(stop - line));
        check_rates(record, json_number(json_member(record, "peak")), "lr");
        json_free(record);
        line = stop + 1;
        count++;
    }
    mapping_close(&map);
    assert_int_equal(count, 12);
}

static void the_rates_of_the_recorded_runs_are_reproduced(void **state)
{
    (void)state;
    static const char *const runs[] = {FIXTURES "needle3/train_run.json",
                                       FIXTURES "needle3/mini/train_run.json"};

    for (size_t i = 0; i < COUNT_OF(runs); i++) {
        struct mapping map = MAPPING_NONE;
        struct error err = {0};

        if (!mapping_open(&map, runs[i], &err))
            fail_msg("%s", err.message);
        struct json *run = parse((const char *)map.data, map.size);
        check_rates(run, json_number(json_member(json_member(run, "args"), "lr")), "lr_per_step");
        json_free(run);
        mapping_close(&map);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_recorded_schedules_are_reproduced),
        cmocka_unit_test(the_rates_of_the_recorded_runs_are_reproduced),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
