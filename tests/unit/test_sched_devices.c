/* Proves: the platform list and the level of SIMD are read from where they should be, a name that is
 * unknown or not there is an error that says what is, and a job may only ask for a device that exists. */
#include "daemon/base/buf.h"
#include "daemon/base/file.h"
#include "daemon/sched/devices.h"
#include "tests/support/scratch.h"
#include "tests/support/test.h"

#include <sched.h>

static int clear_environment(void **state)
{
    (void)state;
    (void)unsetenv("NEEDLED_PLATFORMS");
    (void)unsetenv("JAX_PLATFORMS");
    (void)unsetenv("NEEDLED_SIMD");
    return 0;
}

static void by_default_missing_platforms_are_only_reported(void **state)
{
    struct devices devices;
    struct error err = {0};
    cpu_set_t set;

    (void)state;
    if (!devices_detect(NULL, &devices, &err))
        fail_msg("%s", err.message);
    assert_true(devices.count >= 1);
    assert_string_equal(devices.items[devices.count - 1].id, "cpu:0");
    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    assert_int_equal(devices.items[devices.count - 1].thread_count, CPU_COUNT(&set));
    assert_true(devices.items[devices.count - 1].description.memory_total_bytes > 0);
    if (!devices.gpu_active) {
        assert_int_equal(devices.missing_count, 1);
        assert_string_equal(devices.missing[0].name, "cuda");
        assert_true(devices.missing[0].reason[0] != '\0');
    }
}

static void an_explicit_list_must_be_there_in_full(void **state)
{
    static const struct {
        const char *list, *first, *second;
    } cases[] = {
        {"tpu", "'tpu'", "not known"},
        {"cpu,tpu", "'tpu'", "available: "},
        {"cpu,gpu", "'gpu'", "not known"}, /* another program's word */
        {",", "no device", "available: "},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct devices devices = {.count = 77};
        struct error err = {0};

        if (devices_detect(cases[i].list, &devices, &err))
            fail_msg("'%s' was taken", cases[i].list);
        /* A device that is known and absent may be there at the next start. */
        if (err.code != (strstr(err.message, "not available") ? ERR_UNAVAILABLE : ERR_INVALID) ||
            !strstr(err.message, cases[i].first) || !strstr(err.message, cases[i].second))
            fail_msg("'%s': %s", cases[i].list, err.message);
        assert_int_equal(devices.count, 77); /* untouched */
    }
}

static void a_platform_that_is_named_and_missing_is_an_error_with_its_reason(void **state)
{
    struct devices devices;
    struct error err = {0};
    char reason[256] = "";

    (void)state;
    if (backend_device_count(BACKEND_CUDA, reason, sizeof(reason)) > 0)
        skip();
    assert_false(devices_detect("cuda,cpu", &devices, &err));
    assert_non_null(strstr(err.message, reason));
    assert_non_null(strstr(err.message, "available: cpu"));
}

static void the_environment_is_read_ours_before_theirs(void **state)
{
    struct devices devices;
    struct error err = {0};

    (void)state;
    (void)setenv("JAX_PLATFORMS", "cpu", 1);
    assert_true(devices_detect(NULL, &devices, &err));
    assert_int_equal(devices.count, 1);
    assert_int_equal(devices.missing_count, 0); /* cuda was not asked for */
    (void)setenv("NEEDLED_PLATFORMS", "nonsense", 1);
    assert_false(devices_detect(NULL, &devices, &err));
    assert_non_null(strstr(err.message, "NEEDLED_PLATFORMS"));
    assert_true(
        devices_detect(" cpu , cpu ", &devices, &err)); /* the option wins; once is enough */
    assert_int_equal(devices.count, 1);
    (void)setenv("NEEDLED_PLATFORMS", "", 1); /* empty: as if unset */
    (void)setenv("JAX_PLATFORMS", "nonsense", 1);
    assert_false(devices_detect(NULL, &devices, &err));
    assert_non_null(strstr(err.message, "JAX_PLATFORMS"));
}

static void jax_gpu_means_any_gpu(void **state)
{
    struct devices devices;
    struct error err = {0};
    char reason[256] = "";
    bool has_gpu = backend_device_count(BACKEND_CUDA, reason, sizeof(reason)) > 0;

    (void)state;
    (void)setenv("JAX_PLATFORMS", "gpu,cpu", 1);
    assert_int_equal(devices_detect(NULL, &devices, &err), has_gpu);
    if (has_gpu)
        assert_true(devices.gpu_active);
    else
        assert_non_null(strstr(err.message, reason));
}

static void a_job_may_ask_for_what_exists(void **state)
{
    static const char *const taken[] = {"auto", "cpu", "cpu:0"};
    static const char *const refused[] = {"cpu:1", "cuda", "cuda:1", "gpu", "", "CPU"};
    struct devices devices = {.count = 1, .missing_count = 1};
    struct error err = {0};

    (void)state;
    devices.items[0].kind = BACKEND_CPU;
    (void)snprintf(devices.items[0].id, sizeof(devices.items[0].id), "cpu:0");
    (void)snprintf(devices.missing[0].name, sizeof(devices.missing[0].name), "cuda");
    (void)snprintf(devices.missing[0].reason, sizeof(devices.missing[0].reason), "no driver");
    for (size_t i = 0; i < COUNT_OF(taken); i++)
        assert_true(devices_check_wanted(&devices, taken[i], &err));
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        assert_false(devices_check_wanted(&devices, refused[i], &err));
        assert_string_equal(err.param, "device");
        assert_non_null(
            strstr(err.message, strncmp(refused[i], "cuda", 4) == 0 ? "no driver" : "cpu:0"));
    }
}

