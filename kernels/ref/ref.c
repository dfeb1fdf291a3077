#include "kernels/ref/ref.h"

#include "kernels/host.h"
#include "kernels/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define REF_ENTRY(name, parameters, arguments) REF_ENTRY_(name, arguments, OP_STRIP parameters)
#define REF_ENTRY_(name, arguments, ...)                                                           \
    static void entry_##name(struct backend *be, __VA_ARGS__)                                      \
    {                                                                                              \
        (void)be;                                                                                  \
        ref_##name arguments;                                                                      \
    }
OPS(REF_ENTRY)

static void ref_close(struct backend *be)
{
    free(be);
}

#define REF_FIELD(name, parameters, arguments) .name = entry_##name,
static const struct backend_table ref_table = {.close = ref_close,
                                               .alloc = host_alloc,
                                               .free = host_free,
                                               .import = host_import,
                                               .release_import = host_release_import,
                                               .upload = host_copy,
                                               .download = host_copy,
                                               .copy = host_copy,
                                               .zero = host_zero,
                                               .sync = host_sync,
                                               OPS(REF_FIELD)};

enum backend_status ref_open(const struct backend_options *options, struct backend **ret_backend,
                             char *ret_reason, size_t reason_size)
{
    struct backend *be = calloc(1, sizeof(*be));

    (void)options; /* one thread, one device */
    if (!be) {
        (void)snprintf(ret_reason, reason_size, "out of memory for the backend itself");
        return BACKEND_NO_MEMORY;
    }
    be->table = &ref_table;
    be->kind = BACKEND_REF;
    *ret_backend = be;
    return BACKEND_OK;
}

/* ---- small shared pieces --------------------------------------------------------------------- */

int32_t ref_ancestor(const struct tree *tree, size_t n, size_t steps)
{
    int32_t ancestor = (int32_t)n;

    for (size_t step = 0; step < steps && ancestor >= 0; step++)
        ancestor = tree->parent[ancestor];
    return ancestor;
}

double ref_sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

double ref_inverse_rms(const float *x, size_t C)
{
    double sum = 0;

    for (size_t c = 0; c < C; c++)
        sum += (double)x[c] * x[c];
    return 1.0 / sqrt(sum / (double)C + REF_EPSILON);
}
