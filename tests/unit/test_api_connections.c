/* Proves: where there are too many connections the one that has been without a request for longest ends, and no
 * other. */
#include "api/connections.h"

#include "tests/support/test.h"

#include <sys/socket.h>
#include <unistd.h>

#define COUNT 5
#define MAX 3

static int ours[COUNT], theirs[COUNT];
static struct connection_entry *entries[COUNT];
static struct connections *connections;
static struct connection_group group;

static int set_up(void **state)
{
    (void)state;
    connections = connections_new(15, 1);
    assert_non_null(connections);
    group = (struct connection_group){.count_max = MAX};
    for (size_t i = 0; i < COUNT; i++) {
        int ends[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        ours[i] = ends[0];
        theirs[i] = ends[1];
        entries[i] = NULL;
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT; i++) {
        connections_remove(connections, entries[i]);
        (void)close(ours[i]);
        (void)close(theirs[i]);
    }
    connections_free(connections);
    return 0;
}

static void add(size_t i, struct connection_group *to)
{
    entries[i] = connections_add(connections, to, ours[i]);
    assert_non_null(entries[i]);
}

static bool is_over(size_t i)
{
    char byte;

    return recv(theirs[i], &byte, 1, MSG_DONTWAIT) == 0;
}

static void the_one_that_is_silent_for_longest_makes_room(void **state)
{
    (void)state;
    for (size_t i = 0; i < MAX; i++)
        add(i, &group);
    connections_set_busy(connections, entries[0]);
    connections_set_idle(connections, entries[0]); /* it has asked: others are silent for longer */
    add(3, &group);
    assert_true(is_over(1));
    assert_false(is_over(0) || is_over(2) || is_over(3));
    add(4, &group);
    assert_true(is_over(2));
    assert_false(is_over(0) || is_over(3) || is_over(4));
}

static void one_with_a_request_stays_and_so_do_all_others_elsewhere(void **state)
{
    struct connection_group other = {.count_max = MAX};

    (void)state;
    add(0, &other); /* the oldest of all */
    for (size_t i = 1; i < COUNT; i++) {
        add(i, &group);
        connections_set_busy(connections, entries[i]);
    }
    for (size_t i = 0; i < COUNT; i++)
        assert_false(is_over(i)); /* nobody can be asked to leave */
    connections_remove(connections, entries[0]);
    entries[0] = NULL;
}

static void where_all_had_requests_the_first_that_is_answered_makes_room(void **state)
{
    (void)state;
    for (size_t i = 0; i <= MAX; i++) {
        add(i, &group);
        connections_set_busy(connections, entries[i]);
    }
    connections_set_idle(connections, entries[2]);
    assert_true(is_over(2));
    connections_set_idle(connections, entries[0]); /* that one is about to close: there is room */
    assert_false(is_over(0) || is_over(1) || is_over(3));
    add(4, &group); /* it has had its answer, and does not wait for one */
    assert_true(is_over(0));
    assert_false(is_over(1) || is_over(3) || is_over(4));
}

static void whoever_left_is_not_counted(void **state)
{
    (void)state;
    for (size_t i = 0; i < MAX; i++)
        add(i, &group);
    connections_remove(connections, entries[1]);
    entries[1] = NULL;
    add(3, &group);
    assert_false(is_over(0) || is_over(2) || is_over(3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_one_that_is_silent_for_longest_makes_room, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(one_with_a_request_stays_and_so_do_all_others_elsewhere,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            where_all_had_requests_the_first_that_is_answered_makes_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(whoever_left_is_not_counted, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
