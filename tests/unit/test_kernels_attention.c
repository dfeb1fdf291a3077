/*
 * Proves of the cpu's attention what the shared op table does not reach: every level of SIMD, trees
 * and windows that cross the borders of its tiles, panels and slabs, head counts and sizes that fit
 * none of them, and bits that depend neither on threads nor on leftovers nor on what is not seen.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/level.h"
#include "kernels/ref/ref.h"
#include "tests/support/op_run.h"

#include <math.h>

/* ---- cases ----------------------------------------------------------------------------------- */

typedef int32_t parent_fn(int32_t n, uint64_t *random);

static int32_t chain(int32_t n, uint64_t *random)
{
    (void)random;
    return n - 1;
}

static int32_t three_lines(int32_t n, uint64_t *random)
{
    (void)random;
    return n == 70 || n == 129 ? -1 : n - 1;
}

/* Panels of six heads hold 16 tokens: the last token of one is the first of a line. */
static int32_t a_line_behind_111_tokens(int32_t n, uint64_t *random)
{
    (void)random;
    return n == 111 ? -1 : n - 1;
}

static int32_t two_trunks_with_branches(int32_t n, uint64_t *random)
{
    const int32_t root = n < 200 ? 0 : 200, at = n - root;
    (void)random;

    return at == 0 ? -1 : at > 90 && at % 23 == 0 ? root + 89 : n - 1;
}

static int32_t single_tokens_below_one(int32_t n, uint64_t *random)
{
    (void)random;
    return n == 0 ? -1 : 0;
}

static int32_t only_roots(int32_t n, uint64_t *random)
{
    (void)n;
    (void)random;
    return -1;
}

/* Any token of the last path may be the next one's parent: `climb` is done by the caller. */
static int32_t nested(int32_t n, uint64_t *random)
{
    const uint64_t dice = op_random(random) % 40;

    return dice == 0 ? -1 : dice < 6 ? -2 - (int32_t)(op_random(random) % 60) : n - 1;
}

static const struct problem {
    const char *name;
    parent_fn *parent;
    size_t N, H, G, C, V, window;
} problems[] = {
    {"one token", chain, 1, 1, 1, 1, 1, 0},
    {"a tile and one", chain, 65, 2, 1, 3, 5, 0},
    {"the real heads", chain, 200, 12, 2, 48, 64, 1024},
    {"lines of the real heads", three_lines, 300, 12, 2, 48, 64, 1024},
    {"a line begins with a panel's last token", a_line_behind_111_tokens, 150, 6, 1, 4, 4, 0},
    {"a branching tree of the real heads", two_trunks_with_branches, 330, 12, 2, 48, 64, 1024},
    {"a window of one", three_lines, 200, 3, 3, 8, 7, 1},
    {"a window below a chunk", chain, 300, 4, 2, 5, 16, 7},
    {"a window below a tile", three_lines, 300, 5, 1, 17, 33, 49},
    {"a window of a tile", chain, 200, 6, 3, 16, 16, 64},
    {"a window past a tile", two_trunks_with_branches, 400, 4, 1, 20, 12, 65},
    {"a window of two tiles and some", chain, 700, 2, 2, 6, 10, 151},
    {"nested branches", nested, 500, 7, 1, 31, 18, 0},
    {"nested branches in a window", nested, 450, 4, 4, 9, 40, 37},
    {"many heads of a group", nested, 150, 40, 1, 4, 4, 0},
    {"many groups", nested, 260, 16, 16, 12, 2, 90},
    {"a star", single_tokens_below_one, 200, 2, 1, 8, 8, 0},
    {"a star seen by nobody", single_tokens_below_one, 150, 2, 1, 8, 8, 1},
    {"only roots", only_roots, 140, 3, 1, 8, 8, 0},
};

struct inputs {
    const struct problem *problem;
    struct attention shape;
    struct tree tree;
    float *q, *k, *v, *dout;
};

struct outputs {
    float *o, *lse, *dq, *dk, *dv;
};

