/*
 * Proves that a resume checkpoint gives back every bit, that three are kept, and that what is
 * damaged or of another job is passed over by name.
 */
#include "daemon/train/checkpoint.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT 37
#define JOB "data=1 base=2"

struct arrays {
    float values[COUNT], moment1[COUNT], moment2[COUNT];
};

struct warnings {
    size_t count;
    char last[768];
};

static void keep_warning(void *context, const char *text)
{
    struct warnings *warnings = context;

    warnings->count++;
    snprintf(warnings->last, sizeof(warnings->last), "%s", text);
}

static void make_folder(char folder[64])
{
    snprintf(folder, 64, "/tmp/needled-checkpoint-XXXXXX");
    assert_non_null(mkdtemp(folder));
}

static size_t count_files(const char *folder, bool remove_all)
{
    DIR *directory = opendir(folder);
    size_t count = 0;

    assert_non_null(directory);
    for (const struct dirent *entry; (entry = readdir(directory));) {
        if (entry->d_name[0] == '.')
            continue;
        count++;
        if (remove_all)
            assert_int_equal(unlinkat(dirfd(directory), entry->d_name, 0), 0);
    }
    (void)closedir(directory);
    return count;
}

static void remove_folder(const char *folder)
{
    (void)count_files(folder, true);
    assert_int_equal(rmdir(folder), 0);
}

static struct checkpoint make_checkpoint(struct arrays *arrays, uint64_t step)
{
    struct checkpoint checkpoint = {
        .step = step,
        .epochs_told = step / 4,
        .trained_tokens = step * 1000003,
        .batch_tokens = 4096,
        .train_loss = 1.0 / 3.0 + (double)step,
        .train_accuracy = 0.7,
        .valid_loss = NAN,
        .value_count = COUNT,
        .values = arrays->values,
        .moment1 = arrays->moment1,
        .moment2 = arrays->moment2,
    };

    shuffle_init(&checkpoint.shuffle, step);
    for (size_t i = 0; i < COUNT; i++) {
        arrays->values[i] = (float)step + 1.0f / (float)(i + 3);
        arrays->moment1[i] = i % 2 ? -0.0f : 1e-42f;
        arrays->moment2[i] = 3e38f / (float)(i + 1);
    }
    return checkpoint;
}

static struct checkpoint_file write_one(const char *folder, uint64_t step)
{
    struct arrays arrays;
    struct checkpoint checkpoint = make_checkpoint(&arrays, step);
    struct checkpoint_file file;
    struct error err = {0};

    if (!checkpoint_write(folder, JOB, &checkpoint, &file, &err))
        fail_msg("%s", err.message);
    return file;
}

/* The step found, or 0; the content is checked against what was written for that step. */
static uint64_t read_back(const char *folder, const char *job, struct warnings *warnings)
{
    struct arrays wanted_arrays;
    struct checkpoint found = {0};
    struct error err = {0};
    bool is_there;

    *warnings = (struct warnings){0};
    if (!checkpoint_read_newest(folder, job, keep_warning, warnings, &found, &is_there, &err))
        fail_msg("%s", err.message);
    if (!is_there)
        return 0;
    const struct checkpoint wanted = make_checkpoint(&wanted_arrays, found.step);
    assert_int_equal(found.epochs_told, wanted.epochs_told);
    assert_int_equal(found.trained_tokens, wanted.trained_tokens);
    assert_true(found.train_loss == wanted.train_loss);
    assert_true(found.train_accuracy == wanted.train_accuracy);
    assert_true(found.valid_loss != found.valid_loss);
    assert_memory_equal(&found.shuffle, &wanted.shuffle, sizeof(found.shuffle));
    assert_int_equal(found.batch_tokens, wanted.batch_tokens);
    assert_int_equal(found.value_count, COUNT);
    assert_memory_equal(found.values, wanted_arrays.values, sizeof(wanted_arrays.values));
    assert_memory_equal(found.moment1, wanted_arrays.moment1, sizeof(wanted_arrays.moment1));
    assert_memory_equal(found.moment2, wanted_arrays.moment2, sizeof(wanted_arrays.moment2));
    const uint64_t step = found.step;
    checkpoint_release(&found);
    return step;
}

