/*
 * monarch: the feed-forward layer of Kronecker factors, a tile of tokens after the other.
 *
 * The formula stands in kernels/ref/monarch.c, the order of the launches in kernels/gpu/monarch.cu.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/gpu/blocks.h"

#include <assert.h>

/* A tile's array of values, in floats: a few stay in a card's cache. Tests make it small. */
#if !defined(MONARCH_TILE_FLOATS)
#define MONARCH_TILE_FLOATS (4 << 20)
#endif
#define TILE_TOKENS_MAX ((size_t)65535) /* a grid's second dimension has no more */

enum use { FORWARD, BACKWARD, WEIGHTS };

/* One tile on its way; arrays are [T,P] unless said. Names as in the formula. */
struct tile {
    struct cuda *cuda;
    const struct monarch *w;
    size_t T;
    int *inverse1, *inverse2; /* [P], of p1 and p2 */
    float *m, *da;            /* [T,rank] */
    float *left;              /* between two factors */
    float *z1, *dz, *e_dc;
    float *in2, *z2; /* for the weights alone */
    float *partials;
};

/* What kernels/gpu/blocks.h says of a factor's input and output. */
struct operand {
    const float *values, *scale;
    const int *place;
    size_t stride, count;
};
struct target {
    float *values;
    const float *skip, *scale;
    const int *place;
    size_t stride, count;
};

static struct operand operand(const float *values, size_t count)
{
    struct operand it = {};

    it.values = values;
    it.stride = it.count = count;
    return it;
}

static struct operand operand_scaled(const float *values, size_t count, const float *scale)
{
    struct operand it = operand(values, count);

    it.scale = scale;
    return it;
}

static struct target target(float *values, size_t count)
{
    struct target it = {};

    it.values = values;
    it.stride = it.count = count;
    return it;
}

static int shift_of(size_t power_of_two)
{
    return __builtin_ctzl(power_of_two);
}

/* ---- room ------------------------------------------------------------------------------------ */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Places the arrays from memory on; the count of floats they take. NULL: count only. */
static size_t place_arrays(struct tile *tile, float *memory, enum use use)
{
    const struct monarch *w = tile->w;
    const size_t P = w->P, values = tile->T * P, of_rank = tile->T * w->rank;
    const size_t factors = larger(w->a * w->a, w->b * w->b), condition = w->rank * P;
    const size_t pairs = cuda_groups(tile->T, GPU_PAIR_TOKENS) * larger(factors, condition);
    const size_t dots = cuda_groups(tile->T, GPU_PARTIAL_ROWS) * P;
    const size_t counts[] = {P,
                             P,
                             of_rank,
                             use >= BACKWARD ? of_rank : 0,
                             values,
                             values,
                             use >= BACKWARD ? values : 0,
                             use >= BACKWARD ? values : 0,
                             use == WEIGHTS ? values : 0,
                             use == WEIGHTS ? values : 0,
                             use == WEIGHTS ? larger(pairs, dots) : 0};
    float *inverse1, *inverse2;
    float **const arrays[] = {&inverse1,   &inverse2, &tile->m,       &tile->da,
                              &tile->left, &tile->z1, &tile->dz,      &tile->e_dc,
                              &tile->in2,  &tile->z2, &tile->partials};
    size_t total = 0;

    static_assert(sizeof counts / sizeof *counts == sizeof arrays / sizeof *arrays, "all placed");
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        *arrays[i] = memory ? memory + total : NULL;
        total += counts[i];
    }
    tile->inverse1 = (int *)(void *)inverse1;
    tile->inverse2 = (int *)(void *)inverse2;
    return total;
}

/* A tile of the most tokens, its arrays placed, the permutations turned round. */
static bool open_tile(struct tile *tile, struct cuda *cuda, const struct monarch *w, size_t N,
                      enum use use)
{
    const size_t fit = larger((size_t)MONARCH_TILE_FLOATS / w->P, 1);
    const size_t most = fit < TILE_TOKENS_MAX ? fit : TILE_TOKENS_MAX;

