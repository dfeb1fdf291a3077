/* Proves that connections never get the descriptors that the daemon needs, whatever the limit of open files, and
 * that a limit which leaves none for them is refused. */
#include "api/descriptors.h"

#include "daemon/base/limits.h"
#include "tests/support/test.h"

/* As of a daemon with a job at a time. */
static struct descriptors_needs of(size_t limit)
{
    return (struct descriptors_needs){
        .limit = limit, .used = 18, .job_files = 6, .tcp = 1, .local = 1};
}

/* All that can be open at once. */
static size_t most(const struct descriptors_needs *needs, const struct descriptors_share *share)
{
    const size_t listeners = needs->tcp + needs->local;

    return needs->used + needs->job_files + listeners * (1 + 2 * (size_t)share->serving_threads) +
           2 * ((size_t)share->working_threads + 2) + 2 * share->call_max + share->linger_max +
           2 * (needs->tcp * share->tcp_max + needs->local * share->local_max);
}

static void connections_leave_the_daemon_its_own_at_any_limit(void **state)
{
    (void)state;
    size_t before = 0;

    for (size_t limit = 64; limit < 12000; limit++) {
        const struct descriptors_needs needs = of(limit);
        struct descriptors_share share;
        struct error err = {0};

        if (!descriptors_share(&needs, &share, &err))
            fail_msg("%s", err.message);
        assert_true(most(&needs, &share) < limit);
        assert_in_range(share.tcp_max, 2, LIMIT_CONNECTIONS);
        assert_in_range(share.local_max, 2, LIMIT_CONNECTIONS);
        assert_in_range(share.stream_max, 1,
                        share.tcp_max - 1); /* a request finds room beside them */
        assert_true(share.serving_threads > 0 && share.working_threads > 1);
        assert_true(limit == 128 || limit == 512 ||
                    share.tcp_max >= before); /* more threads there */
        before = share.tcp_max;
    }
    assert_int_equal(before, LIMIT_CONNECTIONS);
}

static void a_limit_that_leaves_none_is_refused_with_what_is_needed(void **state)
{
    struct descriptors_needs needs = of(40);
    struct descriptors_share share;
    struct error err = {0};
    size_t needed = 0;

    (void)state;
    assert_false(descriptors_share(&needs, &share, &err));
    assert_int_equal(err.code, ERR_LIMIT);
    assert_int_equal(sscanf(strstr(err.message, " is 40, "), " is 40, %zu are needed", &needed), 1);
    needs.limit = needed - 1;
    assert_false(descriptors_share(&needs, &share, &err));
    needs.limit = needed;
    assert_true(descriptors_share(&needs, &share, &err));
}

static void each_listener_has_room_whichever_there_are(void **state)
{
    (void)state;
    for (size_t tcp = 0; tcp <= 4; tcp++) {
        for (size_t local = tcp == 0; local <= 4; local++) {
            struct descriptors_needs needs = of(200);
            struct descriptors_share share;
            struct error err = {0};

            needs.tcp = tcp;
            needs.local = local;
            assert_true(descriptors_share(&needs, &share, &err));
            assert_true(most(&needs, &share) < needs.limit);
            assert_true(tcp == 0 || share.tcp_max >= 2);
            assert_true(local == 0 || share.local_max >= 2);
        }
    }
}

static void a_crowd_is_one_below_what_can_be_open(void **state)
{
    (void)state;
    for (size_t count = 2; count <= LIMIT_CONNECTIONS; count++)
        assert_in_range(descriptors_crowd(count), 1, count - 1);
    assert_int_equal(descriptors_crowd(2048), 1792);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connections_leave_the_daemon_its_own_at_any_limit),
        cmocka_unit_test(a_limit_that_leaves_none_is_refused_with_what_is_needed),
        cmocka_unit_test(each_listener_has_room_whichever_there_are),
        cmocka_unit_test(a_crowd_is_one_below_what_can_be_open),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
