/*
 * Proves that an adapter starts with the recorded values, that its merge and its gradients are the
 * formulas', and that the device holds what was planned.
 */
#include "daemon/model/lora.h"
#include "tests/support/network.h"
#include "tests/support/test.h"

static struct lora *new_lora(const struct weights *weights, size_t rank, float alpha)
{
    struct lora *lora;
    struct error err = {0};

    fail_on(lora_new(weights, rank, alpha, &lora, &err), &err);
    return lora;
}

static float *downloaded(struct backend *be, const float *device, size_t count)
{
    float *values = calloc(count, sizeof(*values));

    assert_non_null(values);
    backend_download(be, values, device, count * sizeof(*values));
    return values;
}

/* Numbers in [-1, 1), the same each time. */
static void fill(float *values, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525U + 1013904223U;
        values[i] = (float)(seed >> 8) / (float)(1 << 23) - 1.0F;
    }
}

static void start_values_are_the_recorded_ones(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed;
        size_t rank, groups;
    } runs[GEOMETRY_COUNT] = {{0, 4, 5}, {3, 2, 4}};

    for (size_t i = 0; i < GEOMETRY_COUNT; i++) {
        struct backend *be = bench_open(BACKEND_REF);
        struct weights *weights = bench_weights(be, geometry_folders[i], NUMERICS_W4A8);
        struct safetensors *file = fixture_open(geometry_folders[i], "lora_init.safetensors");
        struct lora *lora = new_lora(weights, runs[i].rank, 8.0F);
        struct error err = {0};
        float *values;

        fail_on(lora_start(lora, runs[i].seed, &err), &err);
        values = downloaded(be, lora->values, lora->value_count);
        assert_int_equal(lora->group_count, runs[i].groups);
        for (size_t g = 0; g < lora->group_count; g++) {
            const struct lora_group *group = &lora->groups[g];
            char name[128];
            size_t a_count, b_count;
            float *A, *B;

            snprintf(name, sizeof(name), "%s/A", projection_path(group->projection));
            A = fixture_floats(file, "lora/", name, &a_count);
            assert_int_equal(group->a_offset + a_count, group->b_offset);
            assert_true(max_difference(values + group->a_offset, A, a_count) <= 2e-7);
            snprintf(name, sizeof(name), "%s/B", projection_path(group->projection));
            B = fixture_floats(file, "lora/", name, &b_count);
            assert_memory_equal(values + group->b_offset, B, b_count * sizeof(float)); /* zeros */
            free(B);
            free(A);
        }
        free(values);
        values = downloaded(be, lora->moment2, lora->value_count);
        for (size_t j = 0; j < lora->value_count; j++)
            assert_true(values[j] == 0);
        free(values);
        lora_free(lora);
        safetensors_close(file);
        weights_free(weights);
        backend_close(be);
    }
}

/* base + scale A B of one layer, in double. */
static void merge_by_loops(double *merged, const float *base, const float *A, const float *B,
                           size_t in, size_t out, size_t rank, double scale)
{
    for (size_t i = 0; i < in; i++)
        for (size_t o = 0; o < out; o++) {
            double sum = 0;

            for (size_t r = 0; r < rank; r++)
                sum += (double)A[i * rank + r] * (double)B[r * out + o];
            merged[i * out + o] = (double)base[i * out + o] + scale * sum;
        }
}

static void check_float_merge(const struct lora *lora, const struct weights *weights,
                              const float *values)
{
    for (size_t g = 0; g < lora->group_count; g++)
        for (size_t layer = 0; layer < lora->layer_count; layer++) {
            const struct lora_group *group = &lora->groups[g];
            const struct layer_weights *at = &weights->layers[layer];
            size_t in = group->in, out = group->out, rank = lora->rank;
            float *base =
                bench_read_table(lora->backend, &at->kernel_base[group->projection], in * out);
            float *kernel = downloaded(lora->backend, at->kernel[group->projection], in * out);
            double *wanted = calloc(in * out, sizeof(*wanted)), largest = 0;

            merge_by_loops(wanted, base, values + group->a_offset + layer * in * rank,
                           values + group->b_offset + layer * rank * out, in, out, rank,
                           (double)lora->scale);
            for (size_t i = 0; i < in * out; i++)
                largest = fmax(largest, fabs(kernel[i] - wanted[i]));
            /* sums of rank + 1 terms of size up to 3: a few roundings of 2^-24 each */
            assert_true(largest <= 2e-6);
            free(wanted);
            free(kernel);
            free(base);
        }
}

static void a_merge_adds_the_scaled_product_to_every_layer(void **state)
{
    (void)state;
    for (enum backend_kind kind = BACKEND_REF; kind <= BACKEND_CPU; kind++)
        for (size_t i = 0; i < GEOMETRY_COUNT; i++) {
            struct backend *be = bench_open(kind);
            struct weights *weights = bench_weights(be, geometry_folders[i], NUMERICS_FLOAT32);
            struct lora *lora = new_lora(weights, 3, 4.0F);
            float *values = calloc(lora->value_count, sizeof(*values));

            assert_true(lora->scale == 4.0F / 3.0F);
            fill(values, lora->value_count, 7);
            backend_upload(be, lora->values, values, lora->value_count * sizeof(float));
            lora_merge(lora, weights);
            lora_merge(lora, weights); /* from the base again, not on top */
            check_float_merge(lora, weights, values);
            free(values);
            lora_free(lora);
            weights_free(weights);
            backend_close(be);
        }
}

