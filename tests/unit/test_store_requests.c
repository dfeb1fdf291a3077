/* Proves: a create that was made before is found again by its key or by its body, a list is of those
 * that have what is asked for, a model stays while a job goes on from it, and a result file is its
 * job's until it is deleted. */
#include "store/checkpoints.h"
#include "store/files.h"
#include "store/jobs.h"
#include "store/models.h"
#include "tests/support/database.h"

#include <math.h>

static struct job_record draft(const char *id)
{
    struct job_record job = {.base_model = "needle-3",
                             .device_wanted = "auto",
                             .numerics = "w4a8",
                             .created_unix_s = 1000};

    (void)snprintf(job.id, sizeof(job.id), "%s", id);
    return job;
}

/* ---- repeats ------------------------------------------------------------------------------------ */

static struct job_record asked_with(const char *owner, const char *key, const char *sha256)
{
    struct job_record job = draft("ftjob-asked");

    (void)snprintf(job.owner, sizeof(job.owner), "%s", owner);
    (void)snprintf(job.idempotency_key, sizeof(job.idempotency_key), "%s", key);
    (void)snprintf(job.request_sha256, sizeof(job.request_sha256), "%s", sha256);
    return job;
}

static void add(struct store *store, const char *id, const struct job_record *like)
{
    struct job_record job = *like;

    (void)snprintf(job.id, sizeof(job.id), "%s", id);
    CHECK(jobs_insert(store, &job, NULL, &fault));
}

static void a_create_is_found_again_by_key_or_by_body(void **state)
{
    struct database *database = *state;
    static const struct {
        const char *what, *owner, *key, *sha256;
        int64_t since_unix_s;
        const char *found;
    } cases[] = {
        {"the same key", "k1", "k1/once", "aa", 0, "ftjob-keyed"},
        {"the same key, long ago", "k1", "k1/once", "aa", 5000, "ftjob-keyed"},
        {"another owner's key", "k2", "k2/once", "aa", 0, ""},
        {"another key", "k1", "k1/twice", "aa", 0, ""},
        {"the same body", "k1", "", "bb", 1000, "ftjob-plain"},
        {"the same body, too long ago", "k1", "", "bb", 1001, ""},
        {"another owner's body", "k2", "", "bb", 0, ""},
        {"another body", "k1", "", "cc", 0, ""},
        {"a cancelled one's body", "k1", "", "dd", 0, ""},
    };
    struct job_record keyed = asked_with("k1", "k1/once", "aa");
    struct job_record plain = asked_with("k1", "", "bb"), ended = asked_with("k1", "", "dd");

    add(database->store, "ftjob-keyed", &keyed);
    add(database->store, "ftjob-plain", &plain);
    add(database->store, "ftjob-ended", &ended);
    CHECK(jobs_move(database->store, "ftjob-ended", JOB_VALIDATING_FILES, JOB_CANCELLED, NULL, NULL,
                    0, &fault));
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct job_record asked = asked_with(cases[i].owner, cases[i].key, cases[i].sha256);
        char found[STORE_ID_SIZE] = "?";

        CHECK(jobs_find_repeat(database->store, &asked, cases[i].since_unix_s, found, &fault));
        if (strcmp(found, cases[i].found) != 0)
            fail_msg("%s: '%s' was found", cases[i].what, found);
    }
}

static void a_key_with_another_body_is_refused_by_its_word(void **state)
{
    struct database *database = *state;
    struct job_record asked = asked_with("", "/once", "aa");
    char found[STORE_ID_SIZE] = "?";
    struct error err = {0};

    add(database->store, "ftjob-keyed", &asked);
    asked = asked_with("", "/once", "bb");
    assert_false(jobs_find_repeat(database->store, &asked, 0, found, &err));
    assert_string_equal(err.word, "idempotency_key_reused");
    assert_non_null(strstr(err.message, "ftjob-keyed"));
    assert_string_equal(found, "?");
}

/* ---- lists -------------------------------------------------------------------------------------- */

static void add_with_metadata(struct store *store, const char *id, char *metadata)
{
    struct job_record job = draft(id);

    job.metadata_json = metadata;
    CHECK(jobs_insert(store, &job, NULL, &fault));
}