static void the_table_shows_devices_and_what_is_missing(void **state)
{
    struct devices devices;
    struct error err = {0};
    struct buf text;

    (void)state;
    assert_true(devices_detect(NULL, &devices, &err));
    buf_init(&text, 1 << 16);
    devices_print(&devices, &text);
    assert_false(text.failed);
    assert_non_null(strstr(text.data, "cpu:0"));
    assert_non_null(strstr(text.data, "GPU acceleration"));
    buf_release(&text);
}

static const struct device *cpu_of(const struct devices *devices)
{
    const struct device *device = &devices->items[devices->count - 1];

    assert_int_equal(device->kind, BACKEND_CPU);
    return device;
}

static void the_level_of_simd_is_the_setting_then_the_environment_then_the_best(void **state)
{
    static const struct {
        const char *setting, *environment, *expected;
    } cases[] = {
        {"plain", "nonsense", "plain"},
        {NULL, "plain", "plain"},
        {"", "plain", "plain"},
        {NULL, "", NULL},
        {"", NULL, NULL}, /* the best there is */
    };
    struct devices devices;
    struct error err = {0};
    const char *best = "";
    char reason[256] = "";

    (void)state;
    assert_int_equal(backend_choose_simd(BACKEND_CPU, NULL, &best, reason, sizeof(reason)),
                     BACKEND_OK);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        (void)unsetenv("NEEDLED_SIMD");
        if (cases[i].environment)
            (void)setenv("NEEDLED_SIMD", cases[i].environment, 1);
        assert_true(devices_detect("cpu", &devices, &err));
        if (!devices_choose_simd(&devices, cases[i].setting, &err))
            fail_msg("case %zu: %s", i, err.message);
        assert_string_equal(cpu_of(&devices)->simd_level,
                            cases[i].expected ? cases[i].expected : best);
        assert_string_equal(cpu_of(&devices)->simd_warning, "");
    }
}

static void an_unknown_level_of_simd_is_refused_with_what_there_is(void **state)
{
    struct devices devices;
    struct error err = {0};

    (void)state;
    assert_true(devices_detect("cpu", &devices, &err));
    assert_false(devices_choose_simd(&devices, "avx3", &err));
    assert_int_equal(err.code, ERR_INVALID);
    assert_string_equal(err.param, "simd");
    if (!strstr(err.message, "'avx3'") || !strstr(err.message, "plain"))
        fail_msg("%s", err.message);
    (void)setenv("NEEDLED_SIMD", "mmx", 1);
    assert_false(devices_choose_simd(&devices, NULL, &err));
    if (!strstr(err.message, "NEEDLED_SIMD") || !strstr(err.message, "'mmx'"))
        fail_msg("%s", err.message);
}

static void a_level_that_is_passed_over_is_shown_with_its_warning(void **state)
{
    struct devices devices;
    struct error err = {0};
    struct buf text;

    (void)state;
    assert_true(devices_detect("cpu", &devices, &err));
    (void)snprintf(devices.items[0].simd_level, sizeof(devices.items[0].simd_level), "avx2");
    (void)snprintf(devices.items[0].simd_warning, sizeof(devices.items[0].simd_warning),
                   "SIMD level avx512 computes wrong results here: gate");
    buf_init(&text, 1 << 16);
    devices_print(&devices, &text);
    assert_false(text.failed);
    assert_non_null(strstr(text.data, "  avx2, OpenBLAS"));
    assert_non_null(strstr(text.data, "warning: SIMD level avx512 computes wrong"));
    buf_release(&text);
}

/* As in the unit without its drop-in: the driver is loaded, the nodes are not to be had. */
static void a_card_that_is_there_and_out_of_reach_is_told(void **state)
{
    char *root = scratch_new(), reason[256] = "an NVIDIA driver, but no device";
    char dev[512];

    (void)state;
    assert_false(devices_explain_nodes(root, reason, sizeof(reason))); /* no driver */
    assert_string_equal(reason, "an NVIDIA driver, but no device");
    assert_true(file_make_folder(scratch_path(root, "proc/driver/nvidia"), NULL));
    scratch_write(scratch_path(root, "proc/driver/nvidia/version"), "580", 3);
    assert_true(devices_explain_nodes(root, reason, sizeof(reason)));
    assert_string_equal(reason, "an NVIDIA driver, but no device; the kernel's driver runs, but "
                                "'/dev/nvidiactl' cannot be opened: No such file or directory (a "
                                "systemd unit needs gpu.conf)");
    (void)snprintf(dev, sizeof(dev), "%s", scratch_path(root, "dev"));
    assert_true(file_make_folder(dev, NULL));
    scratch_write(scratch_path(dev, "nvidiactl"), "", 0);
    (void)snprintf(reason, sizeof(reason), "too old");
    assert_false(devices_explain_nodes(root, reason, sizeof(reason)));
    assert_string_equal(reason, "too old");
    scratch_free(root);
}

#define TEST(name) cmocka_unit_test_setup(name, clear_environment)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(by_default_missing_platforms_are_only_reported),
        TEST(an_explicit_list_must_be_there_in_full),
        TEST(a_platform_that_is_named_and_missing_is_an_error_with_its_reason),
        TEST(the_environment_is_read_ours_before_theirs),
        TEST(jax_gpu_means_any_gpu),
        TEST(a_job_may_ask_for_what_exists),
        TEST(the_table_shows_devices_and_what_is_missing),
        TEST(the_level_of_simd_is_the_setting_then_the_environment_then_the_best),
        TEST(an_unknown_level_of_simd_is_refused_with_what_there_is),
        TEST(a_level_that_is_passed_over_is_shown_with_its_warning),
        TEST(a_card_that_is_there_and_out_of_reach_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
