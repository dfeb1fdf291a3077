/*
 * notify, pulse and journal: what a service manager's variables make of us, and when a thread counts as moving.
 * The messages themselves are heard in tests/ops/service.sh.
 */
#include "daemon/base/clock.h"
#include "daemon/base/journal.h"
#include "daemon/base/log.h"
#include "daemon/base/notify.h"
#include "daemon/base/pulse.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void set_pid(const char *name, int pid)
{
    char text[16];

    (void)snprintf(text, sizeof(text), "%d", pid);
    assert_int_equal(setenv(name, text, 1), 0);
}

static void the_watchdog_is_that_of_this_process_alone(void **state)
{
    static const struct {
        const char *limit_us;
        int64_t expected_ns;
    } cases[] = {{"2000000", 2000000000},     {"0", 0},   {"-1", 0}, {"2s", 0}, {"", 0},
                 {"99999999999999999999", 0}, {"1", 1000}};

    (void)state;
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    assert_int_equal(notify_watchdog_ns(), 0);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        setenv("WATCHDOG_USEC", cases[i].limit_us, 1);
        if (notify_watchdog_ns() != cases[i].expected_ns)
            fail_msg("'%s': %lld", cases[i].limit_us, (long long)notify_watchdog_ns());
    }
    set_pid("WATCHDOG_PID", getpid());
    assert_int_equal(notify_watchdog_ns(), 1000);
    set_pid("WATCHDOG_PID", getpid() + 1);
    assert_int_equal(notify_watchdog_ns(), 0);
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
}

/* What is open from 3 on belongs to the test's own runner, so only refusals are tried there. */
static void sockets_of_another_process_are_left_alone(void **state)
{
    struct notify_socket sockets[NOTIFY_SOCKETS_MAX];
    struct error err = {0};
    size_t count = 77;

    (void)state;
    setenv("LISTEN_FDS", "1", 1);
    set_pid("LISTEN_PID", getpid() + 1);
    assert_true(notify_take_sockets(sockets, &count, &err));
    assert_int_equal(count, 0);
    assert_null(getenv("LISTEN_FDS")); /* nor do they confuse a child */
    assert_null(getenv("LISTEN_PID"));
    assert_true(notify_take_sockets(sockets, &count, &err));
    assert_int_equal(count, 0);
}

static void a_count_of_sockets_that_cannot_be_is_refused(void **state)
{
    static const struct {
        const char *count;
        enum error_code expected;
    } cases[] = {{"x", ERR_INVALID}, {"-1", ERR_INVALID}, {"", ERR_INVALID}, {"9", ERR_INVALID}};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct notify_socket sockets[NOTIFY_SOCKETS_MAX];
        struct error err = {0};
        size_t count = 0;

        set_pid("LISTEN_PID", getpid());
        setenv("LISTEN_FDS", cases[i].count, 1);
        if (notify_take_sockets(sockets, &count, &err) || err.code != cases[i].expected)
            fail_msg("'%s': %s", cases[i].count, err.message);
    }
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
}

static void a_status_is_one_line_and_has_an_end(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char heard[2 * NOTIFY_TEXT_BYTES] = "", text[3 * NOTIFY_TEXT_BYTES], name[64];
    int descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    (void)state;
    (void)snprintf(name, sizeof(name), "@needled-test-%d", getpid());
    memcpy(address.sun_path + 1, name + 1, strlen(name) - 1);
    assert_int_equal(bind(descriptor, (struct sockaddr *)&address,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))),
                     0);
    setenv("NOTIFY_SOCKET", name, 1);
    assert_true(notify_is_heard());
    notify_status("step 1\nREADY=1\tx");
    assert_int_equal(recv(descriptor, heard, sizeof(heard), 0), 23);
    assert_string_equal(heard, "STATUS=step 1 READY=1 x");
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    notify_status(text);
    assert_int_equal(recv(descriptor, heard, sizeof(heard), 0), NOTIFY_TEXT_BYTES - 1);
    unsetenv("NOTIFY_SOCKET");
    assert_false(notify_is_heard());
    (void)close(descriptor);
}

static void a_manager_that_reads_nothing_is_not_waited_for(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[64];
    int heard = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int filler = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size;

    (void)state;
    (void)snprintf(name, sizeof(name), "@needled-test-full-%d", getpid());
    memcpy(address.sun_path + 1, name + 1, strlen(name) - 1);
    size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    assert_int_equal(bind(heard, (struct sockaddr *)&address, size), 0);
    while (sendto(filler, "x", 1, 0, (struct sockaddr *)&address, size) == 1)
        ;
    setenv("NOTIFY_SOCKET", name, 1);
    notify_send("STOPPING=1"); /* comes back at all */
    unsetenv("NOTIFY_SOCKET");
    (void)close(filler);
    (void)close(heard);
}

