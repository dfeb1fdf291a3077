/* Proves: a job of several files trains on all of them, each refusal has the field of the shape that was
 * sent; a job goes on from a model or a checkpoint made before; a create that is repeated makes one job. */
#include "daemon/base/json.h"
#include "daemon/sched/submission.h"
#include "store/checkpoints.h"
#include "store/files.h"
#include "store/models.h"
#include "tests/support/bench.h"

#include <pthread.h>

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

static void upload(struct bench *bench, size_t lines, char ret_id[STORE_ID_SIZE])
{
    (void)snprintf(ret_id, STORE_ID_SIZE, "%s", bench_upload_lines(bench, lines));
}

/* The template with @G and @B as the two ids. */
static void fill(char *text, size_t capacity, const char *template, const char *good,
                 const char *bad)
{
    text[0] = '\0';
    for (const char *at = template; *at; at++) {
        const size_t used = strlen(text);

        if (*at == '@')
            (void)snprintf(text + used, capacity - used, "%s", *++at == 'G' ? good : bad);
        else
            (void)snprintf(text + used, capacity - used, "%c", *at);
    }
}

static double planned(const struct job_record *job, const char *object, const char *field)
{
    struct json *plan = NULL;
    struct error err = {0};
    double number;

    if (!job->plan_json || !json_parse(job->plan_json, strlen(job->plan_json), &plan, &err))
        fail_msg("%s: no plan: %s", job->id, err.message);
    number = json_number(json_member(object ? json_member(plan, object) : plan, field));
    json_free(plan);
    return number;
}

/* ---- several files ------------------------------------------------------------------------------ */

static void a_job_trains_on_all_of_its_files(void **state)
{
    struct bench *bench = *state;
    char a[STORE_ID_SIZE], b[STORE_ID_SIZE], c[STORE_ID_SIZE], id[STORE_ID_SIZE];
    struct job_record job;
    struct error err = {0};

    upload(bench, 5, a);
    upload(bench, 3, b);
    upload(bench, 2, c);
    if (!bench_submit(bench, id, &err,
                      "{'model':'needle-3','training_files':['%s','%s'],'validation_files':['%s'],"
                      "'test_files':['%s'],'max_depth':2,'hyperparameters':{'n_epochs':1,"
                      "'batch_size':4,'lora_rank':2}}",
                      a, b, c, c))
        fail_msg("%s", err.message);
    assert_int_equal(bench_wait(bench, id, JOB_STATE_COUNT), JOB_SUCCEEDED);
    bench_get(bench, id, &job);
    assert_int_equal(job.max_depth, 2);
    assert_string_equal(job.training_file, a);
    assert_int_equal(planned(&job, NULL, "training_examples"), 8);
    assert_int_equal(planned(&job, NULL, "validation_examples"), 2);
    assert_int_equal(planned(&job, "test_data", "examples"), 2);
    assert_int_equal(job.total_steps, 2);
    job_record_release(&job);
}