static void what_was_written_comes_back_bit_for_bit(void **state)
{
    (void)state;
    char folder[64], sha256[SHA256_HEX_SIZE];
    struct warnings warnings;
    struct stat status;
    struct error err = {0};

    make_folder(folder);
    assert_int_equal(read_back(folder, JOB, &warnings), 0);
    const struct checkpoint_file file = write_one(folder, 7);
    assert_int_equal(stat(file.path, &status), 0);
    assert_int_equal(file.size_bytes, status.st_size);
    assert_true(file_sha256(file.path, sha256, &err));
    assert_string_equal(sha256, file.sha256);
    assert_int_equal(read_back(folder, JOB, &warnings), 7);
    assert_int_equal(warnings.count, 0);
    remove_folder(folder);
}

static void the_last_three_are_kept(void **state)
{
    (void)state;
    char folder[64];
    struct warnings warnings;

    make_folder(folder);
    for (uint64_t step = 1; step <= 9; step++) {
        write_one(folder, step);
        assert_int_equal(count_files(folder, false), 2 * (step < 3 ? step : 3));
    }
    assert_int_equal(read_back(folder, JOB, &warnings), 9);
    remove_folder(folder);
}

/* How to damage the file at `path`. */
static void flip_byte(const char *path, long offset)
{
    const int descriptor = open(path, O_RDWR);
    unsigned char byte;

    assert_true(descriptor >= 0);
    const off_t size = lseek(descriptor, 0, SEEK_END);
    const off_t at = offset < 0 ? size + offset : offset;
    assert_int_equal(pread(descriptor, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(descriptor, &byte, 1, at), 1);
    assert_int_equal(close(descriptor), 0);
}
static void flip_first(const char *path)
{
    flip_byte(path, 0);
}
static void flip_in_header(const char *path)
{
    flip_byte(path, 60);
}
static void flip_last(const char *path)
{
    flip_byte(path, -1);
}
static void cut_last(const char *path)
{
    struct stat status;

    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(truncate(path, status.st_size - 1), 0);
}
static void empty(const char *path)
{
    assert_int_equal(truncate(path, 0), 0);
}
static void drop_digest(const char *path)
{
    char digest[LIMIT_PATH_BYTES + 16];

    snprintf(digest, sizeof(digest), "%s.sha256", path);
    assert_int_equal(unlink(digest), 0);
}
static void empty_digest(const char *path)
{
    char digest[LIMIT_PATH_BYTES + 16];

    snprintf(digest, sizeof(digest), "%s.sha256", path);
    assert_int_equal(truncate(digest, 0), 0);
}

static void a_damaged_newest_gives_way_to_the_one_before(void **state)
{
    (void)state;
    static void (*const damages[])(const char *path) = {
        flip_first, flip_in_header, flip_last, cut_last, empty, drop_digest, empty_digest,
    };

    for (size_t i = 0; i < COUNT_OF(damages); i++) {
        char folder[64];
        struct warnings warnings;

        make_folder(folder);
        write_one(folder, 5);
        const struct checkpoint_file newest = write_one(folder, 6);
        damages[i](newest.path);
        assert_int_equal(read_back(folder, JOB, &warnings), 5);
        assert_int_equal(warnings.count, 1);
        assert_non_null(strstr(warnings.last, "step 6"));
        /* said once: the next start finds a clean folder */
        assert_int_equal(read_back(folder, JOB, &warnings), 5);
        assert_int_equal(warnings.count, 0);
        remove_folder(folder);
    }
}

static void what_is_no_file_is_passed_over_and_left_alone(void **state)
{
    (void)state;

    for (int kind = 0; kind < 2; kind++) {
        char folder[64];
        struct warnings warnings;
        struct stat info;

        make_folder(folder);
        write_one(folder, 5);
        const struct checkpoint_file newest = write_one(folder, 6);
        assert_int_equal(unlink(newest.path), 0);
        assert_int_equal(kind == 0 ? mkfifo(newest.path, 0600) : mkdir(newest.path, 0700), 0);
        assert_int_equal(read_back(folder, JOB, &warnings), 5);
        assert_int_equal(warnings.count, 1);
        assert_non_null(strstr(warnings.last, "step 6"));
        assert_non_null(strstr(warnings.last, "not a regular file"));
        assert_int_equal(lstat(newest.path, &info), 0);
        assert_int_equal(remove(newest.path), 0);
        remove_folder(folder);
    }
}

static void a_checkpoint_of_another_job_is_not_taken(void **state)
{
    (void)state;
    char folder[64];
    struct warnings warnings;

    make_folder(folder);
    write_one(folder, 5);
    assert_int_equal(read_back(folder, JOB " seed=1", &warnings), 0);
    assert_int_equal(warnings.count, 1);
    assert_non_null(strstr(warnings.last, "other data"));
    remove_folder(folder);
}

/* Its own, made before what the job reads was changed: to begin anew without a word would hide that. */
static void a_checkpoint_of_the_job_before_its_inputs_changed_is_told(void **state)
{
    (void)state;
    static const char before[] = "training a1 validation none base b1 tokenizer t1 seed 3 start s1";
    static const struct {
        const char *now, *param, *words;
    } cases[] = {
        {"training a1 validation none base b2 tokenizer t1 seed 3 start s1", "model",
         "the base model has changed since the job began"},
        {"training a1 validation none base b1 tokenizer t2 seed 3 start s1", "model",
         "tokenizer has changed"},
        {"training a1 validation none base b1 tokenizer t1 seed 3 start s12", "model",
         "the adapter to go on from has changed"},
        {"training a2 validation none base b1 tokenizer t1 seed 3 start s1", "training_file",
         "the training file has changed"},
        {"training a1 validation v1 base b1 tokenizer t1 seed 3 start s1", "validation_file",
         "the validation file has changed"},
        {"training a2 validation none base b2 tokenizer t1 seed 4 start s1", NULL, NULL},
        {"training a2 validation none base b2 tokenizer t1 seed 3", NULL, NULL},
        {"training a2 validation none base b2 tokenizer t1 seed 3 start s1 more m1", NULL, NULL},
    };
    char folder[64];

    make_folder(folder);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct arrays arrays;
        struct checkpoint checkpoint = make_checkpoint(&arrays, 5), found = {0};
        struct warnings warnings = {0};
        struct checkpoint_file file;
        struct error err = {0};
        bool is_there = true;

        assert_true(checkpoint_write(folder, before, &checkpoint, &file, &err));
        if (cases[i].words) {
            assert_false(checkpoint_read_newest(folder, cases[i].now, keep_warning, &warnings,
                                                &found, &is_there, &err));
            assert_string_equal(err.word, CHECKPOINT_INPUT_CHANGED);
            assert_string_equal(err.param, cases[i].param);
            assert_non_null(strstr(err.message, cases[i].words));
            assert_int_equal(warnings.count, 0);
            assert_int_equal(count_files(folder, false), 2); /* nothing was removed */
        } else {
            assert_int_equal(read_back(folder, cases[i].now, &warnings), 0);
            assert_int_equal(warnings.count, 1);
        }
    }
    remove_folder(folder);
}

