#include "kernels/examples/op_cases.h"

#include <math.h>

#define ROWS (run->size->N)
#define WIDTH (run->size->C)
#define H (run->size->H)
#define G (run->size->G)
#define QK (2 * run->size->half)
#define V (run->size->V)
#define LANES (run->size->lanes)
#define MIX (2 * LANES + LANES * LANES)
#define VOCAB (run->size->vocab)
#define A(name) op_device(run, name)

const struct op_size op_sizes[] = {
    /* name      N    C   H  G half V lanes vocab tree     window */
    {"one", 1, 1, 1, 1, 1, 1, 1, 2, TREE_CHAIN, 0},
    {"odd", 7, 5, 3, 1, 3, 3, 3, 11, TREE_FOREST, 2},
    {"chain", 9, 16, 2, 2, 4, 8, 2, 17, TREE_CHAIN, 0},
    {"past", 17, 33, 4, 2, 9, 17, 4, 33, TREE_NESTED, 5},
    {"wide", 33, 129, 2, 1, 17, 33, 4, 65, TREE_NESTED, 0},
    {"forest", 65, 24, 4, 4, 8, 12, 5, 129, TREE_FOREST, 8},
    {"large", 300, 192, 6, 2, 24, 32, 4, 1031, TREE_NESTED, 40},
};
const size_t op_size_count = sizeof(op_sizes) / sizeof(op_sizes[0]);

/* ---- matmul, vectors ------------------------------------------------------------------------- */

/* variant: bit 0 transposes A, bit 1 B, bit 2 sets beta 0 */
static struct matmul matmul_shape(const struct op_run *run)
{
    const bool ta = run->op->variant & 1, tb = run->op->variant & 2;

    return (struct matmul){.M = ROWS,
                           .N = VOCAB,
                           .K = WIDTH,
                           .transpose_a = ta,
                           .transpose_b = tb,
                           .lda = (ta ? ROWS : WIDTH) + 3, /* rows stand apart */
                           .ldb = (tb ? WIDTH : VOCAB) + 2,
                           .ldc = VOCAB + 1,
                           .alpha = 0.75f,
                           .beta = run->op->variant & 4 ? 0 : -0.5f};
}

static void matmul_declare(struct op_run *run)
{
    const struct matmul s = matmul_shape(run);

    op_input(run, "A", (s.transpose_a ? WIDTH : ROWS) * s.lda, 1);
    op_input(run, "B", (s.transpose_b ? VOCAB : WIDTH) * s.ldb, 1);
    struct op_array *target = op_inout(run, "C", ROWS * s.ldc, 1);
    for (size_t i = 0; target && i < ROWS && s.beta == 0; i++) /* set without being read */
        for (size_t j = 0; j < VOCAB; j++)
            target->start[i * s.ldc + j] = NAN;
}

static void matmul_forward(struct op_run *run)
{
    const struct matmul s = matmul_shape(run);

    backend_matmul(run->be, A("C"), A("A"), A("B"), &s);
}

static void add_scaled_declare(struct op_run *run)
{
    op_input(run, "x", ROWS * WIDTH, 1);
    op_inout(run, "y", ROWS * WIDTH, 1);
}

static void add_scaled_forward(struct op_run *run)
{
    backend_add_scaled(run->be, A("y"), A("x"), -1.25f, ROWS * WIDTH);
}

static void sum_squares_declare(struct op_run *run)
{
    op_input(run, "x", ROWS * WIDTH, 1);
    op_output(run, "sum", 1);
}

static void sum_squares_forward(struct op_run *run)
{
    backend_sum_squares(run->be, A("sum"), A("x"), ROWS * WIDTH);
}

static void adamw_declare(struct op_run *run)
{
    op_inout(run, "p", ROWS * WIDTH, 1);
    op_inout(run, "m", ROWS * WIDTH, 0.1);
    struct op_array *v = op_inout(run, "v", ROWS * WIDTH, 0.1);
    for (size_t i = 0; v && i < v->count; i++)
        v->start[i] *= v->start[i];
    op_fixed(run, "g", ROWS * WIDTH, 2);
}

static void adamw_forward(struct op_run *run)
{
    const struct adamw step = {.learning_rate = 0.01f,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .epsilon = 1e-8f,
                               .weight_decay = 0.1f,
                               .correction1 = 0.271f, /* of step 3 */
                               .correction2 = 0.002997f,
                               .gradient_divisor = 1.5f};

    backend_adamw(run->be, A("p"), A("m"), A("v"), A("g"), &step, ROWS * WIDTH);
}

