#include "tests/support/op_run.h"

#include "kernels/table.h"

#include <math.h>

/* ---- random numbers: splitmix64 and Box-Muller ------------------------------------------------
 */

uint64_t op_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

double op_normal(uint64_t *state)
{
    const double u = ((double)(op_random(state) >> 11) + 1) / 9007199254740993.0;
    const double v = (double)(op_random(state) >> 11) / 9007199254740992.0;

    return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
}

/* ---- arrays -----------------------------------------------------------------------------------
 */

struct op_array *op_array(struct op_run *run, const char *name)
{
    for (size_t i = 0; i < run->array_count; i++)
        if (strcmp(run->arrays[i].name, name) == 0)
            return &run->arrays[i];
    fail_msg("%s: no array '%s'", run->op->name, name);
    return NULL;
}

void *op_device(struct op_run *run, const char *name)
{
    return op_array(run, name)->device;
}

static size_t bytes_of(const struct op_array *array)
{
    return array->count * (array->bytes ? 1 : sizeof(float));
}

static struct op_array *add_array(struct op_run *run, const char *name, size_t count, bool bytes)
{
    struct op_array *array = &run->arrays[run->array_count];

    assert_true(run->array_count < OP_ARRAYS_MAX);
    run->array_count++;
    snprintf(array->name, sizeof(array->name), "%s", name);
    array->count = count;
    array->bytes = bytes;
    array->spread = 1;
    array->start = calloc(count + 1, sizeof(float));
    array->result = calloc(count + 1, sizeof(float));
    array->device = backend_alloc(run->be, bytes_of(array));
    assert_non_null(array->start);
    assert_non_null(array->result);
    assert_non_null(array->device);
    return array;
}

static void fill(struct op_run *run, struct op_array *array, double spread)
{
    array->spread = spread;
    for (size_t i = 0; i < array->count; i++)
        array->start[i] = (float)(spread * op_normal(&run->random));
}

struct op_array *op_fixed(struct op_run *run, const char *name, size_t count, double spread)
{
    struct op_array *array = add_array(run, name, count, false);

    fill(run, array, spread);
    array->read = true;
    return array;
}

struct op_array *op_input(struct op_run *run, const char *name, size_t count, double spread)
{
    struct op_array *array = op_fixed(run, name, count, spread);

    array->differentiable = true;
    return array;
}

struct op_array *op_numbers(struct op_run *run, const char *name, size_t count, int first, int past)
{
    struct op_array *array = add_array(run, name, count, false);
    int32_t *numbers = (int32_t *)(void *)array->start;

    for (size_t i = 0; i < count; i++)
        numbers[i] = first + (int32_t)(op_random(&run->random) % (uint64_t)(past - first));
    array->read = true;
    return array;
}

struct op_array *op_output(struct op_run *run, const char *name, size_t count)
{
    struct op_array *array = add_array(run, name, count, false);

    for (size_t i = 0; i < count; i++)
        array->start[i] = NAN;
    array->written = true;
    return array;
}

struct op_array *op_output_bytes(struct op_run *run, const char *name, size_t count)
{
    struct op_array *array = add_array(run, name, count, true);

    array->written = true;
    return array;
}

struct op_array *op_inout(struct op_run *run, const char *name, size_t count, double spread)
{
    struct op_array *array = op_fixed(run, name, count, spread);

    array->written = true;
    return array;
}

void op_upstream(struct op_run *run, const char *name, const char *output)
{
    const struct op_array *of = op_array(run, output);

    op_fixed(run, name, of->count, 1)->upstream_of = of;
}

void op_gradient_sets(struct op_run *run, const char *name, const char *input)
{
    const struct op_array *of = op_array(run, input);

    op_output(run, name, of->count)->gradient_of = of;
}

void op_gradient_adds(struct op_run *run, const char *name, const char *input)
{
    const struct op_array *of = op_array(run, input);

    op_inout(run, name, of->count, 1)->gradient_of = of;
}

/* ---- a run ------------------------------------------------------------------------------------
 */

static uint64_t seed_of(const struct op_case *op, const struct op_size *size)
{
    uint64_t seed = 14695981039346656037u; /* FNV-1a over the names: a case keeps its numbers */

    for (const char *c = op->name; *c; c++)
        seed = (seed ^ (unsigned char)*c) * 1099511628211u;
    for (const char *c = size->name; *c; c++)
        seed = (seed ^ (unsigned char)*c) * 1099511628211u;
    return seed;
}

void op_run_init(struct op_run *run, struct backend *be, const struct op_case *op,
                 const struct op_size *size)
{
    *run = (struct op_run){.be = be, .op = op, .size = size, .loss_scale = 1};
    run->random = seed_of(op, size);
    tree_build(be, size->tree, size->N, &run->tree);
    op->declare(run);
}

void op_run_release(struct op_run *run)
{
    for (size_t i = 0; i < run->array_count; i++) {
        backend_free(run->be, run->arrays[i].device);
        free(run->arrays[i].start);
        free(run->arrays[i].result);
    }
    tree_release(run->be, &run->tree);
}

static void upload(struct op_run *run, bool gradients)
{
    for (size_t i = 0; i < run->array_count; i++) {
        struct op_array *array = &run->arrays[i];

        if (gradients ? array->gradient_of != NULL : array->gradient_of == NULL)
            backend_upload(run->be, array->device, array->start, bytes_of(array));
    }
}

