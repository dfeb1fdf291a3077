/*
 * Proves that a run can go on from an adapter made before: it begins where that ended, with fresh
 * moments, stops and resumes like any other, and is not mistaken for a run from the start.
 */
#include "daemon/base/file.h"
#include "tests/support/golden.h"
#include "tests/support/scratch.h"

#include <math.h>

#define DATA(name) FIXTURES "inputs/jsonl/" name

static struct training parent, child, whole;

static void init_small(struct training *training, const char *start)
{
    training_init(training, GOLDEN_MINI, DATA("seventeen.jsonl"));
    training->job.validation_path = DATA("seventeen.jsonl"); /* what a step sees before it learns */
    training->job.start_adapter_path = start;
    training->job.hyper.numerics = NUMERICS_FLOAT32;
    training->job.hyper.batch_size = 17;
    training->job.hyper.n_epochs = 2;
    training->job.hyper.lora_rank = 4;
    training->job.hyper.lora_alpha = 6.1; /* no float32 */
    training->job.hyper.learning_rate = 3e-3;
    training->job.hyper.max_len = 512;
}

static void a_run_begins_where_its_parent_ended(void **state)
{
    (void)state;
    struct backend *be = training_backend(BACKEND_CPU);
    size_t count, started_count;
    float *before, *after;
    double moved = 0;

    init_small(&parent, NULL);
    training_run(&parent, be);
    init_small(&child, parent.adapter_path);
    child.job.hyper.seed = 7; /* draws the order alone */
    training_run(&child, be);
    assert_true(fabs(child.steps[0].train_loss - parent.result.final_valid_loss) < 1e-5);
    assert_true(child.steps[0].train_loss < parent.steps[0].train_loss);
    before = training_tensors(parent.adapter_path, "lora/", &count);
    after = training_tensors(child.adapter_path, "lora/", &started_count);
    assert_int_equal(count, started_count);
    for (size_t i = 0; i < count; i++)
        moved = fmax(moved, fabs((double)after[i] - (double)before[i]));
    /* Adam's steps are at most about the rate while its moments are fresh: two were made. */
    assert_true(moved > 1e-4 && moved < 2.1 * 3e-3);
    free(before);
    free(after);
    training_release(&child);
    training_release(&parent);
    backend_close(be);
}

static void stop_after_first(struct training *training, const struct train_step *step)
{
    if (step->step == 1)
        atomic_store(&training->stop, true);
}

static void it_stops_and_goes_on_to_the_same_bytes(void **state)
{
    (void)state;
    struct backend *be = training_backend(BACKEND_CPU);

    init_small(&parent, NULL);
    training_run(&parent, be);
    init_small(&whole, parent.adapter_path);
    training_run(&whole, be);
    init_small(&child, parent.adapter_path);
    child.keep = true;
    child.after_step = stop_after_first;
    training_run(&child, be);
    assert_int_equal(child.result.end, TRAIN_STOPPED);
    assert_int_equal(child.result.steps, 1);
    atomic_store(&child.stop, false);
    training_run(&child, be);
    assert_int_equal(child.plan.first_step, 1);
    assert_true(training_same_bytes(child.adapter_path, whole.adapter_path));
    training_release(&child);
    training_release(&whole);
    training_release(&parent);
    backend_close(be);
}

static void an_adapter_that_does_not_fit_the_job_is_refused(void **state)
{
    (void)state;
    struct backend *be = training_backend(BACKEND_CPU);
    struct error err = {0};
    size_t rank = 0;
    double alpha = 0;

    init_small(&parent, NULL);
    parent.job.hyper.n_epochs = 1;
    training_run(&parent, be);
    assert_true(model_inspect_adapter(parent.adapter_path, &rank, &alpha, &err));
    assert_int_equal(rank, 4);
    assert_true(alpha == 6.1);
    init_small(&child, parent.adapter_path);
    child.job.hyper.lora_rank = 8;
    assert_false(training_try(&child, be, &err));
    assert_non_null(strstr(err.message, "has rank 4"));
    child.job.hyper.lora_rank = 4;
    child.job.start_adapter_path = scratch_path(child.scratch, "gone.safetensors");
    assert_false(training_try(&child, be, &err));
    assert_string_equal(err.param, "model");
    assert_non_null(strstr(err.message, "gone.safetensors"));
    assert_false(model_inspect_adapter(GOLDEN_MINI "/base.safetensors", &rank, &alpha, &err));
    assert_non_null(strstr(err.message, "rank"));
    training_release(&child);
    training_release(&parent);
    backend_close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_begins_where_its_parent_ended),
        cmocka_unit_test(it_stops_and_goes_on_to_the_same_bytes),
        cmocka_unit_test(an_adapter_that_does_not_fit_the_job_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
