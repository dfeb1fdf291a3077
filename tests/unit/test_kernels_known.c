/*
 * Proves what the table of ops cannot: results worked out another way. A tree computes what each of
 * its paths computes alone; several targets of a row count as if each stood alone; gradients pass
 * the rounding; the optimiser's step and the mix of lanes have their known values.
 */
#include "kernels/table.h"
#include "tests/support/op_cases.h"

#include <math.h>

static float *upload_floats(struct backend *be, const float *values, size_t count)
{
    float *device = backend_alloc(be, count * sizeof(*device));

    assert_non_null(device);
    if (values)
        backend_upload(be, device, values, count * sizeof(*device));
    return device;
}

static void expect_floats(struct backend *be, const char *what, const float *device,
                          const float *expected, size_t count, double tolerance)
{
    float *ours = malloc(count * sizeof(*ours));

    assert_non_null(ours);
    backend_download(be, ours, device, count * sizeof(*ours));
    for (size_t i = 0; i < count; i++)
        if (!(fabs((double)ours[i] - expected[i]) <= tolerance))
            fail_msg("%s: %s[%zu] is %.9g, expected %.9g", backend_name(be->kind), what, i, ours[i],
                     expected[i]);
    free(ours);
}

/* ---- products by hand --------------------------------------------------------------------------- */

static void check_product(struct backend *be)
{
    /* [1 2; 3 4; 5 6] [1 0 2; 0 1 3] = [1 2 8; 3 4 18; 5 6 28], small integers: exact */
    static const float a[] = {1, 2, 3, 4, 5, 6}, a_turned[] = {1, 3, 5, 2, 4, 6};
    static const float b[] = {1, 0, 2, 0, 1, 3}, b_turned[] = {1, 0, 0, 1, 2, 3};
    static const float start[] = {1, 1, 1, 2, 2, 2, 3, 3, 3};
    static const float expected[] = {3, 5, 17, 8, 10, 38, 13, 15, 59}; /* 2 A B + start */
    static const float scaled[] = {0.5, 0.5, 0.5, 1, 1, 1, 1.5, 1.5, 1.5};

    for (int turn = 0; turn < 4; turn++) {
        const bool ta = turn & 1, tb = turn & 2;
        float *A = upload_floats(be, ta ? a_turned : a, 6);
        float *B = upload_floats(be, tb ? b_turned : b, 6), *C = upload_floats(be, start, 9);
        struct matmul shape = {.M = 3,
                               .N = 3,
                               .K = 2,
                               .transpose_a = ta,
                               .transpose_b = tb,
                               .lda = ta ? 3 : 2,
                               .ldb = tb ? 2 : 3,
                               .ldc = 3,
                               .alpha = 2,
                               .beta = 1};

        backend_matmul(be, C, A, B, &shape);
        expect_floats(be, "2 A B + C", C, expected, 9, 0);
        shape.K = 0; /* nothing to add: C is only scaled */
        shape.beta = 0.5f;
        backend_upload(be, C, start, sizeof(start));
        backend_matmul(be, C, A, B, &shape);
        expect_floats(be, "C with K = 0", C, scaled, 9, 0);
        backend_free(be, A);
        backend_free(be, B);
        backend_free(be, C);
    }
}

static void products_of_small_integers_are_exact_in_every_orientation(void **state)
{
    (void)state;
    each_backend(check_product);
}

/* ---- a tree is its paths ------------------------------------------------------------------------ */

/*         0 - 1 - 2 - 3            9 - 10
 *             |   ` - 4 - 5
 *             ` - 6 - 7
 *                 ` - 8            a trunk, branches in branches, three children, a second root */
static const int32_t branched[] = {-1, 0, 1, 2, 2, 4, 1, 6, 6, -1, 9};
#define TOKENS COUNT_OF(branched)

struct path { /* from a root to one token */
    size_t tokens[TOKENS], length;
};

static struct path path_to(size_t token)
{
    struct path path = {0};

