/*
 * Proves that a job's files become the recorded split and batches, and that everything refused is
 * refused under the name of the field at fault.
 */
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/train/inputs.h"
#include "tests/support/training.h"

#include <math.h>

#define MAIN FIXTURES "needle3"
#define MINI FIXTURES "needle3/mini"
#define DATA(name) FIXTURES "inputs/jsonl/" name

static struct train_job make_job(const char *folder, const char *data)
{
    struct train_job job = {
        .base_folder = folder,
        .base_name = "base",
        .training_path = data,
        .checkpoint_folder = "/nowhere",
        .adapter_path = "/nowhere/adapter.safetensors",
        .device_label = "cpu:0",
        .hyper = hyperparameters_default(),
    };

    job.hyper.max_len = 512;
    return job;
}

static void read_inputs(const struct train_job *job, struct inputs *inputs)
{
    static struct dataset_report training, validation;
    struct error err = {0};

    if (!inputs_read(job, inputs, &training, &validation, &err))
        fail_msg("%s (%s)", err.message, err.param);
}

/* ---- the recorded split and batches ---------------------------------------------------------- */

static struct json *read_run(const char *folder)
{
    char path[128];
    struct mapping map = MAPPING_NONE;
    struct json *json = NULL;
    struct error err = {0};

    snprintf(path, sizeof(path), "%s/train_run.json", folder);
    if (!mapping_open(&map, path, &err) ||
        !json_parse((const char *)map.data, map.size, &json, &err))
        fail_msg("%s", err.message);
    mapping_close(&map);
    return json;
}

static size_t number_of(const struct json *object, const char *name)
{
    return (size_t)json_number(json_member(object, name));
}

static size_t index_of(const struct inputs *inputs, const struct example *example)
{
    return (size_t)(example - inputs->training->examples);
}

/* Draws the epochs as the trainer does and compares each batch, the short ones included. */
static void check_batches(const struct json *run, const struct inputs *inputs, size_t batch_size)
{
    const struct json *batch = json_first(json_member(run, "batches_example_indices"));
    struct shuffle shuffle = inputs->shuffle;
    uint32_t *order = calloc(inputs->train_count, sizeof(*order));
    size_t batches = 0;

    assert_non_null(order);
    for (size_t epoch = 0; epoch < number_of(json_member(run, "args"), "epochs"); epoch++) {
        shuffle_permutation(&shuffle, inputs->train_count, order);
        for (size_t first = 0; first < inputs->train_count; first += batch_size, batches++) {
            size_t i = first;

            assert_non_null(batch);
            for (const struct json *e = json_first(batch); e; e = json_next(e), i++)
                assert_int_equal(index_of(inputs, inputs->train[order[i]]), json_number(e));
            assert_true(i == inputs->train_count || i == first + batch_size);
            batch = json_next(batch);
        }
    }
    assert_null(batch);
    assert_int_equal(batches, number_of(run, "total_steps"));
    free(order);
}

static void the_recorded_split_and_batches_come_out(void **state)
{
    (void)state;
    static const char *const folders[] = {MAIN, MINI};

    for (size_t f = 0; f < COUNT_OF(folders); f++) {
        struct json *run = read_run(folders[f]);
        const struct json *args = json_member(run, "args");
        char data[128];
        struct inputs inputs;
        size_t i = 0;

        snprintf(data, sizeof(data), "%s/train.jsonl", folders[f]);
        struct train_job job = make_job(folders[f], data);
        job.hyper.data_rules = DATA_RULES_AS_REFERENCE;
        job.hyper.max_len = number_of(args, "max_len");
        job.hyper.seed = number_of(args, "seed");
        job.hyper.val_split = json_number(json_member(args, "val_split"));
        read_inputs(&job, &inputs);
        assert_int_equal(inputs.held_count, number_of(run, "n_val"));
        for (const struct json *e = json_first(json_member(run, "val_examples")); e;
             e = json_next(e), i++)
            assert_int_equal(index_of(&inputs, inputs.held[i]), json_number(e));
        assert_int_equal(i, inputs.held_count);
        check_batches(run, &inputs, number_of(args, "batch_size"));
        assert_null(inputs.validation_note);
        inputs_release(&inputs);
        json_free(run);
    }
}

