/*
 * Proves what retention takes away and what it never does.
 */
#include "store/retention.h"

#include "store/files.h"
#include "store/jobs.h"
#include "store/models.h"
#include "store/sql.h"
#include "tests/support/scratch.h"
#include "tests/support/test.h"

#include <math.h>

#define NOW 1000000

struct fixture {
    char *folder;
    struct store *store;
};

static struct error fault;

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    assert_non_null(fixture);
    fixture->folder = scratch_new();
    assert_true(
        store_open(scratch_path(fixture->folder, "needled.db"), true, &fixture->store, &fault));
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    store_close(fixture->store);
    scratch_free(fixture->folder);
    free(fixture);
    return 0;
}

static void add_file(struct store *store, const char *id, int64_t created_unix_s, int64_t bytes)
{
    struct file_record file = {
        .purpose = "fine-tune", .size_bytes = bytes, .created_unix_s = created_unix_s};

    (void)snprintf(file.id, sizeof(file.id), "%s", id);
    assert_true(files_insert_within(store, &file, "{}", 0, &fault));
}

static void add_model(struct store *store, const char *id, const char *artifact, int64_t step,
                      double valid_loss)
{
    struct model_record model = {
        .created_unix_s = step + 1, .step = step, .valid_loss = valid_loss, .size_bytes = 100};

    (void)snprintf(model.id, sizeof(model.id), "%s", id);
    (void)snprintf(model.artifact, sizeof(model.artifact), "%s", artifact);
    (void)snprintf(model.job_id, sizeof(model.job_id), "ftjob-a");
    assert_true(models_insert(store, &model, &fault));
}

/* A job as the database has it: states are changed behind the scheduler's back. */
static void add_job(struct store *store, const char *id, const char *file, const char *parent,
                    const char *state, int64_t finished_unix_s)
{
    const struct event_draft event = {.type = "state", .message = "made"};
    struct job_record job = {.created_unix_s = 1, .last_train_loss = (double)NAN};
    char text[256];

    (void)snprintf(job.id, sizeof(job.id), "%s", id);
    (void)snprintf(job.training_file, sizeof(job.training_file), "%s", file);
    (void)snprintf(job.parent_model, sizeof(job.parent_model), "%s", parent);
    assert_true(jobs_insert(store, &job, &event, &fault));
    (void)snprintf(text, sizeof(text),
                   "UPDATE jobs SET state = '%s', finished_unix_s = %lld"
                   " WHERE id = '%s'",
                   state, (long long)finished_unix_s, id);
    assert_int_equal(sqlite3_exec(store->db, text, NULL, NULL, NULL), SQLITE_OK);
}

/* All that is taken, each with a space after it. */
static const char *taken(struct store *store, const struct retention_limits *limits)
{
    static char ids[512];
    struct retention_victim victim;
    bool found = true;

    ids[0] = '\0';
    while (found) {
        assert_true(retention_take(store, limits, NOW, &victim, &found, &fault));
        if (found)
            (void)snprintf(ids + strlen(ids), sizeof(ids) - strlen(ids), "%s ", victim.id);
    }
    return ids;
}

static void without_limits_nothing_is_taken(void **state)
{
    struct fixture *fixture = *state;

    add_file(fixture->store, "file-a", 1, 1000000);
    add_model(fixture->store, "m", "ftjob-a.safetensors", 0, (double)NAN);
    assert_string_equal(taken(fixture->store, &(struct retention_limits){0}), "");
}

static void old_uploads_go_but_not_what_a_job_needs_or_needed_lately(void **state)
{
    struct fixture *fixture = *state;
    struct store *store = fixture->store;
    const struct retention_limits limits = {.upload_age_s = 1000};

    add_file(store, "file-old", 10, 1);
    add_file(store, "file-queued", 11, 1);
    add_file(store, "file-paused", 12, 1);
    add_file(store, "file-lately", 13, 1);
    add_file(store, "file-longago", 14, 1);
    add_file(store, "file-new", NOW - 999, 1);
    add_job(store, "ftjob-1", "file-queued", "", "queued", 0);
    add_job(store, "ftjob-2", "file-paused", "", "paused", 0);
    add_job(store, "ftjob-3", "file-lately", "", "succeeded", NOW - 5);
    add_job(store, "ftjob-4", "file-longago", "", "failed", NOW - 5000);
    assert_string_equal(taken(store, &limits), "file-old file-longago ");
}

