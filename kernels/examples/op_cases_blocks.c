/* The ops that are whole blocks: the Monarch layer, hyper-connections, lanes. */
#include "kernels/examples/op_cases.h"

#include <math.h>
#include <stdio.h>

#define ROWS (run->size->N)
#define WIDTH (run->size->C)
#define LANES (run->size->lanes)
#define MIX (2 * LANES + LANES * LANES)
#define A(name) op_device(run, name)

/* ---- monarch --------------------------------------------------------------------------------- */

#define RANK (LANES < 5 ? (size_t)3 : (size_t)9)

/* Variant: no gradients of the weights, which is another way back. */
#define FROZEN 1

static const char *const monarch_weights[] = {"w1a", "w1b", "w2a", "w2b", "w3a",    "w3b",   "d1",
                                              "d2",  "b2",  "d3",  "d4",  "cond_v", "cond_u"};

static struct monarch monarch_of(struct op_run *run)
{
    struct monarch m = {.D = WIDTH, .P = 1, .a = 1, .rank = RANK};

    while (m.P < WIDTH)
        m.P *= 2;
    while (m.a * m.a * 4 <= m.P)
        m.a *= 2;
    m.b = m.P / m.a;
    return m;
}

static void declare_permutation(struct op_run *run, const char *name, size_t count)
{
    struct op_array *array = op_numbers(run, name, count, 0, 1);

    if (!array)
        return;

    int32_t *numbers = (int32_t *)(void *)array->start;
    for (size_t i = 0; i < count; i++)
        numbers[i] = (int32_t)i;
    for (size_t i = count; i > 1; i--) {
        const size_t k = op_random(&run->random) % i;
        const int32_t swapped = numbers[k];

        numbers[k] = numbers[i - 1];
        numbers[i - 1] = swapped;
    }
}

static void monarch_declare(struct op_run *run)
{
    const struct monarch m = monarch_of(run);
    const double wa = 1 / sqrt((double)m.a), wb = 1 / sqrt((double)m.b);
    const size_t counts[] = {m.a * m.a, m.b * m.b,    m.a * m.a, m.b * m.b, m.a * m.a,
                             m.b * m.b, m.P,          m.P,       m.P,       m.P,
                             m.P,       WIDTH * RANK, RANK * m.P};
    const double spreads[] = {wa, wb, wa, wb, wa, wb, 1, 1, 0.5, 1, 1, 1 / sqrt((double)WIDTH),
                              0.7};

    op_fixed(run, "skip", ROWS * WIDTH, 1);
    op_input(run, "x", ROWS * WIDTH, 1);
    op_output(run, "y", ROWS * WIDTH);
    op_upstream(run, "dy", "y");
    op_gradient_sets(run, "dx", "x");
    for (size_t i = 0; i < sizeof(monarch_weights) / sizeof(monarch_weights[0]); i++) {
        char name[16];

        if (run->op->variant & FROZEN) {
            op_fixed(run, monarch_weights[i], counts[i], spreads[i]);
            continue;
        }
        (void)snprintf(name, sizeof(name), "d:%s", monarch_weights[i]);
        op_input(run, monarch_weights[i], counts[i], spreads[i]);
        op_gradient_adds(run, name, monarch_weights[i]);
    }
    declare_permutation(run, "p1", m.P);
    declare_permutation(run, "p2", m.P);
}

static struct monarch monarch_with_weights(struct op_run *run)
{
    struct monarch m = monarch_of(run);

    m.w1a = A("w1a"), m.w1b = A("w1b"), m.w2a = A("w2a");
    m.w2b = A("w2b"), m.w3a = A("w3a"), m.w3b = A("w3b");
    m.d1 = A("d1"), m.d2 = A("d2"), m.b2 = A("b2"), m.d3 = A("d3"), m.d4 = A("d4");
    m.cond_v = A("cond_v"), m.cond_u = A("cond_u");
    m.p1 = A("p1"), m.p2 = A("p2");
    return m;
}