    for (int32_t n = (int32_t)token; n >= 0; n = branched[n])
        path.length++;
    for (int32_t n = (int32_t)token, i = (int32_t)path.length; n >= 0; n = branched[n])
        path.tokens[--i] = (size_t)n;
    return path;
}

/* Moves what the op reads per token from the tree's run to the path's. */
static void copy_path(struct op_run *alone, const struct op_run *whole, const struct path *path)
{
    for (size_t a = 0; a < whole->array_count; a++) {
        const struct op_array *from = &whole->arrays[a];
        struct op_array *to = &alone->arrays[a];
        const size_t width = from->count / whole->size->N;

        if (from->count == to->count) { /* a weight */
            memcpy(to->start, from->start, from->count * sizeof(float));
            continue;
        }
        for (size_t i = 0; i < path->length; i++)
            memcpy(&to->start[i * width], &from->start[path->tokens[i] * width],
                   width * sizeof(float));
    }
}

/* sums[i]: gradient arrays of the tree gathered from the paths, each token counted by its own path:
 * the upstream of a path is 0 but at its last token, so that the paths' gradients add up. */
static void add_path(struct op_run *whole, float **sums, const struct path *path)
{
    struct op_size size = *whole->size;
    struct op_run alone;

    size.N = path->length;
    size.tree = TREE_CHAIN;
    op_run_init(&alone, whole->be, whole->op, &size);
    copy_path(&alone, whole, path);
    for (size_t a = 0; a < alone.array_count; a++) {
        struct op_array *array = &alone.arrays[a];
        const size_t width = array->count / path->length;

        if (array->upstream_of)
            memset(array->start, 0, (path->length - 1) * width * sizeof(float));
        if (array->gradient_of && array->read)
            memset(array->start, 0, array->count * sizeof(float));
    }
    op_run_forward(&alone);
    op_run_backward(&alone);
    for (size_t a = 0; a < alone.array_count; a++) {
        const struct op_array *array = &alone.arrays[a];
        const size_t width = whole->arrays[a].count / whole->size->N;
        const size_t last = (path->length - 1) * width;

        if (!array->written)
            continue;
        if (!array->gradient_of) /* the last token's own result */
            memcpy(&sums[a][path->tokens[path->length - 1] * width], &array->result[last],
                   width * sizeof(float));
        else if (array->count == whole->arrays[a].count)
            for (size_t k = 0; k < array->count; k++)
                sums[a][k] += array->result[k];
        else
            for (size_t k = 0; k < array->count; k++)
                sums[a][path->tokens[k / width] * width + k % width] += array->result[k];
    }
    op_run_release(&alone);
}

static void check_paths(struct backend *be, const struct op_case *op)
{
    static const struct op_size size = {.name = "branched",
                                        .N = TOKENS,
                                        .C = 13, /* unlike any per-path length */
                                        .H = 4,
                                        .G = 2,
                                        .half = 3,
                                        .V = 7,
                                        .lanes = 2,
                                        .vocab = 5,
                                        .tree = TREE_CHAIN,
                                        .window = 3};
    float *sums[OP_ARRAYS_MAX] = {0};
    struct op_run whole;

    op_run_init(&whole, be, op, &size);
    tree_release(be, &whole.tree);
    tree_from_parents(be, branched, TOKENS, &whole.tree);
    op_run_forward(&whole);
    op_run_backward(&whole);
    for (size_t a = 0; a < whole.array_count; a++)
        sums[a] = calloc(whole.arrays[a].count + 1, sizeof(float));
    for (size_t n = 0; n < TOKENS; n++) {
        const struct path path = path_to(n);

        add_path(&whole, sums, &path);
    }
    for (size_t a = 0; a < whole.array_count; a++) {
        const struct op_array *array = &whole.arrays[a];

        for (size_t k = 0; array->written && k < array->count; k++) {
            const double before = array->gradient_of && array->read ? array->start[k] : 0;
            const double ours = array->result[k] - before;

            /* Sums of a dozen terms of size 1 in another order. */
            if (!(fabs(ours - sums[a][k]) <= 1e-5))
                fail_msg("%s, %s: %s[%zu] is %.9g in the tree, %.9g along its paths",
                         backend_name(be->kind), op->name, array->name, k, ours, sums[a][k]);
        }
        free(sums[a]);
    }
    op_run_release(&whole);
}

