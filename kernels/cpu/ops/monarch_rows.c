#include "kernels/cpu/ops/monarch_rows.h"

#include "kernels/cpu/ops/vector.h"

/* Results kept in registers by a product: BLOCK_M weights times BLOCK_V rows. */
#if defined(__AVX512F__)
#define BLOCK_M 4
#define BLOCK_V 4
#elif defined(__AVX__)
#define BLOCK_M 4
#define BLOCK_V 1
#else
#define BLOCK_M 2
#define BLOCK_V 1
#endif
#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* ---- products ---------------------------------------------------------------------------------*/

/* sum += weight row */
ALWAYS_INLINE void add_scaled_rows(vector_f (*sum)[ROW_VECTORS], float weight,
                                   vector_f (*row)[ROW_VECTORS], const size_t V)
{
#pragma GCC unroll 8
    for (size_t v = 0; v < V; v++)
#pragma GCC unroll 8
        for (size_t i = 0; i < ROW_VECTORS; i++)
            sum[v][i] += weight * row[v][i];
}

/* The sums, scaled, to where they belong. */
ALWAYS_INLINE void put_block(const struct monarch_product *p, size_t first_m, size_t first_v,
                             vector_f (*sum)[BLOCK_V][ROW_VECTORS], const size_t M, const size_t V)
{
#pragma GCC unroll 8
    for (size_t m = 0; m < M; m++)
#pragma GCC unroll 8
        for (size_t v = 0; v < V; v++) {
            const size_t at_m = first_m + m, at_v = first_v + v;
            const size_t channel = at_m * p->place_m + at_v * p->place_v;
            const float scale = p->scale ? p->scale[channel] : 1.0f;
            float *out =
                p->out + (p->place ? p->place[channel] : at_m * p->out_m + at_v * p->out_v);
#pragma GCC unroll 8
            for (size_t i = 0; i < ROW_VECTORS; i++) {
                vector_f value = scale * sum[m][v][i];
                if (p->add)
                    value += vector_at(out + i * VECTOR_FLOATS);
                vector_put(out + i * VECTOR_FLOATS, value);
            }
        }
}

/* M and V are constants where this is inlined, and at most BLOCK_M and BLOCK_V. */
ALWAYS_INLINE void product_block(const struct monarch_product *p, size_t first_m, size_t first_v,
                                 const size_t M, const size_t V)
{
    const float *in = p->in + first_v * p->in_v, *w = p->w + first_m * p->w_m;
    const size_t in_k = p->in_k, in_v = p->in_v, w_k = p->w_k, w_m = p->w_m;
    vector_f sum[BLOCK_M][BLOCK_V][ROW_VECTORS];

#pragma GCC unroll 8
    for (size_t m = 0; m < M; m++)
#pragma GCC unroll 8
        for (size_t v = 0; v < V; v++)
#pragma GCC unroll 8
            for (size_t i = 0; i < ROW_VECTORS; i++)
                sum[m][v][i] = (vector_f){0};
    for (size_t k = 0; k < p->K; k++, in += in_k, w += w_k) {
        vector_f row[BLOCK_V][ROW_VECTORS];
#pragma GCC unroll 8
        for (size_t v = 0; v < V; v++)
#pragma GCC unroll 8
            for (size_t i = 0; i < ROW_VECTORS; i++)
                row[v][i] = vector_at(in + v * in_v + i * VECTOR_FLOATS);
#pragma GCC unroll 8
        for (size_t m = 0; m < M; m++)
            add_scaled_rows(sum[m], w[m * w_m], row, V);
    }
    put_block(p, first_m, first_v, sum, M, V);
}

/* One block of columns, all M. */
ALWAYS_INLINE void product_column(const struct monarch_product *p, size_t v, const size_t V)
{
    size_t m = 0;

    for (; m + BLOCK_M <= p->M; m += BLOCK_M)
        product_block(p, m, v, BLOCK_M, V);
    for (; m < p->M; m++)
        product_block(p, m, v, 1, V);
}

void monarch_rows_product(const struct monarch_product *product)
{
    const struct monarch_product p = *product;
    size_t v = 0;

    for (; v + BLOCK_V <= p.V; v += BLOCK_V)
        product_column(&p, v, BLOCK_V);
    for (; v < p.V; v++)
        product_column(&p, v, 1);
}

/* ---- four floats ------------------------------------------------------------------------------*/

typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));

#define QUAD 4

