/*
 * Proves that a disk that is full or refuses writes is out of service until it takes them again, that a state
 * folder that is gone is noticed and taken up again, and that nothing else takes the disk out.
 */
#include "daemon/sched/disk.h"

#include "daemon/base/json.h"
#include "tests/support/scratch.h"
#include "tests/support/test.h"

#include <errno.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct fixture {
    char *folder;
    struct disk *disk;
};

static struct error fault;

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    assert_non_null(fixture);
    fixture->folder = scratch_new();
    assert_true(disk_open(fixture->folder, (uint64_t)1 << 20, &fixture->disk, &fault));
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    disk_close(fixture->disk);
    scratch_free(fixture->folder);
    free(fixture);
    return 0;
}

static struct error full(void)
{
    struct error err = {0};

    (void)error_set_word(&err, ERR_NO_MEMORY, ERROR_DISK_FULL, "", "write 'a': disk full");
    return err;
}

static size_t piece_count(const struct fixture *fixture)
{
    char path[4200];
    size_t count = 0;

    for (int i = 0; i < 9; i++) {
        (void)snprintf(path, sizeof(path), "%s/ballast-%d", fixture->folder, i);
        count += access(path, F_OK) == 0;
    }
    return count;
}

static const char *state_of(struct disk *disk, char ret_reason[512])
{
    static char state[32];
    struct json *object = disk_json(disk, ret_reason, 512);

    (void)snprintf(state, sizeof(state), "%s", json_text(json_member(object, "state")));
    json_free(object);
    return state;
}

static void a_good_disk_has_its_ballast_and_says_ok(void **state)
{
    struct fixture *fixture = *state;
    char reason[512];

    assert_int_equal(piece_count(fixture), 4);
    assert_true(disk_check_service(fixture->disk, &fault));
    assert_true(disk_check_room(fixture->disk, 1000, 1000, &fault));
    assert_string_equal(state_of(fixture->disk, reason), "ok");
    assert_string_equal(reason, "");
}

static void a_full_disk_is_out_of_service_and_a_piece_is_given_up(void **state)
{
    struct fixture *fixture = *state;
    const struct error why = full();
    char reason[512];

    assert_true(disk_report(fixture->disk, &why));
    assert_int_equal(piece_count(fixture), 3);
    assert_false(disk_report(fixture->disk, &why));    /* in the background nothing more is given */
    assert_false(disk_make_room(fixture->disk, &why)); /* there is room: one is enough for now */
    assert_int_equal(piece_count(fixture), 3);
    fault = (struct error){0};
    assert_false(disk_check_service(fixture->disk, &fault));
    assert_int_equal(fault.code, ERR_NO_MEMORY);
    assert_string_equal(fault.word, ERROR_DISK_FULL);
    assert_string_equal(fault.message, "disk full: write 'a': disk full");
    assert_false(disk_check_room(fixture->disk, 0, 0, NULL));
    assert_string_equal(state_of(fixture->disk, reason), "full");
}

static void it_is_back_once_the_ballast_can_be_written(void **state)
{
    struct fixture *fixture = *state;
    const struct error why = full();

    assert_true(disk_report(fixture->disk, &why));
    disk_look(fixture->disk);
    assert_true(disk_check_service(fixture->disk, &fault));
    assert_int_equal(piece_count(fixture), 4);
    (void)disk_report(fixture->disk, &why); /* so soon again: it is not tried at once */
    disk_look(fixture->disk);
    assert_false(disk_check_service(fixture->disk, NULL));
}

static void a_disk_that_refuses_writes_keeps_its_ballast(void **state)
{
    struct fixture *fixture = *state;
    struct error why = {0};
    char reason[512];

    (void)error_set_word(&why, ERR_IO, ERROR_DISK_FAULT, "", "sync 'a': input/output error");
    assert_false(disk_report(fixture->disk, &why));
    assert_int_equal(piece_count(fixture), 4);
    assert_string_equal(state_of(fixture->disk, reason), "failing");
    assert_string_equal(reason, "disk failing: sync 'a': input/output error");
    disk_look(fixture->disk); /* a write works */
    assert_true(disk_check_service(fixture->disk, &fault));
}