/* ---- holding out ----------------------------------------------------------------------------- */

static void a_validation_file_takes_the_place_of_the_split(void **state)
{
    (void)state;
    struct train_job job = make_job(MINI, DATA("seventeen.jsonl"));
    struct shuffle fresh;
    struct inputs inputs;

    job.validation_path = DATA("one-example.jsonl");
    read_inputs(&job, &inputs);
    assert_int_equal(inputs.train_count, 17);
    assert_int_equal(inputs.held_count, 1);
    assert_ptr_equal(inputs.held[0], &inputs.validation->examples[0]);
    shuffle_init(&fresh, 0); /* nothing was drawn for a split */
    assert_memory_equal(&inputs.shuffle, &fresh, sizeof(fresh));
    inputs_release(&inputs);
}

static void the_split_holds_out_whole_examples_and_leaves_one(void **state)
{
    (void)state;
    static const struct {
        const char *data;
        double val_split;
        size_t held;
        bool noted;
    } cases[] = {
        {DATA("seventeen.jsonl"), 0.1, 1, false},    {DATA("seventeen.jsonl"), 0.0, 0, true},
        {DATA("seventeen.jsonl"), 0.05, 0, true},    {DATA("seventeen.jsonl"), 0.999, 16, false},
        {DATA("one-example.jsonl"), 0.999, 0, true},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct train_job job = make_job(MINI, cases[i].data);
        struct shuffle fresh;
        struct inputs inputs;

        job.hyper.val_split = cases[i].val_split;
        read_inputs(&job, &inputs);
        assert_int_equal(inputs.held_count, cases[i].held);
        assert_int_equal(inputs.train_count + inputs.held_count, inputs.training->example_count);
        assert_int_equal(inputs.validation_note != NULL, cases[i].noted);
        shuffle_init(&fresh, 0);
        assert_int_equal(memcmp(&inputs.shuffle, &fresh, sizeof(fresh)) == 0, cases[i].held == 0);
        inputs_release(&inputs);
    }
}

/* ---- refusing -------------------------------------------------------------------------------- */

static void check_refused(const struct train_job *job, const char *param, const char *word)
{
    static struct dataset_report training, validation;
    struct train_memory memory;
    struct error err = {0};

    if (train_validate(job, &training, &validation, &memory, &err))
        fail_msg("accepted, wanted '%s' refused", param);
    if (strcmp(err.param, param) != 0 || !strstr(err.message, word))
        fail_msg("'%s': %s; wanted '%s' with the word '%s'", err.param, err.message, param, word);
}

static void what_is_wrong_with_a_file_is_said_under_its_name(void **state)
{
    (void)state;
    struct train_job job = make_job(MINI, DATA("missing-query.jsonl"));
    check_refused(&job, "training_file", "line");

    job = make_job(MINI, DATA("there-is-none.jsonl"));
    check_refused(&job, "training_file", "there-is-none");

    job = make_job(MINI, DATA("seventeen.jsonl"));
    job.validation_path = DATA("missing-query.jsonl");
    check_refused(&job, "validation_file", "line");

    job = make_job(MINI, DATA("all-over-long.jsonl"));
    job.hyper.max_len = 256;
    check_refused(&job, "training_file", "max_len");
    job.hyper.overlong = OVERLONG_TRUNCATE;
    check_refused(&job, "training_file", "target");
    job.hyper.overlong = OVERLONG_DROP;
    check_refused(&job, "training_file", "no examples");

    job = make_job(FIXTURES "no-base-here", DATA("seventeen.jsonl"));
    check_refused(&job, "model", "no-base-here");
}