static void in_w4a8_the_merged_weights_are_rounded_and_zero_groups_kept(void **state)
{
    (void)state;
    for (size_t i = 0; i < GEOMETRY_COUNT; i++) {
        struct backend *be = bench_open(BACKEND_REF);
        struct weights *rounded = bench_weights(be, geometry_folders[i], NUMERICS_W4A8);
        struct weights *plain = bench_weights(be, geometry_folders[i], NUMERICS_FLOAT32);
        struct lora *lora = new_lora(rounded, 2, 4.0F);
        float *values = calloc(lora->value_count, sizeof(*values));
        const struct codebook *codebook = &rounded->weight_codebook;

        fill(values, lora->value_count, 8);
        backend_upload(be, lora->values, values, lora->value_count * sizeof(float));
        lora_merge(lora, rounded);
        lora_merge(lora, plain);
        for (enum projection p = 0; p < PROJECTION_COUNT; p++) {
            size_t in, out, layer = lora->layer_count - 1;
            float *kernel = plain->layers[layer].kernel[p], *found, *wanted;

            projection_shape(&rounded->geometry, p, &in, &out);
            backend_round_code(be, kernel, NULL, NULL, kernel, codebook, in, out, true);
            wanted = downloaded(be, kernel, in * out);
            found = downloaded(be, rounded->layers[layer].kernel[p], in * out);
            assert_memory_equal(found, wanted, in * out * sizeof(float));
            free(found);
            free(wanted);
        }
        free(values);
        lora_free(lora);
        weights_free(plain);
        weights_free(rounded);
        backend_close(be);
    }
}

static void an_untrained_adapter_changes_nothing(void **state)
{
    (void)state;
    struct backend *be = bench_open(BACKEND_REF);
    struct weights *weights = bench_weights(be, geometry_folders[0], NUMERICS_W4A8);
    struct lora *lora = new_lora(weights, 4, 8.0F);
    struct error err = {0};
    size_t count = 192 * 96;
    float *before = downloaded(be, weights->layers[3].kernel[PROJECTION_Q], count), *after;

    fail_on(lora_start(lora, 1, &err), &err);
    lora_merge(lora, weights);
    after = downloaded(be, weights->layers[3].kernel[PROJECTION_Q], count);
    assert_memory_equal(after, before, count * sizeof(float));
    free(after);
    free(before);
    lora_free(lora);
    weights_free(weights);
    backend_close(be);
}

/* ---- gradients: of f = sum dY (X (W + s A B)) ------------------------------------------------ */

#define ROWS 17

struct backward_case {
    const struct lora *lora;
    const struct lora_group *group;
    size_t layer;
    float *X, *dY, *values; /* host */
};

static double value_of(const struct backward_case *c)
{
    size_t in = c->group->in, out = c->group->out, rank = c->lora->rank;
    const float *A = c->values + c->group->a_offset + c->layer * in * rank;
    const float *B = c->values + c->group->b_offset + c->layer * rank * out;
    double f = 0;

    for (size_t n = 0; n < ROWS; n++)
        for (size_t r = 0; r < rank; r++) {
            double down = 0, back = 0;

            for (size_t i = 0; i < in; i++)
                down += (double)c->X[n * in + i] * (double)A[i * rank + r];
            for (size_t o = 0; o < out; o++)
                back += (double)c->dY[n * out + o] * (double)B[r * out + o];
            f += (double)c->lora->scale * down * back;
        }
    return f;
}

/* f is linear in each single value: its central difference is exact but for double's rounding. */
static void check_gradients(struct backward_case *c, const float *gradients, size_t offset,
                            size_t count, float before)
{
    double largest = 0, worst = 0;

    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs((double)(gradients[offset + i] - before)));
    for (size_t i = 0; i < count; i += 1 + count / 61) {
        float kept = c->values[offset + i], step = 0.25F;
        double plus, minus, distance;

        c->values[offset + i] = kept + step;
        plus = value_of(c);
        distance = (double)c->values[offset + i];
        c->values[offset + i] = kept - step;
        minus = value_of(c);
        distance -= (double)c->values[offset + i];
        c->values[offset + i] = kept;
        worst =
            fmax(worst, fabs((plus - minus) / distance - (double)(gradients[offset + i] - before)));
    }
    /* float32 sums of up to ROWS * width terms, added to 1 */
    if (!(worst <= 1e-5 * largest + 1e-6))
        fail_msg("a gradient is %.3g off, the largest is %.3g", worst, largest);
}