static float *memory(struct backend *be, size_t count)
{
    float *values = backend_alloc(be, count * sizeof(float));

    assert_non_null(values); /* ref and cpu address the host's memory */
    return values;
}

static float *numbers(struct backend *be, size_t count, double spread, uint64_t *random)
{
    float *values = memory(be, count);

    for (size_t i = 0; i < count; i++)
        values[i] = (float)(spread * op_normal(random));
    return values;
}

static void inputs_init(struct inputs *in, struct backend *be, const struct problem *p)
{
    int32_t *parent = calloc(p->N, sizeof(*parent));
    uint64_t random = 11 + p->N;

    assert_non_null(parent);
    for (int32_t n = 0; n < (int32_t)p->N; n++) {
        int32_t at = p->parent(n, &random), climb = -1 - at;
        if (n > 0 && at < -1) /* a branch: from somewhere above the token before */
            for (at = n - 1; climb > 0 && parent[at] >= 0; climb--)
                at = parent[at];
        parent[n] = at < 0 ? -1 : at;
    }
    *in = (struct inputs){.problem = p};
    in->shape =
        (struct attention){p->H, p->G, p->C, p->V, p->window, (float)(1 / sqrt((double)p->C))};
    tree_from_parents(be, parent, p->N, &in->tree);
    free(parent);
    in->q = numbers(be, p->N * p->H * p->C, 1.5, &random);
    in->k = numbers(be, p->N * p->G * p->C, 1.5, &random);
    in->v = numbers(be, p->N * p->G * p->V, 1, &random);
    in->dout = numbers(be, p->N * p->H * p->V, 1, &random);
}

static void inputs_release(struct inputs *in, struct backend *be)
{
    float *const arrays[] = {in->q, in->k, in->v, in->dout};

    for (size_t i = 0; i < COUNT_OF(arrays); i++)
        backend_free(be, arrays[i]);
    tree_release(be, &in->tree);
}

/* Outputs start as NaN, and so does the scratch of a cpu. */
static void spoil(struct backend *be, float *values, size_t count)
{
    struct cpu *cpu = (struct cpu *)be;

    for (size_t i = 0; i < count; i++)
        values[i] = NAN;
    for (size_t i = 0; be->kind == BACKEND_CPU && i < cpu->scratch_count; i++)
        cpu->scratch[i] = NAN;
}

static void outputs_init(struct outputs *out, struct backend *be, const struct inputs *in)
{
    const struct problem *p = in->problem;

    out->o = memory(be, p->N * p->H * p->V);
    out->lse = memory(be, p->N * p->H);
    out->dq = memory(be, p->N * p->H * p->C);
    out->dk = memory(be, p->N * p->G * p->C);
    out->dv = memory(be, p->N * p->G * p->V);
    spoil(be, out->o, p->N * p->H * p->V);
    spoil(be, out->lse, p->N * p->H);
    backend_attention_forward(be, out->o, out->lse, in->q, in->k, in->v, &in->shape, &in->tree);
    spoil(be, out->dq, p->N * p->H * p->C);
    spoil(be, out->dk, p->N * p->G * p->C);
    spoil(be, out->dv, p->N * p->G * p->V);
    backend_attention_backward(be, out->dq, out->dk, out->dv, in->dout, out->o, out->lse, in->q,
                               in->k, in->v, &in->shape, &in->tree);
    assert_int_equal(backend_sync(be), BACKEND_OK);
}

