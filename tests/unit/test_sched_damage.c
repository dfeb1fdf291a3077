/* Proves: what a job reads is compared with its record when the job begins and when it goes on, and what has
 * become something else ends the job by name: nothing is trained on it, and nothing begins anew. Nothing is
 * written or removed through a link in the place of a folder, and nothing waits for a pipe in that of a file. */
#include "daemon/base/clock.h"
#include "daemon/sched/place.h"
#include "daemon/sched/strays.h"
#include "store/models.h"
#include "tests/support/bench.h"
#include "tests/support/scratch.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINES 16

static int set_up(void **state)
{
    *state = bench_new();
    return 0;
}

static int tear_down(void **state)
{
    bench_free(*state);
    return 0;
}

/* One bit, as a disk loses it: size and times tell nothing. */
static void flip(const char *folder, const char *name, long from_end)
{
    char path[1024];
    size_t size;
    char *bytes;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    bytes = scratch_read(path, &size);
    bytes[(long)size - from_end] ^= 1;
    scratch_write(path, bytes, size);
    free(bytes);
}

static void flip_upload(struct bench *bench, const char *file)
{
    char name[128];

    (void)snprintf(name, sizeof(name), "uploads/%s", file);
    flip(bench->state, name, 20);
}

static void expect_failure(struct bench *bench, const char *id, const char *code, const char *words)
{
    struct job_record job;

    bench_wait(bench, id, JOB_FAILED);
    bench_get(bench, id, &job);
    if (strcmp(job.error_code, code) != 0 || !strstr(job.error_message, words) ||
        strstr(job.error_message, bench->state))
        fail_msg("%s: %s", job.error_code, job.error_message);
    job_record_release(&job);
}

static void an_upload_that_rotted_is_not_trained_on(void **state)
{
    struct bench *bench = *state;
    char id[STORE_ID_SIZE], file[STORE_ID_SIZE], words[128];
    struct error err = {0};

    (void)snprintf(file, sizeof(file), "%s", bench_upload_lines(bench, LINES));
    flip_upload(bench, file);
    (void)snprintf(words, sizeof(words), "'uploads/%s' is not what was uploaded", file);
    bench_submit_small(bench, file, "'n_epochs':1", id);
    expect_failure(bench, id, "corrupt", words);
    assert_true(bench_submit(bench, id, &err,
                             "{'model':'needle-3','training_file':'%s','validation_file':'%s'}",
                             bench_upload_lines(bench, 4), file));
    expect_failure(bench, id, "corrupt", words);
    assert_int_equal(bench_count_events(bench, id, "metrics", ""), 0);
}

/* A job with a resume checkpoint, of a daemon that is stopped. */
static void begin_and_stop(struct bench *bench, const char *file, char ret_id[STORE_ID_SIZE])
{
    struct job_record job;

    hold_steps(4);
    bench_submit_small(bench, file, "'n_epochs':4,'batch_size':4", ret_id);
    bench_wait_event(bench, ret_id, "metrics", bench_wait_event(bench, ret_id, "metrics", 0));
    bench_stop(bench);
    bench_get(bench, ret_id, &job);
    assert_int_equal(job.state, JOB_QUEUED);
    job_record_release(&job);
    hold_let_go();
}

static void a_job_does_not_go_on_with_an_upload_that_rotted(void **state)
{
    struct bench *bench = *state;
    char id[STORE_ID_SIZE], file[STORE_ID_SIZE], words[128];

    (void)snprintf(file, sizeof(file), "%s", bench_upload_lines(bench, LINES));
    begin_and_stop(bench, file, id);
    flip_upload(bench, file);
    (void)snprintf(words, sizeof(words), "'uploads/%s' is not what was uploaded", file);
    bench_start(bench);
    expect_failure(bench, id, "corrupt", words);
    assert_int_equal(bench_count_events(bench, id, NULL, "Training "), 1); /* never begun anew */
}

static void a_job_does_not_go_on_with_another_base(void **state)
{
    struct bench *bench = *state;
    char id[STORE_ID_SIZE];

    begin_and_stop(bench, bench_upload_lines(bench, LINES), id);
    flip(bench->models, "needle-3/base.safetensors", 100);
    bench_start(bench);
    expect_failure(bench, id, "input_changed", "the base model has changed since the job began");
    assert_int_equal(bench_count_events(bench, id, NULL, "Training "), 1);
}

static void an_adapter_that_rotted_is_not_gone_on_from(void **state)
{
    struct bench *bench = *state;
    struct job_record job;
    struct model_record model;
    char id[STORE_ID_SIZE], file[STORE_ID_SIZE], name[300];
    struct error err = {0};

    (void)snprintf(file, sizeof(file), "%s", bench_upload_lines(bench, LINES));
    bench_submit_small(bench, file, "'n_epochs':1", id);
    bench_wait(bench, id, JOB_SUCCEEDED);
    bench_get(bench, id, &job);
    assert_true(models_get(bench->store, job.fine_tuned_model, &model, &err));
    (void)snprintf(name, sizeof(name), "artifacts/%s", model.artifact);
    flip(bench->state, name, 10);
    if (!bench_submit(bench, id, &err, "{'model':'%s','training_file':'%s'}", job.fine_tuned_model,
                      file))
        fail_msg("%s", err.message);
    job_record_release(&job);
    expect_failure(bench, id, "corrupt", "the adapter to go on from, is not what was trained");
    assert_int_equal(bench_count_events(bench, id, "metrics", ""), 0);
}