static void a_bad_file_among_several_is_named_by_its_field_and_its_name(void **state)
{
    static const char bad[] = "{\"query\":\"a\",\"tools\":[],\"answers\":[]}\n"
                              "{\"tools\":[],\"answers\":[]}\n";
    static const struct {
        const char *body, *param, *code, *message;
    } cases[] = {
        {"'training_files':['@G','@B'],'test_files':['@G']", "training_files",
         "invalid_training_files", "file 2 of 2, line 2"},
        {"'training_files':['@G'],'validation_files':['@B']", "validation_files",
         "invalid_validation_files", "line 2"},
        {"'training_files':['@G'],'test_files':['@B']", "test_files", "invalid_test_files",
         "line 2"},
        {"'training_file':'@G','validation_file':'@B'", "validation_file",
         "invalid_validation_file", "line 2"},
    };
    struct bench *bench = *state;
    char good[STORE_ID_SIZE], faulty[STORE_ID_SIZE];

    upload(bench, 3, good);
    (void)snprintf(faulty, sizeof(faulty), "%s", bench_upload(bench, bad, strlen(bad)));
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char id[STORE_ID_SIZE], members[512];
        struct job_record job;
        struct error err = {0};

        fill(members, sizeof(members), cases[i].body, good, faulty);
        if (!bench_submit(bench, id, &err, "{'model':'needle-3',%s}", members))
            fail_msg("%s: %s", members, err.message);
        assert_int_equal(bench_wait(bench, id, JOB_STATE_COUNT), JOB_FAILED);
        bench_get(bench, id, &job);
        if (strcmp(job.error_param, cases[i].param) != 0 ||
            strcmp(job.error_code, cases[i].code) != 0 ||
            !strstr(job.error_message, cases[i].message))
            fail_msg("%s: %s, %s: %s", members, job.error_param, job.error_code, job.error_message);
        assert_non_null(strstr(job.error_lines_json, "\"line\":2"));
        assert_null(strstr(job.error_lines_json, "\"file\":\"\""));
        job_record_release(&job);
    }
}

static void files_and_depth_are_checked_at_the_create(void **state)
{
    static const struct {
        const char *body, *param;
    } cases[] = {
        {"'training_files':[]", "training_files"},
        {"'test_files':[]", "training_files"},
        {"'training_files':['@G','file-none']", "training_files"},
        {"'training_files':['@G'],'validation_files':['file-none']", "validation_files"},
        {"'training_files':['@G'],'test_files':['file-none']", "test_files"},
        {"'training_files':['@G'],'max_depth':1000", "max_depth"},
        {"'training_files':['@G'],'training_file':'file-none'", "training_file"},
    };
    struct bench *bench = *state;
    char good[STORE_ID_SIZE];

    upload(bench, 3, good);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char id[STORE_ID_SIZE], members[512];
        struct error err = {0};

        fill(members, sizeof(members), cases[i].body, good, "");
        if (bench_submit(bench, id, &err, "{'model':'needle-3',%s}", members))
            fail_msg("%s was taken", members);
        if (err.code != ERR_INVALID || strcmp(err.param, cases[i].param) != 0)
            fail_msg("%s: %s: %s", members, err.param, err.message);
    }
}

/* ---- going on ----------------------------------------------------------------------------------- */

/* A job that has made a model, and a checkpoint before it. */
static void make_parent(struct bench *bench, const char *file, struct job_record *ret_job,
                        struct checkpoint_record *ret_checkpoint)
{
    const struct store_page page = {.after = "", .limit = 10};
    struct checkpoint_record *checkpoints = NULL;
    struct error err = {0};
    char id[STORE_ID_SIZE];
    size_t count = 0;
    bool more;

    bench_submit_small(bench, file, "'lora_alpha':6.1,'n_epochs':2", id);
    assert_int_equal(bench_wait(bench, id, JOB_STATE_COUNT), JOB_SUCCEEDED);
    bench_get(bench, id, ret_job);
    assert_true(checkpoints_list(bench->store, id, &page, &checkpoints, &count, &more, &err));
    assert_int_equal(count, 2);
    *ret_checkpoint = checkpoints[1]; /* newest first */
    free(checkpoints);
}

