/*
 * Proves what a training step asks of a card besides arithmetic, by counting it over the stand-in: after
 * the first step nothing is allocated, the host waits only for the loss, for the gradient's norm and for
 * the step's end, and nothing is copied to the card in a way that waits.
 */
#include "kernels/plugin.h"
#include "tests/kernels/standin/standin.h"
#include "tests/support/golden.h"
#include "tests/support/scratch.h"

plugin_entry needled_plugin; /* linked in, where the program loads it */

#define STEPS 3

static struct standin_counts after[STEPS + 1];

static void count(struct training *training, const struct train_step *step)
{
    (void)training;
    assert_in_range(step->step, 1, STEPS);
    after[step->step] = standin_counts(0);
}

static struct backend *open_card(void)
{
    const struct backend_options options = {.device_index = 0, .thread_count = 1};
    struct backend *be = NULL;
    char reason[200] = "";

    if (needled_plugin()->open(&options, &be, reason, sizeof(reason)) != BACKEND_OK)
        fail_msg("%s", reason);
    return be;
}

/* One line, again and again: steps of one shape. */
static void write_lines(struct training *training)
{
    static const char line[] =
        "{\"query\":\"wake me\",\"tools\":[{\"name\":\"alarm\",\"description\":\"Wake.\","
        "\"parameters\":{\"type\":\"object\",\"properties\":{}}}],"
        "\"answers\":[{\"name\":\"alarm\",\"arguments\":{}}]}\n";
    char lines[STEPS * sizeof(line)] = "";

    for (int i = 0; i < STEPS; i++)
        strcat(lines, line);
    scratch_write(training->data_path, lines, strlen(lines));
    training->job.training_path = training->data_path;
}

static void train(enum numerics numerics)
{
    static struct training training;
    struct backend *be = open_card();

    training_init(&training, GOLDEN_MINI, "");
    write_lines(&training);
    training.job.hyper.max_len = 512;
    training.job.hyper.n_epochs = 1;
    training.job.hyper.batch_size = 1;
    training.job.hyper.val_split = 0;
    training.job.hyper.lora_rank = 2;
    training.job.hyper.numerics = numerics;
    training.job.hyper.data_rules = DATA_RULES_AS_REFERENCE;
    training.job.checkpoint_interval_ns = INT64_MAX; /* however slow the build is */
    training.after_step = count;
    training_run(&training, be);
    assert_int_equal(training.step_count, STEPS);
    training_release(&training);
    backend_close(be);
    assert_int_equal(standin_allocation_count(), 0);
    assert_int_equal(standin_report_count(), 0);
}

static void check_step(const struct standin_counts *before, const struct standin_counts *now)
{
    assert_int_equal(now->allocations - before->allocations, 0);
    /* The loss: its copy, and the check for faults. The norm: likewise. The end of the step. */
    assert_int_equal(now->synchronisations - before->synchronisations, 5);
    assert_int_equal(now->downloads - before->downloads, 2);
    assert_int_equal(now->pageable_uploads - before->pageable_uploads, 0);
    assert_true(now->uploads > before->uploads);
}

static void print_counts(const char *title)
{
    const struct standin_counts *a = &after[STEPS - 1], *b = &after[STEPS];

    printf("%s: %llu launches, %llu products, %llu uploads a step\n", title,
           (unsigned long long)(b->launches - a->launches),
           (unsigned long long)(b->products - a->products),
           (unsigned long long)(b->uploads - a->uploads));
}

static void a_step_asks_for_nothing_but_work(void **state)
{
    (void)state;
    for (int deferred = 0; deferred < 2; deferred++)
        for (enum numerics numerics = NUMERICS_W4A8; numerics <= NUMERICS_FLOAT32; numerics++) {
            struct standin_options options = standin_defaults;

            /* one way is enough for the slow builds: the counts are the same */
            if (strcmp(standin_build(), "fast") != 0 && !(deferred && numerics == NUMERICS_W4A8))
                continue;
            options.deferred = deferred;
            standin_set(&options);
            train(numerics);
            for (int step = 2; step <= STEPS; step++)
                check_step(&after[step - 1], &after[step]);
            print_counts(numerics == NUMERICS_FLOAT32 ? "float32" : "w4a8");
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_step_asks_for_nothing_but_work)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
