/*
 * Proves that a run may be stopped anywhere, at any op, and goes on to the very bytes and events of
 * an unbroken one; that cancelling, faults and short memory leave nothing behind; and that
 * thousands of steps take no more memory than the first.
 */
#include "daemon/base/file.h"
#include "tests/support/scratch.h"
#include "tests/support/training.h"
#include "tests/support/watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <math.h>
#include <unistd.h>

#define MINI FIXTURES "needle3/mini"
#define LINE_COUNT 17

static struct backend *be; /* watched */
static struct training unbroken, stopped;

static int open_device(void **state)
{
    (void)state;
    be = watch_open();
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    training_release(&unbroken);
    training_release(&stopped);
    watch_close(be);
    return 0;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/* Short lines: what is tested is the order of things. */
static void write_lines(const char *path, int first, int count)
{
    char text[64 * 96];
    int size = 0;

    for (int i = first; i < first + count; i++)
        size += snprintf(text + size, sizeof(text) - (size_t)size,
                         "{\"query\":\"%c%d\",\"tools\":[],\"answers\":[]}\n", 'a' + i % 26, i * i);
    scratch_write(path, text, (size_t)size);
}

/* 14 lines in two batches, 3 held out in one, two epochs: four steps. */
static void init_job(struct training *training)
{
    training_init(training, MINI, NULL);
    write_lines(training->data_path, 0, LINE_COUNT);
    training->job.training_path = training->data_path;
    training->job.hyper.n_epochs = 2;
    training->job.hyper.batch_size = 8;
    training->job.hyper.lora_rank = 2;
    training->job.hyper.lora_alpha = 4;
    training->job.hyper.learning_rate = 3e-3;
    training->job.hyper.max_len = 512;
    training->job.hyper.val_split = 0.2;
    training->keep = true;
}

/* The run without a stop, and the job that will have one. */
static void init_pair(void)
{
    init_job(&unbroken);
    training_run(&unbroken, be);
    init_job(&stopped);
}

static void check_events(void)
{
    const struct training *a = &unbroken, *b = &stopped;

    assert_int_equal(a->step_count, b->step_count);
    for (size_t i = 0; i < a->step_count; i++) {
        struct train_step x = a->steps[i], y = b->steps[i];

        x.tokens_per_second = y.tokens_per_second = 0;
        assert_int_equal(x.step, i + 1);
        assert_memory_equal(&x, &y, sizeof(x));
    }
    assert_int_equal(a->epoch_count, b->epoch_count);
    assert_int_equal(a->epoch_file_count, b->epoch_file_count);
    for (size_t i = 0; i < a->epoch_count; i++) {
        assert_int_equal(a->epochs[i].epoch, i + 1);
        assert_int_equal(a->epochs[i].step, b->epochs[i].step);
        assert_true(a->epochs[i].full_valid_loss == b->epochs[i].full_valid_loss);
        assert_true(a->epochs[i].full_valid_mean_token_accuracy ==
                    b->epochs[i].full_valid_mean_token_accuracy);
        assert_true(a->epochs[i].train_loss == b->epochs[i].train_loss);
        assert_int_equal(a->epochs[i].checkpoint_size_bytes, b->epochs[i].checkpoint_size_bytes);
    }
}

static void check_result(void)
{
    const struct training *a = &unbroken, *b = &stopped;
    char path_a[320], path_b[320];

    assert_int_equal(a->result.end, TRAIN_DONE);
    assert_int_equal(b->result.end, TRAIN_DONE);
    assert_true(training_same_bytes(a->adapter_path, b->adapter_path));
    snprintf(path_a, sizeof(path_a), "%s/epoch-2.safetensors", a->checkpoint_folder);
    snprintf(path_b, sizeof(path_b), "%s/epoch-2.safetensors", b->checkpoint_folder);
    assert_true(training_same_bytes(path_a, path_b));
    assert_int_equal(a->result.steps, b->result.steps);
    assert_int_equal(a->result.trained_tokens, b->result.trained_tokens);
    assert_true(a->result.final_loss == b->result.final_loss);
    assert_true(a->result.final_valid_loss == b->result.final_valid_loss);
}

static void check_as_unbroken(void)
{
    check_events();
    check_result();
}

/* Runs on, without another stop, until the job is done. */
static void run_on(void)
{
    watch_for(WATCH_FORWARD, 0, WATCH_STOP, NULL);
    atomic_store(&stopped.stop, false);
    stopped.after_step = NULL;
    stopped.after_epoch = NULL;
    stopped.after_checkpoint = NULL;
    training_run(&stopped, be);
}

static size_t count_resume_files(const struct training *training)
{
    DIR *folder = opendir(training->checkpoint_folder);
    size_t files = 0;

    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder));)
        files += strncmp(entry->d_name, "resume-", 7) == 0 && !strstr(entry->d_name, ".sha256");
    (void)closedir(folder);
    return files;
}

