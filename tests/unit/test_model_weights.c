/*
 * Proves that a checkpoint lands on the device as the network needs it: rounded to the recorded
 * codes, packed, with the reference's permutations and rotations.
 */
#include "daemon/model/random.h"
#include "daemon/model/weights.h"
#include "tests/support/network.h"
#include "tests/support/test.h"

#define MIDPOINT_MAX 2e-8   /* how near to the middle of two codes a rounding may go either way */
#define NORM_SHARE_MAX 1e-3 /* of groups whose float16 norm may be one step off */

struct tally {
    size_t index_count, index_flips, norm_count, norm_flips;
};

/* Value `item` of the unit vector that group `group` of an output is looked up by, in double. */
static double unit_value(const float *w, size_t rows, size_t cols, bool columns, size_t output,
                         size_t group, size_t item)
{
    size_t inputs = columns ? rows : cols;
    double sum = 0, squares = 0;

    for (size_t i = 0; i < WEIGHT_GROUP && group * WEIGHT_GROUP + i < inputs; i++) {
        size_t input = group * WEIGHT_GROUP + i;
        double value = columns ? w[input * cols + output] : w[output * cols + input];

        sum += __builtin_parityll(i & item) ? -value : value;
        squares += value * value; /* the transform keeps the norm */
    }
    return sum / sqrt(WEIGHT_GROUP) / sqrt(squares);
}

/* One matrix: codes and norms against the recorded ones. */
static void compare_codes(struct tally *tally, const char *name, const float *w, size_t rows,
                          size_t cols, bool columns, const uint8_t *index, const uint8_t *wanted,
                          const float *norm, const uint16_t *wanted_norm)
{
    size_t inputs = columns ? rows : cols, outputs = columns ? cols : rows;
    size_t groups = (inputs + WEIGHT_GROUP - 1) / WEIGHT_GROUP;
    float codes[CODEBOOK_MAX];

    (void)codebook_values(WEIGHT_BITS, WEIGHT_GROUP, codes);
    for (size_t g = 0; g < outputs * groups; g++) {
        int step = (int)f32_to_f16(norm[g]) - (int)wanted_norm[g];

        if (abs(step) > 1)
            fail_msg("%s: norm %zu is %d steps off", name, g, step);
        tally->norm_flips += step != 0;
        tally->norm_count++;
        for (size_t i = 0; i < WEIGHT_GROUP; i++) {
            uint8_t found = index[g * WEIGHT_GROUP + i], right = wanted[g * WEIGHT_GROUP + i];
            double unit, middle;

            tally->index_count++;
            if (found == right)
                continue;
            unit = unit_value(w, rows, cols, columns, g / groups, g % groups, i);
            middle = ((double)codes[found] + codes[right]) / 2;
            if (abs(found - right) != 1 || !(fabs(unit - middle) <= MIDPOINT_MAX))
                fail_msg("%s: code %d, not %d, at %.10g", name, found, right, unit);
            tally->index_flips++;
        }
    }
}

/* Rounds a device matrix through the backend, and compares codes, norms and the rounded values with
 * what weights_load made of it. */
static void check_matrix(struct tally *tally, struct weights *weights, const char *name,
                         const float *w, size_t rows, size_t cols, bool columns,
                         const uint8_t *wanted, const uint16_t *wanted_norm, const float *rounded)
{
    struct backend *be = weights->backend;
    size_t inputs = columns ? rows : cols, outputs = columns ? cols : rows;
    size_t groups = outputs * ((inputs + WEIGHT_GROUP - 1) / WEIGHT_GROUP), count = rows * cols;
    float *device = backend_alloc(be, count * sizeof(float));
    float *device_norm = backend_alloc(be, groups * sizeof(float));
    uint8_t *device_index = backend_alloc(be, groups * WEIGHT_GROUP);
    float *norm = calloc(groups, sizeof(float)), *values = calloc(count, sizeof(float));
    float *loaded = calloc(count, sizeof(float));
    uint8_t *index = calloc(groups, WEIGHT_GROUP);

    backend_upload(be, device, w, count * sizeof(float));
    backend_round_code(be, device, device_index, device_norm, device, &weights->weight_codebook,
                       rows, cols, columns);
    backend_download(be, index, device_index, groups * WEIGHT_GROUP);
    backend_download(be, norm, device_norm, groups * sizeof(float));
    backend_download(be, values, device, count * sizeof(float));
    compare_codes(tally, name, w, rows, cols, columns, index, wanted, norm, wanted_norm);
    if (rounded) {
        backend_download(be, loaded, rounded, count * sizeof(float));
        assert_memory_equal(loaded, values, count * sizeof(float));
    }
    free(index);
    free(loaded);
    free(values);
    free(norm);
    backend_free(be, device_index);
    backend_free(be, device_norm);
    backend_free(be, device);
}

