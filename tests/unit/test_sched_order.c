/* Proves: the order in which jobs run, what a move does to it and to priorities, that nobody else's order
 * changes, and what a move refuses. */
#include "daemon/base/json.h"
#include "daemon/sched/order.h"
#include "store/line.h"
#include "tests/support/machine.h"

static struct error fault; /* of the last call */

static int set_up(void **state)
{
    *state = machine_new(1, 1);
    return 0;
}

static int tear_down(void **state)
{
    machine_free(*state);
    return 0;
}

static void add(struct machine *machine, const char *id, int64_t priority)
{
    struct job_record job = {.base_model = "needle-3",
                             .numerics = "w4a8",
                             .device_wanted = "cpu",
                             .created_unix_s = 1,
                             .place.priority = priority};

    (void)snprintf(job.id, sizeof(job.id), "%s", id);
    machine_add_record(machine, &job, NULL);
}

/* Each letter a job: "abc" with priorities 0; a digit behind it is its priority. */
static void add_all(struct machine *machine, const char *jobs)
{
    for (const char *at = jobs; *at; at++) {
        char id[2] = {*at, '\0'};
        bool has_priority = at[1] >= '0' && at[1] <= '9';

        add(machine, id, has_priority ? at[1] - '0' : 0);
        at += has_priority;
    }
}

static bool read_wish(const char *id, const char *text, struct order_wish *wish)
{
    struct json *body = NULL;
    bool ok;

    fault = (struct error){0};
    *wish = (struct order_wish){0};
    (void)snprintf(wish->job_id, sizeof(wish->job_id), "%s", id);
    ok = json_parse(text, strlen(text), &body, &fault) && order_read(body, wish, &fault);
    json_free(body);
    return ok;
}

static bool move(struct machine *machine, const char *id, const char *text)
{
    struct order_wish wish;

    return read_wish(id, text, &wish) && order_move(machine->queue, &wish, &fault);
}

/* As add_all reads it. */
static const char *line_of(struct machine *machine)
{
    static char text[256];
    struct line_entry *line = NULL;
    size_t count = 0, size = 0;

    text[0] = '\0';
    if (!line_list(machine->store, &line, &count, &fault))
        fail_msg("%s", fault.message);
    for (size_t i = 0; i < count; i++) {
        size += (size_t)snprintf(text + size, sizeof(text) - size, "%s", line[i].id);
        if (line[i].place.priority != 0)
            size += (size_t)snprintf(text + size, sizeof(text) - size, "%d",
                                     (int)line[i].place.priority);
    }
    free(line);
    return text;
}

static void a_higher_priority_goes_first_and_equal_ones_by_age(void **state)
{
    struct machine *machine = *state;

    add_all(machine, "ab2cd2e1");
    assert_string_equal(line_of(machine), "b2d2e1ac");
    assert_string_equal(machine_take(machine, CPU), "b");
    assert_true(machine_end(machine, CPU, "b", OUTCOME_FAILED, &(struct error){0}));
    assert_string_equal(machine_take(machine, CPU), "d");
}

