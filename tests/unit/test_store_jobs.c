/* Proves: the table of states is what the design says, a change and its events are one, a job is
 * claimed exactly once, events count by one, and pages of every list add up to the whole. */
#include "store/checkpoints.h"
#include "store/files.h"
#include "store/jobs.h"
#include "store/models.h"
#include "tests/support/database.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

static struct job_record job_draft(const char *id, int64_t created_unix_s)
{
    static char hyper[] = "{\"n_epochs\":3}";
    struct job_record job = {.base_model = "needle-3",
                             .seed = 7,
                             .device_wanted = "auto",
                             .numerics = "w4a8",
                             .hyperparameters_json = hyper,
                             .created_unix_s = created_unix_s};

    (void)snprintf(job.id, sizeof(job.id), "%s", id);
    return job;
}

static void insert_job(struct store *store, const char *id, int64_t created_unix_s)
{
    const struct job_record job = job_draft(id, created_unix_s);
    const struct event_draft event = {.type = "message", .message = "created"};

    CHECK(jobs_insert(store, &job, &event, &fault));
}

static enum job_state state_of(struct store *store, const char *id)
{
    struct job_record job = {0};

    CHECK(jobs_get(store, id, &job, &fault));
    job_record_release(&job);
    return job.state;
}

/* The shortest way from validating_files to each state. */
static void bring_to(struct store *store, const char *id, enum job_state wanted)
{
    static const struct {
        size_t count;
        enum job_state steps[3];
    } ways[JOB_STATE_COUNT] = {
        [JOB_QUEUED] = {1, {JOB_QUEUED}},
        [JOB_RUNNING] = {2, {JOB_QUEUED, JOB_RUNNING}},
        [JOB_PAUSED] = {2, {JOB_QUEUED, JOB_PAUSED}},
        [JOB_SUCCEEDED] = {3, {JOB_QUEUED, JOB_RUNNING, JOB_SUCCEEDED}},
        [JOB_FAILED] = {1, {JOB_FAILED}},
        [JOB_CANCELLED] = {1, {JOB_CANCELLED}},
    };
    enum job_state from = JOB_VALIDATING_FILES;

    for (size_t i = 0; i < ways[wanted].count; i++) {
        CHECK(jobs_move(store, id, from, ways[wanted].steps[i], NULL, NULL, 0, &fault));
        from = ways[wanted].steps[i];
    }
}

static void every_pair_of_states_moves_or_is_refused_by_the_table(void **state)
{
    struct database *database = *state;
    /* rows from, columns to: validating queued running paused succeeded failed cancelled */
    static const char *const table[JOB_STATE_COUNT] = {
        [JOB_VALIDATING_FILES] = "-q---fc", [JOB_QUEUED] = "--rp-fc",    [JOB_RUNNING] = "-q-psfc",
        [JOB_PAUSED] = "-q----c",           [JOB_SUCCEEDED] = "-------", [JOB_FAILED] = "-------",
        [JOB_CANCELLED] = "-------",
    };

    for (int from = 0; from < JOB_STATE_COUNT; from++) {
        for (int to = 0; to < JOB_STATE_COUNT; to++) {
            bool wanted = table[from][to] != '-';
            struct event_draft event = {.type = "state", .message = "moved"};
            struct event_record *events = NULL;
            struct error err = {0};
            size_t count = 0;
            char id[32];
            bool moved;

            (void)snprintf(id, sizeof(id), "ftjob-%d-%d", from, to);
            insert_job(database->store, id, 1);
            bring_to(database->store, id, (enum job_state)from);
            moved = jobs_move(database->store, id, (enum job_state)from, (enum job_state)to, NULL,
                              &event, 1, &err);
            if (moved != wanted ||
                job_state_may_become((enum job_state)from, (enum job_state)to) != wanted)
                fail_msg("%s to %s: moved %d", job_state_name((enum job_state)from),
                         job_state_name((enum job_state)to), moved);
            assert_int_equal(state_of(database->store, id), wanted ? to : from);
            if (!wanted)
                assert_int_equal(err.code, ERR_CONFLICT);
            CHECK(events_since(database->store, id, 0, 10, &events, &count, &fault));
            assert_int_equal(count, wanted ? 2 : 1);
            events_free(events, count);
        }
    }
}

