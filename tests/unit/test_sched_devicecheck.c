/*
 * Proves that the check of a device passes on the processor and names what differs, an op or a tiny
 * job's losses; that a pass is remembered for the very same card, driver and program and for nothing
 * else, a failure never; and that a device is checked once however many workers it has.
 */
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/sched/inventory.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/level.h"
#include "kernels/host.h"
#include "tests/support/scratch.h"
#include "tests/support/test.h"

#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- backends with faults ------------------------------------------------------------------------ */

static bool always(void)
{
    return true;
}

static struct backend *open_table(const struct backend_table *table)
{
    const struct level level = {"test", table, always};
    struct backend *be = NULL;
    char reason[256] = "";

    if (cpu_open_level(&level, 1, &be, reason, sizeof(reason)) != BACKEND_OK)
        fail_msg("%s", reason);
    return be;
}

static struct backend_table plain(void)
{
    return *levels[LEVEL_COUNT - 1].table;
}

static void wrong_gate(struct backend *be, float *y, const float *x, const float *gate, size_t N,
                       size_t C, enum rounding rounding)
{
    levels[LEVEL_COUNT - 1].table->gate_forward(be, y, x, gate, N, C, rounding);
    y[N * C / 2] += 0.01f;
}

/* Right where the examples are, wrong on an adapter. */
static void wrong_zero(struct backend *be, void *target, size_t size_bytes)
{
    host_zero(be, target, size_bytes);
    if (size_bytes > 2000)
        ((float *)target)[0] = 100;
}

static enum backend_precision wrong_precision;

static void sometimes_negative(struct backend *be, float *C, const float *A, const float *B,
                               const struct matmul *shape)
{
    struct matmul negative = *shape;

    if (be->precision == wrong_precision)
        negative.alpha = -shape->alpha;
    levels[LEVEL_COUNT - 1].table->matmul(be, C, A, B, &negative);
}

static void *no_memory(struct backend *be, size_t size_bytes)
{
    (void)be;
    (void)size_bytes;
    return NULL;
}

/* ---- the check ----------------------------------------------------------------------------------- */

static struct device_check check_table(const struct backend_table *table)
{
    struct backend *be = open_table(table);
    struct device_check check = {0};
    struct error err = {0};

    if (!devicecheck_run(be, BACKEND_CPU, NULL, &check, &err))
        fail_msg("%s", err.message);
    assert_int_equal(backend_allocated_bytes(be), 0);
    backend_close(be);
    return check;
}

static void the_processor_passes(void **state)
{
    const struct backend_table table = plain();
    const struct device_check check = check_table(&table);

    (void)state;
    assert_int_equal(check.verdict, CHECK_PASSED);
    assert_string_equal(check.reason, "");
    assert_true(check.example_count > 40);
    assert_true(check.worst_share > 0 && check.worst_share <= 1);
    assert_true(check.worst_op[0] != '\0');
    assert_true(check.loss > 1 && check.reference_loss > 1 && check.loss_share < 0.1);
    assert_true(check.checked_unix_s > 1000000000 && check.elapsed_ns > 0);
}

static void an_op_that_differs_is_named(void **state)
{
    struct backend_table table = plain();

    (void)state;
    table.gate_forward = wrong_gate;
    const struct device_check check = check_table(&table);
    assert_int_equal(check.verdict, CHECK_FAILED);
    if (strncmp(check.reason, "gate", 4) != 0 || !strstr(check.reason, "allowed"))
        fail_msg("%s", check.reason);
    assert_true(check.worst_share > 1);
}

static void a_job_whose_losses_differ_fails_the_check(void **state)
{
    struct backend_table table = plain();

    (void)state;
    table.zero = wrong_zero;
    const struct device_check check = check_table(&table);
    assert_int_equal(check.verdict, CHECK_FAILED);
    if (!strstr(check.reason, "a tiny job's losses (float32) differ by"))
        fail_msg("%s", check.reason);
    assert_true(check.loss_share > 1);
}

static struct device_check check_precisions(enum backend_precision wrong)
{
    struct backend_table table = plain();
    struct device_check check = {0};
    struct error err = {0};

