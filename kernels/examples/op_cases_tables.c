/* The ops that read rows of tables by number, and those that read arrays as files hold them. */
#include "kernels/examples/op_cases.h"

#include <math.h>
#include <string.h>

#define ROWS (run->size->N)
#define WIDTH (run->size->C)
#define H (run->size->H)
#define V (run->size->V)
#define VOCAB (run->size->vocab)
#define A(name) op_device(run, name)

void op_codebook(struct op_run *run, size_t count, double group)
{
    struct op_array *values = op_fixed(run, "values", count, 1);

    for (size_t i = 0; values && i < count; i++) {
        const double u = ((double)i + 0.5) / (double)count;

        values->start[i] = (float)(log(u / (1 - u)) / 1.7 / sqrt(group));
    }
}

static void embed_declare(struct op_run *run)
{
    op_input(run, "table", VOCAB * WIDTH, 1);
    op_numbers(run, "tokens", ROWS, 0, (int)VOCAB);
    op_output(run, "x", ROWS * WIDTH);
    op_upstream(run, "dx", "x");
    op_gradient_adds(run, "dtable", "table");
}

static void embed_forward(struct op_run *run)
{
    backend_embed_forward(run->be, A("x"), A("table"), A("tokens"), 1.7f, ROWS, WIDTH);
}

static void embed_backward(struct op_run *run)
{
    backend_embed_backward(run->be, A("dtable"), A("dx"), A("tokens"), 1.7f, ROWS, WIDTH);
}

/* A frozen array as a file may hold it: variant & 3 is the storage, then at an odd address; values
 * of float16 up to 4, its subnormals among them. */
static void declare_stored(struct op_run *run, const char *name, size_t count, bool differentiable)
{
    const enum storage storage = run->op->variant & 3;

    if (storage == STORAGE_F32) {
        op_input_of(run, name, count, 1, differentiable);
        return;
    }

    struct op_array *array = op_fixed(run, name, count / 2 + 2, 1);
    if (!array)
        return;

    unsigned char *bytes = (unsigned char *)array->start + 1;
    for (size_t i = 0; i < count; i++) {
        const uint64_t random = op_random(&run->random);
        const uint64_t size = storage == STORAGE_F16 ? random % 0x4400 : 0x3A00 + random % 0x600;
        const uint16_t half = (uint16_t)((random >> 32 & 0x8000) | (i % 5 ? size : size & 0x3FF));

        memcpy(bytes + 2 * i, &half, sizeof(half));
    }
}

static void *stored_device(struct op_run *run, const char *name)
{
    return (char *)op_device(run, name) + ((run->op->variant & 3) != STORAGE_F32);
}

/* H tables of VOCAB slots, rows of C; variant: storage, 4 code, 8 A8 */
static void gather_declare(struct op_run *run)
{
    declare_stored(run, "table", H * VOCAB * WIDTH, run->op->variant == 0);
    op_codebook(run, 16, 128);
    op_numbers(run, "index", ROWS * H, -1, (int)VOCAB);
    op_output(run, "y", ROWS * H * WIDTH);
    if ((run->op->variant & 3) != STORAGE_F32)
        return; /* the gradient would be that of the float32 case */
    op_upstream(run, "dy", "y");
    op_gradient_adds(run, "dtable", "table");
}

static void gather_forward(struct op_run *run)
{
    const struct codebook codebook = {.values = A("values"), .count = 16, .group = 128};
    const struct table table = {stored_device(run, "table"), run->op->variant & 3,
                                run->op->variant & 4 ? &codebook : NULL};

    backend_gather_forward(run->be, A("y"), &table, A("index"), ROWS, H, VOCAB, WIDTH,
                           run->op->variant & 8 ? ROUND_A8 : ROUND_NONE);
}

static void gather_backward(struct op_run *run)
{
    backend_gather_backward(run->be, A("dtable"), A("dy"), A("index"), ROWS, H, VOCAB, WIDTH);
}

/* variant: storage, 4 code, 16 along the first axis, 32 the base alone */
static size_t merge_rank(const struct op_run *run)
{
    return run->op->variant & 32 ? 0 : V;
}

static void merge_declare(struct op_run *run)
{
    declare_stored(run, "base", ROWS * WIDTH, false);
    op_codebook(run, 16, 128);
    op_fixed(run, "A", ROWS * merge_rank(run), 1);
    op_fixed(run, "B", merge_rank(run) * WIDTH, 1);
    op_output(run, "y", ROWS * WIDTH);
}

static void merge_forward(struct op_run *run)
{
    const int variant = run->op->variant;
    const struct codebook codebook = {.values = A("values"), .count = 16, .group = 128};
    const struct table base = {stored_device(run, "base"), variant & 3,
                               variant & 4 ? &codebook : NULL};
    const size_t rank = merge_rank(run);

    backend_merge(run->be, A("y"), &base, rank ? A("A") : NULL, rank ? A("B") : NULL, 0.625f, ROWS,
                  WIDTH, rank, (variant & 16) != 0);
}

/* ---- the table ------------------------------------------------------------------------------- */

#define OP(op) .forward = op##_forward, .declare = op##_declare
#define BOTH(op) OP(op), .backward = op##_backward

const struct op_case op_cases_tables[] = {
    {"embed", 0, BOTH(embed), .tolerance = CLOSE},
    {"gather", 0, BOTH(gather), .tolerance = CLOSE},
    {"gather, 8 bits", 8, BOTH(gather), .tolerance = FLIP},
    {"gather, code, 8 bits", 4 | 8, BOTH(gather), .tolerance = FLIP},
    {"gather of float16", STORAGE_F16, OP(gather), .tolerance = 0},
    {"gather of float16, code", STORAGE_F16 | 4, OP(gather), .tolerance = FLIP},
    {"gather of float16, code, 8 bits", STORAGE_F16 | 4 | 8, OP(gather), .tolerance = FLIP},
    {"gather of bfloat16", STORAGE_BF16, OP(gather), .tolerance = 0},
    {"merge", 0, OP(merge), .tolerance = CLOSE},
    {"merge, code", 4, OP(merge), .tolerance = FLIP},
    {"merge, code, columns", 4 | 16, OP(merge), .tolerance = FLIP},
    {"merge into float16, columns", STORAGE_F16 | 16, OP(merge), .tolerance = CLOSE},
    {"merge into float16, code, columns", STORAGE_F16 | 4 | 16, OP(merge), .tolerance = FLIP},
    {"merge into bfloat16", STORAGE_BF16, OP(merge), .tolerance = CLOSE},
    {"merge of float16 alone", STORAGE_F16 | 32, OP(merge), .tolerance = 0},
    {"merge of float16 alone, code", STORAGE_F16 | 4 | 32, OP(merge), .tolerance = FLIP},
    {"merge of bfloat16 alone, columns", STORAGE_BF16 | 16 | 32, OP(merge), .tolerance = 0},
    {0},
};