static void other_files_are_left_alone(void **state)
{
    (void)state;
    static const char *const names[] = {"epoch-0000000004.safetensors", "resume-.safetensors",
                                        "resume-1.safetensors", "resume-1-x.safetensors",
                                        "resume-99999999999999999999999-1.safetensors"};
    char folder[64], path[128];
    struct warnings warnings;
    struct error err = {0};

    make_folder(folder);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        assert_true(file_write(path, "x", 1, &err));
    }
    for (uint64_t step = 1; step <= 5; step++)
        write_one(folder, step);
    assert_int_equal(read_back(folder, JOB, &warnings), 5);
    assert_int_equal(warnings.count, 0);
    assert_int_equal(count_files(folder, false), 2 * CHECKPOINT_KEPT + COUNT_OF(names));
    remove_folder(folder);
}

static void a_folder_that_is_not_there_is_named(void **state)
{
    (void)state;
    struct arrays arrays;
    struct checkpoint checkpoint = make_checkpoint(&arrays, 1);
    struct checkpoint_file file;
    struct warnings warnings = {0};
    struct error err = {0};
    bool found;

    assert_false(checkpoint_write("/tmp/needled-none", JOB, &checkpoint, &file, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "/tmp/needled-none"));
    assert_false(checkpoint_read_newest("/tmp/needled-none", JOB, keep_warning, &warnings,
                                        &checkpoint, &found, &err));
    assert_int_equal(err.code, ERR_IO);
    assert_non_null(strstr(err.message, "/tmp/needled-none"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_comes_back_bit_for_bit),
        cmocka_unit_test(the_last_three_are_kept),
        cmocka_unit_test(a_damaged_newest_gives_way_to_the_one_before),
        cmocka_unit_test(what_is_no_file_is_passed_over_and_left_alone),
        cmocka_unit_test(a_checkpoint_of_another_job_is_not_taken),
        cmocka_unit_test(a_checkpoint_of_the_job_before_its_inputs_changed_is_told),
        cmocka_unit_test(other_files_are_left_alone),
        cmocka_unit_test(a_folder_that_is_not_there_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
