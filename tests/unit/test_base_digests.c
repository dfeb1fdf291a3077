/*
 * Proves that a file is hashed once while it is untouched, and again as soon as anything about it
 * may have changed.
 */
#include "daemon/base/digests.h"
#include "tests/support/scratch.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct place {
    char *folder, path[512];
    struct digests *digests;
};

static void open_place(struct place *place)
{
    struct error err = {0};

    place->folder = scratch_new();
    (void)snprintf(place->path, sizeof(place->path), "%s/base", place->folder);
    if (!digests_new(&place->digests, &err))
        fail_msg("%s", err.message);
}

static void close_place(struct place *place)
{
    digests_free(place->digests);
    scratch_free(place->folder);
}

/* The change time cannot be set: files of the system are the ones that are old in both. */
static const char old_file[] = "/bin/sh";

static void digest(struct place *place, const char *path, char ret_sha256[SHA256_HEX_SIZE])
{
    char plain[SHA256_HEX_SIZE];
    struct error err = {0};

    if (!digests_of_file(place->digests, path, ret_sha256, &err) || !file_sha256(path, plain, &err))
        fail_msg("%s", err.message);
    assert_string_equal(ret_sha256, plain);
}

static void an_untouched_file_is_hashed_once(void **state)
{
    (void)state;
    struct place place;
    char sha256[SHA256_HEX_SIZE];

    open_place(&place);
    for (int i = 0; i < 3; i++)
        digest(&place, old_file, sha256);
    assert_int_equal(digests_hashed_count(place.digests), 1);
    close_place(&place);
}

static void a_file_changed_a_moment_ago_is_hashed_each_time(void **state)
{
    (void)state;
    struct place place;
    char first[SHA256_HEX_SIZE], second[SHA256_HEX_SIZE];
    const struct timespec years_ago[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};

    open_place(&place);
    scratch_write(place.path, "one", 3);
    /* Same size, same modification time: only the time of change tells, and it is new. */
    assert_int_equal(utimensat(AT_FDCWD, place.path, years_ago, 0), 0);
    digest(&place, place.path, first);
    scratch_write(place.path, "two", 3);
    assert_int_equal(utimensat(AT_FDCWD, place.path, years_ago, 0), 0);
    digest(&place, place.path, second);
    assert_string_not_equal(first, second);
    assert_int_equal(digests_hashed_count(place.digests), 2);
    close_place(&place);
}

static void a_missing_file_fails_as_without(void **state)
{
    (void)state;
    struct place place;
    char sha256[SHA256_HEX_SIZE];
    struct error err = {0};

    open_place(&place);
    assert_false(digests_of_file(place.digests, place.path, sha256, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_false(digests_of_file(NULL, place.path, sha256, &err));
    close_place(&place);
}

static void several_files_are_remembered_at_once(void **state)
{
    (void)state;
    static const char *const old[] = {"/bin/cat", "/bin/ls", "/bin/cp"};
    struct place place;
    char sha256[SHA256_HEX_SIZE];

    open_place(&place);
    digest(&place, old_file, sha256);
    for (size_t i = 0; i < COUNT_OF(old); i++)
        digest(&place, old[i], sha256);
    digest(&place, old_file, sha256);
    assert_int_equal(digests_hashed_count(place.digests), 1 + COUNT_OF(old));
    close_place(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_untouched_file_is_hashed_once),
        cmocka_unit_test(a_file_changed_a_moment_ago_is_hashed_each_time),
        cmocka_unit_test(a_missing_file_fails_as_without),
        cmocka_unit_test(several_files_are_remembered_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