    assert(w->P <= INT32_MAX);
    *tile = {};
    tile->cuda = cuda;
    tile->w = w;
    tile->T = N < most ? N : most;
    float *memory = cuda_scratch(cuda, place_arrays(tile, NULL, use));
    if (!memory)
        return false;
    (void)place_arrays(tile, memory, use);
    CUDA_LAUNCH(cuda, gpu_monarch_inverse, cuda_groups(w->P, GROUP_SIZE), tile->inverse1, w->p1,
                (int)w->P);
    CUDA_LAUNCH(cuda, gpu_monarch_inverse, cuda_groups(w->P, GROUP_SIZE), tile->inverse2, w->p2,
                (int)w->P);
    return true;
}

/* ---- products -------------------------------------------------------------------------------- */

static void factor(const struct tile *tile, const struct target *out, const struct operand *in,
                   const float *weights, bool by_a, bool back)
{
    const size_t size = by_a ? tile->w->a : tile->w->b, others = by_a ? tile->w->b : tile->w->a;
    const size_t V = tile->T * others;
    const dim3 groups(cuda_groups(V, GPU_FACTOR_VECTORS), cuda_groups(size, GPU_FACTOR_OUTPUTS));

    CUDA_LAUNCH(tile->cuda, gpu_monarch_factor, groups, out->values, out->skip, out->scale,
                out->place, (int)out->stride, (int)out->count, in->values, in->scale, in->place,
                (int)in->stride, (int)in->count, weights, (int)back, (int)size,
                (int)(by_a ? tile->w->b : 1), shift_of(others), (int)V);
}

/* out = K(in; wa, wb), or its transpose. left is used; out's values may be in's. */
static void product(const struct tile *tile, const struct target *out, const struct operand *in,
                    const float *wa, const float *wb, bool back)
{
    const struct target between = target(tile->left, tile->w->P);
    const struct operand half = operand(tile->left, tile->w->P);

    factor(tile, &between, in, wb, false, back);
    factor(tile, out, &half, wa, true, back);
}

static void make_z1(const struct tile *tile, const float *x)
{
    const struct monarch *w = tile->w;
    const struct operand in1 = operand_scaled(x, w->D, w->d1);
    struct target z1 = target(tile->z1, w->P);

    CUDA_LAUNCH(tile->cuda, gpu_monarch_condition, (unsigned)tile->T, tile->m, x, w->cond_v,
                (int)w->D, (int)w->rank);
    z1.place = tile->inverse1;
    product(tile, &z1, &in1, w->w1a, w->w1b, false);
}

static void make_z2(const struct tile *tile, float *ret_z2, float *ret_in2)
{
    const struct monarch *w = tile->w;
    const struct operand in2 = operand(ret_in2, w->P);
    struct target z2 = target(ret_z2, w->P);

    CUDA_LAUNCH(tile->cuda, gpu_monarch_activate,
                dim3((unsigned)tile->T, cuda_groups(w->P, GROUP_SIZE)), ret_in2, tile->z1, tile->m,
                w->cond_u, w->d2, w->b2, (int)w->P, (int)w->rank);
    z2.place = tile->inverse2;
    product(tile, &z2, &in2, w->w2a, w->w2b, false);
}

/* ---- forward --------------------------------------------------------------------------------- */

void cuda_monarch_forward(struct cuda *cuda, float *y, const float *skip, const float *x,
                          const struct monarch *weights, size_t N)
{
    const struct monarch *w = weights;
    struct tile tile;

    if (N == 0 || !open_tile(&tile, cuda, w, N, FORWARD))
        return;
    for (size_t n = 0; n < N; n += tile.T) {
        tile.T = N - n < tile.T ? N - n : tile.T;
        const struct operand in3 = operand_scaled(tile.z1, w->P, w->d3);
        struct target out = target(y + n * w->D, w->D);

        make_z1(&tile, x + n * w->D);
        make_z2(&tile, tile.z1, tile.z1);
        out.skip = skip + n * w->D;
        out.scale = w->d4;
        product(&tile, &out, &in3, w->w3a, w->w3b, false);
    }
}