static void only_a_thread_at_work_owes_a_beat(void **state)
{
    struct pulse pulse = {0};
    int64_t now_ns = clock_monotonic_ns();

    (void)state;
    pulse_beat(); /* of nobody */
    assert_int_equal(pulse_rest_ns(&pulse, now_ns), 0);
    pulse_begin(&pulse);
    assert_true(pulse_rest_ns(&pulse, clock_monotonic_ns() + 5000) >= 5000);
    pulse_beat();
    assert_int_equal(pulse_rest_ns(&pulse, now_ns), 0); /* a look that began before the beat */
    pulse_end();
    assert_int_equal(pulse_rest_ns(&pulse, clock_monotonic_ns() + 5000), 0);
    pulse_beat();
    assert_int_equal(pulse_rest_ns(&pulse, clock_monotonic_ns() + 5000), 0);
}

static void a_thread_owes_a_beat_from_when_it_is_given_work(void **state)
{
    struct pulse pulse = {0};
    int64_t later_ns, beat_ns;

    (void)state;
    pulse_owe(&pulse); /* before it has begun at all */
    assert_true(pulse_rest_ns(&pulse, clock_monotonic_ns() + 5000) >= 5000);
    pulse_begin(&pulse);
    pulse_pause();
    later_ns = clock_monotonic_ns() + 5000;
    assert_int_equal(pulse_rest_ns(&pulse, later_ns), 0); /* it waits */
    pulse_owe(&pulse);
    assert_true(pulse_rest_ns(&pulse, clock_monotonic_ns() + 5000) >= 5000);
    beat_ns = pulse.beat_ns;
    pulse_owe(&pulse); /* more of it does not excuse what was not begun */
    assert_int_equal(pulse.beat_ns, beat_ns);
    pulse_beat();
    assert_int_equal(pulse_rest_ns(&pulse, later_ns - 5000), 0); /* it took the work up */
    pulse_end();
    pulse_pause(); /* of nobody */
}

static void a_log_line_is_an_entry_with_its_job(void **state)
{
    char entry[4096] = "";
    int ends[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
    log_set_journal(ends[0]);
    log_write_for(LOG_LEVEL_WARN, "job", "ftjob-12", "it says\n%s", "\"no\"");
    assert_true(recv(ends[1], entry, sizeof(entry) - 1, MSG_DONTWAIT) > 0);
    assert_string_equal(entry, "MESSAGE=job=ftjob-12 msg=\"it says\\n\\\"no\\\"\"\nPRIORITY=4\n"
                               "SYSLOG_IDENTIFIER=needled\nJOB_ID=ftjob-12\n");
    memset(entry, 0, sizeof(entry));
    log_write_for(LOG_LEVEL_ERROR, "device", "cpu:0", "gone");
    assert_true(recv(ends[1], entry, sizeof(entry) - 1, MSG_DONTWAIT) > 0);
    assert_non_null(strstr(entry, "\nPRIORITY=3\n"));
    assert_non_null(strstr(entry, "\nDEVICE=cpu:0\n"));
    memset(entry, 0, sizeof(entry));
    log_write_for(LOG_LEVEL_INFO, "job", "x\nPRIORITY=0", "no field of a stranger's");
    assert_true(recv(ends[1], entry, sizeof(entry) - 1, MSG_DONTWAIT) > 0);
    assert_null(strstr(entry, "\nPRIORITY=0"));
    log_set_journal(-1);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void stderr_is_the_journal_only_where_it_is_that_file(void **state)
{
    (void)state;
    setenv("JOURNAL_STREAM", "1:2", 1);
    assert_false(journal_is_stderr());
    unsetenv("JOURNAL_STREAM");
    assert_false(journal_is_stderr());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_watchdog_is_that_of_this_process_alone),
        cmocka_unit_test(sockets_of_another_process_are_left_alone),
        cmocka_unit_test(a_count_of_sockets_that_cannot_be_is_refused),
        cmocka_unit_test(a_status_is_one_line_and_has_an_end),
        cmocka_unit_test(a_manager_that_reads_nothing_is_not_waited_for),
        cmocka_unit_test(only_a_thread_at_work_owes_a_beat),
        cmocka_unit_test(a_thread_owes_a_beat_from_when_it_is_given_work),
        cmocka_unit_test(a_log_line_is_an_entry_with_its_job),
        cmocka_unit_test(stderr_is_the_journal_only_where_it_is_that_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