static void a_job_goes_on_from_a_model_or_a_checkpoint(void **state)
{
    struct bench *bench = *state;
    struct checkpoint_record checkpoint;
    struct job_record parent, child;
    const char *names[3];
    char file[STORE_ID_SIZE];

    upload(bench, 6, file);
    make_parent(bench, file, &parent, &checkpoint);
    names[0] = parent.fine_tuned_model;
    names[1] = checkpoint.model_id;
    names[2] = checkpoint.id;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct model_record model;
        struct error err = {0};
        char id[STORE_ID_SIZE];

        if (!bench_submit(bench, id, &err,
                          "{'model':'%s','training_file':'%s','hyperparameters':"
                          "{'n_epochs':1}}",
                          names[i], file))
            fail_msg("%s: %s", names[i], err.message);
        assert_int_equal(bench_wait(bench, id, JOB_STATE_COUNT), JOB_SUCCEEDED);
        bench_get(bench, id, &child);
        assert_string_equal(child.base_model, "needle-3");
        assert_string_equal(child.parent_model, i ? checkpoint.model_id : names[0]);
        assert_non_null(strstr(child.hyperparameters_json, "\"lora_rank\":2,\"lora_alpha\":6.1,"));
        assert_true(models_get(bench->store, child.fine_tuned_model, &model, &err));
        assert_string_equal(model.parent_model, child.parent_model);
        job_record_release(&child);
    }
    job_record_release(&parent);
}

static void what_does_not_fit_an_earlier_model_is_refused(void **state)
{
    static const struct {
        const char *model, *hyper, *param;
        enum error_code code;
    } cases[] = {
        {NULL, "'lora_rank':4", "lora_rank", ERR_INVALID},
        {NULL, "'lora_alpha':32", "lora_alpha", ERR_INVALID},
        {NULL, "'max_len':100000", "max_len", ERR_INVALID},
        {"ft:needle-3:local::absent00", "", "model", ERR_NOT_FOUND},
        {"ftckpt_absent", "", "model", ERR_NOT_FOUND},
        {"ft:", "", "model", ERR_NOT_FOUND},
    };
    struct bench *bench = *state;
    struct checkpoint_record checkpoint;
    struct job_record parent;
    char file[STORE_ID_SIZE], id[STORE_ID_SIZE];

    upload(bench, 3, file);
    make_parent(bench, file, &parent, &checkpoint);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct error err = {0};

        if (bench_submit(
                bench, id, &err, "{'model':'%s','training_file':'%s','hyperparameters':{%s}}",
                cases[i].model ? cases[i].model : parent.fine_tuned_model, file, cases[i].hyper))
            fail_msg("case %zu was taken", i);
        if (err.code != cases[i].code || strcmp(err.param, cases[i].param) != 0)
            fail_msg("case %zu: %s: %s", i, err.param, err.message);
    }
    job_record_release(&parent);
}

/* ---- once --------------------------------------------------------------------------------------- */

struct asking {
    struct scheduler *scheduler;
    const struct json *body;
    const struct job_terms *terms;
    struct job_made made;
    struct error err;
    bool ok;
};

static void *ask(void *context)
{
    struct asking *asking = context;

    asking->ok = scheduler_submit(asking->scheduler, asking->body, asking->terms, &asking->made,
                                  &asking->err);
    return NULL;
}

static struct json *body_for(const char *file, int seed)
{
    struct json *body = json_new_object();

    json_add_string(body, "model", "needle-3");
    json_add_string(body, "training_file", file);
    json_add_int(body, "seed", seed);
    return body;
}

static void of_many_equal_creates_at_once_one_makes_the_job(void **state)
{
    const struct job_terms terms[] = {{.owner = "", .idempotency_key = "abc"},
                                      {.owner = "", .asked_before = true}};
    struct bench *bench = *state;
    char file[STORE_ID_SIZE];

    upload(bench, 3, file);
    for (size_t t = 0; t < COUNT_OF(terms); t++) {
        struct json *body = body_for(file, (int)t);
        struct asking askings[6];
        pthread_t threads[COUNT_OF(askings)];
        size_t first = 0;

        for (size_t i = 0; i < COUNT_OF(askings); i++) {
            askings[i] =
                (struct asking){.scheduler = bench->scheduler, .body = body, .terms = &terms[t]};
            assert_int_equal(pthread_create(&threads[i], NULL, ask, &askings[i]), 0);
        }
        for (size_t i = 0; i < COUNT_OF(askings); i++)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        for (size_t i = 0; i < COUNT_OF(askings); i++) {
            if (!askings[i].ok)
                fail_msg("%s", askings[i].err.message);
            first += !askings[i].made.repeated;
            assert_string_equal(askings[i].made.id, askings[0].made.id);
        }
        assert_int_equal(first, 1);
        json_free(body);
    }
}