static enum rounding rounding_of(const struct op_run *run)
{
    return run->op->variant & 8 ? ROUND_A8 : ROUND_NONE;
}

/* ---- along the tree -------------------------------------------------------------------------- */

static void taps_declare(struct op_run *run)
{
    op_input(run, "x", ROWS * WIDTH, 1);
    op_input(run, "taps", 4 * WIDTH, 0.5);
    op_output(run, "y", ROWS * WIDTH);
    op_upstream(run, "dy", "y");
    op_gradient_sets(run, "dx", "x");
    op_gradient_adds(run, "dtaps", "taps");
}

static void taps_forward(struct op_run *run)
{
    backend_taps_forward(run->be, A("y"), A("x"), A("taps"), &run->tree, WIDTH, 4,
                         (size_t)run->op->variant);
}

static void taps_backward(struct op_run *run)
{
    backend_taps_backward(run->be, A("dx"), A("dtaps"), A("dy"), A("x"), A("taps"), &run->tree,
                          WIDTH, 4, (size_t)run->op->variant);
}

/* variant: 1 taps, 2 norm and rotation, 8 A8, 16 code */
static struct heads heads_of(struct op_run *run)
{
    const int variant = run->op->variant;
    struct heads heads = {.head_count = H, .head_size = variant & 2 ? QK : V};

    if (variant & 1) {
        heads.tap_count = 3;
        heads.taps = A("taps");
    }
    if (variant & 2) {
        heads.gain = A("gain");
        heads.cos = A("cos");
        heads.sin = A("sin");
    }
    heads.rounding = variant & 8 ? ROUND_A8 : variant & 16 ? ROUND_CODE : ROUND_NONE;
    if (variant & 16)
        heads.codebook = (struct codebook){.values = A("values"), .count = 8, .group = 32};
    return heads;
}

static void heads_declare(struct op_run *run)
{
    const int variant = run->op->variant;
    const size_t size = variant & 2 ? QK : V, count = ROWS * H * size;
    const bool smooth = !(variant & (8 | 16));

    op_input_of(run, "x", count, 1, smooth);
    op_output(run, "y", count);
    op_upstream(run, "dy", "y");
    op_gradient_sets(run, "dx", "x");
    if (variant & 1) {
        op_input_of(run, "taps", 3 * H * size, 0.5, smooth);
        op_gradient_adds(run, "dtaps", "taps");
        op_output(run, "t", count);
    }
    if (variant & 2) {
        op_input_of(run, "gain", size, 0.3, smooth);
        op_gradient_adds(run, "dgain", "gain");
        op_output(run, "r", ROWS * H);
        struct op_array *cosine = op_fixed(run, "cos", ROWS * size / 2, 1);
        struct op_array *sine = op_fixed(run, "sin", ROWS * size / 2, 1);
        for (size_t i = 0; sine && i < cosine->count; i++) {
            const double angle = cosine->start[i];

            cosine->start[i] = (float)cos(angle);
            sine->start[i] = (float)sin(angle);
        }
    }
    if (variant & 16)
        op_codebook(run, 8, 32);
}

static void heads_forward(struct op_run *run)
{
    const int variant = run->op->variant;
    const struct heads heads = heads_of(run);

    backend_heads_forward(run->be, A("y"), variant & 1 ? A("t") : NULL, variant & 2 ? A("r") : NULL,
                          A("x"), &heads, &run->tree);
}

static void heads_backward(struct op_run *run)
{
    const int variant = run->op->variant;
    const struct heads heads = heads_of(run);

    backend_heads_backward(
        run->be, A("dx"), variant & 1 ? A("dtaps") : NULL, variant & 2 ? A("dgain") : NULL, A("dy"),
        A("x"), variant & 1 ? A("t") : A("x"), variant & 2 ? A("r") : NULL, &heads, &run->tree);
}

static struct attention attention_shape(const struct op_run *run)
{
    return (struct attention){.head_count = H,
                              .kv_head_count = G,
                              .qk_size = QK,
                              .v_size = V,
                              .window = run->op->variant ? run->size->window : 0,
                              .scale = (float)(1 / sqrt((double)QK))};
}