static void check_all_paths(struct backend *be)
{
    size_t checked = 0;

    for (const struct op_case *op = op_cases; op->name; op++) {
        if (strncmp(op->name, "taps", 4) != 0 && strncmp(op->name, "attention", 9) != 0)
            continue;
        check_paths(be, op);
        checked++;
    }
    assert_int_equal(checked, 4);
}

static void a_tree_computes_what_its_paths_compute_alone(void **state)
{
    (void)state;
    each_backend(check_all_paths);
}

/* ---- straight through --------------------------------------------------------------------------- */

static const struct op_case *case_named(const char *name)
{
    const struct op_case *const tables[] = {op_cases, op_cases_blocks, op_cases_tables};

    for (size_t table = 0; table < COUNT_OF(tables); table++)
        for (const struct op_case *op = tables[table]; op->name; op++)
            if (strcmp(op->name, name) == 0)
                return op;
    fail_msg("no case '%s'", name);
    return NULL;
}

/* The gradient of the input from one and the same kept values, with rounding and without. */
static void check_straight_through(struct backend *be)
{
    static const struct {
        const char *rounded, *plain, *gradient;
    } cases[] = {{"heads: queries with taps, 8 bits", "heads: queries with taps", "dx"},
                 {"heads: queries with taps, code", "heads: queries with taps", "dx"},
                 {"heads: values, code", "heads: values", "dx"},
                 {"hyper_read, 8 bits", "hyper_read", "dS"}};

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct op_case *rounded = case_named(cases[i].rounded);
        struct op_case mixed = *rounded;
        struct op_run with, without;

        /* The rounded case's numbers, the plain one's formula and kept values for both. */
        mixed.variant = case_named(cases[i].plain)->variant;
        op_run_init(&with, be, rounded, &op_sizes[3]);
        op_run_init(&without, be, &mixed, &op_sizes[3]);
        op_run_forward(&with);
        op_run_forward(&without);
        for (size_t a = 0; a < without.array_count; a++) {
            const struct op_array *kept = &without.arrays[a];

            if (kept->written && !kept->gradient_of)
                backend_upload(be, op_device(&with, kept->name), kept->result,
                               kept->count * sizeof(float));
        }
        op_run_backward(&with);
        op_run_backward(&without);
        const struct op_array *a = op_array(&with, cases[i].gradient);
        const struct op_array *b = op_array(&without, cases[i].gradient);
        assert_int_equal(a->count, b->count);
        if (memcmp(a->result, b->result, a->count * sizeof(float)) != 0)
            fail_msg("%s, %s: rounding changed the gradient", backend_name(be->kind),
                     rounded->name);
        op_run_release(&with);
        op_run_release(&without);
    }
}

static void gradients_pass_the_rounding_unchanged(void **state)
{
    (void)state;
    each_backend(check_straight_through);
}

/* ---- targets that share a row --------------------------------------------------------------------- */