static void monarch_forward(struct op_run *run)
{
    const struct monarch m = monarch_with_weights(run);

    backend_monarch_forward(run->be, A("y"), A("skip"), A("x"), &m, ROWS);
}

static void monarch_backward(struct op_run *run)
{
    const struct monarch m = monarch_with_weights(run);

    if (run->op->variant & FROZEN) {
        backend_monarch_backward(run->be, A("dx"), NULL, A("dy"), A("x"), &m, ROWS);
        return;
    }

    const struct monarch_gradients gradients = {.w1a = A("d:w1a"),
                                                .w1b = A("d:w1b"),
                                                .w2a = A("d:w2a"),
                                                .w2b = A("d:w2b"),
                                                .w3a = A("d:w3a"),
                                                .w3b = A("d:w3b"),
                                                .d1 = A("d:d1"),
                                                .d2 = A("d:d2"),
                                                .b2 = A("d:b2"),
                                                .d3 = A("d:d3"),
                                                .d4 = A("d:d4"),
                                                .cond_v = A("d:cond_v"),
                                                .cond_u = A("d:cond_u")};

    backend_monarch_backward(run->be, A("dx"), &gradients, A("dy"), A("x"), &m, ROWS);
}

/* ---- hyper-connections ----------------------------------------------------------------------- */

static enum rounding rounding_of(const struct op_run *run)
{
    return run->op->variant & 8 ? ROUND_A8 : ROUND_NONE;
}

static struct hyper hyper_of(struct op_run *run)
{
    return (struct hyper){.lanes = LANES,
                          .D = WIDTH,
                          .phi = A("phi"),
                          .bias = A("bias"),
                          .scale = A("scale"),
                          .rounding = rounding_of(run)};
}

/* Variant: lanes so unlike that the last of Sinkhorn's rounds still count. */
#define UNBALANCED 16

static void hyper_read_declare(struct op_run *run)
{
    const double bias_spread = run->op->variant & UNBALANCED ? 8 : 0.7;

    op_input_of(run, "S", ROWS * LANES * WIDTH, 1, rounding_of(run) == ROUND_NONE);
    op_input(run, "phi", LANES * WIDTH * MIX, 1 / sqrt((double)(LANES * WIDTH)));
    op_input(run, "bias", MIX, bias_spread);
    op_input(run, "scale", 3, 0.8);
    op_output(run, "u", ROWS * WIDTH);
    op_output(run, "h", ROWS * MIX);
    op_output(run, "raw", ROWS * MIX);
    op_output(run, "r", ROWS);
    op_upstream(run, "du", "u");
    op_upstream(run, "dh", "h");
    struct op_array *dh = op_array(run, "dh");
    op_gradient_adds(run, "dS", "S");
    op_gradient_adds(run, "dphi", "phi");
    op_gradient_adds(run, "dbias", "bias");
    op_gradient_adds(run, "dscale", "scale");
    for (size_t n = 0; dh && n < ROWS; n++) /* what is written with reads post and res, not pre */
        for (size_t i = 0; i < LANES; i++)
            dh->start[n * MIX + i] = 0;
}

static void hyper_read_forward(struct op_run *run)
{
    const struct hyper weights = hyper_of(run);

    backend_hyper_read_forward(run->be, A("u"), A("h"), A("raw"), A("r"), A("S"), &weights, ROWS);
}

static void hyper_read_backward(struct op_run *run)
{
    const struct hyper weights = hyper_of(run);
    const struct hyper_gradients gradients = {
        .phi = A("dphi"), .bias = A("dbias"), .scale = A("dscale")};

    backend_hyper_read_backward(run->be, A("dS"), &gradients, A("du"), A("dh"), A("S"), A("h"),
                                A("raw"), A("r"), &weights, ROWS);
}

static void hyper_mix_declare(struct op_run *run)
{
    op_input(run, "S", ROWS * LANES * WIDTH, 1);
    op_input(run, "h", ROWS * MIX, 1);
    op_output(run, "u", ROWS * WIDTH);
}

