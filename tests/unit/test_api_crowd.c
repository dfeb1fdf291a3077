/* Proves that connections have a bound, and that those who ask nothing make room for others. */
#include "tests/support/api_daemon.h"

#include "daemon/base/clock.h"
#include "daemon/base/limits.h"

#include <errno.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define CROWD (LIMIT_CONNECTIONS + 64)

static int crowd[CROWD];

/* Both ends of all of them are ours. False: the system has not so many descriptors. */
static bool open_crowd(void)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < 2 * CROWD + 200)
        return false;
    limit.rlim_cur = limit.rlim_max < 8 * CROWD ? limit.rlim_max : 8 * CROWD;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return true;
}

/* The other end was closed. */
static bool is_over(int descriptor)
{
    char byte;
    const ssize_t size = recv(descriptor, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return size == 0 || (size < 0 && errno == ECONNRESET);
}

static void wait_for_byte(int descriptor)
{
    struct pollfd wait = {.fd = descriptor, .events = POLLIN};

    assert_int_equal(poll(&wait, 1, 60000), 1);
}

static void connections_that_ask_nothing_lock_nobody_out(void **state)
{
    struct web_answer answer;
    const int64_t began_ns = clock_monotonic_ns();
    size_t ended = 0, reader;

    (void)state;
    if (!open_crowd())
        skip();
    crowd[0] = web_open(d.port); /* it asks something, and stays */
    web_send_text(crowd[0], "GET /v1/events?stream=true HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    wait_for_byte(crowd[0]);
    for (size_t i = 1; i < CROWD; i++)
        crowd[i] = web_open(d.port);
    web_call(d.port, "GET", "/v1/plans", &answer); /* behind all of them */
    assert_int_equal(answer.status, 200);
    web_release(&answer);
    web_call(d.port, "GET", "/v1/models", &answer); /* and once more */
    assert_int_equal(answer.status, 200);
    web_release(&answer);
    assert_true(is_over(crowd[1])); /* the one that was silent for longest made room */
    assert_false(is_over(crowd[0]));
    for (size_t i = 1; i < CROWD; i++)
        ended += is_over(crowd[i]);
    if (clock_monotonic_ns() - began_ns < 10 * INT64_C(1000000000)) /* else their time is over */
        assert_in_range(ended, 1, CROWD / 2);                       /* the others are left alone */
    reader = CROWD - 1;
    web_send_text(crowd[reader], "GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    web_receive(crowd[reader], false, &answer); /* the last that came can still ask */
    assert_int_equal(answer.status, 200);
    web_release(&answer);
    for (size_t i = 0; i < CROWD; i++)
        close(crowd[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(connections_that_ask_nothing_lock_nobody_out,
                                        api_daemon_set_up, api_daemon_tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