ALWAYS_INLINE void turn_quads(quad q[QUAD])
{
    const quad a = __builtin_shufflevector(q[0], q[1], 0, 4, 1, 5);
    const quad b = __builtin_shufflevector(q[2], q[3], 0, 4, 1, 5);
    const quad c = __builtin_shufflevector(q[0], q[1], 2, 6, 3, 7);
    const quad d = __builtin_shufflevector(q[2], q[3], 2, 6, 3, 7);

    q[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
    q[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
    q[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
    q[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

static inline quad quad_at(const float *p)
{
    return *(const quad *)(const void *)p;
}

static inline void quad_put(float *p, quad q)
{
    *(quad *)(void *)p = q;
}

/* Sums of four vectors' lanes. */
ALWAYS_INLINE quad fold_four(const vector_f sum[QUAD])
{
    quad q[QUAD];

    for (size_t k = 0; k < QUAD; k++) {
        _Alignas(64) float lanes[VECTOR_FLOATS];
        vector_put(lanes, sum[k]);
        q[k] = quad_at(lanes);
        for (size_t i = QUAD; i < VECTOR_FLOATS; i += QUAD)
            q[k] += quad_at(&lanes[i]);
    }
    turn_quads(q);
    return (q[0] + q[1]) + (q[2] + q[3]);
}

/* ---- sums over tokens -------------------------------------------------------------------------*/

#define PAIRS_M 4
#define PAIRS_N (BLOCK_V == 4 ? 4 : 2)

/* The sums of each vector's lanes, to where they belong. */
ALWAYS_INLINE void add_lanes(const struct monarch_pairs *p, size_t first_m, size_t first_n,
                             vector_f (*sum)[PAIRS_N], const size_t M, const size_t N)
{
#pragma GCC unroll 8
    for (size_t at = 0; at < M * N; at += QUAD) {
        vector_f four[QUAD];
#pragma GCC unroll 8
        for (size_t k = 0; k < QUAD; k++)
            four[k] = at + k < M * N ? sum[(at + k) / N][(at + k) % N] : (vector_f){0};
        const quad total = fold_four(four);
        for (size_t k = 0; k < QUAD && at + k < M * N; k++)
            p->out[(first_m + (at + k) / N) * p->out_m + (first_n + (at + k) % N) * p->out_n] +=
                total[k];
    }
}

ALWAYS_INLINE void pairs_block(const struct monarch_pairs *p, size_t first_m, size_t first_n,
                               const size_t M, const size_t N)
{
    const float *left = p->left + first_m * p->left_m, *right = p->right + first_n * p->right_n;
    vector_f sum[PAIRS_M][PAIRS_N];

    for (size_t m = 0; m < M; m++)
        for (size_t n = 0; n < N; n++)
            sum[m][n] = (vector_f){0};
    for (size_t k = 0; k < p->K; k++, left += p->left_k, right += p->right_k) {
#pragma GCC unroll 8
        for (size_t i = 0; i < ROW; i += VECTOR_FLOATS) {
            vector_f row[PAIRS_N];
#pragma GCC unroll 8
            for (size_t n = 0; n < N; n++)
                row[n] = vector_at(right + n * p->right_n + i);
#pragma GCC unroll 8
            for (size_t m = 0; m < M; m++) {
                const vector_f factor = vector_at(left + m * p->left_m + i);
#pragma GCC unroll 8
                for (size_t n = 0; n < N; n++)
                    sum[m][n] += factor * row[n];
            }
        }
    }
    add_lanes(p, first_m, first_n, sum, M, N);
}

void monarch_rows_pairs(const struct monarch_pairs *pairs)
{
    const struct monarch_pairs p = *pairs;
    const size_t whole_m = p.M - p.M % PAIRS_M, whole_n = p.N - p.N % PAIRS_N;

    for (size_t m = 0; m < whole_m; m += PAIRS_M)
        for (size_t n = 0; n < whole_n; n += PAIRS_N)
            pairs_block(&p, m, n, PAIRS_M, PAIRS_N);
    for (size_t m = 0; m < p.M; m++)
        for (size_t n = m < whole_m ? whole_n : 0; n < p.N; n++)
            pairs_block(&p, m, n, 1, 1);
}

static vector_f dot_vector(const float *left, const float *right)
{
    vector_f sum = vector_at(left) * vector_at(right);

    for (size_t i = VECTOR_FLOATS; i < ROW; i += VECTOR_FLOATS)
        sum += vector_at(left + i) * vector_at(right + i);
    return sum;
}

void monarch_rows_dots(float *out, const float *left, const float *right, size_t channels,
                       size_t shift)
{
    for (size_t i = 0; i < channels; i += QUAD) {
        const size_t count = channels - i < QUAD ? channels - i : QUAD;
        vector_f sum[QUAD] = {{0}};
        for (size_t k = 0; k < count; k++) {
            const size_t at = monarch_rows_place(i + k, shift);
            sum[k] = dot_vector(left + at, right + at);
        }
        const quad total = fold_four(sum);
        for (size_t k = 0; k < count; k++)
            out[i + k] += total[k];
    }
}

/* ---- to rows and back -------------------------------------------------------------------------*/

/* Whole quads of channels [0, whole) of the first T tokens, T a multiple of 4. */
static void load_quads(float *rows, const float *x, const struct monarch_turn *turn, size_t T,
                       size_t whole)
{
    for (size_t d = 0; d < whole; d += QUAD) {
        const quad scale = turn->scale ? quad_at(&turn->scale[d]) : (quad){1, 1, 1, 1};
        for (size_t t = 0; t < T; t += QUAD) {
            quad q[QUAD];
            for (size_t k = 0; k < QUAD; k++)
                q[k] = scale * quad_at(&x[(t + k) * turn->D + d]);
            turn_quads(q);
            for (size_t k = 0; k < QUAD; k++)
                quad_put(&rows[monarch_rows_place(d + k, turn->shift) + t], q[k]);
        }
    }
}

static void load_singles(float *rows, const float *x, const struct monarch_turn *turn,
                         size_t first_token, size_t first_channel)
{
    for (size_t d = first_channel; d < turn->D; d++) {
        float *row = &rows[monarch_rows_place(d, turn->shift)];
        for (size_t t = first_token; t < turn->T; t++)
            row[t] = (turn->scale ? turn->scale[d] : 1.0f) * x[t * turn->D + d];
    }
}

void monarch_rows_load(float *rows, const float *x, const struct monarch_turn *turn)
{
    const size_t T = turn->T - turn->T % QUAD, whole = turn->D - turn->D % QUAD;

    load_quads(rows, x, turn, T, whole);
    load_singles(rows, x, turn, 0, whole);
    if (T < turn->T)
        load_singles(rows, x, turn, T, 0);
    for (size_t d = 0; turn->T < ROW && d < turn->D; d++)
        memset(&rows[monarch_rows_place(d, turn->shift) + turn->T], 0,
               (ROW - turn->T) * sizeof(float));
    for (size_t d = turn->D; d < turn->past; d++)
        memset(&rows[monarch_rows_place(d, turn->shift)], 0, ROW * sizeof(float));
}

static void store_quads(float *y, const float *skip, const float *rows,
                        const struct monarch_turn *turn, size_t T, size_t whole)
{
    for (size_t d = 0; d < whole; d += QUAD) {
        const quad scale = turn->scale ? quad_at(&turn->scale[d]) : (quad){1, 1, 1, 1};
        for (size_t t = 0; t < T; t += QUAD) {
            quad q[QUAD];
            for (size_t k = 0; k < QUAD; k++)
                q[k] = quad_at(&rows[monarch_rows_place(d + k, turn->shift) + t]);
            turn_quads(q);
            for (size_t k = 0; k < QUAD; k++) {
                const size_t at = (t + k) * turn->D + d;
                quad_put(&y[at], skip ? quad_at(&skip[at]) + scale * q[k] : scale * q[k]);
            }
        }
    }
}

static void store_singles(float *y, const float *skip, const float *rows,
                          const struct monarch_turn *turn, size_t first_token, size_t first_channel)
{
    for (size_t d = first_channel; d < turn->D; d++) {
        const float *row = &rows[monarch_rows_place(d, turn->shift)];
        const float scale = turn->scale ? turn->scale[d] : 1.0f;
        for (size_t t = first_token; t < turn->T; t++) {
            const size_t at = t * turn->D + d;
            y[at] = skip ? skip[at] + scale * row[t] : scale * row[t];
        }
    }
}

void monarch_rows_store(float *y, const float *skip, const float *rows,
                        const struct monarch_turn *turn)
{
    const size_t T = turn->T - turn->T % QUAD, whole = turn->D - turn->D % QUAD;

    store_quads(y, skip, rows, turn, T, whole);
    /* The corner of whole channels and last tokens belongs to the second call alone. */
    store_singles(
        y, skip, rows,
        &(struct monarch_turn){.T = T, .D = turn->D, .shift = turn->shift, .scale = turn->scale}, 0,
        whole);
    if (T < turn->T)
        store_singles(y, skip, rows, turn, T, 0);
}