/* ---- stopping -------------------------------------------------------------------------------- */

static void a_stop_at_any_op_goes_on_to_the_same_bytes(void **state)
{
    (void)state;
    size_t counts[WATCH_COUNT], mid_step = 0, mid_validation = 0;

    init_job(&unbroken);
    training_run(&unbroken, be);
    memcpy(counts, watch.counts, sizeof(counts));
    assert_int_equal(unbroken.step_count, 4);
    assert_int_equal(unbroken.epoch_count, 2);
    assert_int_equal(unbroken.checkpoint_count, 0); /* the run was too short for one */
    assert_int_equal(counts[WATCH_STEPPED], 4);

    for (enum watch_op kind = WATCH_FORWARD; kind <= WATCH_STEPPED; kind++) {
        for (size_t at = 1; at <= counts[kind]; at++) {
            init_job(&stopped);
            watch_for(kind, at, WATCH_STOP, &stopped.stop);
            training_run(&stopped, be);
            if (stopped.result.end == TRAIN_STOPPED) {
                const size_t steps = stopped.step_count, epochs = stopped.epoch_count;

                assert_int_equal(stopped.keep_asked, 1);
                assert_int_equal(stopped.checkpoint_count, steps > 0);
                assert_int_equal(stopped.result.steps, steps);
                mid_validation += kind == WATCH_FORWARD && steps == 2 * (epochs + 1);
                mid_step += kind == WATCH_BACKWARD && steps == (at - 1) / 3; /* of three layers */
                run_on();
                assert_int_equal(stopped.plan.first_step, steps);
            }
            check_as_unbroken();
            assert_int_equal(stopped.warning_count, 0);
            training_release(&stopped);
        }
    }
    /* A stop in the last layer of a pass is seen after it. */
    assert_int_equal(mid_step, 4 * 2);
    assert_int_equal(mid_validation, 2 * 2);
}

static void stop_at_step(struct training *training, const struct train_step *step)
{
    (void)step;
    atomic_store(&training->stop, true);
}
static void stop_at_epoch(struct training *training, const struct train_epoch *epoch)
{
    (void)epoch;
    atomic_store(&training->stop, true);
}
static void stop_at_checkpoint(struct training *training, size_t step, const char *path)
{
    (void)step;
    (void)path;
    atomic_store(&training->stop, true);
}

static void a_stop_at_every_event_goes_on_to_the_same_bytes(void **state)
{
    (void)state;

    init_job(&unbroken);
    training_run(&unbroken, be);
    for (int with_checkpoints = 0; with_checkpoints < 2; with_checkpoints++) {
        size_t stops = 0;

        init_job(&stopped);
        stopped.job.checkpoint_interval_steps = with_checkpoints ? 1 : 0;
        stopped.after_step = stop_at_step;
        stopped.after_epoch = stop_at_epoch;
        stopped.after_checkpoint = stop_at_checkpoint;
        do {
            atomic_store(&stopped.stop, false);
            training_run(&stopped, be);
            stops += stopped.result.end == TRAIN_STOPPED;
            assert_true(stops < 20);
        } while (stopped.result.end == TRAIN_STOPPED);
        assert_int_equal(stops, 5); /* four steps and the first epoch; the second ends the run */
        check_as_unbroken();
        assert_true(count_resume_files(&stopped) <= 3);
        training_release(&stopped);
    }
}

static void a_stop_before_the_first_step_starts_anew(void **state)
{
    (void)state;

    init_pair();
    atomic_store(&stopped.stop, true);
    training_run(&stopped, be);
    assert_int_equal(stopped.result.end, TRAIN_STOPPED);
    assert_int_equal(stopped.step_count, 0);
    assert_int_equal(count_resume_files(&stopped), 0);
    assert_int_equal(stopped.plan_count, 0); /* the base was not even loaded */
    run_on();
    assert_int_equal(stopped.plan.first_step, 0);
    check_as_unbroken();
}