static void want_of_open_files_is_waited_for_until_one_can_be_opened(void **state)
{
    struct fixture *fixture = *state;
    struct error why = {0};
    struct rlimit before, none;
    char reason[512];

    (void)error_set_word(&why, ERR_UNAVAILABLE, ERROR_OPEN_FILES, "", "open 'a': too many");
    assert_false(disk_report(fixture->disk, &why));
    assert_int_equal(piece_count(fixture), 4); /* room would not help */
    assert_false(disk_check_service(fixture->disk, &fault));
    assert_int_equal(fault.code, ERR_UNAVAILABLE);
    assert_string_equal(state_of(fixture->disk, reason), "failing");
    assert_string_equal(reason, "open-file limit: open 'a': too many");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    disk_look(fixture->disk);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_false(disk_check_service(fixture->disk, NULL));
    disk_close(fixture->disk);
    assert_true(disk_open(fixture->folder, (uint64_t)1 << 20, &fixture->disk, &fault));
    assert_false(disk_report(fixture->disk, &why));
    disk_look(fixture->disk); /* the first look comes at once, and opens a file */
    assert_true(disk_check_service(fixture->disk, &fault));
}

static void a_disk_that_cannot_be_written_stays_out_of_service(void **state)
{
    struct fixture *fixture = *state;
    struct error why = {0};
    char away[4200];

    (void)error_set_word(&why, ERR_IO, ERROR_DISK_FAULT, "", "sync 'a': input/output error");
    assert_false(disk_report(fixture->disk, &why));
    (void)snprintf(away, sizeof(away), "%s.away", fixture->folder);
    assert_int_equal(rename(fixture->folder, away), 0);
    disk_look(fixture->disk);
    assert_int_equal(rename(away, fixture->folder), 0);
    assert_false(disk_check_service(fixture->disk, NULL));
}

static void what_is_not_the_disks_fault_changes_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct error why = {0};

    (void)error_set(&why, ERR_NO_MEMORY, "no memory for a job");
    assert_false(disk_report(fixture->disk, &why));
    (void)error_set(&why, ERR_IO, "open 'a': permission denied");
    assert_false(disk_report(fixture->disk, &why));
    assert_true(disk_check_service(fixture->disk, &fault));
    assert_true(disk_check_service(NULL, &fault));
    assert_false(disk_report(NULL, &why));
}

static void the_reserve_is_nobodys_room(void **state)
{
    struct fixture *fixture = *state;
    struct statvfs about;
    uint64_t bytes;

    assert_int_equal(statvfs(fixture->folder, &about), 0);
    bytes = (uint64_t)about.f_bavail * about.f_frsize;
    fault = (struct error){0};
    assert_false(disk_check_room(fixture->disk, bytes + ((uint64_t)1 << 40), 0, &fault));
    assert_int_equal(fault.code, ERR_NO_MEMORY);
    assert_string_equal(fault.word, ERROR_DISK_FULL);
    assert_non_null(strstr(fault.message, "1048576 of them as a reserve"));
    assert_null(strstr(fault.message, "running jobs"));
    assert_false(disk_check_room(fixture->disk, UINT64_MAX, UINT64_MAX, NULL));
    assert_false(disk_check_room(fixture->disk, 1, bytes + ((uint64_t)1 << 40), &fault));
    assert_non_null(strstr(fault.message, "for what running jobs still write"));
    assert_true(disk_check_service(fixture->disk, &fault)); /* being refused room is no fault */
}

static void the_pieces_of_an_earlier_start_are_taken_over(void **state)
{
    struct fixture *fixture = *state;
    const struct error why = full();

    assert_true(disk_report(fixture->disk, &why));
    disk_close(fixture->disk);
    assert_true(disk_open(fixture->folder, (uint64_t)1 << 20, &fixture->disk, &fault));
    assert_int_equal(piece_count(fixture), 4);
    assert_true(disk_check_service(fixture->disk, &fault));
}

/* ---- where the state lies ---- */

static const char *beside(const struct fixture *fixture)
{
    static char path[4200];

    (void)snprintf(path, sizeof(path), "%s.away", fixture->folder);
    return path;
}

/* Makes the folder of a state, with nothing in it. */
static void make_state(const char *folder)
{
    static const char *const names[] = {"uploads", "checkpoints", "artifacts"};

    assert_true(mkdir(folder, 0700) == 0 || errno == EEXIST);
    for (size_t i = 0; i < COUNT_OF(names); i++)
        assert_int_equal(mkdir(scratch_path(folder, names[i]), 0700), 0);
    scratch_write(scratch_path(folder, "needled.db"), "x", 1);
}