    wrong_precision = wrong;
    table.matmul = sometimes_negative;
    struct backend *be = open_table(&table);
    be->precisions |= BACKEND_PRECISION_BIT(BACKEND_TF32) | BACKEND_PRECISION_BIT(BACKEND_BF16);
    if (!devicecheck_run(be, BACKEND_CPU, NULL, &check, &err))
        fail_msg("%s", err.message);
    assert_int_equal(be->precision, BACKEND_FLOAT32); /* as it was */
    backend_close(be);
    return check;
}

static void each_precision_of_a_device_is_checked(void **state)
{
    (void)state;
    assert_int_equal(check_precisions(BACKEND_PRECISION_COUNT).verdict, CHECK_PASSED);
    for (int p = BACKEND_TF32; p < BACKEND_PRECISION_COUNT; p++) {
        const struct device_check check = check_precisions((enum backend_precision)p);
        char named[32];

        (void)snprintf(named, sizeof(named), "(%s)", backend_precision_names[p]);
        assert_int_equal(check.verdict, CHECK_FAILED);
        if (!strstr(check.reason, "a tiny job") || !strstr(check.reason, named))
            fail_msg("%s: %s", named, check.reason);
    }
}

static void a_device_without_memory_has_no_verdict(void **state)
{
    struct backend_table table = plain();
    struct device_check check = {0};
    struct error err = {0};

    (void)state;
    table.alloc = no_memory;
    struct backend *be = open_table(&table);
    assert_false(devicecheck_run(be, BACKEND_CPU, NULL, &check, &err));
    assert_int_equal(err.code, ERR_NO_MEMORY);
    assert_int_equal(check.verdict, CHECK_NONE);
    backend_close(be);
}

static size_t row_count, agreeing_count;

static void count_row(void *context, const char *row)
{
    (void)context;
    row_count++;
    agreeing_count += strstr(row, "  agrees") != NULL;
}

static void the_table_has_a_row_for_each_level(void **state)
{
    struct devices devices;
    struct error err = {0};
    size_t supported = 0;

    (void)state;
    for (size_t i = 0; i < level_count; i++)
        supported += levels[i].is_supported();
    if (!devices_detect("cpu", &devices, &err))
        fail_msg("%s", err.message);
    row_count = agreeing_count = 0;
    assert_true(devicecheck_table(&devices, *state, count_row, NULL));
    assert_int_equal(agreeing_count, supported);
    assert_int_equal(row_count, supported + 2); /* the heading and the note */

    devices.items[0].kind = BACKEND_CUDA; /* not there */
    assert_false(devicecheck_table(&devices, *state, count_row, NULL));
}

/* ---- what is remembered -------------------------------------------------------------------------- */

static const struct backend_device card = {
    .uuid = "GPU-01020304-0506-0708-090a-0b0c0d0e0f10",
    .name = "Card \"quoted\" ä",
    .driver = "580.65.06, CUDA 13.0",
    .library = "cuBLAS 13.0.2",
    .build = "123 bytes of 456.000000789",
};
static const struct device_check passed = {
    .verdict = CHECK_PASSED,
    .checked_unix_s = 1767225600,
    .elapsed_ns = 250000000,
    .example_count = 60,
    .worst_op = "attention",
    .worst_share = 0.125,
    .loss = 4.5,
    .reference_loss = 4.5,
    .loss_share = 0.25,
};

static void remember(const char *folder, const struct backend_device *device,
                     const struct device_check *check)
{
    struct error err = {0};

    if (!devicecheck_remember(folder, device, check, &err))
        fail_msg("%s", err.message);
}

static const char *file_of_card(const char *folder)
{
    return scratch_path(folder, "device-checks/GPU-01020304-0506-0708-090a-0b0c0d0e0f10.json");
}