static void a_repeat_is_told_by_its_key_its_body_and_its_owner(void **state)
{
    struct bench *bench = *state;
    const struct {
        const char *what;
        int seed;
        struct job_terms terms;
        bool repeated;
    } cases[] = {
        {"the first", 1, {.owner = "", .idempotency_key = "k"}, false},
        {"the same again", 1, {.owner = "", .idempotency_key = "k"}, true},
        {"another owner's", 1, {.owner = "key-b", .idempotency_key = "k"}, false},
        {"without a key", 1, {.owner = ""}, false},
        {"a retry", 1, {.owner = "", .asked_before = true}, true},
        {"a retry of another body", 2, {.owner = "", .asked_before = true}, false},
        {"another owner's retry", 2, {.owner = "key-b", .asked_before = true}, false},
    };
    char file[STORE_ID_SIZE], key[300];
    struct job_made made;
    struct error err = {0};
    struct json *body;

    upload(bench, 3, file);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        body = body_for(file, cases[i].seed);
        if (!scheduler_submit(bench->scheduler, body, &cases[i].terms, &made, &err))
            fail_msg("%s: %s", cases[i].what, err.message);
        if (made.repeated != cases[i].repeated)
            fail_msg("%s: repeated is %d", cases[i].what, made.repeated);
        json_free(body);
    }
    body = body_for(file, 9);
    assert_false(scheduler_submit(bench->scheduler, body,
                                  &(struct job_terms){.owner = "", .idempotency_key = "k"}, &made,
                                  &err));
    assert_string_equal(err.word, "idempotency_key_reused");
    memset(key, 'k', 256);
    key[256] = '\0';
    for (const char *bad = key; bad; bad = bad == key ? "" : *bad ? NULL : "\x01") {
        err = (struct error){0};
        assert_false(scheduler_submit(bench->scheduler, body,
                                      &(struct job_terms){.owner = "", .idempotency_key = bad},
                                      &made, &err));
        assert_string_equal(err.param, "Idempotency-Key");
    }
    json_free(body);
}

static void a_repeat_is_answered_after_a_restart_and_without_its_file(void **state)
{
    const struct job_terms terms = {.owner = "", .idempotency_key = "k"};
    struct bench *bench = *state;
    struct job_made first, second;
    struct error err = {0};
    char file[STORE_ID_SIZE];
    struct json *body;

    upload(bench, 3, file);
    body = body_for(file, 1);
    if (!scheduler_submit(bench->scheduler, body, &terms, &first, &err))
        fail_msg("%s", err.message);
    assert_int_equal(bench_wait(bench, first.id, JOB_STATE_COUNT), JOB_SUCCEEDED);
    assert_true(files_delete(bench->store, file, &err));
    bench_stop(bench);
    bench_start(bench);
    if (!scheduler_submit(bench->scheduler, body, &terms, &second, &err))
        fail_msg("%s", err.message);
    assert_true(second.repeated);
    assert_string_equal(second.id, first.id);
    json_free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(a_job_trains_on_all_of_its_files),
        TEST(a_bad_file_among_several_is_named_by_its_field_and_its_name),
        TEST(files_and_depth_are_checked_at_the_create),
        TEST(a_job_goes_on_from_a_model_or_a_checkpoint),
        TEST(what_does_not_fit_an_earlier_model_is_refused),
        TEST(of_many_equal_creates_at_once_one_makes_the_job),
        TEST(a_repeat_is_told_by_its_key_its_body_and_its_owner),
        TEST(a_repeat_is_answered_after_a_restart_and_without_its_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