static void a_move_puts_the_job_there_and_nobody_else(void **state)
{
    static const struct {
        const char *before, *job, *body, *after;
    } cases[] = {
        {"abcd", "d", "{\"to\":\"front\"}", "dabc"},
        {"abcd", "a", "{\"to\":\"back\"}", "bcda"},
        {"abcd", "a", "{\"position\":3}", "bcad"},
        {"abcd", "d", "{\"position\":1}", "dabc"},
        {"abcd", "b", "{\"position\":1000}", "acdb"},
        {"abcd", "b", "{\"position\":2}", "abcd"},
        {"abcd", "d", "{\"before\":\"b\"}", "adbc"},
        {"abcd", "a", "{\"after\":\"c\"}", "bcad"},
        {"abcd", "c", "{\"after\":\"b\"}", "abcd"},
        {"a", "a", "{\"to\":\"back\"}", "a"},
        /* The priority changes as little as the place asks. */
        {"a5b5cd", "d", "{\"to\":\"front\"}", "d5a5b5c"},
        {"a5b5cd", "d", "{\"position\":2}", "a5d5b5c"},
        {"a5b5cd", "d", "{\"position\":3}", "a5b5dc"},
        {"a5b5cd", "a", "{\"to\":\"back\"}", "b5cda"},
        {"a5b5cd", "a", "{\"before\":\"c\"}", "b5a5cd"},
        {"a9b5cd", "a", "{\"after\":\"b\"}", "b5a5cd"},
        {"a9b5cd", "c", "{\"before\":\"b\"}", "a9c5b5d"},
        /* A priority puts it behind those that have it; its own changes nothing. */
        {"a5b5cd", "d", "{\"priority\":5}", "a5b5d5c"},
        {"a5b5cd", "d", "{\"priority\":7}", "d7a5b5c"},
        {"a5b5cd", "a", "{\"priority\":0}", "b5cda"},
        {"a5b5cd", "a", "{\"priority\":5}", "a5b5cd"},
        {"abcd", "b", "{\"priority\":-3}", "acdb-3"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct machine *machine = machine_new(1, 1);

        add_all(machine, cases[i].before);
        if (!move(machine, cases[i].job, cases[i].body))
            fail_msg("%s %s: %s", cases[i].job, cases[i].body, fault.message);
        if (strcmp(line_of(machine), cases[i].after) != 0)
            fail_msg("%s, %s %s: %s, not %s", cases[i].before, cases[i].job, cases[i].body,
                     line_of(machine), cases[i].after);
        machine_free(machine);
    }
}

static void who_is_created_later_goes_behind_those_that_were_moved(void **state)
{
    struct machine *machine = *state;

    add_all(machine, "abc");
    assert_true(move(machine, "a", "{\"to\":\"back\"}"));
    assert_true(move(machine, "b", "{\"priority\":1}"));
    add_all(machine, "d");
    assert_string_equal(line_of(machine), "b1cad");
    assert_true(move(machine, "b", "{\"priority\":0}"));
    add_all(machine, "e");
    assert_string_equal(line_of(machine), "cadbe");
    machine_restart(machine);
    assert_string_equal(line_of(machine), "cadbe");
    assert_string_equal(machine_take(machine, CPU), "c");
}

static void many_moves_leave_every_place_unique(void **state)
{
    struct machine *machine = *state;
    struct line_entry *line = NULL;
    size_t count = 0;

    add_all(machine, "abcdef");
    for (size_t i = 0; i < 200; i++) { /* more often than a number could be halved */
        char id[2] = {(char)('a' + i % 6), '\0'};

        assert_true(move(machine, id, i % 2 ? "{\"position\":2}" : "{\"position\":5}"));
    }
    assert_true(line_list(machine->store, &line, &count, &fault));
    assert_int_equal(count, 6);
    for (size_t i = 1; i < count; i++)
        assert_true(line[i].place.position > line[i - 1].place.position);
    for (size_t i = 0; i < count; i++) {
        int64_t rank = 0;

        assert_true(line_rank(machine->store, &line[i].place, &rank, &fault));
        assert_int_equal(rank, i + 1);
    }
    free(line);
}

static void a_job_that_comes_back_has_kept_its_place(void **state)
{
    static const struct error why = {.code = ERR_DEVICE, .message = "it fell off the bus"};
    struct machine *machine = *state;

    add_all(machine, "abc");
    assert_true(move(machine, "c", "{\"to\":\"front\"}"));
    assert_string_equal(machine_take(machine, CPU), "c");
    assert_string_equal(line_of(machine), "ab");
    assert_true(machine_end(machine, CPU, "c", OUTCOME_DEVICE_FAULT, &why));
    assert_string_equal(line_of(machine), "cab");
}

static void a_move_is_told_in_the_job_s_events(void **state)
{
    struct machine *machine = *state;

    add_all(machine, "ab5c");
    assert_true(move(machine, "c", "{\"to\":\"front\"}"));
    assert_int_equal(machine_count_events(machine, "c", "moved to place 1 of 3 in the queue"), 1);
    assert_int_equal(machine_count_events(machine, "c", "its priority is 5"), 1);
    assert_int_equal(machine_count_events(machine, "a", "moved"), 0);
    assert_true(move(machine, "c", "{\"to\":\"front\"}")); /* it is there */
    assert_int_equal(machine_count_events(machine, "c", "moved"), 1);
}

static void a_job_that_does_not_wait_is_not_moved(void **state)
{
    struct machine *machine = *state;

    add_all(machine, "ab");
    assert_string_equal(machine_take(machine, CPU), "a");
    assert_false(move(machine, "a", "{\"to\":\"front\"}"));
    assert_int_equal(fault.code, ERR_CONFLICT);
    assert_non_null(strstr(fault.message, "job 'a' is running"));
    assert_false(move(machine, "z", "{\"to\":\"front\"}"));
    assert_int_equal(fault.code, ERR_NOT_FOUND);
    assert_false(move(machine, "b", "{\"before\":\"a\"}"));
    assert_string_equal(fault.param, "before");
    assert_false(move(machine, "b", "{\"after\":\"b\"}"));
    assert_string_equal(fault.param, "after");
    assert_string_equal(line_of(machine), "b");
}

static void a_wish_that_cannot_be_read_is_refused_by_its_field(void **state)
{
    static const struct {
        const char *body, *param, *word;
    } cases[] = {
        {"{}", "", "0 places"},
        {"{\"to\":\"front\",\"position\":1}", "", "2 places"},
        {"[1]", "", "not an object"},
        {"{\"place\":1}", "place", "place"},
        {"{\"position\":0}", "position", "position"},
        {"{\"position\":1.5}", "position", "position"},
        {"{\"position\":\"1\"}", "position", "position"},
        {"{\"position\":null}", "position", "position"},
        {"{\"to\":\"top\"}", "to", "'front' or 'back'"},
        {"{\"to\":7}", "to", "to"},
        {"{\"before\":7}", "before", "before"},
        {"{\"priority\":101}", "priority", "100"},
        {"{\"priority\":-101}", "priority", "100"},
        {"{\"after\":\"0123456789012345678901234567890123456789012345678901234567890123456789\"}",
         "after", "no job"},
    };
    struct order_wish wish;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        if (read_wish("a", cases[i].body, &wish) || fault.code != ERR_INVALID ||
            strcmp(fault.param, cases[i].param) != 0 || !strstr(fault.message, cases[i].word))
            fail_msg("%s: '%s', %s", cases[i].body, fault.param, fault.message);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_higher_priority_goes_first_and_equal_ones_by_age),
        cmocka_unit_test(a_move_puts_the_job_there_and_nobody_else),
        TEST(who_is_created_later_goes_behind_those_that_were_moved),
        TEST(many_moves_leave_every_place_unique),
        TEST(a_job_that_comes_back_has_kept_its_place),
        TEST(a_move_is_told_in_the_job_s_events),
        TEST(a_job_that_does_not_wait_is_not_moved),
        cmocka_unit_test(a_wish_that_cannot_be_read_is_refused_by_its_field),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