/* ---- gradients of the weights ---------------------------------------------------------------- */

/* sums += sum_{n,t} left(n,p,t) right(n,q,t): as the kernel. */
static void add_pairs(const struct tile *tile, float *sums, const float *left, size_t left_stride,
                      const struct operand *right, size_t rows, size_t columns)
{
    const unsigned tiles = cuda_groups(rows, GPU_PAIR_TILE) * cuda_groups(columns, GPU_PAIR_TILE);
    const unsigned blocks = cuda_groups(tile->T, GPU_PAIR_TOKENS);

    CUDA_LAUNCH(tile->cuda, gpu_monarch_pairs, dim3(tiles, blocks), tile->partials, left,
                (int)left_stride, right->values, right->scale, right->place, (int)right->stride,
                (int)right->count, (int)rows, (int)columns, 1, 0, 1, (int)tile->T);
    cuda_add_columns(tile->cuda, sums, tile->partials, blocks, rows * columns);
}

/* The same with left [T,P], along a factor's axis: rows and columns of size a or b. */
static void add_factor(const struct tile *tile, float *sums, const struct operand *right, bool of_a)
{
    const size_t a = tile->w->a, b = tile->w->b, size = of_a ? a : b, others = of_a ? b : a;
    const unsigned tiles = cuda_groups(size, GPU_PAIR_TILE),
                   blocks = cuda_groups(tile->T, GPU_PAIR_TOKENS);

    CUDA_LAUNCH(tile->cuda, gpu_monarch_pairs, dim3(tiles * tiles, blocks), tile->partials,
                tile->left, (int)tile->w->P, right->values, right->scale, right->place,
                (int)right->stride, (int)right->count, (int)size, (int)size, (int)(of_a ? b : 1),
                shift_of(others), (int)(of_a ? 1 : b), (int)tile->T);
    cuda_add_columns(tile->cuda, sums, tile->partials, blocks, size * size);
}

/* dwa, dwb += of dk, the gradient of K(in; wa, wb). Uses left. */
static void add_factors(const struct tile *tile, float *dwa, float *dwb, const struct operand *in,
                        const struct operand *dk, const float *wa, const float *wb)
{
    const struct target between = target(tile->left, tile->w->P);

    factor(tile, &between, in, wb, false, false);
    add_factor(tile, dwa, dk, true);
    factor(tile, &between, in, wa, true, false);
    add_factor(tile, dwb, dk, false);
}