static void attention_declare(struct op_run *run)
{
    op_input(run, "q", ROWS * H * QK, 1.5);
    op_input(run, "k", ROWS * G * QK, 1.5);
    op_input(run, "v", ROWS * G * V, 1);
    op_output(run, "o", ROWS * H * V);
    op_output(run, "lse", ROWS * H);
    op_upstream(run, "do", "o");
    op_gradient_sets(run, "dq", "q");
    op_gradient_sets(run, "dk", "k");
    op_gradient_sets(run, "dv", "v");
}

static void attention_forward(struct op_run *run)
{
    const struct attention shape = attention_shape(run);

    backend_attention_forward(run->be, A("o"), A("lse"), A("q"), A("k"), A("v"), &shape,
                              &run->tree);
}

static void attention_backward(struct op_run *run)
{
    const struct attention shape = attention_shape(run);

    backend_attention_backward(run->be, A("dq"), A("dk"), A("dv"), A("do"), A("o"), A("lse"),
                               A("q"), A("k"), A("v"), &shape, &run->tree);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void rmsnorm_declare(struct op_run *run)
{
    const bool smooth = rounding_of(run) == ROUND_NONE;

    op_input_of(run, "x", ROWS * WIDTH, 1, smooth);
    op_input_of(run, "gain", WIDTH, 0.3, smooth);
    op_output(run, "y", ROWS * WIDTH);
    op_output(run, "r", ROWS);
    op_upstream(run, "dy", "y");
    op_gradient_sets(run, "dx", "x");
    op_gradient_adds(run, "dgain", "gain");
}

static void rmsnorm_forward(struct op_run *run)
{
    backend_rmsnorm_forward(run->be, A("y"), A("r"), A("x"), A("gain"), ROWS, WIDTH,
                            rounding_of(run));
}

static void rmsnorm_backward(struct op_run *run)
{
    backend_rmsnorm_backward(run->be, A("dx"), A("dgain"), A("dy"), A("x"), A("gain"), A("r"), ROWS,
                             WIDTH);
}

static void gate_declare(struct op_run *run)
{
    const bool smooth = rounding_of(run) == ROUND_NONE;

    op_input_of(run, "x", ROWS * WIDTH, 1, smooth);
    op_input_of(run, "gate", ROWS * WIDTH, 1.5, smooth);
    op_output(run, "y", ROWS * WIDTH);
    op_upstream(run, "dy", "y");
    op_gradient_sets(run, "dx", "x");
    op_gradient_sets(run, "dgate", "gate");
}

static void gate_forward(struct op_run *run)
{
    backend_gate_forward(run->be, A("y"), A("x"), A("gate"), ROWS, WIDTH, rounding_of(run));
}

static void gate_backward(struct op_run *run)
{
    backend_gate_backward(run->be, A("dx"), A("dgate"), A("dy"), A("x"), A("gate"), ROWS, WIDTH);
}

static void residual_norm_declare(struct op_run *run)
{
    op_fixed(run, "skip", ROWS * WIDTH, 1);
    op_input(run, "x", ROWS * WIDTH, 1);
    op_input(run, "gain", WIDTH, 0.3);
    op_input(run, "gate", 1, 1);
    op_output(run, "y", ROWS * WIDTH);
    op_output(run, "r", ROWS);
    op_upstream(run, "dy", "y");
    op_gradient_sets(run, "dx", "x");
    op_gradient_adds(run, "dgain", "gain");
    op_gradient_adds(run, "dgate", "gate");
}

static void residual_norm_forward(struct op_run *run)
{
    backend_residual_norm_forward(run->be, A("y"), A("r"), A("skip"), A("x"), A("gain"), A("gate"),
                                  ROWS, WIDTH);
}

static void residual_norm_backward(struct op_run *run)
{
    backend_residual_norm_backward(run->be, A("dx"), A("dgain"), A("dgate"), A("dy"), A("x"),
                                   A("gain"), A("gate"), A("r"), ROWS, WIDTH);
}

static void inject_declare(struct op_run *run)
{
    const struct op_array *u = op_input(run, "u", ROWS * WIDTH, 1);
    struct op_array *key = op_input(run, "key", ROWS * WIDTH, 1);

    op_input(run, "value", ROWS * WIDTH, 1);
    op_output(run, "y", ROWS * WIDTH);
    op_output(run, "alpha", ROWS);
    op_upstream(run, "dy", "y");
    op_gradient_sets(run, "du", "u");
    op_gradient_sets(run, "dkey", "key");
    op_gradient_sets(run, "dvalue", "value");
    /* keys that fit somewhat: alpha away from a half */
    for (size_t i = 0; key && i < ROWS * WIDTH; i++)
        key->start[i] += u->start[i];
}

static void inject_forward(struct op_run *run)
{
    backend_inject_forward(run->be, A("y"), A("alpha"), A("u"), A("key"), A("value"), ROWS, WIDTH);
}

static void inject_backward(struct op_run *run)
{
    backend_inject_backward(run->be, A("du"), A("dkey"), A("dvalue"), A("dy"), A("alpha"), A("u"),
                            A("key"), A("value"), ROWS, WIDTH);
}

static void round_a8_declare(struct op_run *run)
{
    struct op_array *x = op_fixed(run, "x", ROWS * WIDTH, 1);

    /* Every third row in steps of exactly 1, its values midway between two: they go to the even. */
    for (size_t n = 1; x && n < ROWS; n += 3) {
        x->start[n * WIDTH] = 127;
        for (size_t c = 1; c < WIDTH; c++)
            x->start[n * WIDTH + c] = (float)((int)(op_random(&run->random) % 252) - 126) + 0.5f;
    }
    op_output(run, "y", ROWS * WIDTH);
}

static void round_a8_forward(struct op_run *run)
{
    backend_round_a8(run->be, A("y"), A("x"), ROWS, WIDTH);
}

/* variant: 1 along the first axis; 2 groups of 32, 4 of 4 instead of 128, with fewer codes */
static struct codebook codebook_of(const struct op_run *run)
{
    const size_t group = run->op->variant & 2 ? 32 : run->op->variant & 4 ? 4 : 128;

    return (struct codebook){.count = group == 128 ? 16 : group == 32 ? 8 : 4, .group = group};
}

static void round_code_declare(struct op_run *run)
{
    const struct codebook codebook = codebook_of(run);
    const bool columns = run->op->variant & 1;
    const size_t outputs = columns ? WIDTH : ROWS, inputs = columns ? ROWS : WIDTH;
    const size_t groups = outputs * ((inputs + codebook.group - 1) / codebook.group);

    struct op_array *w = op_fixed(run, "w", ROWS * WIDTH, 0.05);
    /* Every third group is zero: midway between the two codes in the middle, it takes the lower. */
    for (size_t i = 0; w && i < w->count; i++)
        if ((columns ? i % WIDTH : i / WIDTH) % 3 == 1)
            w->start[i] = 0;
    op_codebook(run, codebook.count, (double)codebook.group);
    op_output(run, "y", ROWS * WIDTH);
    op_output_bytes(run, "index", groups * codebook.group);
    struct op_array *norm = op_output(run, "norm", groups);
    if (norm)
        norm->halves = true;
}

static void round_code_forward(struct op_run *run)
{
    struct codebook codebook = codebook_of(run);

    codebook.values = A("values");
    backend_round_code(run->be, A("y"), A("index"), A("norm"), A("w"), &codebook, ROWS, WIDTH,
                       run->op->variant & 1);
}

static void cross_entropy_declare(struct op_run *run)
{
    const size_t targets = ROWS + 2; /* a row with several, rows with none */
    struct op_array *row;

    op_input(run, "x", ROWS * WIDTH, 1.5 / sqrt((double)WIDTH));
    op_input(run, "table", VOCAB * WIDTH, 2);
    row = op_numbers(run, "row", targets, 0, (int)ROWS);
    op_numbers(run, "label", targets, 0, (int)VOCAB);
    op_output(run, "loss", targets);
    op_output(run, "hit", targets);
    op_upstream(run, "weight", "loss");
    op_gradient_sets(run, "dx", "x");
    op_gradient_adds(run, "dtable", "table");
    run->loss_scale = 0.375;
    for (size_t i = 1; row && i < targets; i++) { /* insertion: row ascends */
        int32_t *rows = (int32_t *)(void *)row->start;

        for (size_t k = i; k > 0 && rows[k] < rows[k - 1]; k--) {
            const int32_t swapped = rows[k];

            rows[k] = rows[k - 1];
            rows[k - 1] = swapped;
        }
    }
}

static void cross_entropy_forward(struct op_run *run)
{
    backend_cross_entropy(run->be, A("loss"), A("hit"), NULL, NULL, A("x"), A("table"), A("row"),
                          A("label"), A("weight"), 0.375f, ROWS + 2, ROWS, VOCAB, WIDTH);
}

static void cross_entropy_backward(struct op_run *run)
{
    backend_cross_entropy(run->be, A("loss"), A("hit"), A("dx"), A("dtable"), A("x"), A("table"),
                          A("row"), A("label"), A("weight"), 0.375f, ROWS + 2, ROWS, VOCAB, WIDTH);
}

/* ---- the table ------------------------------------------------------------------------------- */

#define OP(op) .forward = op##_forward, .declare = op##_declare
#define BOTH(op) OP(op), .backward = op##_backward

const struct op_case op_cases[] = {
    {"matmul", 0, OP(matmul), .tolerance = CLOSE},
    {"matmul A^T", 1, OP(matmul), .tolerance = CLOSE},
    {"matmul B^T", 2, OP(matmul), .tolerance = CLOSE},
    {"matmul A^T B^T", 3, OP(matmul), .tolerance = CLOSE},
    {"matmul, beta 0", 4, OP(matmul), .tolerance = CLOSE},
    {"matmul A^T B^T, beta 0", 7, OP(matmul), .tolerance = CLOSE},
    {"add_scaled", 0, OP(add_scaled), .tolerance = CLOSE},
    {"sum_squares", 0, OP(sum_squares), .tolerance = CLOSE},
    {"adamw", 0, OP(adamw), .tolerance = CLOSE},
    {"taps, dilation 1", 1, BOTH(taps), .tolerance = CLOSE},
    {"taps, dilation 3", 3, BOTH(taps), .tolerance = CLOSE},
    {"heads: values", 0, BOTH(heads), .tolerance = CLOSE},
    {"heads: values with taps", 1, BOTH(heads), .tolerance = CLOSE},
    {"heads: queries", 2, BOTH(heads), .tolerance = CLOSE},
    {"heads: queries with taps", 3, BOTH(heads), .tolerance = CLOSE},
    {"heads: values with taps, 8 bits", 9, BOTH(heads), .tolerance = FLIP},
    {"heads: queries with taps, 8 bits", 11, BOTH(heads), .tolerance = FLIP},
    {"heads: queries, 8 bits", 10, BOTH(heads), .tolerance = FLIP},
    {"heads: values, code", 16, BOTH(heads), .tolerance = FLIP},
    {"heads: queries with taps, code", 19, BOTH(heads), .tolerance = FLIP},
    {"attention", 0, BOTH(attention), .tolerance = CLOSE},
    {"attention in a window", 1, BOTH(attention), .tolerance = CLOSE},
    {"rmsnorm", 0, BOTH(rmsnorm), .tolerance = CLOSE, .in_place = {{"y", "x"}, {"dx", "dy"}}},
    {"rmsnorm, 8 bits", 8, BOTH(rmsnorm), .tolerance = FLIP, .in_place = {{"y", "x"}}},
    {"gate", 0, BOTH(gate), .tolerance = CLOSE,
     .in_place = {{"y", "x"}, {"y", "gate"}, {"dx", "dy"}}},
    {"gate, 8 bits", 8, BOTH(gate), .tolerance = FLIP, .in_place = {{"y", "x"}}},
    {"residual_norm", 0, BOTH(residual_norm), .tolerance = CLOSE,
     .in_place = {{"y", "skip"}, {"y", "x"}, {"dx", "dy"}}},
    {"inject", 0, BOTH(inject), .tolerance = CLOSE, .in_place = {{"y", "u"}, {"du", "dy"}}},
    {"round_a8", 0, OP(round_a8), .tolerance = 0, .in_place = {{"y", "x"}}},
    {"round_code", 0, OP(round_code), .tolerance = FLIP, .in_place = {{"y", "w"}}},
    {"round_code, columns", 1, OP(round_code), .tolerance = FLIP, .in_place = {{"y", "w"}}},
    {"round_code, groups of 32", 2, OP(round_code), .tolerance = FLIP, .in_place = {{"y", "w"}}},
    {"round_code, groups of 4", 4, OP(round_code), .tolerance = FLIP, .in_place = {{"y", "w"}}},
    {"round_code, columns, groups of 4", 5, OP(round_code), .tolerance = FLIP},
    {"cross_entropy", 0, BOTH(cross_entropy), .tolerance = CLOSE},
    {0},
};

const struct op_case *const op_cases_all[] = {op_cases, op_cases_blocks, op_cases_tables, NULL};
