/*
 * Proves that recorded gradients, put through the optimiser, give the recorded adapters: clipping,
 * moments, their corrections, decay and rate, on every backend.
 */
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/model/safetensors.h"
#include "daemon/train/optimizer.h"
#include "daemon/train/schedule.h"
#include "tests/support/test.h"

#include <math.h>

#define RECORDED_STEPS 3

static struct safetensors *open_tensors(const char *path)
{
    struct safetensors *file = NULL;
    struct error err = {0};

    if (!safetensors_open(path, &file, &err))
        fail_msg("%s", err.message);
    return file;
}

/* All tensors under the prefix, in order of their names, side by side. */
static float *collect(const struct safetensors *file, const char *prefix, size_t *ret_count)
{
    const size_t length = strlen(prefix);
    float *values = NULL;
    size_t count = 0;
    struct error err = {0};

    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct tensor *tensor = safetensors_at(file, i);
        if (strncmp(tensor->name, prefix, length) != 0)
            continue;
        values = realloc(values, (count + tensor->element_count) * sizeof(*values));
        assert_non_null(values);
        assert_true(tensor_to_f32(tensor, values + count, &err));
        count += tensor->element_count;
    }
    assert_true(count > 0);
    *ret_count = count;
    return values;
}

static struct json *read_json(const char *path)
{
    struct mapping map = MAPPING_NONE;
    struct json *json = NULL;
    struct error err = {0};

    if (!mapping_open(&map, path, &err) ||
        !json_parse((const char *)map.data, map.size, &json, &err))
        fail_msg("%s: %s", path, err.message);
    mapping_close(&map);
    return json;
}

static double relative_difference(const float *found, const float *wanted, size_t count)
{
    double difference = 0, size = 0;

    for (size_t i = 0; i < count; i++) {
        difference += ((double)found[i] - wanted[i]) * ((double)found[i] - wanted[i]);
        size += (double)wanted[i] * wanted[i];
    }
    return sqrt(difference / size);
}

static void upload_gradient(struct backend *be, const struct safetensors *steps, size_t step,
                            const struct model_values *values)
{
    char prefix[32];
    size_t count;

    snprintf(prefix, sizeof(prefix), "grad%zu/", step);
    float *gradient = collect(steps, prefix, &count);
    assert_int_equal(count, values->count);
    backend_upload(be, values->gradients, gradient, count * sizeof(float));
    free(gradient);
}

static void check_after(struct backend *be, const struct safetensors *steps, size_t step,
                        const float *start, const struct model_values *values)
{
    char prefix[32];
    size_t count;
    float *found = calloc(values->count, sizeof(float));

    assert_non_null(found);
    snprintf(prefix, sizeof(prefix), "after%zu/", step);
    float *wanted = collect(steps, prefix, &count);
    backend_download(be, found, values->values, count * sizeof(float));

    /* A rounding or two of the value, and of the way it went 1e-5 (betas raised to the step in
     * double would be 2.5e-5 off); 1e-9 where two gradients nearly cancel, of steps of 3e-3. */
    for (size_t i = 0; i < count; i++) {
        const double moved = fabs((double)wanted[i] - start[i]);
        if (!(fabs((double)found[i] - wanted[i]) <=
              1e-9 + 2e-7 * fabs((double)wanted[i]) + 1e-5 * moved))
            fail_msg("step %zu, value %zu: %.9g, wanted %.9g", step, i, (double)found[i],
                     (double)wanted[i]);
    }
    if (relative_difference(found, wanted, count) > 1e-6)
        fail_msg("step %zu: %g apart", step, relative_difference(found, wanted, count));
    free(found);
    free(wanted);
}

static void replay(struct backend *be, const char *folder)
{
    char path[128];
    struct error err = {0};
    struct optimizer optimizer = {0};
    struct model_values values = {0};

    snprintf(path, sizeof(path), "%s/train_run_float.json", folder);
    struct json *run = read_json(path);
    snprintf(path, sizeof(path), "%s/lora_init.safetensors", folder);
    struct safetensors *init = open_tensors(path);
    snprintf(path, sizeof(path), "%s/train_steps_float.safetensors", folder);
    struct safetensors *steps = open_tensors(path);

    float *start = collect(init, "lora/", &values.count);
    const size_t size = values.count * sizeof(float);
    values.values = backend_alloc(be, size);
    values.gradients = backend_alloc(be, size);
    values.moment1 = backend_alloc(be, size);
    values.moment2 = backend_alloc(be, size);
    backend_upload(be, values.values, start, size);
    assert_true(optimizer_init(&optimizer, be, &err));

    const struct schedule schedule =
        schedule_make((size_t)json_number(json_member(run, "total_steps")),
                      json_number(json_member(json_member(run, "args"), "lr")));
    for (size_t step = 0; step < RECORDED_STEPS; step++) {
        const double wanted =
            json_number(json_at(json_member(run, "global_grad_norm_per_step"), step));
        float norm;

        upload_gradient(be, steps, step, &values);
        assert_true(optimizer_norm(&optimizer, &values, &norm, &err));
        assert_true(fabs((double)norm - wanted) <= 2e-6 * wanted);
        optimizer_step(&optimizer, &values, step + 1, schedule_learning_rate(&schedule, step),
                       norm);
        check_after(be, steps, step, start, &values);
    }

    optimizer_release(&optimizer);
    backend_free(be, values.values);
    backend_free(be, values.gradients);
    backend_free(be, values.moment1);
    backend_free(be, values.moment2);
    free(start);
    json_free(run);
    safetensors_close(init);
    safetensors_close(steps);
}

static struct backend *open_backend(enum backend_kind kind)
{
    const struct backend_options options = {.thread_count = 1};
    struct backend *be = NULL;
    char reason[256] = "";

    if (backend_open(kind, &options, &be, reason, sizeof(reason)) != BACKEND_OK)
        fail_msg("%s: %s", backend_name(kind), reason);
    return be;
}

static void recorded_gradients_give_the_recorded_adapters(void **state)
{
    (void)state;
    for (enum backend_kind kind = BACKEND_REF; kind <= BACKEND_CPU; kind++) {
        struct backend *be = open_backend(kind);

        replay(be, FIXTURES "needle3");      /* norms above 1: clipped */
        replay(be, FIXTURES "needle3/mini"); /* below: not */
        backend_close(be);
    }
}

static void a_norm_that_is_not_finite_is_seen(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, 3e38f};
    struct backend *be = open_backend(BACKEND_CPU);
    struct optimizer optimizer = {0};
    struct error err = {0};
    float *gradients = backend_alloc(be, 8 * sizeof(float));
    const struct model_values values = {.gradients = gradients, .count = 8};

    assert_true(optimizer_init(&optimizer, be, &err));
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        float norm = 0;

        backend_zero(be, gradients, 8 * sizeof(float));
        backend_upload(be, gradients + 5, &bad[i], sizeof(float));
        assert_true(optimizer_norm(&optimizer, &values, &norm, &err));
        assert_int_equal(isfinite(norm), 0);
    }
    optimizer_release(&optimizer);
    backend_free(be, gradients);
    backend_close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_gradients_give_the_recorded_adapters),
        cmocka_unit_test(a_norm_that_is_not_finite_is_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
