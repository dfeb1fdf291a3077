#include "kernels/cpu/level.h"

#include <stdio.h>
#include <string.h>

extern const struct backend_table cpu_table_plain;

static bool always(void)
{
    return true;
}

#if defined(__x86_64__)
extern const struct backend_table cpu_table_avx2, cpu_table_avx512;

static bool has_avx2(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}
#endif

const struct level levels[] = {
#if defined(__x86_64__)
    {"avx512", &cpu_table_avx512, has_avx512},
    {"avx2", &cpu_table_avx2, has_avx2},
#endif
    {"plain", &cpu_table_plain, always},
};
const size_t level_count = sizeof levels / sizeof levels[0];

const struct level *level_find(const char *name, char *ret_reason, size_t reason_size)
{
    for (size_t i = 0; i < level_count; i++) {
        if (name ? strcmp(name, levels[i].name) != 0 : !levels[i].is_supported())
            continue;
        if (levels[i].is_supported())
            return &levels[i];
        (void)snprintf(ret_reason, reason_size, "this processor does not have %s", name);
        return NULL;
    }
    (void)snprintf(ret_reason, reason_size, "no SIMD level '%s' in this build", name);
    return NULL;
}