static void check_targets(struct backend *be)
{
    /* Hidden rows and a table whose logits are plain: x . table = log of 1 2 4 1, and 3 1 1 1. */
    const float x[] = {1, 0, 0, 0, 0, 1};
    const float ln2 = logf(2), ln3 = logf(3);
    const float table[] = {0, 5, ln3, ln2, 5, 0, 2 * ln2, 5, 0, 0, 5, 0};
    const int32_t row[] = {0, 0, 0, 2};
    const uint32_t label[] = {2, 1, 2, 0};
    const float weight[] = {1, 0.5f, 2, 3};
    const float loss[] = {ln2, 2 * ln2, ln2, ln2}; /* of 4/8, 2/8, 4/8, 3/6 */
    const float hit[] = {1, 0, 1, 1};
    float dx[9] = {0}, dtable[12] = {0};
    const float p[3][4] = {
        {0.125f, 0.25f, 0.5f, 0.125f}, {0}, {0.5f, 1.0f / 6, 1.0f / 6, 1.0f / 6}};
    float *const loss_at = upload_floats(be, NULL, 4), *const hit_at = upload_floats(be, NULL, 4);
    float *const dx_at = upload_floats(be, NULL, 9), *const dtable_at = upload_floats(be, NULL, 12);
    const float rows[] = {x[0], x[1], x[2], 7, 7, 7, x[3], x[4], x[5]};
    float *const x_at = upload_floats(be, rows, 9), *const table_at = upload_floats(be, table, 12);
    float *const weight_at = upload_floats(be, weight, 4);
    int32_t *const row_at = backend_alloc(be, sizeof(row));
    uint32_t *const label_at = backend_alloc(be, sizeof(label));

    for (size_t m = 0; m < 4; m++) /* one target after the other, gradient_scale 0.25 */
        for (size_t w = 0; w < 4; w++)
            for (size_t d = 0; d < 3; d++) {
                const float g = 0.25f * weight[m] * (p[row[m]][w] - (label[m] == w ? 1.0f : 0.0f));

                dx[(size_t)row[m] * 3 + d] += g * table[w * 3 + d];
                dtable[w * 3 + d] += g * rows[(size_t)row[m] * 3 + d];
            }
    backend_upload(be, row_at, row, sizeof(row));
    backend_upload(be, label_at, label, sizeof(label));
    backend_cross_entropy(be, loss_at, hit_at, dx_at, dtable_at, x_at, table_at, row_at, label_at,
                          weight_at, 0.25f, 4, 3, 4, 3);
    expect_floats(be, "loss", loss_at, loss, 4, 1e-6); /* a few roundings of values below 2 */
    expect_floats(be, "hit", hit_at, hit, 4, 0);
    expect_floats(be, "dx", dx_at, dx, 9, 4e-6); /* table entries up to 5 */
    expect_floats(be, "dtable", dtable_at, dtable, 12, 4e-6);
    void *const all[] = {loss_at,  hit_at,    dx_at,  dtable_at, x_at,
                         table_at, weight_at, row_at, label_at};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        backend_free(be, all[i]);
}

static void targets_of_one_row_count_as_if_each_stood_alone(void **state)
{
    (void)state;
    each_backend(check_targets);
}

static void check_first_of_equals(struct backend *be)
{
    const float x[] = {1}, table[] = {-1, 2, 2, 0}, weight[] = {1, 1}, expected[] = {1, 0};
    const int32_t row[] = {0, 0};
    const uint32_t label[] = {1, 2};
    float *const x_at = upload_floats(be, x, 1), *const table_at = upload_floats(be, table, 4);
    float *const weight_at = upload_floats(be, weight, 2);
    float *const loss_at = upload_floats(be, NULL, 2), *const hit_at = upload_floats(be, NULL, 2);
    float *const row_at = upload_floats(be, NULL, 2), *const label_at = upload_floats(be, NULL, 2);

    backend_upload(be, row_at, row, sizeof(row));
    backend_upload(be, label_at, label, sizeof(label));
    backend_cross_entropy(be, loss_at, hit_at, NULL, NULL, x_at, table_at, (int32_t *)row_at,
                          (uint32_t *)label_at, weight_at, 1, 2, 1, 4, 1);
    expect_floats(be, "hit", hit_at, expected, 2, 0);
    void *const all[] = {x_at, table_at, weight_at, loss_at, hit_at, row_at, label_at};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        backend_free(be, all[i]);
}