static void settle(struct fixture *fixture)
{
    make_state(fixture->folder);
    assert_true(disk_settle(fixture->disk, scratch_path(fixture->folder, "needled.db"), &fault));
    assert_true(disk_check_home(fixture->disk, &fault));
}

static void assert_gone(struct fixture *fixture, const char *words)
{
    char reason[512];

    fault = (struct error){0};
    assert_false(disk_check_home(fixture->disk, &fault));
    assert_int_equal(fault.code, ERR_IO);
    assert_string_equal(fault.word, ERROR_STATE_GONE);
    assert_true(error_is_disk(&fault));
    assert_non_null(strstr(fault.message, words));
    assert_false(disk_check_service(fixture->disk, NULL));
    assert_false(disk_check_room(fixture->disk, 0, 0, NULL));
    assert_string_equal(state_of(fixture->disk, reason), "gone");
    disk_look(fixture->disk); /* nothing is tried in what is there now */
    assert_false(disk_check_service(fixture->disk, NULL));
}

static void assert_back(struct fixture *fixture)
{
    assert_true(disk_check_home(fixture->disk, &fault));
    disk_look(fixture->disk); /* at once, however long it was away */
    assert_true(disk_check_service(fixture->disk, &fault));
}

static void a_state_folder_that_goes_is_noticed_and_taken_up_again(void **state)
{
    struct fixture *fixture = *state;

    settle(fixture);
    assert_int_equal(rename(fixture->folder, beside(fixture)), 0);
    assert_gone(fixture, "the state folder is gone: No such file");
    assert_int_equal(mkdir(fixture->folder, 0700), 0);
    assert_gone(fixture, "the state folder is gone: another is in its place");
    assert_false(disk_is_replaced(fixture->disk));
    assert_int_equal(rmdir(fixture->folder), 0); /* as nothing was made in it */
    assert_int_equal(rename(beside(fixture), fixture->folder), 0);
    assert_back(fixture);
}

static void so_is_each_thing_in_it(void **state)
{
    static const char *const names[] = {"needled.db", "uploads", "checkpoints", "artifacts"};
    struct fixture *fixture = *state;

    settle(fixture);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        const char *path = scratch_path(fixture->folder, names[i]);

        assert_int_equal(rename(path, beside(fixture)), 0);
        assert_gone(fixture, "is gone: No such file");
        assert_int_equal(rename(beside(fixture), path), 0);
        assert_back(fixture);
    }
}

static void another_database_in_its_place_is_told_from_an_empty_folder(void **state)
{
    struct fixture *fixture = *state;
    char other[4300];

    settle(fixture);
    (void)snprintf(other, sizeof(other), "%s/other", fixture->folder);
    make_state(other);
    assert_int_equal(rename(fixture->folder, beside(fixture)), 0);
    (void)snprintf(other, sizeof(other), "%s/other", beside(fixture));
    assert_int_equal(rename(other, fixture->folder), 0);
    assert_gone(fixture, "another is in its place");
    assert_true(disk_is_replaced(fixture->disk));
    scratch_free(strdup(beside(fixture)));
}

static void what_a_disk_refused_before_does_not_hide_that_it_is_gone(void **state)
{
    struct fixture *fixture = *state;
    const struct error why = full();

    settle(fixture);
    assert_true(disk_report(fixture->disk, &why));
    assert_int_equal(rename(fixture->folder, beside(fixture)), 0);
    assert_gone(fixture, "the state folder is gone");
    assert_int_equal(rename(beside(fixture), fixture->folder), 0);
    assert_back(fixture);
}

/* An idle daemon writes nothing that would tell it. */
static void a_disk_that_is_mounted_read_only_is_noticed_without_a_write(void **state)
{
    const struct fixture *fixture = *state;
    const char *folder = fixture->folder;
    bool found;

    settle(*state);
    if (mount(folder, folder, NULL, MS_BIND, NULL) != 0) {
        skip();
        return;
    }
    assert_int_equal(mount(NULL, folder, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), 0);
    disk_look(fixture->disk);
    fault = (struct error){0};
    found = !disk_check_service(fixture->disk, &fault);
    assert_int_equal(umount2(folder, MNT_DETACH), 0);
    assert_true(found);
    assert_string_equal(fault.word, ERROR_DISK_FAULT);
    assert_string_equal(fault.message, "disk failing: it is mounted read-only");
    disk_look(fixture->disk);
    assert_true(disk_check_service(fixture->disk, &fault));
}

