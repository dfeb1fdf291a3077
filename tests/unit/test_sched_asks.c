/* Proves that questions are answered in order, that a full line refuses, and that a stop takes back what
 * was not begun. */
#include "tests/support/test.h"

#include "daemon/sched/asks.h"

#include <pthread.h>
#include <unistd.h>

static struct asks *asks;
static const struct asks_parts parts = {0};

static int open_it(void **state)
{
    (void)state;
    asks = asks_new();
    return asks ? 0 : -1;
}

static int close_it(void **state)
{
    (void)state;
    asks_free(asks);
    return 0;
}

static bool answer(const struct asks_parts *given, void *arguments, struct error *err)
{
    int *number = arguments;

    (void)given;
    if (*number < 0)
        return error_set_word(err, ERR_INVALID, "negative", "number", "%d is below 0", *number);
    *number *= 2;
    return true;
}

struct asker {
    pthread_t thread;
    int number;
    atomic_bool stop;
    bool ok;
    struct error err;
};

static void count_wakes(void *context)
{
    (void)atomic_fetch_add((_Atomic int *)context, 1);
}

static _Atomic int wakes;

static void *ask(void *context)
{
    struct asker *asker = context;

    asker->ok =
        asks_put(asks, answer, &asker->number, &asker->stop, count_wakes, &wakes, &asker->err);
    return NULL;
}

static void begin(struct asker *asker, int number)
{
    int before = atomic_load(&wakes);

    *asker = (struct asker){.number = number};
    assert_int_equal(pthread_create(&asker->thread, NULL, ask, asker), 0);
    while (atomic_load(&wakes) == before)
        usleep(1000); /* until it is in line; the run's time limit bounds this */
}

static void an_answer_comes_back_with_its_error(void **state)
{
    (void)state;
    struct asker good, bad;

    begin(&good, 4);
    begin(&bad, -1);
    assert_true(asks_serve(asks, &parts));
    pthread_join(good.thread, NULL);
    assert_true(good.ok);
    assert_int_equal(good.number, 8);
    assert_true(asks_serve(asks, &parts));
    pthread_join(bad.thread, NULL);
    assert_false(bad.ok);
    assert_string_equal(bad.err.word, "negative");
    assert_false(asks_serve(asks, &parts));
}

static void a_full_line_refuses_and_a_stop_takes_back(void **state)
{
    (void)state;
    struct asker askers[ASKS_MAX];
    struct error err = {0};
    int number = 1;

    for (int i = 0; i < ASKS_MAX; i++)
        begin(&askers[i], i);
    assert_false(asks_put(asks, answer, &number, NULL, count_wakes, &wakes, &err));
    assert_int_equal(err.code, ERR_UNAVAILABLE);
    atomic_store(&askers[1].stop, true);
    pthread_join(askers[1].thread, NULL);
    assert_int_equal(askers[1].err.code, ERR_UNAVAILABLE);
    assert_int_equal(askers[1].number, 1);
    begin(&askers[1], 50); /* there is room again */
    assert_true(asks_serve(asks, &parts));
    asks_close(asks);
    for (int i = 0; i < ASKS_MAX; i++)
        pthread_join(askers[i].thread, NULL);
    assert_true(askers[0].ok);
    assert_false(askers[2].ok);
    assert_int_equal(askers[2].err.code, ERR_UNAVAILABLE);
    assert_false(asks_put(asks, answer, &number, NULL, count_wakes, &wakes, &err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_answer_comes_back_with_its_error, open_it, close_it),
        cmocka_unit_test_setup_teardown(a_full_line_refuses_and_a_stop_takes_back, open_it,
                                        close_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
