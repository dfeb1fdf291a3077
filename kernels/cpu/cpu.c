#include "kernels/cpu/cpu.h"

#include "kernels/cpu/blas.h"
#include "kernels/cpu/verdict.h"
#include "kernels/host.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define WORTH_A_THREAD 8192 /* values a share holds at least */
#define BLOCK_ROWS_MIN 32

void cpu_close(struct backend *be)
{
    struct cpu *cpu = (struct cpu *)be;

    team_close(cpu->team);
    free(cpu->scratch);
    free(cpu);
}

static_assert(offsetof(struct cpu, base) == 0, "a struct backend is at its start");

enum backend_status cpu_open_level(const struct level *level, size_t thread_count,
                                   struct backend **ret_backend, char *ret_reason,
                                   size_t reason_size)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);

    blas_use_one_thread();
    thread_count =
        blas_share_callers(thread_count, cores > 0 ? (size_t)cores : 1, blas_callers_max());

    struct cpu *cpu = calloc(1, sizeof *cpu);
    struct team *team = cpu ? team_open(thread_count, blas_use_one_thread) : NULL;
    if (!team) {
        (void)snprintf(ret_reason, reason_size, "no memory or no threads for a team of %zu",
                       thread_count);
        free(cpu);
        return BACKEND_NO_MEMORY;
    }
    cpu->base.table = level->table;
    cpu->base.kind = BACKEND_CPU;
    cpu->team = team;
    *ret_backend = &cpu->base;
    return BACKEND_OK;
}

enum backend_status cpu_open(const struct backend_options *options, struct backend **ret_backend,
                             char *ret_reason, size_t reason_size)
{
    const struct level *level;

    assert(options->thread_count >= 1);
    blas_use_one_thread();
    if (!blas_check(blas_gemm, ret_reason, reason_size))
        return BACKEND_CHECK_FAILED;

    const enum backend_status status =
        verdict_choose(&verdict_list, options->simd_level, &level, ret_reason, reason_size);
    if (status != BACKEND_OK)
        return status;

    return cpu_open_level(level, (size_t)options->thread_count, ret_backend, ret_reason,
                          reason_size);
}

enum backend_status cpu_choose_simd(const char *wanted, const char **ret_level, char *ret_reason,
                                    size_t reason_size)
{
    const struct level *level;
    const enum backend_status status =
        verdict_choose(&verdict_list, wanted, &level, ret_reason, reason_size);

    if (status == BACKEND_OK)
        *ret_level = level->name;
    return status;
}

float *cpu_scratch(struct cpu *cpu, size_t count)
{
    if (count <= cpu->scratch_count)
        return cpu->scratch;

    size_t grown =
        (count + count / 4 + 1023) / 1024 * 1024; /* a quarter more: few steps of growth */
    assert(grown >= count && grown <= SIZE_MAX / sizeof(float));
    float *memory = aligned_alloc(64, grown * sizeof(float));
    if (!memory) {
        struct backend_device device = {0};
        cpu_describe(&device);
        backend_set_fault(&cpu->base, BACKEND_NO_MEMORY,
                          "out of memory: %zu bytes needed for scratch, %llu free",
                          grown * sizeof(float), (unsigned long long)device.memory_free_bytes);
        return NULL;
    }
    free(cpu->scratch);
    cpu->scratch = memory;
    cpu->scratch_count = grown;
    return memory;
}

void cpu_run_rows(struct cpu *cpu, size_t rows, size_t width, team_body *body, void *context)
{
    team_run(cpu->team, rows, WORTH_A_THREAD / (width + 1) + 1, body, context);
}

struct cpu_blocks cpu_blocks(size_t rows)
{
    size_t size = (rows + CPU_PARTIALS - 1) / CPU_PARTIALS;

    if (size < BLOCK_ROWS_MIN)
        size = BLOCK_ROWS_MIN;
    return (struct cpu_blocks){.rows = rows, .size = size, .count = (rows + size - 1) / size};
}
