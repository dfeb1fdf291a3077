#include "kernels/examples/op.h"

#include "kernels/examples/op_tree.h"
#include "kernels/table.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Inputs are of size 1: terms of a cancelling sum are exact to 6e-8, and 3e-6 of this passes. */
#define FLOOR 0.1

/* Codes: one value in so many may lie midway between two, and go either way. */
#define CODES_PER_FLIP 1000

/* ---- random numbers: splitmix64 and Box-Muller ----------------------------------------------- */

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

/* ---- the first failure ----------------------------------------------------------------------- */

static bool __attribute__((format(printf, 2, 3))) fail(struct op_run *run, const char *format, ...)
{
    va_list arguments;

    if (run->fault[0])
        return false; /* the first one explains */
    va_start(arguments, format);
    (void)vsnprintf(run->fault, sizeof(run->fault), format, arguments); /* cut is fine */
    va_end(arguments);
    return false;
}

const char *op_fault(const struct op_run *run)
{
    return run->fault;
}

/* ---- arrays ---------------------------------------------------------------------------------- */

struct op_array *op_array(struct op_run *run, const char *name)
{
    if (run->fault[0])
        return NULL; /* the last of them may be without its memory */
    for (size_t i = 0; i < run->array_count; i++)
        if (strcmp(run->arrays[i].name, name) == 0)
            return &run->arrays[i];
    assert(false); /* the case misspells it */
    return NULL;
}

void *op_device(struct op_run *run, const char *name)
{
    const struct op_array *array = op_array(run, name);

    return array ? array->device : NULL;
}

static size_t bytes_of(const struct op_array *array)
{
    return array->count * (array->bytes ? 1 : sizeof(float));
}

static struct op_array *add_array(struct op_run *run, const char *name, size_t count, bool bytes)
{
    struct op_array *array = &run->arrays[run->array_count];
    const size_t size = (count + 1) * sizeof(float);

    if (run->fault[0])
        return NULL;
    assert(run->array_count < OP_ARRAYS_MAX);
    assert(strlen(name) < sizeof(array->name));
    assert(count < SIZE_MAX / 16);
    if (2 * size > run->host_bytes_max - run->host_bytes) {
        (void)fail(run, "array %s: %zu bytes more than the %zu an example may take", name,
                   2 * size - (run->host_bytes_max - run->host_bytes), run->host_bytes_max);
        return NULL;
    }
    run->host_bytes += 2 * size;
    run->array_count++;
    *array = (struct op_array){.count = count, .bytes = bytes, .spread = 1};
    (void)snprintf(array->name, sizeof(array->name), "%s", name);
    array->start = calloc(1, size);
    array->result = calloc(1, size);
    array->device = backend_alloc(run->be, bytes_of(array));
    if (array->start && array->result && array->device)
        return array;
    (void)fail(run, "no memory for array %s of %zu bytes", name, size);
    return NULL;
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

    if (!array)
        return NULL;
    fill(run, array, spread);
    array->read = true;
    return array;
}

struct op_array *op_input(struct op_run *run, const char *name, size_t count, double spread)
{
    struct op_array *array = op_fixed(run, name, count, spread);

    if (array)
        array->differentiable = true;
    return array;
}

void op_input_of(struct op_run *run, const char *name, size_t count, double spread, bool is_smooth)
{
    struct op_array *array = op_fixed(run, name, count, spread);

    if (array)
        array->differentiable = is_smooth;
}

struct op_array *op_numbers(struct op_run *run, const char *name, size_t count, int first, int past)
{
    struct op_array *array = add_array(run, name, count, false);

    if (!array)
        return NULL;

    int32_t *numbers = (int32_t *)(void *)array->start;
    for (size_t i = 0; i < count; i++)
        numbers[i] = first + (int32_t)(op_random(&run->random) % (uint64_t)(past - first));
    array->read = true;
    return array;
}

struct op_array *op_output(struct op_run *run, const char *name, size_t count)
{
    struct op_array *array = add_array(run, name, count, false);

    if (!array)
        return NULL;
    for (size_t i = 0; i < count; i++)
        array->start[i] = NAN;
    array->written = true;
    return array;
}