static void a_pass_is_remembered(void **state)
{
    struct device_check found = {0};

    assert_false(devicecheck_recall(*state, &card, &found));
    remember(*state, &card, &passed);
    assert_true(devicecheck_recall(*state, &card, &found));
    assert_true(found.remembered);
    assert_int_equal(found.verdict, CHECK_PASSED);
    assert_int_equal(found.checked_unix_s, passed.checked_unix_s);
    assert_int_equal(found.example_count, 60);
    assert_string_equal(found.worst_op, "attention");
    assert_true(found.worst_share == 0.125 && found.loss_share == 0.25);
}

static void it_is_not_written_through_a_link(void **state)
{
    struct error err = {0};
    const char *folder = scratch_path(*state, "linked"),
               *elsewhere = scratch_path(*state, "elsewhere"),
               *link = scratch_path(*state, "linked/device-checks");

    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(mkdir(elsewhere, 0700), 0);
    assert_int_equal(symlink(elsewhere, link), 0);
    assert_false(devicecheck_remember(folder, &card, &passed, &err));
    assert_non_null(strstr(err.message, "is a symbolic link"));
    assert_int_equal(rmdir(elsewhere), 0); /* nothing is in it */
}

static void it_holds_for_the_same_card_driver_library_and_plugin(void **state)
{
    struct backend_device others[] = {card, card, card, card};
    struct device_check found;

    (void)snprintf(others[0].name, sizeof(others[0].name), "Another card");
    (void)snprintf(others[1].driver, sizeof(others[1].driver), "581.01, CUDA 13.0");
    (void)snprintf(others[2].library, sizeof(others[2].library), "%s", "");
    (void)snprintf(others[3].build, sizeof(others[3].build), "123 bytes of 457.000000000");
    remember(*state, &card, &passed);
    for (size_t i = 0; i < COUNT_OF(others); i++)
        if (devicecheck_recall(*state, &others[i], &found))
            fail_msg("case %zu", i);
}

/* A copy under another card's name is a file that somebody moved. */
static void a_file_of_another_card_counts_as_none(void **state)
{
    struct backend_device other = card;
    struct device_check found;
    size_t size;

    remember(*state, &card, &passed);
    char *bytes = scratch_read(file_of_card(*state), &size);
    (void)snprintf(other.uuid, sizeof(other.uuid), "GPU-other");
    scratch_write(scratch_path(*state, "device-checks/GPU-other.json"), bytes, size);
    assert_false(devicecheck_recall(*state, &other, &found));
    free(bytes);
}

static void a_damaged_file_counts_as_none(void **state)
{
    struct device_check found;
    size_t size;

    remember(*state, &card, &passed);
    char *bytes = scratch_read(file_of_card(*state), &size);
    char *end = strrchr(bytes, '}');
    assert_non_null(end);
    for (size_t cut = 0; cut <= (size_t)(end - bytes); cut++) {
        scratch_write(file_of_card(*state), bytes, cut);
        if (devicecheck_recall(*state, &card, &found))
            fail_msg("cut at %zu of %zu", cut, size);
    }
    scratch_write(file_of_card(*state), "[1]", 3);
    assert_false(devicecheck_recall(*state, &card, &found));
    char *share = strstr(bytes, "0.125");
    assert_non_null(share);
    share[0] = '7'; /* 7.125 of what is allowed is no pass */
    scratch_write(file_of_card(*state), bytes, size);
    assert_false(devicecheck_recall(*state, &card, &found));
    free(bytes);
}

static void a_failure_is_not_remembered_and_ends_what_was(void **state)
{
    struct device_check failed = passed, found; /* nothing but the verdict is worse */

    failed.verdict = CHECK_FAILED;
    remember(*state, &card, &failed);
    assert_false(devicecheck_recall(*state, &card, &found));
    remember(*state, &card, &passed);
    remember(*state, &card, &failed);
    assert_false(devicecheck_recall(*state, &card, &found));
}

static void a_card_without_a_number_is_checked_each_time(void **state)
{
    static const char *const numbers[] = {"", "../GPU", "GPU/1"};

    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        struct backend_device device = card;
        struct device_check found;

        (void)snprintf(device.uuid, sizeof(device.uuid), "%s", numbers[i]);
        remember(*state, &device, &passed);
        assert_false(devicecheck_recall(*state, &device, &found));
    }
}

