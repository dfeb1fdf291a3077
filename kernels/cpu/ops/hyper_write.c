/*
 * hyper_write: the lanes mixed and the block's output spread over them, see kernels/ref/hyper.c.
 *
 * Four lanes have bodies of their own that load each value once: of all lanes' values at d come all
 * lanes' results at d. Backward makes its sums over d for SUM_ROWS lanes of dT at a time, as many as
 * registers hold, STRETCH values of d before it turns to dS and dy of the same stretch. Both ask for
 * the next token's lines along the way: ten to fifteen rows are more than the processor follows.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/ops/vector.h"
#include "kernels/cpu/ops/wide.h"

#define QUAD 4
#define OTHER_MAX 16 /* lanes, where they are not four */
#define STRETCH 128  /* values of d: what is read twice is still in the first cache */
#if defined(__AVX512F__)
#define SUM_ROWS 4
#else
#define SUM_ROWS 2
#endif
#define STEP 16         /* values of d between requests for the next token's, forward */
#define TILE 32         /* tokens dealt to a thread at a time */
#define LINE 16         /* floats of a line of the cache */
#define SUMS (QUAD + 1) /* of one lane of dT: with every lane of S, and with y - u */

static_assert(STRETCH % WIDE == 0 && STEP % WIDE == 0,
              "only the last stretch of a row has a partial vector");

struct write_call {
    float *T, *dS, *dy, *dh;
    const float *dT, *S, *h, *y, *u;
    size_t N, lanes, D;
};

static size_t tile_end(const struct write_call *a, size_t tile)
{
    return (tile + 1) * TILE < a->N ? (tile + 1) * TILE : a->N;
}

static void deal_tiles(struct cpu *cpu, team_body *body, struct write_call *a)
{
    team_deal(cpu->team, (a->N + TILE - 1) / TILE, body, a);
}

/* Asks for the lines of `count` values that will be read, or changed, soon. */
static inline void fetch_for_reading(const float *values, size_t count)
{
    for (size_t k = 0; k < count; k += LINE)
        __builtin_prefetch(&values[k], 0, 2);
}

static inline void fetch_for_writing(const float *values, size_t count)
{
    for (size_t k = 0; k < count; k += LINE)
        __builtin_prefetch(&values[k], 1, 2);
}

/* ---- forward --------------------------------------------------------------------------------- */

WIDE_INLINE void quad_write(float *T, const float *S, const float *h, const float *y,
                            const float *u, size_t D, size_t count)
{
    const wide share = wide_load_some(y, count) - wide_load_some(u, count);
    const float *post = h + QUAD, *res = h + 2 * QUAD;
    wide lane[QUAD];

#pragma GCC unroll 4
    for (size_t j = 0; j < QUAD; j++)
        lane[j] = wide_load_some(&S[j * D], count);
#pragma GCC unroll 4
    for (size_t i = 0; i < QUAD; i++) {
        wide sum = post[i] * share;
#pragma GCC unroll 4
        for (size_t j = 0; j < QUAD; j++)
            sum += res[i * QUAD + j] * lane[j];
        wide_store_some(&T[i * D], sum, count);
    }
}

static void quad_write_token(const struct write_call *a, size_t token, size_t next)
{
    const size_t D = a->D, M = 2 * QUAD + QUAD * QUAD;
    const float *y = &a->y[token * D], *u = &a->u[token * D], *S = &a->S[token * QUAD * D];
    float *T = &a->T[token * QUAD * D], h[2 * QUAD + QUAD * QUAD];

    memcpy(h, &a->h[token * M], sizeof h); /* so that no store to T can change it */
    for (size_t start = 0; start < D; start += STEP) {
        const size_t end = D - start < STEP ? D : start + STEP, count = end - start;
        size_t d = start;
        fetch_for_reading(&a->S[(next * D + start) * QUAD], count * QUAD);
        fetch_for_writing(&a->T[(next * D + start) * QUAD], count * QUAD);
        fetch_for_reading(&a->y[next * D + start], count);
        fetch_for_reading(&a->u[next * D + start], count);
        for (; d + WIDE <= end; d += WIDE)
            quad_write(&T[d], &S[d], h, &y[d], &u[d], D, WIDE);
        if (d < end)
            quad_write(&T[d], &S[d], h, &y[d], &u[d], D, end - d);
    }
}