static void what_only_bears_the_name_of_a_piece_is_left_alone(void **state)
{
    struct fixture *fixture = *state;
    const char *piece = scratch_path(fixture->folder, "ballast-1");
    const struct error why = full();
    struct stat about;

    disk_close(fixture->disk);
    assert_int_equal(unlink(piece), 0);
    assert_int_equal(mkdir(piece, 0700), 0);
    assert_true(disk_open(fixture->folder, (uint64_t)1 << 20, &fixture->disk, &fault));
    assert_true(disk_make_room(fixture->disk, &why)); /* the one before it */
    assert_false(disk_make_room(fixture->disk, &why));
    assert_int_equal(access(scratch_path(fixture->folder, "ballast-0"), F_OK), -1);
    assert_int_equal(stat(piece, &about), 0);
    assert_true(S_ISDIR(about.st_mode));
    disk_look(fixture->disk);
    assert_true(disk_check_service(fixture->disk, &fault));
    assert_int_equal(access(scratch_path(fixture->folder, "ballast-0"), F_OK), 0);
}

static void a_piece_of_another_size_is_written_anew(void **state)
{
    struct fixture *fixture = *state;
    const char *piece = scratch_path(fixture->folder, "ballast-2");
    struct stat about;

    disk_close(fixture->disk);
    scratch_write(piece, "x", 1);
    assert_true(disk_open(fixture->folder, (uint64_t)1 << 20, &fixture->disk, &fault));
    assert_int_equal(stat(piece, &about), 0);
    assert_int_equal(about.st_size, 65536);
}

static void the_servers_folders_are_not_named(void **state)
{
    struct fixture *fixture = *state;
    struct error why = {0};

    (void)error_set_word(&why, ERR_IO, ERROR_DISK_FAULT, "", "sync '%s/uploads/a': input/output",
                         fixture->folder);
    assert_false(disk_report(fixture->disk, &why));
    fault = (struct error){0};
    assert_false(disk_check_service(fixture->disk, &fault));
    assert_string_equal(fault.message, "disk failing: sync 'uploads/a': input/output");
}

static void the_systems_reasons_have_their_words(void **state)
{
    (void)state;
    assert_string_equal(error_disk_word(ENOSPC), ERROR_DISK_FULL);
    assert_string_equal(error_disk_word(EDQUOT), ERROR_DISK_FULL);
    assert_string_equal(error_disk_word(EFBIG), ERROR_DISK_FULL);
    assert_string_equal(error_disk_word(EIO), ERROR_DISK_FAULT);
    assert_string_equal(error_disk_word(EROFS), ERROR_DISK_FAULT);
    assert_string_equal(error_disk_word(EACCES), "");
    assert_string_equal(error_disk_limit(EDQUOT), "disk full");
    assert_string_equal(error_disk_limit(EFBIG), "file size limit");
    assert_string_equal(error_disk_limit(EIO), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_good_disk_has_its_ballast_and_says_ok, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_disk_is_out_of_service_and_a_piece_is_given_up,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_is_back_once_the_ballast_can_be_written, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(want_of_open_files_is_waited_for_until_one_can_be_opened,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_disk_that_refuses_writes_keeps_its_ballast, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_disk_that_cannot_be_written_stays_out_of_service, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_is_not_the_disks_fault_changes_nothing, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_reserve_is_nobodys_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_pieces_of_an_earlier_start_are_taken_over, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_state_folder_that_goes_is_noticed_and_taken_up_again,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(so_is_each_thing_in_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_database_in_its_place_is_told_from_an_empty_folder,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_a_disk_refused_before_does_not_hide_that_it_is_gone,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_disk_that_is_mounted_read_only_is_noticed_without_a_write,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_only_bears_the_name_of_a_piece_is_left_alone, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_piece_of_another_size_is_written_anew, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_servers_folders_are_not_named, set_up, tear_down),
        cmocka_unit_test(the_systems_reasons_have_their_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