static void what_cannot_be_written_is_said(void **state)
{
    struct error err = {0};

    scratch_write(scratch_path(*state, "device-checks"), "a file",
                  6); /* where a folder should be */
    assert_false(devicecheck_remember(*state, &card, &passed, &err));
    assert_non_null(strstr(err.message, "device-checks"));
}

/* ---- before the first job ------------------------------------------------------------------------ */

static struct devices one_card(void)
{
    struct devices devices = {.count = 1};

    devices.items[0] = (struct device){.id = "cuda:0", .kind = BACKEND_CUDA, .thread_count = 1};
    devices.items[0].description = card;
    devices.items[0].description.memory_free_bytes = 77;
    return devices;
}

static struct inventory *open_inventory(const struct devices *devices, const char *folder)
{
    struct inventory *inventory = NULL;
    struct error err = {0};

    if (!inventory_open(devices, folder, &inventory, &err))
        fail_msg("%s", err.message);
    return inventory;
}

static char *shown(struct inventory *inventory)
{
    struct json *object = json_new_object();
    struct error err = {0};
    char *text = NULL;

    inventory_add_json(inventory, 0, object);
    assert_true(json_print_text(object, &text, &err));
    json_free(object);
    return text;
}

static void check_shown(struct inventory *inventory, const char *part)
{
    char *text = shown(inventory);

    if (!strstr(text, part))
        fail_msg("no '%s' in %s", part, text);
    free(text);
}

struct entrance { /* one worker */
    struct inventory *inventory;
    const struct backend_table *table;
    enum inventory_answer answer;
    char reason[256];
};

static void *enter(void *context)
{
    struct entrance *entrance = context;
    struct backend *be = open_table(entrance->table);

    entrance->answer = inventory_admit(entrance->inventory, 0, be, NULL, entrance->reason,
                                       sizeof(entrance->reason));
    backend_close(be);
    return NULL;
}

static _Atomic size_t adamw_count;

static void counted_adamw(struct backend *be, float *p, float *m, float *v, const float *g,
                          const struct adamw *step, size_t count)
{
    adamw_count++;
    levels[LEVEL_COUNT - 1].table->adamw(be, p, m, v, g, step, count);
}

static void a_card_is_checked_once_for_all_its_workers_and_starts(void **state)
{
    struct backend_table table = plain();
    const struct devices devices = one_card();
    struct inventory *inventory = open_inventory(&devices, *state);
    struct entrance entrances[3];
    pthread_t threads[3];

    table.adamw = counted_adamw;
    adamw_count = 0;
    check_shown(inventory, "\"self_check\":{\"verdict\":\"none\",\"checked_at\":null");
    for (size_t i = 0; i < 3; i++) {
        entrances[i] = (struct entrance){.inventory = inventory, .table = &table};
        assert_int_equal(pthread_create(&threads[i], NULL, enter, &entrances[i]), 0);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(entrances[i].answer, INVENTORY_USABLE);
    }
    const size_t once = adamw_count;
    assert_true(once > 0 && once < 40);
    check_shown(inventory, "\"verdict\":\"passed\"");
    check_shown(inventory, "\"remembered\":false");
    inventory_close(inventory);

    inventory = open_inventory(&devices, *state); /* the next start */
    entrances[0] = (struct entrance){.inventory = inventory, .table = &table};
    (void)enter(&entrances[0]);
    assert_int_equal(entrances[0].answer, INVENTORY_USABLE);
    assert_int_equal(adamw_count, once);
    check_shown(inventory, "\"remembered\":true");
    inventory_close(inventory);
}