/* ---- links in the place of folders --------------------------------------------------------------------- */

static size_t count_files(const char *folder)
{
    DIR *opened = opendir(folder);
    size_t count = 0;

    assert_non_null(opened);
    for (const struct dirent *entry; (entry = readdir(opened)) != NULL;)
        count += entry->d_name[0] != '.';
    (void)closedir(opened);
    return count;
}

static void a_job_leaves_alone_what_a_link_in_its_folders_place_leads_to(void **state)
{
    struct bench *bench = *state;
    char id[STORE_ID_SIZE], name[STORE_ID_SIZE + 16];
    const char *elsewhere = scratch_path(bench->scratch, "elsewhere"), *folder;
    size_t count;

    begin_and_stop(bench, bench_upload_lines(bench, LINES), id);
    (void)snprintf(name, sizeof(name), "checkpoints/%s", id);
    folder = scratch_path(bench->state, name);
    assert_int_equal(rename(folder, elsewhere), 0);
    assert_int_equal(symlink(elsewhere, folder), 0);
    count = count_files(elsewhere);
    assert_true(count > 0);
    bench_start(bench);
    expect_failure(bench, id, "corrupt", "is a symbolic link, which is not followed");
    bench_stop(bench);
    assert_int_equal(count_files(elsewhere), count);
}

static void strays_are_neither_put_nor_swept_through_a_link(void **state)
{
    struct bench *bench = *state;
    const char *strays = scratch_path(bench->state, STRAYS_FOLDER),
               *elsewhere = scratch_path(bench->scratch, "elsewhere"),
               *stray = scratch_path(bench->state, "artifacts/stray"),
               *photo = scratch_path(bench->scratch, "elsewhere/photo");
    const int64_t later_unix_s = clock_unix_s() + STRAYS_KEPT_S + 60;

    assert_int_equal(mkdir(elsewhere, 0700), 0);
    scratch_write(photo, "mine", 4);
    scratch_write(stray, "ours", 4);
    assert_int_equal(symlink(elsewhere, strays), 0);
    strays_sweep(bench->state, later_unix_s);
    assert_int_equal(access(photo, F_OK), 0);
    assert_false(strays_put(bench->state, stray, "artifacts/stray"));
    assert_int_equal(count_files(elsewhere), 1);

    assert_int_equal(unlink(strays), 0);
    assert_true(strays_put(bench->state, stray, "artifacts/stray"));
    assert_int_equal(count_files(strays), 1);
    strays_sweep(bench->state, later_unix_s);
    assert_int_equal(count_files(strays), 0);
}

/* ---- pipes in the place of files ----------------------------------------------------------------------- */

static void make_pipe(const char *path)
{
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
}

/* In the place of each file that begins and ends so. */
static size_t make_pipes(const char *folder, const char *begin, const char *end)
{
    DIR *opened = opendir(folder);
    size_t count = 0;

    assert_non_null(opened);
    for (const struct dirent *entry; (entry = readdir(opened)) != NULL;) {
        const size_t size = strlen(entry->d_name);

        if (strncmp(entry->d_name, begin, strlen(begin)) != 0 || size < strlen(end) ||
            strcmp(entry->d_name + size - strlen(end), end) != 0)
            continue;
        make_pipe(scratch_path(folder, entry->d_name));
        count++;
    }
    (void)closedir(opened);
    return count;
}

static void a_job_does_not_wait_for_pipes_in_its_files_places(void **state)
{
    struct bench *bench = *state;
    char id[STORE_ID_SIZE], name[STORE_ID_SIZE + 16];
    const char *folder;
    int64_t step = 0;

    begin_and_stop(bench, bench_upload_lines(bench, LINES), id);
    (void)snprintf(name, sizeof(name), "checkpoints/%s", id);
    folder = scratch_path(bench->state, name);
    make_pipe(scratch_path(folder, "resume-place"));
    assert_true(make_pipes(folder, "resume-", ".safetensors") > 0);
    assert_false(place_read(folder, 1, &step));
    bench_start(bench);
    bench_wait(bench, id, JOB_SUCCEEDED);
    assert_true(bench_count_events(bench, id, NULL, "is passed over: ") > 0);
    assert_true(bench_count_events(bench, id, NULL, "not a regular file") > 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_upload_that_rotted_is_not_trained_on),
        TEST(a_job_does_not_go_on_with_an_upload_that_rotted),
        TEST(a_job_does_not_go_on_with_another_base),
        TEST(an_adapter_that_rotted_is_not_gone_on_from),
        TEST(a_job_leaves_alone_what_a_link_in_its_folders_place_leads_to),
        TEST(strays_are_neither_put_nor_swept_through_a_link),
        TEST(a_job_does_not_wait_for_pipes_in_its_files_places),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