/* A device array with the rows that an engram site reads of one of its tables, in order. */
static float *gathered(const struct weights *weights, const struct table *table, size_t part)
{
    const struct geometry *g = &weights->geometry;
    const size_t size_bytes = g->engram_slots * g->engram_sub * sizeof(float);
    const size_t row_bytes = g->engram_sub * (table->storage == STORAGE_F32 ? 4 : 2);
    int32_t *numbers = calloc(g->engram_slots, sizeof(*numbers));
    int32_t *index = backend_alloc(weights->backend, g->engram_slots * sizeof(*index));
    float *rows = backend_alloc(weights->backend, size_bytes);
    struct table one = *table;

    assert_non_null(numbers);
    assert_non_null(rows);
    one.values = (const char *)one.values + part * g->engram_slots * row_bytes;
    for (size_t i = 0; i < g->engram_slots; i++)
        numbers[i] = (int32_t)i;
    backend_upload(weights->backend, index, numbers, g->engram_slots * sizeof(*numbers));
    backend_gather_forward(weights->backend, rows, &one, index, g->engram_slots, 1, g->engram_slots,
                           g->engram_sub, ROUND_NONE);
    backend_free(weights->backend, index);
    free(numbers);
    return rows;
}

/* Where weights_load put the rounded form of layer (or table) `part` of a tensor; NULL: packed.
 * *ret_made is to be freed: what is not kept in this form. */
static const float *rounded_of(const struct weights *weights, const char *name, size_t part,
                               float **ret_made)
{
    size_t site;
    char rest[64];

    if (strcmp(name, "embedding/embedding") == 0)
        return weights->embedding;
    if (sscanf(name, "engrams_%zu/%63s", &site, rest) == 2) {
        const struct engram_weights *engram = &weights->engrams[site];

        if (strcmp(rest, "embedding") == 0)
            return *ret_made = gathered(weights, &engram->table, part);
        return strcmp(rest, "key_proj/kernel") == 0 ? engram->key : engram->value;
    }
    for (enum projection p = 0; p < PROJECTION_COUNT; p++)
        if (strcmp(name, projection_path(p)) == 0)
            return weights->layers[part].kernel[p];
    return NULL;
}

static void check_tensor(struct tally *tally, struct weights *weights,
                         const struct safetensors *base, const struct safetensors *codes,
                         const struct tensor *index)
{
    char name[128], norm_name[140];
    const struct tensor *tensor, *norm;
    size_t rows, cols, parts, count, index_part, norm_part;
    uint16_t *wanted_norm;
    bool columns;
    float *values;

    snprintf(name, sizeof(name), "%.*s", (int)(strlen(index->name) - 4), index->name);
    snprintf(norm_name, sizeof(norm_name), "%s.norm", name);
    tensor = fixture_tensor(base, "", name);
    norm = fixture_tensor(codes, "", norm_name);
    values = fixture_floats(base, "", name, &count);
    rows = tensor->shape[tensor->rank - 2];
    cols = tensor->shape[tensor->rank - 1];
    parts = count / (rows * cols);
    columns = !strstr(name, "/embedding");
    index_part = index->element_count / parts;
    norm_part = norm->element_count / parts;
    wanted_norm = malloc(norm->size_bytes);
    memcpy(wanted_norm, norm->data, norm->size_bytes);
    for (size_t part = 0; part < parts; part++) {
        float *made = NULL;

        check_matrix(tally, weights, name, values + part * rows * cols, rows, cols, columns,
                     (const uint8_t *)index->data + part * index_part,
                     wanted_norm + part * norm_part, rounded_of(weights, name, part, &made));
        backend_free(weights->backend, made);
    }
    free(wanted_norm);
    free(values);
}