static void a_list_is_of_the_jobs_that_have_what_is_asked_for(void **state)
{
    struct database *database = *state;
    static const struct {
        struct jobs_filter filter;
        const char *ids; /* newest first */
    } cases[] = {
        {{0}, "none empty one other both "},
        {{.metadata_json = "[]"}, "none empty one other both "},
        {{.metadata_json = "[[\"team\",\"a\"]]"}, "one both "},
        {{.metadata_json = "[[\"team\",\"a\"],[\"run\",\"7\"]]"}, "both "},
        {{.metadata_json = "[[\"team\",\"a\"],[\"team\",\"b\"]]"}, ""},
        {{.metadata_json = "[[\"team\",\"\"]]"}, "other "},
        {{.metadata_json = "[[\"Team\",\"a\"]]"}, ""},
        {{.metadata_json = "[[\"run\",\"07\"]]"}, ""},
        {{.without_metadata = true}, "none empty "},
        {{.states = ",cancelled,"}, "other "},
        {{.states = ",cancelled,validating_files,"}, "none empty one other both "},
        {{.states = ",queued,paused,"}, ""},
        {{.metadata_json = "[[\"team\",\"a\"]]", .states = ",cancelled,"}, ""},
        {{.search = "OTHE"}, "other "},
        {{.search = "o"}, "none one other both "},
        {{.search = "o", .states = ",cancelled,"}, "other "},
        {{.search = "%"}, ""},
    };
    const struct store_page page = {.after = "", .limit = 10};

    add_with_metadata(database->store, "both", (char[]){"{\"team\":\"a\",\"run\":\"7\"}"});
    add_with_metadata(database->store, "other", (char[]){"{\"team\":\"\",\"run\":\"8\"}"});
    add_with_metadata(database->store, "one", (char[]){"{\"team\":\"a\"}"});
    add_with_metadata(database->store, "empty", (char[]){"{}"});
    add_with_metadata(database->store, "none", NULL);
    CHECK(jobs_move(database->store, "other", JOB_VALIDATING_FILES, JOB_CANCELLED, NULL, NULL, 0,
                    &fault));
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct job_record *jobs = NULL;
        char ids[128] = "";
        size_t count = 0;
        int64_t total = -1;
        bool more;

        CHECK(jobs_list(database->store, &cases[i].filter, &page, &jobs, &count, &more, &fault));
        CHECK(jobs_count(database->store, &cases[i].filter, &total, &fault));
        assert_int_equal(total, count);
        for (size_t n = 0; n < count; n++) {
            (void)snprintf(ids + strlen(ids), sizeof(ids) - strlen(ids), "%s ", jobs[n].id);
            job_record_release(&jobs[n]);
        }
        free(jobs);
        if (strcmp(ids, cases[i].ids) != 0)
            fail_msg("case %zu: '%s', not '%s'", i, ids, cases[i].ids);
    }
}

/* ---- models and result files -------------------------------------------------------------------- */

static void a_model_stays_while_a_job_goes_on_from_it(void **state)
{
    struct database *database = *state;
    struct model_record model = {.id = "ft:a",
                                 .base_model = "needle-3",
                                 .job_id = "ftjob-1",
                                 .artifact = "a",
                                 .parent_model = "ft:before",
                                 .valid_loss = (double)NAN};
    struct job_record child = draft("ftjob-child");
    struct model_record read;
    struct error err = {0};

    (void)snprintf(child.parent_model, sizeof(child.parent_model), "%s", model.id);
    assert_false(jobs_insert(database->store, &child, NULL, &err)); /* it is not there yet */
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_string_equal(err.param, "model");
    CHECK(models_insert(database->store, &model, &fault));
    CHECK(models_get(database->store, model.id, &read, &fault));
    assert_string_equal(read.parent_model, "ft:before");
    CHECK(jobs_insert(database->store, &child, NULL, &fault));
    assert_false(models_delete(database->store, model.id, &err));
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_string_equal(err.word, "model_in_use");
    assert_non_null(strstr(err.message, child.id));
    CHECK(jobs_move(database->store, child.id, JOB_VALIDATING_FILES, JOB_CANCELLED, NULL, NULL, 0,
                    &fault));
    CHECK(models_delete(database->store, model.id, &fault));
    CHECK(jobs_get(database->store, child.id, &child, &fault));
    assert_string_equal(child.parent_model, "ft:a"); /* where it came from stays known */
    job_record_release(&child);
}

static void a_result_file_is_its_jobs_until_it_is_deleted(void **state)
{
    struct database *database = *state;
    const struct file_record file = {
        .id = "file-csv", .filename = "steps.csv", .purpose = "fine-tune-results"};
    struct job_change change = JOB_CHANGE_NONE;
    struct job_record job = draft("ftjob-1");

    CHECK(jobs_insert(database->store, &job, NULL, &fault));
    change.result_file = &file;
    CHECK(jobs_update(database->store, job.id, &change, NULL, 0, &fault));
    CHECK(jobs_get(database->store, job.id, &job, &fault));
    assert_string_equal(job.result_file, "file-csv");
    job_record_release(&job);
    CHECK(files_delete(database->store, "file-csv", &fault));
    CHECK(jobs_get(database->store, job.id, &job, &fault));
    assert_string_equal(job.result_file, "");
    job_record_release(&job);
}

static void a_checkpoints_model_is_found_by_its_id(void **state)
{
    struct database *database = *state;
    const struct checkpoint_record checkpoint = {.id = "ftckpt_1",
                                                 .job_id = "ftjob-1",
                                                 .model_id = "ft:a:ckpt-step-4",
                                                 .step = 4,
                                                 .train_loss = (double)NAN,
                                                 .train_accuracy = (double)NAN,
                                                 .valid_loss = (double)NAN,
                                                 .valid_accuracy = (double)NAN};
    struct job_record job = draft("ftjob-1");
    char model[STORE_NAME_SIZE];
    struct error err = {0};

    CHECK(jobs_insert(database->store, &job, NULL, &fault));
    CHECK(checkpoints_insert(database->store, &checkpoint, &fault));
    CHECK(checkpoints_get_model(database->store, "ftckpt_1", model, &fault));
    assert_string_equal(model, "ft:a:ckpt-step-4");
    assert_false(checkpoints_get_model(database->store, "ftckpt_2", model, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, database_set_up, database_tear_down)
        TEST(a_create_is_found_again_by_key_or_by_body),
        TEST(a_key_with_another_body_is_refused_by_its_word),
        TEST(a_list_is_of_the_jobs_that_have_what_is_asked_for),
        TEST(a_model_stays_while_a_job_goes_on_from_it),
        TEST(a_result_file_is_its_jobs_until_it_is_deleted),
        TEST(a_checkpoints_model_is_found_by_its_id),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