static void download(struct op_run *run)
{
    for (size_t i = 0; i < run->array_count; i++) {
        struct op_array *array = &run->arrays[i];

        if (array->written)
            backend_download(run->be, array->result, array->device, bytes_of(array));
    }
    if (backend_sync(run->be) != BACKEND_OK)
        fail_msg("%s %s %s: %s", backend_name(run->be->kind), run->op->name, run->size->name,
                 backend_fault(run->be));
}

void op_run_forward(struct op_run *run)
{
    upload(run, false);
    run->op->forward(run);
    download(run);
}

void op_run_backward(struct op_run *run)
{
    upload(run, true);
    run->op->backward(run);
    download(run);
}

double op_run_loss(const struct op_run *run)
{
    double loss = 0;

    for (size_t i = 0; i < run->array_count; i++) {
        const struct op_array *weight = &run->arrays[i];

        for (size_t k = 0; weight->upstream_of && k < weight->count; k++)
            loss += (double)weight->start[k] * weight->upstream_of->result[k];
    }
    return loss * run->loss_scale;
}

double normalised_squared_error(const float *a, const float *b, size_t count, double floor)
{
    double error = 0, size = 0;

    for (size_t i = 0; i < count; i++) {
        error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i] + floor * floor;
    }
    if (error == 0)
        return 0;
    return isfinite(error) && size > 0 ? error / size : INFINITY;
}

/* ---- trees ------------------------------------------------------------------------------------
 */

static void *to_device(struct backend *be, const int32_t *numbers, size_t count)
{
    void *device = backend_alloc(be, count * sizeof(*numbers));

    assert_non_null(device);
    backend_upload(be, device, numbers, count * sizeof(*numbers));
    return device;
}

void tree_from_parents(struct backend *be, const int32_t *parent, size_t token_count,
                       struct tree *ret_tree)
{
    int32_t *depth = calloc(token_count + 1, sizeof(*depth));
    int32_t *run = calloc(token_count + 1, sizeof(*run));
    int32_t *end = calloc(token_count + 1, sizeof(*end));

    for (size_t n = 0; n < token_count; n++) {
        const bool continues = n > 0 && parent[n] == (int32_t)n - 1;

        assert_true(parent[n] < (int32_t)n);
        depth[n] = parent[n] < 0 ? 0 : depth[parent[n]] + 1;
        run[n] = continues ? run[n - 1] : (int32_t)n;
        for (int32_t m = (int32_t)n; m >= 0; m = parent[m])
            end[m] = (int32_t)n + 1;
    }
    *ret_tree = (struct tree){.token_count = token_count,
                              .parent = to_device(be, parent, token_count),
                              .depth = to_device(be, depth, token_count),
                              .run = to_device(be, run, token_count),
                              .end = to_device(be, end, token_count)};
    free(depth);
    free(run);
    free(end);
}

void tree_build(struct backend *be, enum tree_kind kind, size_t token_count, struct tree *ret_tree)
{
    int32_t *parent = calloc(token_count + 1, sizeof(*parent));
    uint64_t random = 7;

    for (size_t n = 0; n < token_count; n++) {
        const uint64_t dice = op_random(&random) % 16;

        parent[n] = (int32_t)n - 1;
        if (n > 0 && kind == TREE_FOREST && (n == 1 || dice < 3))
            parent[n] = -1;
        /* Climbing from the token before keeps the preorder; 1: a new root now and then. */
        for (uint64_t climb = 0; kind == TREE_NESTED && dice < 6 && parent[n] >= 0 && climb < dice;
             climb++)
            parent[n] = parent[parent[n]];
        if (kind == TREE_NESTED && parent[n] < 0 && n < token_count / 2 && n > 0)
            parent[n] = 0; /* keep the first tree going: more branches, several children */
    }
    tree_from_parents(be, parent, token_count, ret_tree);
    free(parent);
}

void tree_release(struct backend *be, struct tree *tree)
{
    union {
        const int32_t *numbers;
        void *memory;
    } arrays[] = {{tree->parent}, {tree->depth}, {tree->run}, {tree->end}};

    for (size_t i = 0; i < COUNT_OF(arrays); i++)
        backend_free(be, arrays[i].memory);
    *tree = (struct tree){0};
}

/* ---- backends ---------------------------------------------------------------------------------
 */

struct backend *backend_for_test(enum backend_kind kind)
{
    const struct backend_options options = {.device_index = 0, .thread_count = 2};
    struct backend *be = NULL;
    char reason[256] = "";
    enum backend_status status = backend_open(kind, &options, &be, reason, sizeof(reason));

    if (status == BACKEND_ABSENT)
        return NULL;
    if (status != BACKEND_OK)
        fail_msg("%s does not open: %s", backend_name(kind), reason);
    return be;
}

void each_backend(void (*body)(struct backend *be))
{
    size_t count = 0;

    for (enum backend_kind kind = BACKEND_REF; kind < BACKEND_KIND_COUNT; kind++) {
        struct backend *be = backend_for_test(kind);

        if (!be)
            continue;
        body(be);
        if (backend_allocated_bytes(be) != 0)
            fail_msg("%s: %zu bytes not given back", backend_name(kind),
                     backend_allocated_bytes(be));
        backend_close(be);
        count++;
    }
    assert_true(count > 0);
}
