/*
 * Proves that a disk that is full or refuses writes is out of service until it takes them again, and that
 * nothing else takes it out.
 */
#include "daemon/sched/disk.h"

#include "daemon/base/json.h"
#include "tests/support/scratch.h"
#include "tests/support/test.h"

#include <errno.h>
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
    assert_true(disk_check_room(fixture->disk, 1000, &fault));
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
    assert_false(disk_check_room(fixture->disk, 0, NULL));
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
    assert_false(disk_check_room(fixture->disk, bytes + ((uint64_t)1 << 40), &fault));
    assert_int_equal(fault.code, ERR_NO_MEMORY);
    assert_string_equal(fault.word, ERROR_DISK_FULL);
    assert_non_null(strstr(fault.message, "1048576 of them as a reserve"));
    assert_false(disk_check_room(fixture->disk, UINT64_MAX, NULL));
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

static void the_systems_reasons_have_their_words(void **state)
{
    (void)state;
    assert_string_equal(error_disk_word(ENOSPC), ERROR_DISK_FULL);
    assert_string_equal(error_disk_word(EDQUOT), ERROR_DISK_FULL);
    assert_string_equal(error_disk_word(EIO), ERROR_DISK_FAULT);
    assert_string_equal(error_disk_word(EROFS), ERROR_DISK_FAULT);
    assert_string_equal(error_disk_word(EACCES), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_good_disk_has_its_ballast_and_says_ok, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_disk_is_out_of_service_and_a_piece_is_given_up,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_is_back_once_the_ballast_can_be_written, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_disk_that_refuses_writes_keeps_its_ballast, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_disk_that_cannot_be_written_stays_out_of_service, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_is_not_the_disks_fault_changes_nothing, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_reserve_is_nobodys_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_pieces_of_an_earlier_start_are_taken_over, set_up,
                                        tear_down),
        cmocka_unit_test(the_systems_reasons_have_their_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