static void a_stop_before_it_goes_on_keeps_what_it_had(void **state)
{
    (void)state;

    init_pair();
    stopped.after_step = stop_at_step;
    training_run(&stopped, be);
    assert_int_equal(stopped.step_count, 1);
    training_run(&stopped, be); /* the flag is still up */
    assert_int_equal(stopped.result.end, TRAIN_STOPPED);
    assert_int_equal(stopped.step_count, 1);
    assert_int_equal(count_resume_files(&stopped), 1);
    run_on();
    assert_int_equal(stopped.plan.first_step, 1);
    check_as_unbroken();
}

static void cancelling_keeps_nothing_and_says_so(void **state)
{
    (void)state;

    init_job(&stopped);
    stopped.keep = false;
    watch_for(WATCH_BACKWARD, 5, WATCH_STOP, &stopped.stop);
    training_run(&stopped, be);
    assert_int_equal(stopped.result.end, TRAIN_CANCELLED);
    assert_int_equal(stopped.keep_asked, 1);
    assert_int_equal(stopped.step_count, 1);
    assert_int_equal(count_resume_files(&stopped), 0);
    assert_int_not_equal(access(stopped.adapter_path, F_OK), 0);
}

/* ---- going on after worse things ------------------------------------------------------------- */

/* The daemon died: only what a checkpoint said is there, and the steps after it are made again. */
static void a_run_that_broke_off_goes_on_from_its_last_checkpoint(void **state)
{
    (void)state;
    struct error err = {0};

    init_pair();
    stopped.job.checkpoint_interval_steps = 2;
    watch_for(WATCH_BACKWARD, 3 * 3 + 2, WATCH_FAULT, NULL); /* in the fourth step */
    assert_false(training_try(&stopped, be, &err));
    assert_int_equal(err.code, ERR_DEVICE);
    assert_non_null(strstr(err.message, "fell off"));
    assert_int_equal(stopped.step_count, 3);
    watch_close(be);

    be = watch_open();
    stopped.step_count = 2;
    stopped.epoch_count = 0; /* the checkpoint of step 2 was written before its epoch was told */
    stopped.epoch_file_count = 0;
    run_on();
    assert_int_equal(stopped.plan.first_step, 2);
    check_as_unbroken();
}

static size_t asked_first;
static void nothing_is_kept_yet(void *context)
{
    const struct training *training = context;

    asked_first++;
    assert_int_equal(count_resume_files(training), training->checkpoint_count);
    assert_int_equal(training->step_count, asked_first);
}

/* Else a run that goes on from it would never tell them. */
static void steps_are_safe_before_a_checkpoint_says_they_were_made(void **state)
{
    (void)state;

    asked_first = 0;
    init_job(&stopped);
    stopped.job.hyper.n_epochs = 1;
    stopped.job.checkpoint_interval_steps = 1;
    stopped.hooks.before_checkpoint = nothing_is_kept_yet;
    training_run(&stopped, be);
    assert_int_equal(asked_first, stopped.checkpoint_count);
    assert_true(asked_first > 0);
}

/* The gradient alone: a loss that is not finite is the trainer's test. */
static void a_gradient_that_is_not_finite_stops_the_job_before_the_weights(void **state)
{
    (void)state;
    struct error err = {0};

    init_pair();
    stopped.job.checkpoint_interval_steps = 1;
    watch_for(WATCH_SUMMED, 4, WATCH_SPOIL, NULL);
    assert_false(training_try(&stopped, be, &err));
    assert_int_equal(err.code, ERR_INVALID);
    assert_non_null(strstr(err.message, "step 4: the gradient's norm is not a finite number"));
    assert_int_equal(watch.counts[WATCH_STEPPED], 3);
    assert_int_equal(stopped.step_count, 3);

    run_on(); /* the last good checkpoint stayed, and is good */
    assert_int_equal(stopped.plan.first_step, 3);
    check_as_unbroken();
}