static void run_backward(struct backend *be, const struct weights *weights, size_t rank,
                         size_t group_index, size_t layer)
{
    struct lora *lora = new_lora(weights, rank, 4.0F);
    const struct lora_group *group = &lora->groups[group_index];
    size_t in = group->in, out = group->out, size_bytes = lora->value_count * sizeof(float);
    struct backward_case c = {.lora = lora, .group = group, .layer = layer};
    float *ones = calloc(lora->value_count, sizeof(float)), *gradients;
    float *X = backend_alloc(be, ROWS * in * sizeof(float));
    float *dY = backend_alloc(be, ROWS * out * sizeof(float));
    float *scratch = backend_alloc(be, (2 * ROWS * rank + in * rank) * sizeof(float));
    size_t a_first = group->a_offset + layer * in * rank;
    size_t b_first = group->b_offset + layer * rank * out;

    c.X = calloc(ROWS * in, sizeof(float));
    c.dY = calloc(ROWS * out, sizeof(float));
    c.values = calloc(lora->value_count, sizeof(float));
    fill(c.X, ROWS * in, 1);
    fill(c.dY, ROWS * out, 2);
    fill(c.values, lora->value_count, 3);
    for (size_t i = 0; i < lora->value_count; i++)
        ones[i] = 1;
    backend_upload(be, X, c.X, ROWS * in * sizeof(float));
    backend_upload(be, dY, c.dY, ROWS * out * sizeof(float));
    backend_upload(be, lora->values, c.values, size_bytes);
    backend_upload(be, lora->gradients, ones, size_bytes);
    lora_backward(lora, group_index, layer, X, dY, 0, scratch); /* no rows: nothing */
    lora_backward(lora, group_index, layer, X, dY, ROWS, scratch);
    gradients = downloaded(be, lora->gradients, lora->value_count);
    check_gradients(&c, gradients, a_first, in * rank, 1);
    check_gradients(&c, gradients, b_first, rank * out, 1);
    for (size_t i = 0; i < lora->value_count; i++)
        if ((i < a_first || i >= a_first + in * rank) && (i < b_first || i >= b_first + rank * out))
            assert_true(gradients[i] == 1); /* other layers and groups are not touched */
    free(gradients);
    free(ones);
    free(c.values);
    free(c.dY);
    free(c.X);
    backend_free(be, scratch);
    backend_free(be, dY);
    backend_free(be, X);
    lora_free(lora);
}

static void gradients_are_added_and_agree_with_central_differences(void **state)
{
    (void)state;
    for (enum backend_kind kind = BACKEND_REF; kind <= BACKEND_CPU; kind++) {
        struct backend *be = bench_open(kind);
        struct weights *weights = bench_weights(be, geometry_folders[1], NUMERICS_FLOAT32);

        run_backward(be, weights, 1, 0, 0);
        run_backward(be, weights, 3, 1, 2);
        run_backward(be, weights, 16, 3, 1);
        weights_free(weights);
        backend_close(be);
    }
}

static void ranks_and_alphas_that_cannot_be_are_refused(void **state)
{
    (void)state;
    struct backend *be = bench_open(BACKEND_REF);
    struct weights *weights = bench_weights(be, geometry_folders[1], NUMERICS_FLOAT32);
    size_t before = backend_allocated_bytes(be);
    struct lora *lora = NULL;
    struct error err = {0};

    assert_false(lora_new(weights, 0, 8.0F, &lora, &err));
    assert_non_null(strstr(err.message, "rank is 0"));
    assert_false(lora_new(weights, 4097, 8.0F, &lora, &err));
    assert_non_null(strstr(err.message, "rank is 4097"));
    assert_false(lora_new(weights, 4, NAN, &lora, &err));
    assert_non_null(strstr(err.message, "alpha"));
    for (enum projection p = 0; p < PROJECTION_COUNT; p++)
        weights->zero[p] = true;
    assert_false(lora_new(weights, 4, 8.0F, &lora, &err));
    assert_non_null(strstr(err.message, "nothing to adapt"));
    assert_int_equal(backend_allocated_bytes(be), before);
    lora_free(NULL);
    weights_free(weights);
    backend_close(be);
}

static void the_device_holds_no_more_than_planned(void **state)
{
    (void)state;
    struct backend *be = bench_open(BACKEND_REF);
    struct weights *weights = bench_weights(be, geometry_folders[0], NUMERICS_FLOAT32);
    size_t before = backend_allocated_bytes(be);
    size_t planned = lora_device_bytes(&weights->geometry, 5);
    struct lora *lora = new_lora(weights, 5, 8.0F);

    assert_int_equal(4 * lora->value_count * sizeof(float), planned); /* no group is zero here */
    assert_in_range(backend_allocated_bytes(be) - before, planned, planned + 4 * 64);
    lora_free(lora);
    assert_int_equal(backend_allocated_bytes(be), before);
    weights_free(weights);
    backend_close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(start_values_are_the_recorded_ones),
        cmocka_unit_test(a_merge_adds_the_scaled_product_to_every_layer),
        cmocka_unit_test(in_w4a8_the_merged_weights_are_rounded_and_zero_groups_kept),
        cmocka_unit_test(an_untrained_adapter_changes_nothing),
        cmocka_unit_test(gradients_are_added_and_agree_with_central_differences),
        cmocka_unit_test(ranks_and_alphas_that_cannot_be_are_refused),
        cmocka_unit_test(the_device_holds_no_more_than_planned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
