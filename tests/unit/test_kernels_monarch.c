/*
 * Proves of the cpu's Monarch layer what the shared op table does not reach: every level of SIMD,
 * widths on each side of a power of two up to the real one, every number of tokens in the last
 * tile, the gradient of the input without those of the weights, and bits that depend on neither
 * threads nor neighbours.
 */
#include "kernels/cpu/level.h"
#include "tests/support/op_run.h"

#include <math.h>

#define RANK 5
#define ARRAYS 13

struct layer {
    struct backend *be;
    struct monarch w;
    size_t N;
    float *skip, *x, *dy;
    float *weights[ARRAYS];
    size_t counts[ARRAYS];
    int32_t *p1, *p2;
};

static float *numbers(struct backend *be, size_t count, double spread, uint64_t *random)
{
    float *values = backend_alloc(be, count * sizeof(float));

    assert_non_null(values); /* ref and cpu address the host's memory */
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(spread * op_normal(random));
    return values;
}

static int32_t *permutation(struct backend *be, size_t count, uint64_t *random)
{
    int32_t *values = backend_alloc(be, count * sizeof(int32_t));

    assert_non_null(values);
    for (size_t i = 0; i < count; i++)
        values[i] = (int32_t)i;
    for (size_t i = count; i > 1; i--) {
        const size_t k = op_random(random) % i;
        const int32_t swapped = values[k];
        values[k] = values[i - 1];
        values[i - 1] = swapped;
    }
    return values;
}

static void layer_init(struct layer *l, struct backend *be, size_t D, size_t N)
{
    struct monarch *w = &l->w;
    uint64_t random = 17 + D;

    *l = (struct layer){.be = be, .w = {.D = D, .P = 1, .a = 1, .rank = RANK}, .N = N};
    while (w->P < D)
        w->P *= 2;
    while (w->a * w->a * 4 <= w->P)
        w->a *= 2;
    w->b = w->P / w->a;

    const double wa = 1 / sqrt((double)w->a), wb = 1 / sqrt((double)w->b);
    const size_t aa = w->a * w->a, bb = w->b * w->b, P = w->P;
    const double spreads[ARRAYS] = {wa, wb, wa, wb, wa, wb, 1, 1, 0.5, 1, 1, 1 / sqrt((double)D),
                                    0.7};
    memcpy(l->counts,
           (const size_t[ARRAYS]){aa, bb, aa, bb, aa, bb, P, P, P, P, P, D * RANK, RANK * P},
           sizeof(l->counts));
    for (size_t i = 0; i < ARRAYS; i++)
        l->weights[i] = numbers(be, l->counts[i], spreads[i], &random);
    float *const *v = l->weights;
    w->w1a = v[0], w->w1b = v[1], w->w2a = v[2], w->w2b = v[3], w->w3a = v[4], w->w3b = v[5];
    w->d1 = v[6], w->d2 = v[7], w->b2 = v[8], w->d3 = v[9], w->d4 = v[10];
    w->cond_v = v[11], w->cond_u = v[12];
    w->p1 = l->p1 = permutation(be, P, &random);
    w->p2 = l->p2 = permutation(be, P, &random);
    l->skip = numbers(be, N * D, 1, &random);
    l->x = numbers(be, N * D, 1, &random);
    l->dy = numbers(be, N * D, 1, &random);
}

static void layer_release(struct layer *l)
{
    for (size_t i = 0; i < ARRAYS; i++)
        backend_free(l->be, l->weights[i]);
    backend_free(l->be, l->p1);
    backend_free(l->be, l->p2);
    backend_free(l->be, l->skip);
    backend_free(l->be, l->x);
    backend_free(l->be, l->dy);
}

/* y and dx of a run, on the heap. */
struct result {
    float *y, *dx, *dx_with_weights;
    float *gradients[ARRAYS];
};