/* sums += sum_n x[n,:] y[n,:]; y NULL: of x alone. */
static void add_dots(const struct tile *tile, float *sums, const struct operand *x, const float *y,
                     size_t y_stride)
{
    const unsigned blocks = cuda_groups(tile->T, GPU_PARTIAL_ROWS);
    const dim3 groups(cuda_groups(x->count, GROUP_SIZE), blocks);

    CUDA_LAUNCH(tile->cuda, gpu_column_dots, groups, tile->partials, x->values, (int)x->stride, y,
                (int)y_stride, (int)tile->T, (int)x->count);
    cuda_add_columns(tile->cuda, sums, tile->partials, blocks, x->count);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* From dy to dz, the gradient of in3; dd4, dw3a, dw3b, dd3. */
static void through_third(const struct tile *tile, const struct monarch_gradients *g,
                          const float *dy)
{
    const struct monarch *w = tile->w;
    const struct operand dk = operand_scaled(dy, w->D, w->d4);
    const struct target dz = target(tile->dz, w->P);

    if (g) {
        const struct operand in3 = operand_scaled(tile->z2, w->P, w->d3);
        const struct target z3 = target(tile->e_dc, w->P); /* which is not made yet */
        const struct operand upstream = operand(dy, w->D);

        product(tile, &z3, &in3, w->w3a, w->w3b, false);
        add_dots(tile, g->d4, &upstream, tile->e_dc, w->P);
        add_factors(tile, g->w3a, g->w3b, &in3, &dk, w->w3a, w->w3b);
    }
    product(tile, &dz, &dk, w->w3a, w->w3b, true);
    if (g) {
        const struct operand z2 = operand(tile->z2, w->P);

        add_dots(tile, g->d3, &z2, tile->dz, w->P);
    }
}

/* From there to dz, the gradient of in2; dw2a, dw2b. */
static void through_second(const struct tile *tile, const struct monarch_gradients *g)
{
    const struct monarch *w = tile->w;
    const struct target dz = target(tile->dz, w->P);
    struct operand dk = operand_scaled(tile->dz, w->P, w->d3);

    dk.place = tile->inverse2;
    if (g) {
        const struct operand in2 = operand(tile->in2, w->P);

        add_factors(tile, g->w2a, g->w2b, &in2, &dk, w->w2a, w->w2b);
    }
    product(tile, &dz, &dk, w->w2a, w->w2b, true);
}

/* From there to dz, the gradient of in1, and da; the gradients of all weights on the way. */
static void through_first(const struct tile *tile, const struct monarch_gradients *g,
                          const float *x)
{
    const struct monarch *w = tile->w;
    const struct target dz = target(tile->dz, w->P);
    float *z1_dc = g ? tile->in2 : tile->z1; /* which are done with */
    struct operand dk = operand_scaled(tile->e_dc, w->P, w->d2);

    dk.place = tile->inverse1;
    CUDA_LAUNCH(tile->cuda, gpu_monarch_slope,
                dim3((unsigned)tile->T, cuda_groups(w->P, GROUP_SIZE)), tile->dz, tile->e_dc, z1_dc,
                tile->z1, tile->m, w->cond_u, w->d2, w->b2, (int)w->P, (int)w->rank);
    CUDA_LAUNCH(tile->cuda, gpu_monarch_condition_backward, (unsigned)tile->T, tile->da, tile->m,
                z1_dc, w->d2, w->cond_u, (int)w->P, (int)w->rank);
    if (g) {
        const struct operand dc = operand(tile->dz, w->P), z1 = operand(tile->z1, w->P);
        const struct operand in1 = operand_scaled(x, w->D, w->d1), da = operand(tile->da, w->rank);
        const struct operand de = operand_scaled(z1_dc, w->P, w->d2);

        add_dots(tile, g->b2, &dc, NULL, 0);
        add_dots(tile, g->d2, &z1, tile->e_dc, w->P);
        add_pairs(tile, g->cond_u, tile->m, w->rank, &de, w->rank, w->P);
        add_pairs(tile, g->cond_v, x, w->D, &da, w->D, w->rank);
        add_factors(tile, g->w1a, g->w1b, &in1, &dk, w->w1a, w->w1b);
    }
    product(tile, &dz, &dk, w->w1a, w->w1b, true);
    if (g) {
        const struct operand in = operand(x, w->D);

        add_dots(tile, g->d1, &in, tile->dz, w->P);
    }
}

void cuda_monarch_backward(struct cuda *cuda, float *dx, const struct monarch_gradients *gradients,
                           const float *dy, const float *x, const struct monarch *weights, size_t N)
{
    const struct monarch *w = weights;
    const struct monarch_gradients *g = gradients && gradients->w1a ? gradients : NULL;
    struct tile tile;

    if (N == 0 || !open_tile(&tile, cuda, w, N, g ? WEIGHTS : BACKWARD))
        return;
    for (size_t n = 0; n < N; n += tile.T) {
        tile.T = N - n < tile.T ? N - n : tile.T;
        const float *x_tile = x + n * w->D;

        make_z1(&tile, x_tile);
        if (g)
            make_z2(&tile, tile.z2, tile.in2);
        through_third(&tile, g, dy + n * w->D);
        through_second(&tile, g);
        through_first(&tile, g, x_tile);
        CUDA_LAUNCH(cuda, gpu_monarch_input, dim3((unsigned)tile.T, cuda_groups(w->D, GROUP_SIZE)),
                    dx + n * w->D, tile.dz, w->d1, w->cond_v, tile.da, (int)w->D, (int)w->P,
                    (int)w->rank);
    }
}