static void quantised_weights_have_the_recorded_codes_and_norms(void **state)
{
    (void)state;
    for (enum backend_kind kind = BACKEND_REF; kind <= BACKEND_CPU; kind++)
        for (size_t i = 0; i < GEOMETRY_COUNT; i++) {
            struct backend *be = bench_open(kind);
            struct weights *weights = bench_weights(be, geometry_folders[i], NUMERICS_W4A8);
            struct safetensors *base = fixture_open(geometry_folders[i], "base.safetensors");
            struct safetensors *codes =
                fixture_open(geometry_folders[i], "qat_weights.safetensors");
            struct tally tally = {0};

            for (size_t j = 0; j < safetensors_count(codes); j++) {
                const struct tensor *tensor = safetensors_at(codes, j);

                if (strcmp(tensor->name + strlen(tensor->name) - 4, ".idx") == 0)
                    check_tensor(&tally, weights, base, codes, tensor);
            }
            print_message("%s, %s: %zu of %zu codes, %zu of %zu norms differ\n",
                          geometry_folders[i], backend_name(kind), tally.index_flips,
                          tally.index_count, tally.norm_flips, tally.norm_count);
            assert_true(tally.index_count > 100000);
            assert_true((double)tally.norm_flips <= NORM_SHARE_MAX * (double)tally.norm_count);
            safetensors_close(codes);
            safetensors_close(base);
            weights_free(weights);
            backend_close(be);
        }
}

/* Host copies of [layers, count] device values, given the pointer of the first layer. */
static float *downloaded(struct backend *be, const float *device, size_t count)
{
    float *values = calloc(count, sizeof(*values));

    assert_non_null(values);
    backend_download(be, values, device, count * sizeof(*values));
    return values;
}

static void the_three_matrices_of_a_layers_lanes_are_packed_and_rounded(void **state)
{
    (void)state;
    static const char *const names[] = {"stack/mhc_phi_pre", "stack/mhc_phi_post",
                                        "stack/mhc_phi_res"};

    for (size_t i = 0; i < 2 * GEOMETRY_COUNT; i++) {
        enum numerics numerics = i % 2 ? NUMERICS_FLOAT32 : NUMERICS_W4A8;
        struct backend *be = bench_open(BACKEND_REF);
        struct weights *weights = bench_weights(be, geometry_folders[i / 2], numerics);
        struct safetensors *base = fixture_open(geometry_folders[i / 2], "base.safetensors");
        size_t n = weights->geometry.lane_count, rows = n * weights->geometry.d_model;
        size_t M = 2 * n + n * n, start = 0;

        for (size_t part = 0; part < 3; part++) {
            size_t count, cols = part < 2 ? n : n * n;
            float *all = fixture_floats(base, "", names[part], &count);

            for (size_t layer = 0; layer < weights->geometry.layer_count; layer++) {
                float *packed = downloaded(be, weights->layers[layer].hyper.phi, rows * M);
                float *device = backend_alloc(be, rows * cols * sizeof(float)), *values;

                backend_upload(be, device, all + layer * rows * cols, rows * cols * sizeof(float));
                if (numerics == NUMERICS_W4A8)
                    backend_round_code(be, device, NULL, NULL, device, &weights->weight_codebook,
                                       rows, cols, true);
                values = downloaded(be, device, rows * cols);
                for (size_t row = 0; row < rows; row++)
                    assert_memory_equal(packed + row * M + start, values + row * cols,
                                        cols * sizeof(float));
                backend_free(be, device);
                free(values);
                free(packed);
            }
            free(all);
            start += cols;
        }
        assert_int_equal(start, M);
        assert_int_equal(weights->layers[0].hyper.rounding,
                         numerics == NUMERICS_W4A8 ? ROUND_A8 : ROUND_NONE);
        safetensors_close(base);
        weights_free(weights);
        backend_close(be);
    }
}