static void outputs_release(struct outputs *out, struct backend *be)
{
    float *const arrays[] = {out->o, out->lse, out->dq, out->dk, out->dv};

    for (size_t i = 0; i < COUNT_OF(arrays); i++)
        backend_free(be, arrays[i]);
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

/* An output of each token, [N, width]: name, where, width. */
struct view {
    const char *name;
    const float *values;
    size_t width;
};

#define VIEWS 5

static void views_of(struct view ret_views[VIEWS], const struct outputs *out,
                     const struct problem *p)
{
    ret_views[0] = (struct view){"o", out->o, p->H * p->V};
    ret_views[1] = (struct view){"lse", out->lse, p->H};
    ret_views[2] = (struct view){"dq", out->dq, p->H * p->C};
    ret_views[3] = (struct view){"dk", out->dk, p->G * p->C};
    ret_views[4] = (struct view){"dv", out->dv, p->G * p->V};
}

/* Tokens [begin, end) have the same bits. */
static void must_be_same_bits(const char *what, const struct problem *p, const struct outputs *a,
                              const struct outputs *b, size_t begin, size_t end)
{
    struct view one[VIEWS], other[VIEWS];

    views_of(one, a, p);
    views_of(other, b, p);
    for (size_t i = 0; i < VIEWS; i++) {
        const size_t width = one[i].width;
        if (memcmp(one[i].values + begin * width, other[i].values + begin * width,
                   (end - begin) * width * sizeof(float)) != 0)
            fail_msg("%s, %s: %s has other bits", what, p->name, one[i].name);
    }
}

/* ---- against ref ----------------------------------------------------------------------------- */

static void must_be_close(const char *level, const struct problem *p, const struct outputs *a,
                          const struct outputs *b)
{
    struct view got[VIEWS], want[VIEWS];

    views_of(got, a, p);
    views_of(want, b, p);
    for (size_t i = 0; i < VIEWS; i++) {
        const double error =
            normalised_squared_error(got[i].values, want[i].values, p->N * got[i].width, 0.1);
        if (!(error <= CLOSE))
            fail_msg("%s, %s, %s: normalised squared error %.3g, allowed %.3g", level, p->name,
                     got[i].name, error, CLOSE);
    }
}

static void level_agrees_with_ref(const char *level)
{
    struct backend *ref = backend_for_test(BACKEND_REF), *be = open_level(level, 2);

    for (size_t i = 0; i < COUNT_OF(problems); i++) {
        struct outputs got, want;
        struct inputs in;

        inputs_init(&in, be, &problems[i]);
        outputs_init(&got, be, &in);
        outputs_init(&want, ref, &in);
        must_be_close(level, &problems[i], &got, &want);
        outputs_release(&got, be);
        outputs_release(&want, ref);
        inputs_release(&in, be);
    }
    backend_close(ref);
    backend_close(be);
}

static void every_level_agrees_with_ref_across_tiles_and_branches(void **state)
{
    (void)state;
    each_level(level_agrees_with_ref);
}

/* ---- the same bits --------------------------------------------------------------------------- */

static void threads_do_not_matter(const char *level)
{
    static const int thread_counts[] = {2, 3, 7};
    struct backend *one = open_level(level, 1);

    for (size_t t = 0; t < COUNT_OF(thread_counts); t++) {
        struct backend *several = open_level(level, thread_counts[t]);
        for (size_t i = 0; i < COUNT_OF(problems); i++) {
            struct outputs a, b;
            struct inputs in;

            inputs_init(&in, one, &problems[i]);
            outputs_init(&a, one, &in);
            outputs_init(&b, several, &in);
            must_be_same_bits(level, &problems[i], &a, &b, 0, problems[i].N);
            outputs_release(&a, one);
            outputs_release(&b, several);
            inputs_release(&in, one);
        }
        backend_close(several);
    }
    backend_close(one);
}

static void every_level_has_the_same_bits_at_any_thread_count(void **state)
{
    (void)state;
    each_level(threads_do_not_matter);
}

/* Another line's numbers change: those of the lines before and behind keep their bits. */
static void other_lines_do_not_matter(const char *level)
{
    static const struct problem problem = {
        "three lines, the middle one changes", three_lines, 200, 6, 2, 10, 18, 0};
    const size_t begin = 70, end = 129; /* the middle line */
    struct backend *be = open_level(level, 2);
    struct outputs before, after;
    struct inputs in;

    inputs_init(&in, be, &problem);
    outputs_init(&before, be, &in);
    for (size_t i = begin * 2 * 10; i < end * 2 * 10; i++)
        in.k[i] *= -30;
    for (size_t i = begin * 2 * 18; i < end * 2 * 18; i++)
        in.v[i] *= 1e20f;
    for (size_t i = begin * 6 * 10; i < end * 6 * 10; i++)
        in.q[i] *= 30;
    for (size_t i = begin * 6 * 18; i < end * 6 * 18; i++)
        in.dout[i] += 5;
    outputs_init(&after, be, &in);
    must_be_same_bits(level, &problem, &before, &after, 0, begin);
    must_be_same_bits(level, &problem, &before, &after, end, problem.N);
    assert_true(after.o[begin * 6 * 18] != before.o[begin * 6 * 18]);
    outputs_release(&before, be);
    outputs_release(&after, be);
    inputs_release(&in, be);
    backend_close(be);
}

static void what_is_not_seen_does_not_change_a_bit(void **state)
{
    (void)state;
    each_level(other_lines_do_not_matter);
}

/* ---- hard numbers ---------------------------------------------------------------------------- */

/* Scores of hundreds that rise and fall along a line: each tile may bring a new largest one. */
static void scores_may_be_large(const char *level)
{
    static const struct problem problem = {"scores of hundreds", chain, 260, 3, 1, 4, 6, 0};
    struct backend *ref = backend_for_test(BACKEND_REF), *be = open_level(level, 2);
    struct outputs got, want;
    struct inputs in;

    inputs_init(&in, be, &problem);
    for (size_t i = 0; i < problem.N * 4; i++)
        in.k[i] = in.k[i] * 0.1f + (float)((i / 4) % 150) * (i / 4 > 190 ? -1.0f : 1.0f);
    for (size_t i = 0; i < problem.N * 3 * 4; i++)
        in.q[i] = in.q[i] * 0.1f + 1;
    outputs_init(&got, be, &in);
    outputs_init(&want, ref, &in);
    const double error = normalised_squared_error(got.o, want.o, problem.N * 3 * 6, 0.1);
    if (!(error <= 1e-9)) /* scores of 300 in f32 are exact to 3e-5, their exp to as much */
        fail_msg("%s: o, normalised squared error %.3g", level, error);
    assert_true(normalised_squared_error(got.lse, want.lse, problem.N * 3, 0.1) <= CLOSE);
    outputs_release(&got, be);
    outputs_release(&want, ref);
    inputs_release(&in, be);
    backend_close(ref);
    backend_close(be);
}

static void every_level_keeps_up_with_scores_of_hundreds(void **state)
{
    (void)state;
    each_level(scores_may_be_large);
}

static bool row_is_not_a_number(const float *row, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isnan(row[i]))
            return false;
    return true;
}

