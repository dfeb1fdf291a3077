/* Proves that connections have a bound: one past it waits and is served when another leaves. */
#include "tests/support/api_daemon.h"

#include "daemon/base/limits.h"

#include <sys/resource.h>

#define CROWD (LIMIT_CONNECTIONS + 64)

static struct api_daemon d;

static int open_it(void **state)
{
    (void)state;
    d.own_jobs = true;
    api_daemon_open(&d, (struct server_options){0});
    return 0;
}

static int close_it(void **state)
{
    (void)state;
    api_daemon_close(&d);
    return 0;
}

static int count_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");

    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* With our ends of all of them open. */
static int accepted(int before)
{
    return count_descriptors() - before - CROWD;
}

static void more_connections_than_the_limit_wait_until_others_leave(void **state)
{
    (void)state;
    static int crowd[CROWD];
    struct rlimit limit;
    struct web_answer answer;
    int before;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < 2 * CROWD + 200)
        skip(); /* both ends are ours */
    limit.rlim_cur = limit.rlim_max < 8 * CROWD ? limit.rlim_max : 8 * CROWD;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    before = count_descriptors();
    for (size_t i = 0; i < CROWD; i++)
        crowd[i] = web_open(d.port);
    for (int tries = 0; tries < 6000 && accepted(before) < LIMIT_CONNECTIONS; tries++)
        usleep(10000);
    assert_int_equal(accepted(before), LIMIT_CONNECTIONS);
    web_send_text(crowd[0], "GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    web_receive(crowd[0], false, &answer); /* who is in is served */
    assert_int_equal(answer.status, 200);
    web_release(&answer);
    assert_int_equal(accepted(before), LIMIT_CONNECTIONS);
    for (size_t i = 0; i < CROWD; i += 2)
        close(crowd[i]);
    web_call(d.port, "GET", "/v1/models", &answer); /* behind all of them */
    assert_int_equal(answer.status, 200);
    web_release(&answer);
    for (size_t i = 1; i < CROWD; i += 2)
        close(crowd[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(more_connections_than_the_limit_wait_until_others_leave,
                                        open_it, close_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
