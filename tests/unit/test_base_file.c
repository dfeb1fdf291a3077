/*
 * Proves that a file under its final name is whole, that nothing is left of one that was given up,
 * and that failures name the path and the reason; also what a log line looks like.
 */
#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "daemon/base/log.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/needled-test-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static const char *in_folder(const char *name)
{
    static char path[256];
    struct error err = {0};

    assert_true(file_join(path, sizeof(path), folder, name, &err));
    return path;
}

static size_t count_files(void)
{
    DIR *open = opendir(folder);
    size_t count = 0;

    assert_non_null(open);
    for (struct dirent *entry = readdir(open); entry; entry = readdir(open))
        count += entry->d_name[0] != '.';
    (void)closedir(open);
    return count;
}

static void a_file_appears_whole_with_its_size_and_hash(void **state)
{
    (void)state;
    struct file_writer *writer = NULL;
    struct mapping map = MAPPING_NONE;
    struct error err = {0};
    char sha256[SHA256_HEX_SIZE], again[SHA256_HEX_SIZE];
    uint64_t size = 0;
    struct stat info;

    assert_true(file_writer_open(in_folder("a"), &writer, &err));
    assert_true(file_writer_append(writer, "ab", 2, &err));
    assert_true(file_writer_append(writer, "c", 1, &err));
    assert_int_equal(access(in_folder("a"), F_OK), -1);
    assert_true(file_writer_commit(writer, &size, sha256, &err));
    assert_int_equal(size, 3);
    assert_string_equal(sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_true(file_sha256(in_folder("a"), again, &err));
    assert_string_equal(again, sha256);
    assert_true(mapping_open(&map, in_folder("a"), &err));
    assert_int_equal(map.size, 3);
    assert_memory_equal(map.data, "abc", 3);
    mapping_close(&map);
    mapping_close(&map);
    assert_int_equal(stat(in_folder("a"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(count_files(), 1);
    assert_true(file_remove(in_folder("a"), &err));
    assert_true(file_remove(in_folder("a"), &err));
}

static void nothing_is_left_of_a_file_given_up(void **state)
{
    (void)state;
    struct file_writer *writer = NULL;
    struct error err = {0};

    assert_true(file_writer_open(in_folder("a"), &writer, &err));
    assert_true(file_writer_append(writer, "ab", 2, &err));
    assert_int_equal(count_files(), 1);
    file_writer_discard(writer);
    file_writer_discard(NULL);
    assert_int_equal(count_files(), 0);
    assert_true(file_writer_open(in_folder("a"), &writer, &err));
    assert_int_equal(mkdir(in_folder("a"), 0700), 0); /* the name is taken meanwhile */
    assert_false(file_writer_commit(writer, NULL, NULL, &err));
    assert_int_equal(err.code, ERR_IO);
    assert_int_equal(rmdir(in_folder("a")), 0);
    assert_int_equal(count_files(), 0);
}

static void a_planted_link_is_replaced_not_followed(void **state)
{
    (void)state;
    struct error err = {0};
    char target[256], sha256[SHA256_HEX_SIZE];
    struct stat info;

    snprintf(target, sizeof(target), "%s", in_folder("victim"));
    assert_true(file_write(target, "safe", 4, &err));
    assert_int_equal(symlink(target, in_folder("link")), 0);
    assert_true(file_write(in_folder("link"), "new", 3, &err));
    assert_int_equal(lstat(in_folder("link"), &info), 0);
    assert_true(S_ISREG(info.st_mode));
    assert_int_equal(stat(target, &info), 0);
    assert_int_equal(info.st_size, 4);
    assert_true(file_sha256(target, sha256, &err));
    assert_true(file_remove(in_folder("link"), &err));
    assert_true(file_remove(target, &err));
}

static void a_folder_of_ours_is_not_reached_through_a_link(void **state)
{
    (void)state;
    struct error err = {0};
    char inside[256], victim[256];
    DIR *opened = NULL;

    snprintf(inside, sizeof(inside), "%s", in_folder("link/victim"));
    snprintf(victim, sizeof(victim), "%s", in_folder("real/victim"));
    assert_int_equal(mkdir(in_folder("real"), 0700), 0);
    assert_true(file_write(victim, "safe", 4, &err));
    assert_int_equal(symlink("real", in_folder("link")), 0);
    assert_false(file_remove_inside(inside, &err));
    assert_int_equal(err.code, ERR_CORRUPT);
    assert_non_null(strstr(err.message, "a symbolic link, which is not followed"));
    assert_false(file_open_folder(in_folder("link"), &opened, &err));
    assert_non_null(strstr(err.message, "a symbolic link, which is not followed"));
    assert_int_equal(access(victim, F_OK), 0);
    assert_false(file_open_folder(victim, &opened, &err));
    assert_non_null(strstr(err.message, "not a folder"));
    assert_false(file_open_folder(in_folder("none"), &opened, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_true(file_remove_inside(in_folder("none/victim"), &err)); /* it is not there: fine */
    assert_true(file_open_folder(in_folder("real"), &opened, &err));
    assert_int_equal(closedir(opened), 0);
    assert_true(file_remove_inside(victim, &err));
    assert_int_equal(access(victim, F_OK), -1);
    assert_true(file_remove_inside(victim, &err));
    assert_int_equal(rmdir(in_folder("real")), 0);
    assert_int_equal(unlink(in_folder("link")), 0);
}

static void a_pipe_in_a_files_place_is_waited_for_by_nobody(void **state)
{
    (void)state;
    static const int flags[] = {O_RDONLY, O_WRONLY | O_CREAT, O_RDWR};
    struct error err = {0};
    struct stat info;
    char sha256[SHA256_HEX_SIZE];
    int descriptor = -1, reader;

    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    for (size_t i = 0; i < COUNT_OF(flags); i++) {
        assert_false(file_open(in_folder("pipe"), flags[i], &descriptor, &err));
        assert_int_equal(err.code, ERR_INVALID);
        assert_non_null(strstr(err.message, "not a regular file"));
    }
    assert_false(file_sha256(in_folder("pipe"), sha256, &err));
    reader = open(in_folder("pipe"), O_RDONLY | O_NONBLOCK); /* the other end is there */
    assert_true(reader >= 0);
    assert_false(file_open(in_folder("pipe"), O_WRONLY, &descriptor, &err));
    assert_int_equal(err.code, ERR_INVALID);
    assert_int_equal(close(reader), 0);
    assert_int_equal(unlink(in_folder("pipe")), 0);

    assert_false(file_open(folder, O_RDONLY, &descriptor, &err));
    assert_int_equal(err.code, ERR_INVALID);
    assert_false(file_open(folder, O_WRONLY | O_CREAT, &descriptor, &err));
    assert_int_equal(err.code, ERR_INVALID);
    assert_false(file_open(in_folder("new"), O_RDONLY, &descriptor, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(descriptor, -1);
    assert_true(file_open(in_folder("new"), O_RDWR | O_CREAT | O_NOFOLLOW, &descriptor, &err));
    assert_int_equal(fstat(descriptor, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    assert_int_equal(close(descriptor), 0);
    assert_int_equal(symlink("new", in_folder("link")), 0);
    assert_false(file_open(in_folder("link"), O_RDONLY | O_NOFOLLOW, &descriptor, &err));
    assert_int_equal(err.code, ERR_CORRUPT);
    assert_non_null(strstr(err.message, "a symbolic link, which is not followed"));
    assert_true(file_open(in_folder("link"), O_RDONLY, &descriptor, &err)); /* a base may be one */
    assert_int_equal(close(descriptor), 0);
    assert_int_equal(unlink(in_folder("link")), 0);
    assert_int_equal(unlink(in_folder("new")), 0);
}

static void failures_name_the_path_and_the_reason(void **state)
{
    (void)state;
    struct mapping map = MAPPING_NONE;
    struct file_writer *writer = NULL;
    struct error err = {0};
    char path[32];

    assert_false(mapping_open(&map, in_folder("none"), &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, in_folder("none")));
    assert_non_null(strstr(err.message, "No such file"));
    assert_false(mapping_open(&map, folder, &err));
    assert_non_null(strstr(err.message, "not a regular file"));
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_false(mapping_open(&map, in_folder("pipe"), &err)); /* and does not wait for a writer */
    assert_non_null(strstr(err.message, "not a regular file"));
    assert_int_equal(unlink(in_folder("pipe")), 0);
    assert_false(file_writer_open(in_folder("none/a"), &writer, &err));
    assert_false(file_join(path, sizeof(path), folder, "a-name-too-long-for-it", &err));
    assert_int_equal(err.code, ERR_LIMIT);
}

/* As for whoever opens more than the limit: nothing is free below what is open. */
static void a_file_too_many_open_is_told_apart_and_passes(void **state)
{
    (void)state;
    struct mapping map = MAPPING_NONE;
    struct file_writer *writer = NULL;
    struct error read = {0}, written = {0};
    struct rlimit before, none;
    bool opened, made;

    assert_true(file_write(in_folder("there"), "a", 1, NULL));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    opened = mapping_open(&map, in_folder("there"), &read);
    made = file_writer_open(in_folder("new"), &writer, &written);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_false(opened || made);
    for (size_t i = 0; i < 2; i++) {
        const struct error *err = i == 0 ? &read : &written;

        assert_int_equal(err->code, ERR_UNAVAILABLE);
        assert_true(error_is_open_files(err) && error_is_passing(err));
        assert_false(error_is_disk(err));
        assert_non_null(strstr(err->message, "Too many open files"));
    }
    assert_true(mapping_open(&map, in_folder("there"), &read)); /* another time it works */
    mapping_close(&map);
    assert_int_equal(unlink(in_folder("there")), 0);
}

static void folders_are_made_with_their_parents_and_kept_private(void **state)
{
    (void)state;
    struct error err = {0};
    struct stat info;

    assert_true(file_make_folder(in_folder("p/q/r"), &err));
    assert_true(file_make_folder(in_folder("p/q/r"), &err));
    assert_int_equal(stat(in_folder("p/q/r"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_true(file_write(in_folder("p/f"), "", 0, &err));
    assert_false(file_make_folder(in_folder("p/f"), &err));
    assert_false(file_make_folder("", &err));
    assert_true(file_remove(in_folder("p/f"), &err));
    assert_int_equal(rmdir(in_folder("p/q/r")), 0);
    assert_int_equal(rmdir(in_folder("p/q")), 0);
    assert_int_equal(rmdir(in_folder("p")), 0);
}

static void an_empty_file_maps_to_nothing(void **state)
{
    (void)state;
    struct mapping map = MAPPING_NONE;
    struct error err = {0};

    assert_true(file_write(in_folder("e"), NULL, 0, &err));
    assert_true(mapping_open(&map, in_folder("e"), &err));
    assert_null(map.data);
    assert_int_equal(map.size, 0);
    mapping_close(&map);
    assert_true(file_remove(in_folder("e"), &err));
}

static void random_ids_differ_and_have_their_form(void **state)
{
    (void)state;
    struct error err = {0};
    char a[32], b[32];

    assert_true(file_random_id(a, sizeof(a), "file-", 24, &err));
    assert_true(file_random_id(b, sizeof(b), "file-", 24, &err));
    assert_int_equal(strlen(a), 29);
    assert_memory_equal(a, "file-", 5);
    assert_string_not_equal(a, b);
    assert_int_equal(
        strspn(a + 5, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"), 24);
}

/* Catches what log_write puts on stderr. */
static void catch_log(const char *value, const char *message, char *line, size_t capacity)
{
    int ends[2], kept = dup(STDERR_FILENO);
    ssize_t count;

    assert_int_equal(pipe(ends), 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    log_write_for(LOG_LEVEL_DEBUG, "job", value, "not shown");
    log_write_for(LOG_LEVEL_WARN, "job", value, "%s", message);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    (void)close(ends[1]);
    count = read(ends[0], line, capacity - 1);
    assert_true(count > 0);
    line[count] = '\0';
    (void)close(ends[0]);
    (void)close(kept);
}

static void a_log_line_is_one_line_whatever_it_is_told(void **state)
{
    (void)state;
    char line[16384], long_text[5000], stream[64];
    struct stat about;

    (void)unsetenv("JOURNAL_STREAM");
    log_set_level(LOG_LEVEL_INFO);
    catch_log("ftjob-12", "a \"b\"\nc\x1b", line, sizeof(line));
    assert_string_equal(line, "level=warn job=ftjob-12 msg=\"a \\\"b\\\"\\nc\\x1b\"\n");
    catch_log("x y=z", "m", line, sizeof(line));
    assert_string_equal(line, "level=warn job=\"x y=z\" msg=\"m\"\n");
    memset(long_text, 1, sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    catch_log(long_text, long_text, line, sizeof(line));
    assert_int_equal(line[strlen(line) - 1], '\n');
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
    assert_int_equal(setenv("JOURNAL_STREAM", "8:1", 1), 0); /* of another stream */
    log_set_level(LOG_LEVEL_INFO);
    catch_log("x", "m", line, sizeof(line));
    assert_string_equal(line, "level=warn job=x msg=\"m\"\n");
    assert_int_equal(fstat(STDERR_FILENO, &about), 0);
    snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)about.st_dev, (uintmax_t)about.st_ino);
    assert_int_equal(setenv("JOURNAL_STREAM", stream, 1), 0);
    log_set_level(LOG_LEVEL_INFO);
    log_set_journal(-1); /* the machine may have one */
    catch_log("x", "m", line, sizeof(line));
    assert_string_equal(line, "<4>level=warn job=x msg=\"m\"\n");
}

static void the_two_clocks_go_forward(void **state)
{
    (void)state;
    int64_t before = clock_monotonic_ns();

    assert_true(clock_monotonic_ns() >= before);
    assert_true(clock_unix_s() > 1600000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_appears_whole_with_its_size_and_hash),
        cmocka_unit_test(nothing_is_left_of_a_file_given_up),
        cmocka_unit_test(a_planted_link_is_replaced_not_followed),
        cmocka_unit_test(a_folder_of_ours_is_not_reached_through_a_link),
        cmocka_unit_test(a_pipe_in_a_files_place_is_waited_for_by_nobody),
        cmocka_unit_test(failures_name_the_path_and_the_reason),
        cmocka_unit_test(a_file_too_many_open_is_told_apart_and_passes),
        cmocka_unit_test(folders_are_made_with_their_parents_and_kept_private),
        cmocka_unit_test(an_empty_file_maps_to_nothing),
        cmocka_unit_test(random_ids_differ_and_have_their_form),
        cmocka_unit_test(a_log_line_is_one_line_whatever_it_is_told),
        cmocka_unit_test(the_two_clocks_go_forward),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