static void the_first_of_equal_logits_is_the_hit(void **state)
{
    (void)state;
    each_backend(check_first_of_equals);
}

/* ---- optimiser, lanes ------------------------------------------------------------------------------ */

static void check_adamw(struct backend *be)
{
    /* The first step from zero moments: m = 0.1 h, v = 0.001 h^2, the corrected direction is the
     * sign of h, so p moves by lr (1 + decay p). */
    const float p[] = {1, -2, 0.5f, 0}, g[] = {3, -0.5f, 200, 2e-7f}, zero[4] = {0};
    const float p_after[] = {0.989f, -1.988f, 0.4895f,
                             -0.01f / 1.1f}; /* the last: epsilon counts */
    const float m_after[] = {0.15f, -0.025f, 10, 1e-8f};
    const float v_after[] = {0.00225f, 6.25e-5f, 10, 1e-17f};
    const struct adamw step = {.learning_rate = 0.01f,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .epsilon = 1e-8f,
                               .weight_decay = 0.1f,
                               .correction1 = 0.1f,
                               .correction2 = 0.001f,
                               .gradient_divisor = 2};
    float *const p_at = upload_floats(be, p, 4), *const m_at = upload_floats(be, zero, 4);
    float *const v_at = upload_floats(be, zero, 4), *const g_at = upload_floats(be, g, 4);

    backend_adamw(be, p_at, m_at, v_at, g_at, &step, 4);
    expect_floats(be, "p", p_at, p_after, 4, 2e-7); /* two roundings at 1 to 2 */
    expect_floats(be, "m", m_at, m_after, 4, 1e-6);
    expect_floats(be, "v", v_at, v_after, 4, 1e-6);
    backend_free(be, p_at);
    backend_free(be, m_at);
    backend_free(be, v_at);
    backend_free(be, g_at);
}

static void the_first_optimiser_step_moves_by_the_learning_rate(void **state)
{
    (void)state;
    each_backend(check_adamw);
}

static void check_flat(struct backend *be)
{
    static const float x[] = {3, -4, 12}, y[] = {1, 1, 1}, scaled[] = {-5, 9, -23};
    static const float squares[] = {169};
    float *const x_at = upload_floats(be, x, 3), *const y_at = upload_floats(be, y, 3);
    float *const sum_at = upload_floats(be, y, 1);

    backend_add_scaled(be, y_at, x_at, -2, 3);
    expect_floats(be, "y - 2 x", y_at, scaled, 3, 0);
    backend_sum_squares(be, sum_at, x_at, 3);
    expect_floats(be, "sum of squares", sum_at, squares, 1, 0);
    backend_free(be, x_at);
    backend_free(be, y_at);
    backend_free(be, sum_at);
}

static void flat_sums_of_small_integers_are_exact(void **state)
{
    (void)state;
    each_backend(check_flat);
}

static void check_mix(struct backend *be)
{
    struct op_run run;

    op_run_init(&run, be, case_named("hyper_read"), &op_sizes[3]);
    op_run_forward(&run);
    const size_t n = run.size->lanes, M = 2 * n + n * n;
    const float *h = op_array(&run, "h")->result;
    for (size_t t = 0; t < run.size->N; t++) {
        for (size_t i = 0; i < n; i++) {
            double row = 0, column = 0;

            for (size_t j = 0; j < n; j++) {
                row += h[t * M + 2 * n + i * n + j];
                column += h[t * M + 2 * n + j * n + i];
            }
            assert_true(fabs(column - 1) < 1e-6); /* the last half-round made them 1 */
            assert_true(fabs(row - 1) < 1e-3);    /* 20 rounds come this near */
        }
    }
    op_run_release(&run);
}

static void the_mix_of_lanes_is_doubly_stochastic(void **state)
{
    (void)state;
    each_backend(check_mix);
}