static void biases_hold_the_offsets_of_the_layers_lane(void **state)
{
    (void)state;
    for (size_t i = 0; i < GEOMETRY_COUNT; i++) {
        struct backend *be = bench_open(BACKEND_REF);
        struct weights *weights = bench_weights(be, geometry_folders[i], NUMERICS_FLOAT32);
        struct safetensors *base = fixture_open(geometry_folders[i], "base.safetensors");
        size_t n = weights->geometry.lane_count, M = 2 * n + n * n, count;
        float *pre = fixture_floats(base, "stack/", "mhc_b_pre", &count);
        float *post = fixture_floats(base, "stack/", "mhc_b_post", &count);
        float *res = fixture_floats(base, "stack/", "mhc_b_res", &count);
        float *a_pre = fixture_floats(base, "stack/", "mhc_a_pre", &count);
        float *a_res = fixture_floats(base, "stack/", "mhc_a_res", &count);

        for (size_t layer = 0; layer < weights->geometry.layer_count; layer++) {
            float *bias = downloaded(be, weights->layers[layer].hyper.bias, M);
            float *scale = downloaded(be, weights->layers[layer].hyper.scale, 3);

            for (size_t lane = 0; lane < n; lane++) {
                bool own = layer % n == lane;

                assert_true(bias[lane] == pre[layer * n + lane] + (own ? 4.0F : -4.0F));
                assert_true(bias[n + lane] == post[layer * n + lane] + (own ? 0.0F : -4.0F));
            }
            assert_memory_equal(bias + 2 * n, res + layer * n * n, n * n * sizeof(float));
            assert_true(scale[0] == a_pre[layer] && scale[2] == a_res[layer]);
            free(scale);
            free(bias);
        }
        free(a_res);
        free(a_pre);
        free(res);
        free(post);
        free(pre);
        safetensors_close(base);
        weights_free(weights);
        backend_close(be);
    }
}

static void in_float_every_tensor_is_the_files_own(void **state)
{
    (void)state;
    struct backend *be = bench_open(BACKEND_REF);
    struct weights *weights = bench_weights(be, geometry_folders[0], NUMERICS_FLOAT32);
    struct safetensors *base = fixture_open(geometry_folders[0], "base.safetensors");
    const struct layer_weights *last = &weights->layers[5];
    const struct {
        const char *name;
        const float *device;
        size_t layer; /* of 6 */
        const struct table *table;
    } cases[] = {
        {"embedding/embedding", weights->embedding, 0, NULL},
        {"engrams_1/embedding", NULL, 0, &weights->engrams[1].table},
        {"engrams_1/key_proj/kernel", weights->engrams[1].key, 0, NULL},
        {"engrams_0/value_proj/kernel", weights->engrams[0].value, 0, NULL},
        {"engrams_1/taps", weights->engrams[1].taps, 0, NULL},
        {"stack/final_norm/scale", weights->final_norm, 0, NULL},
        {"stack/layers/block/ZCRMSNorm_0/scale", last->attn_norm, 5, NULL},
        {"stack/layers/block/post_attn_norm/scale", last->post_attn_norm, 5, NULL},
        {"stack/layers/block/pre_hada_norm/scale", last->pre_hada_norm, 5, NULL},
        {"stack/layers/block/attn_gate", last->attn_gate, 5, NULL},
        {"stack/layers/block/hadamard_mlp/w1a", last->monarch.w1a, 5, NULL},
        {"stack/layers/block/hadamard_mlp/w3b", last->monarch.w3b, 5, NULL},
        {"stack/layers/block/hadamard_mlp/d1", last->monarch.d1, 5, NULL},
        {"stack/layers/block/hadamard_mlp/b2", last->monarch.b2, 5, NULL},
        {"stack/layers/block/hadamard_mlp/cond_u", last->monarch.cond_u, 5, NULL},
        {"stack/layers/block/hadamard_mlp/cond_v", last->monarch.cond_v, 5, NULL},
        {"stack/layers/block/self_attn/q_norm/scale", last->q_norm, 5, NULL},
        {"stack/layers/block/self_attn/k_norm/scale", last->k_norm, 5, NULL},
        {"stack/layers/block/self_attn/q_taps", last->q_taps, 5, NULL},
        {"stack/layers/block/self_attn/k_taps", last->k_taps, 5, NULL},
        {"stack/layers/block/self_attn/v_taps", last->v_taps, 5, NULL},
        {"stack/layers/block/self_attn/q_proj/kernel", NULL, 5, &last->kernel_base[PROJECTION_Q]},
        {"stack/layers/block/self_attn/q_proj/kernel", last->kernel[PROJECTION_Q], 5, NULL},
        {"stack/layers/block/self_attn/out_proj/kernel", last->kernel[PROJECTION_OUT], 5, NULL},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        size_t count, part;
        float *wanted = fixture_floats(base, "", cases[i].name, &count), *found;

        part = cases[i].layer ? count / 6 : count;
        found = cases[i].table ? bench_read_table(be, cases[i].table, part)
                               : downloaded(be, cases[i].device, part);
        if (memcmp(found, wanted + cases[i].layer * part, part * sizeof(float)) != 0)
            fail_msg("%s is not the file's", cases[i].name);
        free(found);
        free(wanted);
    }
    safetensors_close(base);
    weights_free(weights);
    backend_close(be);
}