static void a_state_that_came_too_late_is_a_conflict_and_changes_nothing(void **state)
{
    struct database *database = *state;
    struct event_draft event = {.type = "state", .message = "moved"};
    struct error err = {0};
    struct job_record job = {0};
    enum job_state named;

    insert_job(database->store, "ftjob-1", 1);
    bring_to(database->store, "ftjob-1", JOB_CANCELLED);
    assert_false(jobs_move(database->store, "ftjob-1", JOB_VALIDATING_FILES, JOB_QUEUED, NULL,
                           &event, 1, &err));
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_non_null(strstr(err.message, "cancelled"));
    assert_false(jobs_update(database->store, "ftjob-1", &JOB_CHANGE_NONE, &event, 1, &err));
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_false(events_append(database->store, "ftjob-1", &event, 1, 3, 4, 0.5, &err));
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_false(
        jobs_move(database->store, "ftjob-2", JOB_QUEUED, JOB_RUNNING, NULL, NULL, 0, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    CHECK(jobs_get(database->store, "ftjob-1", &job, &fault));
    assert_true(job.finished_unix_s > 0);
    assert_int_equal(job.completed_steps, 0);
    job_record_release(&job);
    assert_false(job_state_from_name("pausing", &named));
}

static void a_change_reaches_every_column_and_leaves_the_others(void **state)
{
    struct database *database = *state;
    struct job_change change = JOB_CHANGE_NONE;
    struct job_record job = {0};
    struct model_record models[] = {
        {.id = "ft:needle-3:local::x", .job_id = "ftjob-1", .valid_loss = NAN, .step = 0},
        {.id = "ft:needle-3:local::x:ckpt-step-5",
         .job_id = "ftjob-1",
         .valid_loss = 1.5,
         .step = 5},
    };
    struct checkpoint_record checkpoint = {
        .id = "ftckpt_1", .job_id = "ftjob-1", .step = 5, .valid_loss = NAN};
    struct store_page page = {.after = "", .limit = 10};
    struct checkpoint_record *checkpoints = NULL;
    struct model_record model;
    size_t count = 0;
    bool more = true;

    insert_job(database->store, "ftjob-1", 1);
    CHECK(jobs_get(database->store, "ftjob-1", &job, &fault));
    assert_true(isnan(job.last_train_loss));
    assert_string_equal(job.hyperparameters_json, "{\"n_epochs\":3}");
    assert_null(job.plan_json);
    job_record_release(&job);
    bring_to(database->store, "ftjob-1", JOB_RUNNING);
    change.device_used = "cpu:0";
    change.state_reason = "why";
    change.error_code = "code";
    change.error_param = "param";
    change.error_message = "message";
    change.error_lines_json = "[]";
    change.plan_json = "{}";
    change.warnings_json = "[1]";
    change.total_steps = 9;
    change.completed_steps = 5;
    change.trained_tokens = 77;
    change.device_fault = true;
    change.fine_tuned_model = models[0].id;
    change.models = models;
    change.model_count = 2;
    change.checkpoint = &checkpoint;
    CHECK(jobs_update(database->store, "ftjob-1", &change, NULL, 0, &fault));
    CHECK(jobs_move(database->store, "ftjob-1", JOB_RUNNING, JOB_SUCCEEDED, NULL, NULL, 0, &fault));
    CHECK(jobs_get(database->store, "ftjob-1", &job, &fault));
    assert_string_equal(job.device_used, "cpu:0");
    assert_string_equal(job.state_reason, "why");
    assert_string_equal(job.error_code, "code");
    assert_string_equal(job.error_param, "param");
    assert_string_equal(job.error_message, "message");
    assert_string_equal(job.error_lines_json, "[]");
    assert_string_equal(job.plan_json, "{}");
    assert_string_equal(job.warnings_json, "[1]");
    assert_string_equal(job.hyperparameters_json, "{\"n_epochs\":3}");
    assert_string_equal(job.fine_tuned_model, models[0].id);
    assert_int_equal(job.total_steps, 9);
    assert_int_equal(job.completed_steps, 5);
    assert_int_equal(job.trained_tokens, 77);
    assert_int_equal(job.seed, 7);
    assert_int_equal(job.attempt_count, 1);
    assert_int_equal(job.fault_count, 1);
    assert_true(job.started_unix_s > 0 && job.finished_unix_s >= job.started_unix_s);
    job_record_release(&job);
    CHECK(models_get(database->store, models[1].id, &model, &fault));
    assert_true(model.valid_loss == 1.5 && model.step == 5);
    CHECK(checkpoints_list(database->store, "ftjob-1", &page, &checkpoints, &count, &more, &fault));
    assert_int_equal(count, 1);
    assert_false(more);
    assert_true(isnan(checkpoints[0].valid_loss));
    free(checkpoints);
}

static void a_change_that_fails_late_is_undone_whole(void **state)
{
    struct database *database = *state;
    struct event_draft broken = {.type = "state", .message = NULL};
    struct job_change change = JOB_CHANGE_NONE;
    struct model_record model = {.id = "ft:a", .job_id = "ftjob-1"}, found;
    struct error err = {0};

    insert_job(database->store, "ftjob-1", 1);
    bring_to(database->store, "ftjob-1", JOB_RUNNING);
    change.models = &model;
    change.model_count = 1;
    assert_false(jobs_move(database->store, "ftjob-1", JOB_RUNNING, JOB_SUCCEEDED, &change, &broken,
                           1, &err));
    assert_int_equal(state_of(database->store, "ftjob-1"), JOB_RUNNING);
    assert_false(models_get(database->store, "ft:a", &found, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void events_count_by_one_and_carry_the_progress(void **state)
{
    struct database *database = *state;
    struct event_draft drafts[] = {
        {.level = EVENT_WARN, .type = "metrics", .message = "a", .data_json = "{\"step\":1}"},
        {.level = EVENT_INFO, .type = "metrics", .message = "b", .created_unix_s = 99},
    };
    const struct events_filter of_job = {"ftjob-1", ""}, of_states = {"ftjob-1", ",done,message,"};
    struct store_page page = {.after = "", .limit = 2};
    struct event_record *events = NULL;
    struct error err = {0};
    size_t count = 0;
    int64_t number = 0;
    bool more = false;
    char id[32];
    struct job_record job = {0};

    insert_job(database->store, "ftjob-1", 1);
    insert_job(database->store, "ftjob-2", 1);
    CHECK(events_append(database->store, "ftjob-1", drafts, 2, 2, 30, 1.25, &fault));
    CHECK(events_append(database->store, "ftjob-2", drafts, 1, -1, 0, 0, &fault));
    CHECK(events_append(database->store, "ftjob-1", drafts, 1, -1, 0, 0, &fault));
    CHECK(jobs_get(database->store, "ftjob-1", &job, &fault));
    assert_true(job.completed_steps == 2 && job.trained_tokens == 30);
    assert_true(job.last_train_loss == 1.25);
    job_record_release(&job);
    CHECK(events_since(database->store, "ftjob-1", 1, 100, &events, &count, &fault));
    assert_int_equal(count, 3);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(events[i].number, i + 2);
    assert_string_equal(events[0].data_json, "{\"step\":1}");
    assert_int_equal(events[0].level, EVENT_WARN);
    assert_null(events[1].data_json);
    assert_int_equal(events[1].created_unix_s, 99);
    (void)snprintf(id, sizeof(id), "ftevent-%lld", (long long)events[1].row);
    events_free(events, count);
    CHECK(events_resolve(database->store, "ftjob-1", id, &number, &fault));
    assert_int_equal(number, 3);
    CHECK(events_resolve(database->store, "ftjob-1", "17", &number, &fault));
    assert_int_equal(number, 17);
    assert_false(events_resolve(database->store, "ftjob-2", id, &number, &err));
    assert_string_equal(err.param, "after");
    assert_false(events_resolve(database->store, "ftjob-1", "evt", &number, &err));
    assert_int_equal(err.code, ERR_INVALID);

    page.after = id;
    CHECK(events_list(database->store, &of_job, &page, &events, &count, &more, &fault));
    assert_int_equal(count, 2);
    assert_int_equal(events[0].number, 2); /* newest first, older than the one named */
    assert_false(more);
    events_free(events, count);
    CHECK(events_list(database->store, &of_states, &page, &events, &count, &more, &fault));
    assert_int_equal(count, 1);
    assert_int_equal(events[0].number, 1);
    events_free(events, count);
}

#define CLAIMERS 4
#define CLAIMED_JOBS 25

struct claimer {
    const char *path;
    atomic_int *taken; /* [CLAIMED_JOBS] */
};

static void *claim_all(void *context)
{
    struct claimer *claimer = context;
    struct store *store = NULL;
    struct error err = {0};

    if (!store_open(claimer->path, false, &store, &err))
        return (void *)1;
    for (int i = 0; i < CLAIMED_JOBS; i++) {
        char id[32];

        (void)snprintf(id, sizeof(id), "ftjob-%d", i);
        if (jobs_move(store, id, JOB_QUEUED, JOB_RUNNING, NULL, NULL, 0, &err))
            atomic_fetch_add(&claimer->taken[i], 1);
        else if (err.code != ERR_CONFLICT)
            return (void *)2;
    }
    store_close(store);
    return NULL;
}

static void a_job_is_claimed_by_exactly_one_of_several_threads(void **state)
{
    struct database *database = *state;
    static atomic_int taken[CLAIMED_JOBS];
    struct claimer claimer = {database->path, taken};
    pthread_t threads[CLAIMERS];

    for (int i = 0; i < CLAIMED_JOBS; i++) {
        char id[32];

        (void)snprintf(id, sizeof(id), "ftjob-%d", i);
        insert_job(database->store, id, 1);
        bring_to(database->store, id, JOB_QUEUED);
    }
    for (int i = 0; i < CLAIMERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, claim_all, &claimer), 0);
    for (int i = 0; i < CLAIMERS; i++) {
        void *result = NULL;

        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
    }
    for (int i = 0; i < CLAIMED_JOBS; i++)
        assert_int_equal(atomic_load(&taken[i]), 1);
}

/* 1,000 rows, several in each second, walked in pages of 7 while more are inserted. */
static void a_walk_by_pages_is_the_whole_list_while_rows_are_added(void **state)
{
    struct database *database = *state;
    struct file_record file = {.purpose = "fine-tune"};
    struct store_page page = {.after = "", .limit = 7};
    char after[STORE_ID_SIZE] = "";
    int expected = 999, added = 0;
    bool more = true;

    for (int i = 0; i < 1000; i++) {
        (void)snprintf(file.id, sizeof(file.id), "file-%d", i);
        file.created_unix_s = 1000 + i / 13;
        CHECK(files_insert(database->store, &file, NULL, &fault));
    }
    while (more) {
        struct file_record *files = NULL;
        size_t count = 0;

        page.after = after;
        CHECK(files_list(database->store, &(struct files_filter){"fine-tune", NULL}, &page, &files,
                         &count, &more, &fault));
        assert_true(count > 0);
        for (size_t i = 0; i < count; i++) {
            char wanted[32];

            (void)snprintf(wanted, sizeof(wanted), "file-%d", expected--);
            assert_string_equal(files[i].id, wanted);
        }
        (void)snprintf(after, sizeof(after), "%s", files[count - 1].id);
        free(files);
        (void)snprintf(file.id, sizeof(file.id), "file-new-%d", added++);
        file.created_unix_s = 5000;
        CHECK(files_insert(database->store, &file, NULL, &fault));
    }
    assert_int_equal(expected, -1);
}

static void lists_filter_turn_round_and_refuse_an_unknown_cursor(void **state)
{
    struct database *database = *state;
    struct store_page page = {.after = "", .limit = 10, .ascending = true};
    struct job_record *jobs = NULL;
    struct file_record file = {.id = "file-1", .purpose = "fine-tune-results"};
    struct file_record *files = NULL;
    struct error err = {0};
    size_t count = 0;
    bool more = true;

    insert_job(database->store, "ftjob-a", 5);
    insert_job(database->store, "ftjob-b", 4);
    insert_job(database->store, "ftjob-c", 5);
    CHECK(
        jobs_list(database->store, &(struct jobs_filter){0}, &page, &jobs, &count, &more, &fault));
    assert_int_equal(count, 3);
    assert_false(more);
    assert_string_equal(jobs[0].id, "ftjob-b");
    assert_string_equal(jobs[1].id, "ftjob-a");
    assert_string_equal(jobs[2].id, "ftjob-c");
    for (size_t i = 0; i < count; i++)
        job_record_release(&jobs[i]);
    free(jobs);
    page.after = "ftjob-zzz";
    assert_false(
        jobs_list(database->store, &(struct jobs_filter){0}, &page, &jobs, &count, &more, &err));
    assert_int_equal(err.code, ERR_INVALID);
    assert_string_equal(err.param, "after");
    CHECK(jobs_list_state(database->store, JOB_VALIDATING_FILES, &JOB_PLACE_FIRST, 2, &jobs, &count,
                          &fault));
    assert_int_equal(count, 2);
    assert_string_equal(jobs[0].id, "ftjob-a"); /* in order of arrival, whatever the clock said */
    for (size_t i = 0; i < count; i++)
        job_record_release(&jobs[i]);
    free(jobs);
    page.after = "";
    CHECK(files_insert(database->store, &file, NULL, &fault));
    CHECK(files_list(database->store, &(struct files_filter){"fine-tune", NULL}, &page, &files,
                     &count, &more, &fault));
    assert_int_equal(count, 0);
    free(files);
    CHECK(files_list(database->store, &(struct files_filter){0}, &page, &files, &count, &more,
                     &fault));
    assert_int_equal(count, 1);
    free(files);
}

static void a_file_is_kept_while_an_unfinished_job_needs_it(void **state)
{
    struct database *database = *state;
    struct file_record file = {.id = "file-1", .purpose = "fine-tune"};
    struct error err = {0};

    struct job_record job = job_draft("ftjob-1", 1);

    (void)snprintf(job.training_file, sizeof(job.training_file), "file-1");
    assert_false(
        jobs_insert(database->store, &job, NULL, &err)); /* deleted while the job was made */
    assert_string_equal(err.param, "training_file");
    CHECK(files_insert(database->store, &file, NULL, &fault));
    job.inputs_json = (char[]){"{\"training_files\":[\"file-1\",\"file-2\"]}"};
    assert_false(jobs_insert(database->store, &job, NULL, &err));
    assert_non_null(strstr(err.message, "file-2"));
    job.inputs_json = NULL;
    CHECK(jobs_insert(database->store, &job, NULL, &fault));
    assert_false(files_delete(database->store, "file-1", &err));
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_non_null(strstr(err.message, "ftjob-1"));
    bring_to(database->store, "ftjob-1", JOB_FAILED);
    CHECK(files_delete(database->store, "file-1", &fault));
    assert_false(files_delete(database->store, "file-1", &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void models_are_listed_newest_first_and_replaced_by_their_own_job_only(void **state)
{
    struct database *database = *state;
    struct model_record model = {.id = "ft:a", .job_id = "ftjob-1", .valid_loss = NAN};
    struct model_record *models = NULL;
    struct error err = {0};
    size_t count = 0;

    model.created_unix_s = 1;
    CHECK(models_insert(database->store, &model, &fault));
    (void)snprintf(model.id, sizeof(model.id), "ft:b");
    CHECK(models_insert(database->store, &model, &fault));
    model.size_bytes = 12;
    CHECK(models_insert(database->store, &model, &fault));
    (void)snprintf(model.job_id, sizeof(model.job_id), "ftjob-2");
    assert_false(models_insert(database->store, &model, &err));
    assert_int_equal(err.code, ERR_CONFLICT);
    CHECK(models_list(database->store, &models, &count, &fault));
    assert_int_equal(count, 2);
    assert_string_equal(models[0].id, "ft:b");
    assert_int_equal(models[0].size_bytes, 12);
    assert_true(isnan(models[0].valid_loss));
    free(models);
    CHECK(models_delete(database->store, "ft:b", &fault));
    assert_false(models_delete(database->store, "ft:b", &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void an_adapter_is_used_until_the_last_of_its_models_is_gone(void **state)
{
    struct database *database = *state;
    struct model_record model = {
        .id = "ft:a", .job_id = "ftjob-1", .artifact = "ftjob-1.safetensors", .valid_loss = NAN};
    bool used = false;

    CHECK(models_insert(database->store, &model, &fault));
    (void)snprintf(model.id, sizeof(model.id), "ft:a:ckpt-step-9");
    CHECK(models_insert(database->store, &model, &fault));
    CHECK(models_delete(database->store, "ft:a", &fault));
    CHECK(models_has_artifact(database->store, model.artifact, &used, &fault));
    assert_true(used);
    CHECK(models_delete(database->store, model.id, &fault));
    CHECK(models_has_artifact(database->store, model.artifact, &used, &fault));
    assert_false(used);
}

static void no_job_ends_before_it_began_whatever_the_clock_says(void **state)
{
    struct database *database = *state;
    static const int64_t future_unix_s = INT64_C(40000000000); /* the clock is set back after it */
    struct job_record job = {0};

    insert_job(database->store, "ftjob-1", future_unix_s);
    bring_to(database->store, "ftjob-1", JOB_RUNNING);
    CHECK(jobs_move(database->store, "ftjob-1", JOB_RUNNING, JOB_SUCCEEDED, NULL, NULL, 0, &fault));
    CHECK(jobs_get(database->store, "ftjob-1", &job, &fault));
    assert_int_equal(job.started_unix_s, future_unix_s);
    assert_int_equal(job.finished_unix_s, future_unix_s);
    job_record_release(&job);
    insert_job(database->store, "ftjob-2", future_unix_s + 1);
    bring_to(database->store, "ftjob-2", JOB_CANCELLED);
    CHECK(jobs_get(database->store, "ftjob-2", &job, &fault));
    assert_int_equal(job.started_unix_s, 0); /* it never did */
    assert_int_equal(job.finished_unix_s, future_unix_s + 1);
    job_record_release(&job);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, database_set_up, database_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_pair_of_states_moves_or_is_refused_by_the_table),
        TEST(a_state_that_came_too_late_is_a_conflict_and_changes_nothing),
        TEST(a_change_reaches_every_column_and_leaves_the_others),
        TEST(a_change_that_fails_late_is_undone_whole),
        TEST(events_count_by_one_and_carry_the_progress),
        TEST(a_job_is_claimed_by_exactly_one_of_several_threads),
        TEST(a_walk_by_pages_is_the_whole_list_while_rows_are_added),
        TEST(an_adapter_is_used_until_the_last_of_its_models_is_gone),
        TEST(lists_filter_turn_round_and_refuse_an_unknown_cursor),
        TEST(a_file_is_kept_while_an_unfinished_job_needs_it),
        TEST(models_are_listed_newest_first_and_replaced_by_their_own_job_only),
        TEST(no_job_ends_before_it_began_whatever_the_clock_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