static void both_reports_are_whole_when_both_files_are_refused(void **state)
{
    (void)state;
    static struct dataset_report training, validation;
    struct train_job job = make_job(MINI, DATA("missing-query.jsonl"));
    struct train_memory memory;
    struct error err = {0};

    job.validation_path = DATA("dup-key.jsonl");
    assert_false(train_validate(&job, &training, &validation, &memory, &err));
    assert_string_equal(err.param, "training_file");
    assert_true(training.problem_count[PROBLEM_FATAL] + training.problem_count[PROBLEM_STRICT] > 0);
    assert_true(validation.problem_count[PROBLEM_STRICT] > 0);
}

static void a_split_that_takes_every_target_is_refused(void **state)
{
    (void)state;
    struct train_job job = make_job(MINI, DATA("over-long-prompt.jsonl"));
    size_t refused = 0;

    job.hyper.max_len = 256;
    job.hyper.overlong = OVERLONG_TRUNCATE; /* of two lines one keeps targets */
    job.hyper.val_split = 0.5;
    for (uint64_t seed = 0; seed < 16; seed++) {
        static struct dataset_report training, validation;
        struct train_memory memory;
        struct error err = {0};

        job.hyper.seed = seed;
        if (train_validate(&job, &training, &validation, &memory, &err))
            continue;
        assert_string_equal(err.param, "training_file");
        assert_non_null(strstr(err.message, "target"));
        refused++;
    }
    assert_in_range(refused, 1, 15); /* both outcomes were seen */
}