static void permutations_are_whole_or_in_halves_as_the_ladder_says(void **state)
{
    (void)state;
    /* numpy.random.RandomState(11) and (13), the second folder's in halves with seeds + 977 */
    static const struct {
        size_t size;
        int32_t first[2][3];
        int64_t sum[2]; /* of (i + 1) p[i] */
    } wanted[GEOMETRY_COUNT] = {
        {256, {{137, 144, 26}, {96, 248, 125}}, {4236732, 4169328}},
        {128, {{9, 46, 26}, {60, 36, 4}}, {654440, 657632}},
    };

    for (size_t i = 0; i < GEOMETRY_COUNT; i++) {
        struct backend *be = bench_open(BACKEND_REF);
        struct weights *weights = bench_weights(be, geometry_folders[i], NUMERICS_FLOAT32);
        const struct monarch *monarch = &weights->layers[1].monarch;
        const int32_t *device[2] = {monarch->p1, monarch->p2};

        assert_int_equal(monarch->P, wanted[i].size);
        assert_int_equal(monarch->a * monarch->b, wanted[i].size);
        assert_int_equal(monarch->rank, CONDITION_RANK);
        for (size_t p = 0; p < 2; p++) {
            int32_t order[256];
            int64_t sum = 0;

            backend_download(be, order, device[p], wanted[i].size * sizeof(*order));
            for (size_t j = 0; j < wanted[i].size; j++)
                sum += (int64_t)(j + 1) * order[j];
            assert_memory_equal(order, wanted[i].first[p], sizeof(wanted[i].first[p]));
            assert_int_equal(sum, wanted[i].sum[p]);
        }
        weights_free(weights);
        backend_close(be);
    }
}

static void rotations_are_those_of_the_angles_in_float32(void **state)
{
    (void)state;
    struct backend *be = bench_open(BACKEND_REF);
    struct weights *weights = bench_weights(be, geometry_folders[1], NUMERICS_FLOAT32);
    size_t half = weights->geometry.qk_head_size / 2, rows = weights->geometry.max_seq_len;
    float *cosines = downloaded(be, weights->rope_cos, rows * half);
    float *sines = downloaded(be, weights->rope_sin, rows * half);

    assert_int_equal(half, 5);
    for (size_t t = 0; t < rows; t++)
        for (size_t i = 0; i < half; i++) {
            /* a float angle is within 1.5 roundings of the true one, plus one of the cosine */
            double angle = (double)t / pow(100000.0, (double)i / (double)half);
            double bound = angle * 1.8e-7 + 1.2e-7;

            assert_true(fabs(cosines[t * half + i] - cos(angle)) <= bound);
            assert_true(fabs(sines[t * half + i] - sin(angle)) <= bound);
        }
    free(sines);
    free(cosines);
    weights_free(weights);
    backend_close(be);
}

static void groups_that_are_all_zero_are_noted(void **state)
{
    (void)state;
    for (size_t i = 0; i < GEOMETRY_COUNT; i++) {
        struct backend *be = bench_open(BACKEND_REF);
        struct weights *weights = bench_weights(be, geometry_folders[i], NUMERICS_W4A8);

        for (enum projection p = 0; p < PROJECTION_COUNT; p++)
            assert_int_equal(weights->zero[p], i == 1 && p == PROJECTION_GATE);
        weights_free(weights);
        backend_close(be);
    }
}