static void damage_last_byte(const char *path)
{
    const int descriptor = open(path, O_RDWR);
    unsigned char byte;

    assert_true(descriptor >= 0);
    const off_t last = lseek(descriptor, -1, SEEK_END);
    assert_int_equal(pread(descriptor, &byte, 1, last), 1);
    byte ^= 0x40;
    assert_int_equal(pwrite(descriptor, &byte, 1, last), 1);
    assert_int_equal(close(descriptor), 0);
}

static void stop_and_damage_third(struct training *training, size_t step, const char *path)
{
    if (step != 3)
        return;
    atomic_store(&training->stop, true);
    damage_last_byte(path);
}

static void a_damaged_checkpoint_gives_way_to_the_one_before_with_a_warning(void **state)
{
    (void)state;

    init_pair();
    stopped.job.checkpoint_interval_steps = 1;
    stopped.after_checkpoint = stop_and_damage_third;
    training_run(&stopped, be);
    assert_int_equal(stopped.step_count, 3);
    stopped.step_count = 2; /* the third step is made again */
    run_on();
    assert_int_equal(stopped.plan.first_step, 2);
    assert_int_equal(stopped.warning_count, 1);
    assert_non_null(strstr(stopped.last_warning, "step 3"));
    check_result();
}

static void another_jobs_checkpoints_are_not_taken(void **state)
{
    (void)state;

    init_job(&stopped);
    stopped.after_step = stop_at_step;
    training_run(&stopped, be);
    assert_int_equal(count_resume_files(&stopped), 1);
    stopped.job.hyper.seed = 7;
    stopped.step_count = 0;
    run_on();
    assert_int_equal(stopped.plan.first_step, 0);
    assert_int_equal(stopped.warning_count, 1);
    assert_int_equal(stopped.step_count, 4);
}

static void remove_folder(struct training *training, const struct train_step *step)
{
    if (step->step == 1)
        assert_int_equal(rmdir(training->checkpoint_folder), 0);
}

static void a_checkpoint_that_cannot_be_written_is_a_warning_not_the_end(void **state)
{
    (void)state;

    init_job(&stopped);
    stopped.job.hyper.n_epochs = 1;
    stopped.job.checkpoint_interval_steps = 1;
    stopped.after_step = remove_folder;
    training_run(&stopped, be);
    assert_int_equal(stopped.result.end, TRAIN_DONE);
    assert_int_equal(stopped.checkpoint_count, 0);
    assert_true(stopped.warning_count >= 1);
    assert_non_null(strstr(stopped.last_warning, "no resume checkpoint"));
}

static void every_failed_allocation_is_an_error_that_leaves_nothing(void **state)
{
    (void)state;

    init_job(&stopped);
    training_run(&stopped, be);
    const size_t total = watch.counts[WATCH_ALLOCATED];
    assert_true(total > 10);
    training_release(&stopped);
    for (size_t at = 1; at <= total; at++) {
        struct error err = {0};

        watch_close(be);
        be = watch_open();
        init_job(&stopped);
        watch_for(WATCH_ALLOCATED, at, WATCH_STOP, NULL);
        if (training_try(&stopped, be, &err)) /* which also checks what is still allocated */
            fail_msg("allocation %zu of %zu failed unseen", at, total);
        assert_int_equal(err.code, ERR_NO_MEMORY);
        assert_int_equal(stopped.step_count, 0); /* all is taken before the first step */
        training_release(&stopped);
    }
}

/* ---- validation ------------------------------------------------------------------------------ */

/* The loss after one epoch over the lines [first, first + count), as a validation file. */
static double valid_loss_of(int first, int count)
{
    char path[320];

    init_job(&stopped);
    snprintf(path, sizeof(path), "%s", scratch_path(stopped.scratch, "held.jsonl"));
    write_lines(path, first, count);
    stopped.job.validation_path = path;
    stopped.job.hyper.n_epochs = 1;
    training_run(&stopped, be);
    assert_int_equal(stopped.plan.validation_count, count);
    assert_int_equal(stopped.plan.example_count, LINE_COUNT);
    const double loss = stopped.epochs[0].full_valid_loss;
    assert_true(loss == stopped.result.final_valid_loss);
    training_release(&stopped);
    return loss;
}

