/* Proves the tail: what a follower is given, from where, and when it is sent to the database instead. */
#include "tests/support/test.h"

#include "api/tail.h"
#include "store/events.h"

static struct tail *tail;
static struct buf out;

static int open_it(void **state)
{
    (void)state;
    tail = tail_new();
    assert_non_null(tail);
    buf_init(&out, (size_t)8 << 20);
    return 0;
}

static int close_it(void **state)
{
    (void)state;
    tail_free(tail);
    buf_release(&out);
    return 0;
}

/* Rows first to last: odd ones are job a's, even ones b's; every fifth is a state. */
static void add(int64_t first, int64_t last, size_t message_size)
{
    char *message = malloc(message_size + 1);

    assert_non_null(message);
    memset(message, 'm', message_size);
    message[message_size] = '\0';
    for (int64_t row = first; row <= last; row++) {
        struct event_record event = {.row = row, .number = (row + 1) / 2, .message = message};

        snprintf(event.job_id, sizeof(event.job_id), row % 2 ? "a" : "b");
        snprintf(event.type, sizeof(event.type), row % 5 ? "metrics" : "state");
        tail_add(tail, &event, 1);
    }
    free(message);
}

/* The ids in what was read, as "1 2 3 ". */
static const char *ids(void)
{
    static char text[65536];
    const char *at = out.size ? out.data : "";

    text[0] = '\0';
    while ((at = strstr(at, "id: "))) {
        size_t used = strlen(text);

        at += 4;
        snprintf(text + used, sizeof(text) - used, "%.*s ", (int)strcspn(at, "\n"), at);
    }
    buf_clear(&out);
    return text;
}

static void a_follower_of_all_gets_rows_and_of_one_its_numbers(void **state)
{
    (void)state;
    struct tail_cursor all = {.row = 10}, one = {.job_id = "b", .number = 5, .row = 10};

    tail_begin(tail, 10);
    add(11, 16, 1);
    assert_true(tail_read(tail, &all, 1 << 20, &out));
    assert_string_equal(ids(), "11 12 13 14 15 16 ");
    assert_true(tail_read(tail, &one, 1 << 20, &out));
    assert_string_equal(ids(), "6 7 8 ");
    assert_true(tail_read(tail, &one, 1 << 20, &out)); /* nothing twice */
    assert_string_equal(ids(), "");
    assert_int_equal(one.row, 16);
    add(17, 18, 1);
    assert_true(tail_read(tail, &one, 1 << 20, &out));
    assert_string_equal(ids(), "9 ");
}

static void what_was_read_elsewhere_is_not_given_again(void **state)
{
    (void)state;
    struct tail_cursor one = {.job_id = "a", .number = 7, .row = 10}; /* read past its row */

    tail_begin(tail, 10);
    add(11, 16, 1); /* a's 6, 7, 8 */
    assert_true(tail_read(tail, &one, 1 << 20, &out));
    assert_string_equal(ids(), "8 ");
}

static void types_are_chosen(void **state)
{
    (void)state;
    struct tail_cursor all = {.types = ",state,done,"};

    tail_begin(tail, 0);
    add(1, 16, 1);
    assert_true(tail_read(tail, &all, 1 << 20, &out));
    assert_string_equal(ids(), "5 10 15 ");
    assert_int_equal(all.row, 16);
}

static void a_piece_ends_where_enough_is_there_and_the_next_goes_on(void **state)
{
    (void)state;
    struct tail_cursor all = {0};

    tail_begin(tail, 0);
    add(1, 4, 1000);
    assert_true(tail_read(tail, &all, 1500, &out));
    assert_string_equal(ids(), "1 2 ");
    assert_true(tail_read(tail, &all, 1500, &out));
    assert_string_equal(ids(), "3 4 ");
}

static void who_is_too_far_behind_is_told_so(void **state)
{
    (void)state;
    struct tail_cursor behind = {.row = 9}, there = {.row = 10};

    assert_false(tail_read(tail, &behind, 1 << 20, &out)); /* not begun */
    tail_begin(tail, 10);
    assert_false(tail_read(tail, &behind, 1 << 20, &out));
    assert_true(tail_read(tail, &there, 1 << 20, &out));
    add(11, 10 + TAIL_EVENTS, 1);
    assert_true(tail_read(tail, &(struct tail_cursor){.row = 10}, 1, &out));
    assert_string_equal(ids(), "11 ");
    add(11 + TAIL_EVENTS, 11 + TAIL_EVENTS, 1); /* row 11 has to go */
    assert_false(tail_read(tail, &(struct tail_cursor){.row = 10}, 1, &out));
    assert_true(tail_read(tail, &(struct tail_cursor){.row = 11}, 1, &out));
    assert_string_equal(ids(), "12 ");
    tail_begin(tail, INT64_MAX);
    assert_false(tail_read(tail, &(struct tail_cursor){.row = 1000}, 1, &out));
}

static void large_events_push_older_ones_out(void **state)
{
    (void)state;
    struct tail_cursor all = {0};

    tail_begin(tail, 0);
    add(1, 6, TAIL_BYTES / 4);
    assert_false(tail_read(tail, &all, 1 << 20, &out));
    all.row = 3;
    assert_true(tail_read(tail, &all, (size_t)4 << 20, &out));
    assert_true(out.size <= TAIL_BYTES + 4096);
    assert_string_equal(ids(), "4 5 6 ");
    add(7, 7, 2 * TAIL_BYTES); /* alone it stays, larger than the bound or not */
    assert_true(tail_read(tail, &all, (size_t)4 << 20, &out));
    assert_string_equal(ids(), "7 ");
}

static void the_first_frame_has_the_delay_and_done_is_noticed(void **state)
{
    (void)state;
    struct tail_cursor one = {.job_id = "a", .retry_ms = 2500}, all = {0};
    const struct event_record events[] = {
        {.row = 1, .number = 1, .job_id = "a", .type = "state", .message = NULL},
        {.row = 2, .number = 2, .job_id = "a", .type = "done", .message = NULL},
        {.row = 3, .number = 3, .job_id = "a", .type = "state", .message = NULL},
    };

    tail_begin(tail, 0);
    tail_add(tail, events, COUNT_OF(events));
    assert_true(tail_read(tail, &one, 1 << 20, &out));
    assert_true(one.done);
    assert_int_equal(
        strncmp(out.data, "id: 1\nretry: 2500\nevent: state\ndata: {\"id\":\"ftevent-1\"", 52), 0);
    assert_null(strstr(out.data + 20, "retry"));
    assert_string_equal(ids(), "1 2 "); /* nothing follows done */
    assert_true(tail_read(tail, &all, 1 << 20, &out));
    assert_false(all.done); /* other jobs go on */
    assert_string_equal(ids(), "1 2 3 ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_it, close_it)
        TEST(a_follower_of_all_gets_rows_and_of_one_its_numbers),
        TEST(what_was_read_elsewhere_is_not_given_again),
        TEST(types_are_chosen),
        TEST(a_piece_ends_where_enough_is_there_and_the_next_goes_on),
        TEST(who_is_too_far_behind_is_told_so),
        TEST(large_events_push_older_ones_out),
        TEST(the_first_frame_has_the_delay_and_done_is_noticed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