static void the_device_holds_what_was_planned_and_gets_it_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < GEOMETRY_COUNT; i++) {
        struct backend *be = bench_open(BACKEND_REF);
        size_t before = backend_allocated_bytes(be), planned;
        struct weights *weights = bench_weights(be, geometry_folders[i], NUMERICS_W4A8);

        planned = weights_device_bytes(&weights->geometry);
        assert_int_equal(weights->device_bytes, planned);
        /* a backend may round each of the allocations up */
        assert_in_range(backend_allocated_bytes(be) - before, planned,
                        planned + weights->allocation_count * 64);
        weights_free(weights);
        assert_int_equal(backend_allocated_bytes(be), before);
        backend_close(be);
    }
    weights_free(NULL);
}

static void the_large_tensors_stay_in_the_file(void **state)
{
    (void)state;
    struct backend *be = bench_open(BACKEND_CPU);
    struct weights *weights = bench_weights(be, geometry_folders[0], NUMERICS_W4A8);
    const struct geometry *g = &weights->geometry;
    size_t large = g->engram_site_count * g->engram_order_count * g->engram_heads *
                   g->engram_slots * g->engram_sub,
           kernels = 0;

    for (enum projection p = 0; p < PROJECTION_COUNT; p++) {
        size_t in, out;

        projection_shape(g, p, &in, &out);
        kernels += g->layer_count * in * out;
    }
    /* what is multiplied with is on the device once; what it is made from, and the tables, are not */
    assert_true(weights->device_bytes < (weights->parameter_count - large) * 5 / 4 * sizeof(float));
    assert_true(large > 0 && kernels > 0);
    assert_true(weights->mapped_bytes > (large + kernels) * sizeof(uint16_t));
    assert_int_equal(weights->engrams[0].table.storage, STORAGE_F16);
    assert_ptr_equal(weights->engrams[0].table.codebook, &weights->weight_codebook);
    weights_free(weights);
    backend_close(be);
}

static void a_projection_no_adapter_merges_is_there_after_loading(void **state)
{
    (void)state;
    struct backend *be = bench_open(BACKEND_REF);
    struct weights *weights, *whole = bench_weights(be, geometry_folders[1], NUMERICS_W4A8);
    struct error err = {0};
    size_t in, out;
    char path[256];

    snprintf(path, sizeof(path), "%sbase.safetensors", geometry_folders[1]);
    fail_on(weights_load(be, path, NUMERICS_W4A8, NULL, &weights, &err), &err);
    projection_shape(&weights->geometry, PROJECTION_GATE, &in, &out);
    for (size_t layer = 0; layer < weights->geometry.layer_count; layer++) {
        float *found = downloaded(be, weights->layers[layer].kernel[PROJECTION_GATE], in * out);
        float *wanted = downloaded(be, whole->layers[layer].kernel[PROJECTION_GATE], in * out);

        assert_memory_equal(found, wanted, in * out * sizeof(float));
        free(wanted);
        free(found);
    }
    weights_free(whole);
    weights_free(weights);
    backend_close(be);
}

static void a_stop_is_seen_while_loading_and_nothing_is_kept(void **state)
{
    (void)state;
    struct backend *be = bench_open(BACKEND_REF);
    struct weights *weights = NULL;
    const atomic_bool stop = true;
    struct error err = {0};
    char path[256];

    snprintf(path, sizeof(path), "%sbase.safetensors", geometry_folders[1]);
    assert_false(weights_load(be, path, NUMERICS_W4A8, &stop, &weights, &err));
    assert_int_equal(err.code, ERR_CANCELLED);
    assert_null(weights);
    assert_int_equal(backend_allocated_bytes(be), 0);
    backend_close(be); /* asserts that nothing is imported either */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantised_weights_have_the_recorded_codes_and_norms),
        cmocka_unit_test(the_three_matrices_of_a_layers_lanes_are_packed_and_rounded),
        cmocka_unit_test(biases_hold_the_offsets_of_the_layers_lane),
        cmocka_unit_test(in_float_every_tensor_is_the_files_own),
        cmocka_unit_test(permutations_are_whole_or_in_halves_as_the_ladder_says),
        cmocka_unit_test(rotations_are_those_of_the_angles_in_float32),
        cmocka_unit_test(groups_that_are_all_zero_are_noted),
        cmocka_unit_test(the_device_holds_what_was_planned_and_gets_it_back),
        cmocka_unit_test(the_large_tensors_stay_in_the_file),
        cmocka_unit_test(a_projection_no_adapter_merges_is_there_after_loading),
        cmocka_unit_test(a_stop_is_seen_while_loading_and_nothing_is_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