struct op_array *op_output_bytes(struct op_run *run, const char *name, size_t count)
{
    struct op_array *array = add_array(run, name, count, true);

    if (array)
        array->written = true;
    return array;
}

struct op_array *op_inout(struct op_run *run, const char *name, size_t count, double spread)
{
    struct op_array *array = op_fixed(run, name, count, spread);

    if (array)
        array->written = true;
    return array;
}

void op_upstream(struct op_run *run, const char *name, const char *output)
{
    const struct op_array *of = op_array(run, output);
    struct op_array *array = of ? op_fixed(run, name, of->count, 1) : NULL;

    if (array)
        array->upstream_of = of;
}

void op_gradient_sets(struct op_run *run, const char *name, const char *input)
{
    const struct op_array *of = op_array(run, input);
    struct op_array *array = of ? op_output(run, name, of->count) : NULL;

    if (array)
        array->gradient_of = of;
}

void op_gradient_adds(struct op_run *run, const char *name, const char *input)
{
    const struct op_array *of = op_array(run, input);
    struct op_array *array = of ? op_inout(run, name, of->count, 1) : NULL;

    if (array)
        array->gradient_of = of;
}

/* ---- a run ----------------------------------------------------------------------------------- */

static uint64_t seed_of(const struct op_case *op, const struct op_size *size)
{
    uint64_t seed = 14695981039346656037u; /* FNV-1a over the names: a case keeps its numbers */

    for (const char *c = op->name; *c; c++)
        seed = (seed ^ (unsigned char)*c) * 1099511628211u;
    for (const char *c = size->name; *c; c++)
        seed = (seed ^ (unsigned char)*c) * 1099511628211u;
    return seed;
}

static bool start(struct op_run *run, struct backend *be, const struct op_case *op,
                  const struct op_size *size, size_t host_bytes_max)
{
    run->be = be;
    run->op = op;
    run->size = size;
    run->tree = (struct tree){0};
    run->loss_scale = 1;
    run->array_count = 0;
    run->random = seed_of(op, size);
    run->host_bytes = 0;
    run->host_bytes_max = host_bytes_max;
    run->fault[0] = 0;
    return op_tree_build(be, size->tree, size->N, &run->tree) ||
           fail(run, "no memory for a tree of %zu tokens", size->N);
}

bool op_init(struct op_run *run, struct backend *be, const struct op_case *op,
             const struct op_size *size, size_t host_bytes_max)
{
    if (!start(run, be, op, size, host_bytes_max))
        return false;
    op->declare(run);
    return run->fault[0] == 0;
}

static const struct op_array *same_array(const struct op_run *run, const struct op_run *other,
                                         const struct op_array *of)
{
    return of ? &run->arrays[of - other->arrays] : NULL;
}

bool op_init_as(struct op_run *run, struct backend *be, const struct op_run *other)
{
    assert(!other->fault[0]);
    if (!start(run, be, other->op, other->size, other->host_bytes_max))
        return false;
    run->loss_scale = other->loss_scale;
    run->random = other->random;
    for (size_t i = 0; i < other->array_count; i++) {
        const struct op_array *from = &other->arrays[i];
        struct op_array *array = add_array(run, from->name, from->count, from->bytes);

        if (!array)
            return false;
        array->read = from->read;
        array->written = from->written;
        array->halves = from->halves;
        array->spread = from->spread;
        array->differentiable = from->differentiable;
        array->upstream_of = same_array(run, other, from->upstream_of);
        array->gradient_of = same_array(run, other, from->gradient_of);
        memcpy(array->start, from->start, bytes_of(from));
    }
    return true;
}

void op_release(struct op_run *run)
{
    for (size_t i = 0; i < run->array_count; i++) {
        backend_free(run->be, run->arrays[i].device);
        free(run->arrays[i].start);
        free(run->arrays[i].result);
    }
    run->array_count = 0;
    op_tree_release(run->be, &run->tree);
}

static void upload(struct op_run *run, bool gradients)
{
    for (size_t i = 0; i < run->array_count; i++) {
        struct op_array *array = &run->arrays[i];

        if (gradients ? array->gradient_of != NULL : array->gradient_of == NULL)
            backend_upload(run->be, array->device, array->start, bytes_of(array));
    }
}