static void write_token(const struct write_call *a, size_t token)
{
    const size_t n = a->lanes, D = a->D, M = 2 * n + n * n;
    const float *h = &a->h[token * M], *y = &a->y[token * D], *u = &a->u[token * D];
    const float *S = &a->S[token * n * D];

    for (size_t i = 0; i < n; i++) {
        float *restrict T = &a->T[(token * n + i) * D];
        for (size_t d = 0; d < D; d++)
            T[d] = h[n + i] * (y[d] - u[d]);
        for (size_t j = 0; j < n; j++)
            vector_add_scaled(T, &S[j * D], h[2 * n + i * n + j], D);
    }
}

static void write_tiles(void *context, size_t begin, size_t end, size_t part)
{
    const struct write_call *a = context;
    const size_t past = tile_end(a, end - 1);

    (void)part;
    for (size_t token = begin * TILE; token < past; token++) {
        if (a->lanes == QUAD)
            quad_write_token(a, token, token + 1 < past ? token + 1 : token);
        else
            write_token(a, token);
    }
}

void cpu_hyper_write_forward(struct cpu *cpu, float *T, const float *S, const float *h,
                             const float *y, const float *u, size_t N, size_t lanes, size_t D)
{
    struct write_call a = {.T = T, .S = S, .h = h, .y = y, .u = u, .N = N, .lanes = lanes, .D = D};

    deal_tiles(cpu, write_tiles, &a);
}

/* ---- backward -------------------------------------------------------------------------------- */

WIDE_INLINE void quad_sums_step(wide (*sum)[SUMS], const float *dT, const float *S, const float *y,
                                const float *u, size_t D, size_t count)
{
    const wide share = wide_load_some(y, count) - wide_load_some(u, count);
    wide lane[QUAD];

#pragma GCC unroll 4
    for (size_t j = 0; j < QUAD; j++)
        lane[j] = wide_load_some(&S[j * D], count);
#pragma GCC unroll 4
    for (size_t i = 0; i < SUM_ROWS; i++) {
        const wide x = wide_load_some(&dT[i * D], count);
#pragma GCC unroll 4
        for (size_t j = 0; j < QUAD; j++)
            sum[i][j] += x * lane[j];
        sum[i][QUAD] += x * share;
    }
}

/* total += sums over a stretch of `count` for SUM_ROWS lanes of dT. */
static void quad_sums(wide (*total)[SUMS], const float *dT, const float *S, const float *y,
                      const float *u, size_t D, size_t count)
{
    wide sum[SUM_ROWS][SUMS];
    size_t d = 0;

#pragma GCC unroll 4
    for (size_t i = 0; i < SUM_ROWS; i++)
#pragma GCC unroll 5
        for (size_t j = 0; j < SUMS; j++)
            sum[i][j] = (wide){0};
    for (; d + WIDE <= count; d += WIDE)
        quad_sums_step(sum, &dT[d], &S[d], &y[d], &u[d], D, WIDE);
    if (d < count)
        quad_sums_step(sum, &dT[d], &S[d], &y[d], &u[d], D, count - d);
#pragma GCC unroll 4
    for (size_t i = 0; i < SUM_ROWS; i++)
#pragma GCC unroll 5
        for (size_t j = 0; j < SUMS; j++)
            total[i][j] += sum[i][j];
}

/* dS and dy at d */
WIDE_INLINE void quad_turn(float *dS, float *dy, const float *dT, const float *h, size_t D,
                           size_t count)
{

    const float *post = h + QUAD, *res = h + 2 * QUAD;
    wide lane[QUAD], share = {0};

#pragma GCC unroll 4
    for (size_t i = 0; i < QUAD; i++) {
        lane[i] = wide_load_some(&dT[i * D], count);
        share += post[i] * lane[i];
    }
    wide_store_some(dy, share, count);
#pragma GCC unroll 4
    for (size_t j = 0; j < QUAD; j++) {
        wide sum = res[j] * lane[0];
#pragma GCC unroll 4
        for (size_t i = 1; i < QUAD; i++)
            sum += res[i * QUAD + j] * lane[i];
        wide_store_some(&dS[j * D], sum, count);
    }
}