static struct monarch_gradients gradients_of(float *const g[ARRAYS])
{
    return (struct monarch_gradients){.w1a = g[0],
                                      .w1b = g[1],
                                      .w2a = g[2],
                                      .w2b = g[3],
                                      .w3a = g[4],
                                      .w3b = g[5],
                                      .d1 = g[6],
                                      .d2 = g[7],
                                      .b2 = g[8],
                                      .d3 = g[9],
                                      .d4 = g[10],
                                      .cond_v = g[11],
                                      .cond_u = g[12]};
}

static void run_on(const struct layer *l, struct backend *be, struct result *ret_result)
{
    const size_t count = l->N * l->w.D;
    struct result r;

    r.y = backend_alloc(be, count * sizeof(float));
    r.dx = backend_alloc(be, count * sizeof(float));
    r.dx_with_weights = backend_alloc(be, count * sizeof(float));
    for (size_t i = 0; i < ARRAYS; i++)
        r.gradients[i] = backend_alloc(be, l->counts[i] * sizeof(float));
    const struct monarch_gradients gradients = gradients_of(r.gradients);

    backend_monarch_forward(be, r.y, l->skip, l->x, &l->w, l->N);
    backend_monarch_backward(be, r.dx, NULL, l->dy, l->x, &l->w, l->N);
    backend_monarch_backward(be, r.dx_with_weights, &gradients, l->dy, l->x, &l->w, l->N);
    assert_int_equal(backend_sync(be), BACKEND_OK);
    *ret_result = r;
}

static void result_release(struct result *r, struct backend *be)
{
    backend_free(be, r->y);
    backend_free(be, r->dx);
    backend_free(be, r->dx_with_weights);
    for (size_t i = 0; i < ARRAYS; i++)
        backend_free(be, r->gradients[i]);
}

static struct backend *open_level(const char *level, int thread_count)
{
    const struct backend_options options = {.thread_count = thread_count, .simd_level = level};
    struct backend *be = NULL;
    char reason[256] = "";

    if (backend_open(BACKEND_CPU, &options, &be, reason, sizeof(reason)) != BACKEND_OK)
        fail_msg("%s does not open: %s", level, reason);
    return be;
}

static void each_level(void (*body)(const char *level))
{
    for (size_t i = 0; i < level_count; i++)
        if (levels[i].is_supported())
            body(levels[i].name);
}

/* ---- against ref ------------------------------------------------------------------------------*/

static void must_be_close(const char *level, const struct layer *l, const char *name,
                          const float *a, const float *b, size_t count)
{
    const double error = normalised_squared_error(a, b, count, 0.1);

    if (!(error <= CLOSE))
        fail_msg("%s, D %zu, N %zu, %s: normalised squared error %.3g, allowed %.3g", level, l->w.D,
                 l->N, name, error, CLOSE);
}

static void compare_with_ref(const char *level, struct backend *ref, struct backend *be, size_t D,
                             size_t N)
{
    struct layer l;
    struct result expected, got;

    layer_init(&l, ref, D, N);
    run_on(&l, ref, &expected);
    run_on(&l, be, &got);
    must_be_close(level, &l, "y", got.y, expected.y, N * D);
    must_be_close(level, &l, "dx", got.dx, expected.dx, N * D);
    must_be_close(level, &l, "dx with weights", got.dx_with_weights, expected.dx, N * D);
    for (size_t i = 0; i < ARRAYS; i++) {
        char name[32];
        snprintf(name, sizeof(name), "gradient %zu", i);
        must_be_close(level, &l, name, got.gradients[i], expected.gradients[i], l.counts[i]);
    }
    result_release(&expected, ref);
    result_release(&got, be);
    layer_release(&l);
}

static void compare_widths(const char *level)
{
    /* P 1, 2, 4 (no block of four rows), then with blocks left out, none, a part of one. */
    static const size_t widths[] = {1, 2, 3, 8, 9, 32, 33, 127, 130, 257, 768, 1021};

    struct backend *ref = backend_for_test(BACKEND_REF), *be = open_level(level, 1);

    for (size_t i = 0; i < COUNT_OF(widths); i++)
        compare_with_ref(level, ref, be, widths[i], 19);
    backend_close(be);
    backend_close(ref);
}

