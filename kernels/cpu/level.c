#include "kernels/cpu/level.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

extern const struct backend_table cpu_table_plain;

static bool always(void)
{
    return true;
}

#if defined(__x86_64__)
#include <cpuid.h>

extern const struct backend_table cpu_table_avx2, cpu_table_avx512;

/* Asked of the processor itself: not every compiler's __builtin_cpu_supports knows the name. */
static bool has_f16c(void)
{
    unsigned int a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx2(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}
#endif

const struct level levels[LEVEL_COUNT] = {
#if defined(__x86_64__)
    {"avx512", &cpu_table_avx512, has_avx512},
    {"avx2", &cpu_table_avx2, has_avx2},
#endif
    {"plain", &cpu_table_plain, always},
};
const size_t level_count = LEVEL_COUNT;

/* Adds " avx2, plain". */
static void add_supported(const struct level *among, size_t count, char *text, size_t size)
{
    const char *separator = " ";

    for (size_t i = 0; i < count; i++) {
        const size_t length = strlen(text);

        if (!among[i].is_supported())
            continue;
        (void)snprintf(text + length, size - length, "%s%s", separator, among[i].name);
        separator = ", ";
    }
}

const struct level *level_find(const struct level *among, size_t count, const char *name,
                               char *ret_reason, size_t reason_size)
{
    bool is_known = false;

    assert(reason_size > 0);
    for (size_t i = 0; i < count; i++) {
        const bool is_meant = !name || strcmp(name, among[i].name) == 0;

        if (is_meant && among[i].is_supported())
            return &among[i];
        is_known = is_known || is_meant;
    }
    (void)snprintf(ret_reason, reason_size,
                   is_known ? "this processor does not have '%.32s'; it has"
                            : "no SIMD level '%.32s' in this build; this processor has",
                   name ? name : "");
    add_supported(among, count, ret_reason, reason_size);
    return NULL;
}