static void quad_backward_token(const struct write_call *a, size_t token, size_t next)
{
    const size_t D = a->D, M = 2 * QUAD + QUAD * QUAD;
    const float *dT = &a->dT[token * QUAD * D], *S = &a->S[token * QUAD * D];
    const float *y = &a->y[token * D], *u = &a->u[token * D];
    float *dS = &a->dS[token * QUAD * D], *dy = &a->dy[token * D], *dh = &a->dh[token * M];
    float h[2 * QUAD + QUAD * QUAD];
    wide sums[QUAD][SUMS] = {0};

    memcpy(h, &a->h[token * M], sizeof h);
    for (size_t start = 0; start < D; start += STRETCH) {
        const size_t end = D - start < STRETCH ? D : start + STRETCH;
        size_t d = start;
        fetch_for_reading(&a->dT[(next * D + start) * QUAD], (end - start) * QUAD);
        fetch_for_reading(&a->S[(next * D + start) * QUAD], (end - start) * QUAD);
        fetch_for_writing(&a->dS[(next * D + start) * QUAD], (end - start) * QUAD);
        fetch_for_reading(&a->y[next * D + start], end - start);
        fetch_for_reading(&a->u[next * D + start], end - start);
        fetch_for_writing(&a->dy[next * D + start], end - start);
        for (size_t i = 0; i < QUAD; i += SUM_ROWS)
            quad_sums(&sums[i], &dT[i * D + d], &S[d], &y[d], &u[d], D, end - d);
        for (; d + WIDE <= end; d += WIDE)
            quad_turn(&dS[d], &dy[d], &dT[d], h, D, WIDE);
        if (d < end)
            quad_turn(&dS[d], &dy[d], &dT[d], h, D, end - d);
    }
    for (size_t i = 0; i < QUAD; i++) {
        dh[i] = 0;
        dh[QUAD + i] = wide_sum(sums[i][QUAD]);
        for (size_t j = 0; j < QUAD; j++)
            dh[2 * QUAD + i * QUAD + j] = wide_sum(sums[i][j]);
    }
}

/* dS of a few d at once; read whole before dS, which may be dT, is written. */
static void turn_line(float *dS, const float *dT, const float *res, size_t n, size_t D,
                      size_t count)
{
    float lane[OTHER_MAX][LINE];

    for (size_t i = 0; i < n; i++)
        memcpy(lane[i], &dT[i * D], count * sizeof *dT);
    for (size_t j = 0; j < n; j++) {
        float *target = &dS[j * D];
        for (size_t d = 0; d < count; d++)
            target[d] = res[j] * lane[0][d];
        for (size_t i = 1; i < n; i++)
            vector_add_scaled(target, lane[i], res[i * n + j], count);
    }
}

static void backward_token(const struct write_call *a, size_t token)
{
    const size_t n = a->lanes, D = a->D, M = 2 * n + n * n;
    const float *dT = &a->dT[token * n * D], *S = &a->S[token * n * D], *h = &a->h[token * M];
    const float *y = &a->y[token * D], *u = &a->u[token * D];
    float *dy = &a->dy[token * D], *dh = &a->dh[token * M];

    for (size_t d = 0; d < D; d++)
        dy[d] = y[d] - u[d]; /* for a moment: the block's share */
    for (size_t i = 0; i < n; i++) {
        dh[i] = 0;
        dh[n + i] = vector_dot(&dT[i * D], dy, D);
        for (size_t j = 0; j < n; j++)
            dh[2 * n + i * n + j] = vector_dot(&dT[i * D], &S[j * D], D);
    }
    for (size_t d = 0; d < D; d++)
        dy[d] = h[n] * dT[d];
    for (size_t i = 1; i < n; i++)
        vector_add_scaled(dy, &dT[i * D], h[n + i], D);
    for (size_t start = 0; start < D; start += LINE)
        turn_line(&a->dS[token * n * D + start], &dT[start], &h[2 * n], n, D,
                  D - start < LINE ? D - start : LINE);
}

static void backward_tiles(void *context, size_t begin, size_t end, size_t part)
{
    const struct write_call *a = context;
    const size_t past = tile_end(a, end - 1);

    (void)part;
    for (size_t token = begin * TILE; token < past; token++) {
        if (a->lanes == QUAD)
            quad_backward_token(a, token, token + 1 < past ? token + 1 : token);
        else
            backward_token(a, token);
    }
}

void cpu_hyper_write_backward(struct cpu *cpu, float *dS, float *dy, float *dh, const float *dT,
                              const float *S, const float *h, const float *y, const float *u,
                              size_t N, size_t lanes, size_t D)
{
    struct write_call a = {.dS = dS, .dy = dy, .dh = dh, .dT = dT, .S = S, .h = h, .y = y};

    a.u = u;
    a.N = N;
    a.lanes = lanes;
    a.D = D;
    assert(lanes <= OTHER_MAX);
    deal_tiles(cpu, backward_tiles, &a);
}