static void each_hyperparameter_is_checked_by_name(void **state)
{
    (void)state;
    const struct train_job good = make_job(MINI, DATA("seventeen.jsonl"));
    struct train_job job;

#define REFUSE(field, value)                                                                       \
    do {                                                                                           \
        job = good;                                                                                \
        job.hyper.field = (value);                                                                 \
        check_refused(&job, #field, #field);                                                       \
    } while (0)
    REFUSE(n_epochs, 0);
    REFUSE(n_epochs, SIZE_MAX);
    REFUSE(batch_size, 0);
    REFUSE(learning_rate, 0);
    REFUSE(learning_rate, -1e-4);
    REFUSE(learning_rate, (double)NAN);
    REFUSE(learning_rate, (double)INFINITY);
    REFUSE(lora_rank, 0);
    REFUSE(lora_alpha, 0);
    REFUSE(lora_alpha, (double)NAN);
    REFUSE(max_len, 0);
    REFUSE(max_len, 513);
    REFUSE(val_split, 1);
    REFUSE(val_split, -0.1);
    REFUSE(val_split, (double)NAN);
#undef REFUSE
}

static void the_identity_changes_with_each_thing_that_changes_the_result(void **state)
{
    (void)state;
    const struct train_job job = make_job(MINI, DATA("seventeen.jsonl"));
    char same[INPUTS_IDENTITY_SIZE], other[INPUTS_IDENTITY_SIZE];
    struct inputs inputs;
    struct error err = {0};

    read_inputs(&job, &inputs);
    assert_true(inputs_identity(&inputs, &job, same, &err));
    assert_true(strlen(same) < INPUTS_IDENTITY_SIZE - 1); /* not cut */
#define CHANGES(field, value)                                                                      \
    do {                                                                                           \
        struct train_job changed = job;                                                            \
        changed.hyper.field = (value);                                                             \
        assert_true(inputs_identity(&inputs, &changed, other, &err));                              \
        if (strcmp(same, other) == 0)                                                              \
            fail_msg("%s does not show", #field);                                                  \
    } while (0)
    CHANGES(n_epochs, 4);
    CHANGES(batch_size, 15);
    CHANGES(learning_rate, 1.0000000000000002e-4);
    CHANGES(lora_rank, 15);
    CHANGES(lora_alpha, 31);
    CHANGES(max_len, 511);
    CHANGES(val_split, 0.2);
    CHANGES(numerics, NUMERICS_FLOAT32);
    CHANGES(precision, BACKEND_TF32);
    CHANGES(precision, BACKEND_BF16);
    CHANGES(overlong, OVERLONG_DROP);
    CHANGES(data_rules, DATA_RULES_AS_REFERENCE);
    CHANGES(seed, 1);
#undef CHANGES
    inputs_release(&inputs);

    struct train_job with_file = job;
    with_file.validation_path = DATA("one-example.jsonl");
    read_inputs(&with_file, &inputs);
    assert_true(inputs_identity(&inputs, &with_file, other, &err));
    assert_string_not_equal(same, other);
    inputs_release(&inputs);

    struct train_job with_start = job;
    with_start.start_adapter_path = DATA("one-example.jsonl"); /* any bytes have a digest */
    read_inputs(&with_start, &inputs);
    assert_true(inputs_identity(&inputs, &with_start, other, &err));
    assert_string_not_equal(same, other);
    assert_true(strlen(other) < INPUTS_IDENTITY_SIZE - 1);
    inputs_release(&inputs);
}

/* ---- several files --------------------------------------------------------------------------- */

static void several_files_are_their_lines_in_order(void **state)
{
    (void)state;
    static const char *const more[] = {DATA("one-example.jsonl"), DATA("crlf.jsonl")};
    struct train_job job = make_job(MINI, DATA("seventeen.jsonl")), alone = job, other = job;
    char both[INPUTS_IDENTITY_SIZE], swapped[INPUTS_IDENTITY_SIZE], one[INPUTS_IDENTITY_SIZE];
    struct inputs inputs, single;
    struct error err = {0};

    job.hyper.val_split = alone.hyper.val_split = other.hyper.val_split = 0;
    job.more_training = (struct train_files){.paths = more, .count = 2};
    read_inputs(&job, &inputs);
    read_inputs(&alone, &single);
    assert_int_equal(inputs.train_count, 17 + 1 + 2);
    assert_int_equal(inputs.training->report.line_count, 17 + 1 + 2);
    assert_int_equal(inputs.training->report.example_count, inputs.train_count);
    for (size_t i = 0; i < single.train_count; i++) {
        assert_int_equal(inputs.train[i]->id_count, single.train[i]->id_count);
        assert_memory_equal(inputs.train[i]->ids, single.train[i]->ids,
                            single.train[i]->id_count * sizeof(uint32_t));
    }
    assert_int_equal(inputs.train[17]->line, 1); /* a line's number is that of its own file */
    assert_int_equal(inputs.train[19]->line, 2);
    assert_true(inputs_identity(&inputs, &job, both, &err));
    assert_true(inputs_identity(&single, &alone, one, &err));
    inputs_release(&inputs);
    inputs_release(&single);
    other.more_training =
        (struct train_files){.paths = (const char *const[]){more[1], more[0]}, .count = 2};
    read_inputs(&other, &inputs);
    assert_true(inputs_identity(&inputs, &other, swapped, &err));
    assert_string_not_equal(both, one);
    assert_string_not_equal(both, swapped);
    inputs_release(&inputs);
}

static void a_finding_in_one_of_several_files_says_in_which(void **state)
{
    (void)state;
    static struct dataset_report training, validation;
    static const char *const more[] = {DATA("missing-query.jsonl"), DATA("empty.jsonl")};
    struct train_job job = make_job(MINI, DATA("seventeen.jsonl"));
    struct train_memory memory;
    struct error err = {0};

    job.more_training = (struct train_files){.paths = more, .count = 1};
    assert_false(train_validate(&job, &training, &validation, &memory, &err));
    assert_string_equal(err.param, "training_file");
    assert_non_null(strstr(err.message, "file 2 of 2, line "));
    assert_int_equal(training.problems[PROBLEM_STRICT][0].file, 1);

    job.more_training =
        (struct train_files){.paths = &more[1], .count = 1}; /* empty beside one that is not */
    assert_false(train_validate(&job, &training, &validation, &memory, &err));
    assert_non_null(strstr(err.message, "file 2 of 2: the file is empty"));

    job.more_training = (struct train_files){0};
    job.validation_path = DATA("one-example.jsonl");
    job.more_validation = (struct train_files){.paths = more, .count = 1};
    assert_false(train_validate(&job, &training, &validation, &memory, &err));
    assert_string_equal(err.param, "validation_file");
    assert_non_null(strstr(err.message, "file 2 of 2, line "));
}

static void each_file_is_held_to_its_own_digest(void **state)
{
    (void)state;
    static struct dataset_report training, validation;
    static const char *const more[] = {DATA("one-example.jsonl"), DATA("crlf.jsonl")};
    static char digests[3][SHA256_HEX_SIZE];
    const char *others[] = {digests[1], ""};
    struct train_job job = make_job(MINI, DATA("seventeen.jsonl"));
    struct train_memory memory;
    struct error err = {0};

    assert_true(file_sha256(job.training_path, digests[0], &err));
    assert_true(file_sha256(more[0], digests[1], &err));
    assert_true(file_sha256(more[1], digests[2], &err));
    job.training_sha256 = digests[0];
    job.more_training = (struct train_files){more, 2, others}; /* the last one's is not known */
    assert_true(train_validate(&job, &training, &validation, &memory, &err));
    others[1] = digests[2];
    assert_true(train_validate(&job, &training, &validation, &memory, &err));
    others[1] = digests[0];
    assert_false(train_validate(&job, &training, &validation, &memory, &err));
    assert_int_equal(err.code, ERR_CORRUPT);
    assert_string_equal(err.param, "training_file");
    assert_non_null(strstr(err.message, "file 3: "));
    assert_non_null(strstr(err.message, "crlf.jsonl' is not what was uploaded"));

    others[1] = digests[2];
    job.validation_path = DATA("one-example.jsonl");
    job.validation_sha256 = digests[2];
    assert_false(train_validate(&job, &training, &validation, &memory, &err));
    assert_int_equal(err.code, ERR_CORRUPT);
    assert_string_equal(err.param, "validation_file");
}

static void files_that_are_only_tested_are_read_by_the_same_rules(void **state)
{
    (void)state;
    static struct dataset_report report;
    static const char *const paths[] = {DATA("seventeen.jsonl"), DATA("missing-query.jsonl")};
    const struct train_job job = make_job(MINI, DATA("seventeen.jsonl"));
    struct train_files files = {.paths = paths, .count = 1};
    struct error err = {0};

    assert_true(train_check_files(&job, &files, &report, &err));
    assert_int_equal(report.example_count, 17);
    files.count = 2;
    assert_false(train_check_files(&job, &files, &report, &err));
    assert_string_equal(err.param, "test_file");
    assert_non_null(strstr(err.message, "file 2 of 2, line "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_recorded_split_and_batches_come_out),
        cmocka_unit_test(a_validation_file_takes_the_place_of_the_split),
        cmocka_unit_test(the_split_holds_out_whole_examples_and_leaves_one),
        cmocka_unit_test(what_is_wrong_with_a_file_is_said_under_its_name),
        cmocka_unit_test(both_reports_are_whole_when_both_files_are_refused),
        cmocka_unit_test(a_split_that_takes_every_target_is_refused),
        cmocka_unit_test(each_hyperparameter_is_checked_by_name),
        cmocka_unit_test(the_identity_changes_with_each_thing_that_changes_the_result),
        cmocka_unit_test(several_files_are_their_lines_in_order),
        cmocka_unit_test(a_finding_in_one_of_several_files_says_in_which),
        cmocka_unit_test(each_file_is_held_to_its_own_digest),
        cmocka_unit_test(files_that_are_only_tested_are_read_by_the_same_rules),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