static void too_many_bytes_take_the_oldest_uploads(void **state)
{
    struct fixture *fixture = *state;
    struct store *store = fixture->store;
    const struct retention_limits limits = {.upload_bytes = 250};

    for (int i = 0; i < 5; i++) {
        char id[16];

        (void)snprintf(id, sizeof(id), "file-%d", i);
        add_file(store, id, 10 + i, 100);
    }
    add_job(store, "ftjob-1", "file-0", "", "running", 0);
    assert_string_equal(taken(store, &limits), "file-1 file-2 file-3 ");
}

static void of_many_epochs_the_newest_and_the_best_stay(void **state)
{
    struct fixture *fixture = *state;
    struct store *store = fixture->store;
    const struct retention_limits limits = {.checkpoints_per_job = 2};

    add_model(store, "e1", "checkpoints/ftjob-a/epoch-1.safetensors", 1, 3.0);
    add_model(store, "e2", "checkpoints/ftjob-a/epoch-2.safetensors", 2, 1.0); /* the best */
    add_model(store, "e3", "checkpoints/ftjob-a/epoch-3.safetensors", 3, 1.5);
    add_model(store, "e4", "checkpoints/ftjob-a/epoch-4.safetensors", 4, 1.6);
    add_model(store, "e5", "checkpoints/ftjob-a/epoch-5.safetensors", 5, 1.7);
    add_model(store, "e6", "ftjob-a.safetensors", 6, 1.8); /* the final model's own file */
    add_model(store, "m", "ftjob-a.safetensors", 0, 1.8);
    add_file(store, "f", 1, 1);
    add_job(store, "ftjob-1", "f", "e3", "queued", 0);
    assert_string_equal(taken(store, &limits), "e1 ");
}

static void models_go_by_age_and_bytes_but_not_from_under_a_job(void **state)
{
    struct fixture *fixture = *state;
    struct store *store = fixture->store;

    add_model(store, "a", "a.safetensors", 0, (double)NAN);
    add_model(store, "b", "b.safetensors", 1, (double)NAN);
    add_model(store, "c", "c.safetensors", 2, (double)NAN);
    add_file(store, "f", 1, 1);
    add_job(store, "ftjob-1", "f", "a", "validating_files", 0);
    assert_string_equal(taken(store, &(struct retention_limits){.model_bytes = 200}), "b ");
    assert_string_equal(taken(store, &(struct retention_limits){.model_age_s = 100}), "c ");
}

static void what_was_taken_is_remembered_with_its_reason(void **state)
{
    struct fixture *fixture = *state;
    struct store *store = fixture->store;
    struct error err = {0};

    add_file(store, "file-old", 10, 1);
    assert_string_equal(taken(store, &(struct retention_limits){.upload_age_s = 86400}),
                        "file-old ");
    (void)error_set(&err, ERR_NOT_FOUND, "no file 'file-old'");
    retention_explain(store, "file-old", &err);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_string_equal(err.word, "gone");
    assert_string_equal(err.message, "'file-old' was removed at 1970-01-12T13:46:40Z: uploads are "
                                     "kept for 86400 s after their last use");
    (void)error_set(&err, ERR_NOT_FOUND, "no file 'file-x'");
    retention_explain(store, "file-x", &err);
    assert_string_equal(err.message, "no file 'file-x'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_limits_nothing_is_taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(old_uploads_go_but_not_what_a_job_needs_or_needed_lately,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(too_many_bytes_take_the_oldest_uploads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(of_many_epochs_the_newest_and_the_best_stay, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(models_go_by_age_and_bytes_but_not_from_under_a_job, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_was_taken_is_remembered_with_its_reason, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