static void a_card_that_differs_is_refused_until_it_no_longer_does(void **state)
{
    struct backend_table wrong = plain(), right = plain();
    const struct devices devices = one_card();
    struct inventory *inventory = open_inventory(&devices, *state);
    struct entrance first = {.inventory = inventory, .table = &wrong};
    struct entrance second = {.inventory = inventory, .table = &right};

    wrong.gate_forward = wrong_gate;
    (void)enter(&first);
    assert_int_equal(first.answer, INVENTORY_FAILED);
    if (strncmp(first.reason, "its check failed: gate, ", 24) != 0)
        fail_msg("%s", first.reason);
    (void)enter(&second); /* another worker of the same card */
    assert_int_equal(second.answer, INVENTORY_FAILED);
    assert_string_equal(second.reason, first.reason);
    check_shown(inventory, "\"verdict\":\"failed\"");
    inventory_close(inventory);

    inventory = open_inventory(&devices, *state);
    second.inventory = inventory;
    (void)enter(&second);
    assert_int_equal(second.answer, INVENTORY_USABLE);
    inventory_close(inventory);
}

static void a_card_without_memory_is_checked_later(void **state)
{
    struct backend_table full = plain(), right = plain();
    const struct devices devices = one_card();
    struct inventory *inventory = open_inventory(&devices, *state);
    struct entrance first = {.inventory = inventory, .table = &full};
    struct entrance second = {.inventory = inventory, .table = &right};

    full.alloc = no_memory;
    (void)enter(&first);
    assert_int_equal(first.answer, INVENTORY_LATER);
    if (strncmp(first.reason, "its check cannot be made yet: ", 30) != 0)
        fail_msg("%s", first.reason);
    (void)enter(&second);
    assert_int_equal(second.answer, INVENTORY_USABLE);
    inventory_close(inventory);
}

static void readings_are_made_anew_for_who_asks(void **state)
{
    struct devices devices;
    struct error err = {0};
    const struct timespec pause = {.tv_nsec = 1000000};

    if (!devices_detect("cpu", &devices, &err))
        fail_msg("%s", err.message);
    devices.items[0].description.memory_free_bytes = 77; /* as of the start */
    struct inventory *inventory = open_inventory(&devices, *state);
    check_shown(inventory, "\"memory_free_bytes\":77,");
    bool anew = false;
    for (size_t looks = 0; !anew; looks++) { /* it takes a second */
        if (looks == 20000)
            fail_msg("the reading stays");
        inventory_refresh(inventory);
        char *text = shown(inventory);
        anew = !strstr(text, "\"memory_free_bytes\":77,");
        free(text);
        (void)nanosleep(&pause, NULL);
    }
    inventory_close(inventory);
}

/* This program has no plug-in, so the card does not answer: the reading of the start stays. */
static void a_card_that_does_not_answer_keeps_its_last_reading(void **state)
{
    const struct devices devices = one_card();
    struct inventory *inventory = open_inventory(&devices, *state);

    inventory_refresh(inventory);
    check_shown(inventory, "\"memory_free_bytes\":77,");
    check_shown(inventory, "\"temperature_celsius\":null,\"power_watts\":null");
    check_shown(inventory, "\"uuid\":\"GPU-01020304-0506-0708-090a-0b0c0d0e0f10\"");
    inventory_close(inventory);
}

static int set_up(void **state)
{
    *state = scratch_new();
    return 0;
}

static int tear_down(void **state)
{
    scratch_free(*state);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_processor_passes),
        cmocka_unit_test(an_op_that_differs_is_named),
        cmocka_unit_test(a_job_whose_losses_differ_fails_the_check),
        cmocka_unit_test(each_precision_of_a_device_is_checked),
        cmocka_unit_test(a_device_without_memory_has_no_verdict),
        TEST(the_table_has_a_row_for_each_level),
        TEST(a_pass_is_remembered),
        TEST(it_is_not_written_through_a_link),
        TEST(it_holds_for_the_same_card_driver_library_and_plugin),
        TEST(a_file_of_another_card_counts_as_none),
        TEST(a_damaged_file_counts_as_none),
        TEST(a_failure_is_not_remembered_and_ends_what_was),
        TEST(a_card_without_a_number_is_checked_each_time),
        TEST(what_cannot_be_written_is_said),
        TEST(a_card_is_checked_once_for_all_its_workers_and_starts),
        TEST(a_card_that_differs_is_refused_until_it_no_longer_does),
        TEST(a_card_without_memory_is_checked_later),
        TEST(readings_are_made_anew_for_who_asks),
        TEST(a_card_that_does_not_answer_keeps_its_last_reading),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