static void check_mix_alone(struct backend *be)
{
    for (size_t i = 0; i < op_size_count; i++) {
        const struct op_size *size = &op_sizes[i];
        const size_t count = size->N * size->C;
        float *alone = malloc(count * sizeof(*alone));
        struct op_run run;

        assert_non_null(alone);
        op_run_init(&run, be, case_named("hyper_read"), size);
        op_run_forward(&run);
        backend_zero(be, op_device(&run, "u"), count * sizeof(*alone));
        backend_hyper_mix(be, op_device(&run, "u"), op_device(&run, "S"), op_device(&run, "h"),
                          size->N, size->lanes, size->C);
        backend_download(be, alone, op_device(&run, "u"), count * sizeof(*alone));
        assert_memory_equal(alone, op_array(&run, "u")->result, count * sizeof(*alone));
        op_run_release(&run);
        free(alone);
    }
}

static void lanes_mixed_again_give_the_bits_that_were_read(void **state)
{
    (void)state;
    each_backend(check_mix_alone);
}

static void check_unwanted(struct backend *be)
{
    struct op_run run;
    const struct op_size *size = &op_sizes[3];

    /* What may be NULL, is; the input's gradient must not change. */
    op_run_init(&run, be, case_named("taps, dilation 3"), size);
    op_run_forward(&run);
    op_run_backward(&run);
    float *dx = malloc(size->N * size->C * sizeof(*dx));
    backend_taps_backward(be, op_device(&run, "dx"), NULL, op_device(&run, "dy"),
                          op_device(&run, "x"), op_device(&run, "taps"), &run.tree, size->C, 4, 3);
    backend_download(be, dx, op_device(&run, "dx"), size->N * size->C * sizeof(*dx));
    assert_memory_equal(dx, op_array(&run, "dx")->result, size->N * size->C * sizeof(*dx));
    op_run_release(&run);

    op_run_init(&run, be, case_named("rmsnorm"), size);
    op_run_forward(&run);
    op_run_backward(&run);
    backend_rmsnorm_backward(be, op_device(&run, "dx"), NULL, op_device(&run, "dy"),
                             op_device(&run, "x"), op_device(&run, "gain"), op_device(&run, "r"),
                             size->N, size->C);
    backend_download(be, dx, op_device(&run, "dx"), size->N * size->C * sizeof(*dx));
    assert_memory_equal(dx, op_array(&run, "dx")->result, size->N * size->C * sizeof(*dx));
    op_run_release(&run);

    op_run_init(&run, be, case_named("residual_norm"), size);
    op_run_forward(&run);
    op_run_backward(&run);
    backend_residual_norm_backward(be, op_device(&run, "dx"), NULL, NULL, op_device(&run, "dy"),
                                   op_device(&run, "x"), op_device(&run, "gain"),
                                   op_device(&run, "gate"), op_device(&run, "r"), size->N, size->C);
    backend_download(be, dx, op_device(&run, "dx"), size->N * size->C * sizeof(*dx));
    assert_memory_equal(dx, op_array(&run, "dx")->result, size->N * size->C * sizeof(*dx));
    op_run_release(&run);
    free(dx);
}

static void gradients_that_are_not_wanted_may_be_left_out(void **state)
{
    (void)state;
    each_backend(check_unwanted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_small_integers_are_exact_in_every_orientation),
        cmocka_unit_test(a_tree_computes_what_its_paths_compute_alone),
        cmocka_unit_test(gradients_pass_the_rounding_unchanged),
        cmocka_unit_test(targets_of_one_row_count_as_if_each_stood_alone),
        cmocka_unit_test(the_first_of_equal_logits_is_the_hit),
        cmocka_unit_test(the_first_optimiser_step_moves_by_the_learning_rate),
        cmocka_unit_test(flat_sums_of_small_integers_are_exact),
        cmocka_unit_test(the_mix_of_lanes_is_doubly_stochastic),
        cmocka_unit_test(lanes_mixed_again_give_the_bits_that_were_read),
        cmocka_unit_test(gradients_that_are_not_wanted_may_be_left_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