static void a_key_is_not_a_number(const char *level)
{
    static const struct problem problem = {"a key is NaN", chain, 150, 2, 1, 3, 5, 0};
    struct backend *be = open_level(level, 2);
    struct outputs out;
    struct inputs in;

    inputs_init(&in, be, &problem);
    in.k[40 * 3 + 1] = NAN;
    outputs_init(&out, be, &in);
    for (size_t n = 40; n < problem.N; n++) /* all who see it */
        assert_true(row_is_not_a_number(&out.o[n * 2 * 5], 2 * 5) &&
                    row_is_not_a_number(&out.lse[n * 2], 2) &&
                    row_is_not_a_number(&out.dq[n * 2 * 3], 2 * 3));
    assert_true(row_is_not_a_number(&out.dv[40 * 5], 5));
    outputs_release(&out, be);
    inputs_release(&in, be);
    backend_close(be);
}

static void what_is_not_a_number_stays_so_for_all_who_see_it(void **state)
{
    (void)state;
    each_level(a_key_is_not_a_number);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level_agrees_with_ref_across_tiles_and_branches),
        cmocka_unit_test(every_level_has_the_same_bits_at_any_thread_count),
        cmocka_unit_test(what_is_not_seen_does_not_change_a_bit),
        cmocka_unit_test(every_level_keeps_up_with_scores_of_hundreds),
        cmocka_unit_test(what_is_not_a_number_stays_so_for_all_who_see_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