static bool download(struct op_run *run)
{
    for (size_t i = 0; i < run->array_count; i++) {
        struct op_array *array = &run->arrays[i];

        if (array->written)
            backend_download(run->be, array->result, array->device, bytes_of(array));
    }
    return backend_sync(run->be) == BACKEND_OK || fail(run, "%s", backend_fault(run->be));
}

bool op_forward(struct op_run *run)
{
    if (run->fault[0])
        return false;
    upload(run, false);
    run->op->forward(run);
    return download(run);
}

bool op_backward(struct op_run *run)
{
    if (run->fault[0])
        return false;
    if (!run->op->backward)
        return true;
    upload(run, true);
    run->op->backward(run);
    return download(run);
}

/* ---- two runs compared ----------------------------------------------------------------------- */

double op_squared_error(const float *a, const float *b, size_t count, double floor)
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

static size_t differing_bytes(const struct op_array *a, const struct op_array *b)
{
    const unsigned char *x = (const unsigned char *)a->result;
    const unsigned char *y = (const unsigned char *)b->result;
    size_t count = 0;

    for (size_t i = 0; i < a->count; i++)
        count += x[i] != y[i];
    return count;
}

/* Values that float16 does not hold exactly: below 2^-14 its steps are 2^-24, above 13 bits less. */
static size_t values_between_halves(const struct op_array *array)
{
    size_t count = 0;

    for (size_t i = 0; i < array->count; i++) {
        const float size = fabsf(array->result[i]);
        uint32_t bits;

        memcpy(&bits, &size, sizeof(bits));
        count += size < 0x1p-14f ? rintf(size * 0x1p24f) != size * 0x1p24f : (bits & 0x1fff) != 0;
    }
    return count;
}

/* Error over what is allowed, of what the op wrote into the array. */
static double share_of_allowed(const struct op_run *run, const struct op_array *a,
                               const struct op_array *b)
{
    if (a->bytes)
        return a->count > 0 ? (double)(differing_bytes(a, b) * CODES_PER_FLIP) / (double)a->count
                            : 0;
    if (a->halves && values_between_halves(a) > 0)
        return INFINITY; /* however near */

    const double error = op_squared_error(a->result, b->result, a->count, FLOOR);
    return error > 0 ? error / run->op->tolerance : 0; /* some tolerances are 0 */
}

static bool is_judged(const struct op_run *run, const struct op_array *array)
{
    return array->written && (!array->gradient_of || run->op->backward);
}

bool op_agrees(const struct op_run *run, const struct op_run *oracle, char *ret_reason,
               size_t reason_size)
{
    assert(run->array_count == oracle->array_count);
    for (size_t i = 0; i < run->array_count; i++) {
        const struct op_array *a = &run->arrays[i], *b = &oracle->arrays[i];

        if (!is_judged(run, a) || share_of_allowed(run, a, b) <= 1)
            continue;
        if (a->bytes)
            (void)snprintf(ret_reason, reason_size, "%s, size %s, %s: %zu of %zu bytes differ",
                           run->op->name, run->size->name, a->name, differing_bytes(a, b),
                           a->count);
        else if (a->halves && values_between_halves(a) > 0)
            (void)snprintf(ret_reason, reason_size,
                           "%s, size %s, %s: %zu of %zu values are none of float16", run->op->name,
                           run->size->name, a->name, values_between_halves(a), a->count);
        else
            (void)snprintf(ret_reason, reason_size,
                           "%s, size %s, %s: normalised squared error %.3g, allowed %.3g",
                           run->op->name, run->size->name, a->name,
                           op_squared_error(a->result, b->result, a->count, FLOOR),
                           run->op->tolerance);
        return false;
    }
    return true;
}

double op_share_of_allowed(const struct op_run *run, const struct op_run *oracle)
{
    double worst = 0;

    assert(run->array_count == oracle->array_count);
    for (size_t i = 0; i < run->array_count; i++) {
        if (is_judged(run, &run->arrays[i]))
            worst = fmax(worst, share_of_allowed(run, &run->arrays[i], &oracle->arrays[i]));
    }
    return worst;
}