static void a_short_last_batch_of_validation_weighs_as_much_as_a_full_one(void **state)
{
    (void)state;
    const double both = valid_loss_of(30, 11); /* batches of 8 and of 3 */
    const double full = valid_loss_of(30, 8), last = valid_loss_of(38, 3);

    assert_true(fabs(full - last) > 1e-3);
    assert_true(fabs(both - (full + last) / 2) < 1e-9);
}

/* ---- memory ---------------------------------------------------------------------------------- */

#ifdef __SANITIZE_ADDRESS__ /* keeps what was freed: there is nothing to measure */
#define LONG_STEPS 300
#else
#define LONG_STEPS 2000
#endif
#define KEPT_EVERY 100

static size_t resident_bytes(void)
{
    size_t size = 0;
    unsigned long long pages = 0;
    char *text = scratch_read("/proc/self/statm", &size);

    assert_int_equal(sscanf(text, "%*u %llu", &pages), 1);
    free(text);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

struct memory {
    size_t resident_early, resident_late; /* at steps 200 and LONG_STEPS */
    size_t heap_last,
        heap_changes; /* of the heap in use, between steps with nothing between them */
    size_t allocations_early, allocations_late; /* on the device */
};

static void measure(struct training *training, const struct train_step *step)
{
    struct memory *memory = training->context;
    const size_t in_use = mallinfo2().uordblks;

    if (step->step > 200 && step->step % LINE_COUNT > 1 && step->step % KEPT_EVERY != 1)
        memory->heap_changes += in_use != memory->heap_last;
    memory->heap_last = in_use;
    if (step->step == 200) {
        memory->resident_early = resident_bytes();
        memory->allocations_early = watch.counts[WATCH_ALLOCATED];
    }
    if (step->step == LONG_STEPS) {
        memory->resident_late = resident_bytes();
        memory->allocations_late = watch.counts[WATCH_ALLOCATED];
        atomic_store(&training->stop, true);
    }
}

static void thousands_of_steps_take_no_more_memory_than_the_first(void **state)
{
    (void)state;
    struct memory memory = {0};

    init_job(&stopped);
    stopped.keep = false;
    stopped.context = &memory;
    stopped.after_step = measure;
    stopped.job.hyper.n_epochs = LONG_STEPS / LINE_COUNT + 1;
    stopped.job.hyper.batch_size = 1;
    stopped.job.hyper.val_split = 0;
    stopped.job.checkpoint_interval_steps = KEPT_EVERY;
    training_run(&stopped, be);
    assert_int_equal(stopped.step_count, LONG_STEPS);
    print_message("memory in use: %zu bytes after step 200, %zu after step %d\n",
                  memory.resident_early, memory.resident_late, LONG_STEPS);
    assert_int_equal(memory.allocations_early, memory.allocations_late);
#ifndef __SANITIZE_ADDRESS__
    assert_int_equal(memory.heap_changes, 0);
    assert_true(memory.resident_late <= memory.resident_early + ((size_t)256 << 10));
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define WITH_DEVICE(name) cmocka_unit_test_setup_teardown(name, open_device, close_device)
        WITH_DEVICE(a_stop_at_any_op_goes_on_to_the_same_bytes),
        WITH_DEVICE(a_stop_at_every_event_goes_on_to_the_same_bytes),
        WITH_DEVICE(a_stop_before_the_first_step_starts_anew),
        WITH_DEVICE(a_stop_before_it_goes_on_keeps_what_it_had),
        WITH_DEVICE(cancelling_keeps_nothing_and_says_so),
        WITH_DEVICE(a_run_that_broke_off_goes_on_from_its_last_checkpoint),
        WITH_DEVICE(steps_are_safe_before_a_checkpoint_says_they_were_made),
        WITH_DEVICE(a_gradient_that_is_not_finite_stops_the_job_before_the_weights),
        WITH_DEVICE(a_damaged_checkpoint_gives_way_to_the_one_before_with_a_warning),
        WITH_DEVICE(another_jobs_checkpoints_are_not_taken),
        WITH_DEVICE(a_checkpoint_that_cannot_be_written_is_a_warning_not_the_end),
        WITH_DEVICE(every_failed_allocation_is_an_error_that_leaves_nothing),
        WITH_DEVICE(a_short_last_batch_of_validation_weighs_as_much_as_a_full_one),
        WITH_DEVICE(thousands_of_steps_take_no_more_memory_than_the_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