static void every_level_agrees_with_ref_at_every_width(void **state)
{
    (void)state;
    each_level(compare_widths);
}

static void compare_tails(const char *level)
{
    struct backend *ref = backend_for_test(BACKEND_REF), *be = open_level(level, 1);

    for (size_t N = 1; N <= 17; N++)
        compare_with_ref(level, ref, be, 50, N);
    compare_with_ref(level, ref, be, 50, 100); /* gradients in blocks that end within a tile */
    backend_close(be);
    backend_close(ref);
}

static void the_last_tile_may_have_any_number_of_tokens(void **state)
{
    (void)state;
    each_level(compare_tails);
}

/* ---- bits -------------------------------------------------------------------------------------*/

static void must_be_same(const char *level, const char *name, const float *a, const float *b,
                         size_t count)
{
    if (memcmp(a, b, count * sizeof(float)) != 0)
        fail_msg("%s: %s has other bits", level, name);
}

static void compare_threads(const char *level)
{
    struct backend *one = open_level(level, 1), *three = open_level(level, 3);
    struct layer l;
    struct result a, b;

    layer_init(&l, one, 200, 333);
    run_on(&l, one, &a);
    run_on(&l, three, &b);
    must_be_same(level, "y", a.y, b.y, l.N * l.w.D);
    must_be_same(level, "dx", a.dx, b.dx, l.N * l.w.D);
    must_be_same(level, "dx with weights", a.dx_with_weights, b.dx_with_weights, l.N * l.w.D);
    for (size_t i = 0; i < ARRAYS; i++)
        must_be_same(level, "a weight's gradient", a.gradients[i], b.gradients[i], l.counts[i]);
    result_release(&a, one);
    result_release(&b, three);
    layer_release(&l);
    backend_close(one);
    backend_close(three);
}

static void threads_do_not_change_a_bit(void **state)
{
    (void)state;
    each_level(compare_threads);
}

/* Tokens 5 to 25 stand in other lanes of other tiles when they come alone. */
static void compare_neighbours(const char *level)
{
    struct backend *be = open_level(level, 2);
    struct layer l;
    struct result all;

    layer_init(&l, be, 100, 40);
    run_on(&l, be, &all);
    const size_t D = l.w.D, first = 5 * D, count = 20;
    float *y = backend_alloc(be, count * D * sizeof(float));

    backend_monarch_forward(be, y, l.skip + first, l.x + first, &l.w, count);
    must_be_same(level, "y of some", y, all.y + first, count * D);
    backend_monarch_backward(be, y, NULL, l.dy + first, l.x + first, &l.w, count);
    must_be_same(level, "dx of some", y, all.dx + first, count * D);
    backend_free(be, y);
    result_release(&all, be);
    layer_release(&l);
    backend_close(be);
}

static void a_token_does_not_depend_on_its_neighbours(void **state)
{
    (void)state;
    each_level(compare_neighbours);
}

static void compare_in_place(const char *level)
{
    struct backend *be = open_level(level, 2);
    struct layer l;
    struct result apart;

    layer_init(&l, be, 101, 35);
    run_on(&l, be, &apart);
    backend_monarch_backward(be, l.dy, NULL, l.dy, l.x, &l.w, l.N);
    must_be_same(level, "dx in dy's place", l.dy, apart.dx, l.N * l.w.D);
    backend_monarch_forward(be, l.skip, l.skip, l.x, &l.w, l.N);
    must_be_same(level, "y in skip's place", l.skip, apart.y, l.N * l.w.D);
    result_release(&apart, be);
    layer_release(&l);
    backend_close(be);
}

static void results_may_stand_in_place(void **state)
{
    (void)state;
    each_level(compare_in_place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level_agrees_with_ref_at_every_width),
        cmocka_unit_test(the_last_tile_may_have_any_number_of_tokens),
        cmocka_unit_test(threads_do_not_change_a_bit),
        cmocka_unit_test(a_token_does_not_depend_on_its_neighbours),
        cmocka_unit_test(results_may_stand_in_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