static void hyper_mix_forward(struct op_run *run)
{
    backend_hyper_mix(run->be, A("u"), A("S"), A("h"), ROWS, LANES, WIDTH);
}

static void hyper_write_declare(struct op_run *run)
{
    op_input(run, "S", ROWS * LANES * WIDTH, 1);
    op_input(run, "h", ROWS * MIX, 1);
    op_input(run, "y", ROWS * WIDTH, 1);
    op_fixed(run, "u", ROWS * WIDTH, 1); /* its gradient is -dy, the caller's */
    op_output(run, "T", ROWS * LANES * WIDTH);
    op_upstream(run, "dT", "T");
    op_gradient_sets(run, "dS", "S");
    op_gradient_sets(run, "dh", "h");
    op_gradient_sets(run, "dy", "y");
}

static void hyper_write_forward(struct op_run *run)
{
    backend_hyper_write_forward(run->be, A("T"), A("S"), A("h"), A("y"), A("u"), ROWS, LANES,
                                WIDTH);
}

static void hyper_write_backward(struct op_run *run)
{
    backend_hyper_write_backward(run->be, A("dS"), A("dy"), A("dh"), A("dT"), A("S"), A("h"),
                                 A("y"), A("u"), ROWS, LANES, WIDTH);
}

/* ---- lanes ----------------------------------------------------------------------------------- */

static void lanes_spread_declare(struct op_run *run)
{
    op_input(run, "x", ROWS * WIDTH, 1);
    op_output(run, "S", ROWS * LANES * WIDTH);
    op_upstream(run, "dS", "S");
    op_gradient_sets(run, "dx", "x");
}

static void lanes_spread_forward(struct op_run *run)
{
    backend_lanes_spread_forward(run->be, A("S"), A("x"), ROWS, LANES, WIDTH);
}

static void lanes_spread_backward(struct op_run *run)
{
    backend_lanes_spread_backward(run->be, A("dx"), A("dS"), ROWS, LANES, WIDTH);
}

static void lanes_mean_declare(struct op_run *run)
{
    op_input(run, "S", ROWS * LANES * WIDTH, 1);
    op_output(run, "x", ROWS * WIDTH);
    op_upstream(run, "dx", "x");
    op_gradient_sets(run, "dS", "S");
}

static void lanes_mean_forward(struct op_run *run)
{
    backend_lanes_mean_forward(run->be, A("x"), A("S"), ROWS, LANES, WIDTH);
}

static void lanes_mean_backward(struct op_run *run)
{
    backend_lanes_mean_backward(run->be, A("dS"), A("dx"), ROWS, LANES, WIDTH);
}

/* ---- the table ------------------------------------------------------------------------------- */

#define BOTH(op) .forward = op##_forward, .declare = op##_declare, .backward = op##_backward

const struct op_case op_cases_blocks[] = {
    {"monarch", 0, BOTH(monarch), .tolerance = CLOSE,
     .in_place = {{"y", "skip"}, {"y", "x"}, {"dx", "dy"}}},
    {"monarch, frozen", FROZEN, BOTH(monarch), .tolerance = CLOSE, .in_place = {{"dx", "dy"}}},
    {"hyper_read", 0, BOTH(hyper_read), .tolerance = CLOSE},
    {"hyper_read, unbalanced", UNBALANCED, BOTH(hyper_read), .tolerance = CLOSE},
    {"hyper_read, 8 bits", 8, BOTH(hyper_read), .tolerance = FLIP},
    {"hyper_mix", 0, .forward = hyper_mix_forward, .declare = hyper_mix_declare,
     .tolerance = CLOSE},
    {"hyper_write", 0, BOTH(hyper_write), .tolerance = CLOSE, .in_place = {{"dS", "dT"}}},
    {"lanes_spread", 0, BOTH(lanes_spread), .tolerance = CLOSE},
    {"lanes_mean", 0, BOTH(lanes_mean), .tolerance = CLOSE},
    {0},
};
