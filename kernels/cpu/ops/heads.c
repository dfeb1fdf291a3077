/*
 * heads: taps, head norm, rotation and rounding of queries, keys or values, see
 * kernels/ref/heads.c.
 *
 * Backward first makes the gradient at the tapped values (rows in blocks, each with its own sums of
 * dgain), then goes back through the taps.
 */
#include "kernels/cpu/ops/norm.h"
#include "kernels/cpu/ops/quant.h"
#include "kernels/cpu/ops/taps.h"

#include <assert.h>
#include <string.h>

struct heads_call {
    float *y, *t, *r; /* dt for y in backward */
    const float *x, *dy, *tapped, *kept_r;
    float *partial; /* [blocks, C] of dgain; or NULL */
    const struct heads *heads;
    const struct tree *tree;
    struct cpu_blocks blocks;
};

/* Halves of a head are often no whole number of wider vectors. */
#if defined(__AVX__)
#define STRIP 8
#else
#define STRIP 4
#endif
typedef float strip __attribute__((vector_size(STRIP * sizeof(float))));
typedef float strip_anywhere
    __attribute__((vector_size(STRIP * sizeof(float)), aligned(sizeof(float)), may_alias));

static inline strip load(const float *source)
{
    return *(const strip_anywhere *)(const void *)source;
}

static inline void store(float *target, strip value)
{
    *(strip_anywhere *)(void *)target = value;
}

/* y = the norm of t, turned by the angle of position p. */
static void norm_and_turn(float *y, const float *t, float r, const struct heads *heads, size_t p)
{
    const size_t half = heads->head_size / 2;
    const float *cosine = &heads->cos[p * half], *sine = &heads->sin[p * half];
    const float *gain = heads->gain;
    size_t c = 0;

    for (; c + STRIP <= half; c += STRIP) {
        const strip z1 = (load(&gain[c]) + 1.0f) * (load(&t[c]) * r);
        const strip z2 = (load(&gain[c + half]) + 1.0f) * (load(&t[c + half]) * r);
        const strip turn = load(&cosine[c]), lift = load(&sine[c]);
        store(&y[c], z1 * turn - z2 * lift);
        store(&y[c + half], z2 * turn + z1 * lift);
    }
    for (; c < half; c++) {
        const float z1 = (1.0f + gain[c]) * (t[c] * r);
        const float z2 = (1.0f + gain[c + half]) * (t[c + half] * r);
        y[c] = z1 * cosine[c] - z2 * sine[c];
        y[c + half] = z2 * cosine[c] + z1 * sine[c];
    }
}

static void heads_rows(void *context, size_t begin, size_t end, size_t part)
{
    const struct heads_call *a = context;
    const struct heads *heads = a->heads;
    const size_t H = heads->head_count, C = heads->head_size, width = H * C;

    (void)part;
    for (size_t n = begin; n < end; n++) {
        const float *t = heads->tap_count ? &a->t[n * width] : &a->x[n * width];
        float *y = &a->y[n * width];

        if (heads->tap_count)
            taps_row(&a->t[n * width], a->x, heads->taps, a->tree, n, width, heads->tap_count, 1);
        for (size_t h = 0; heads->gain && h < H; h++) {
            const float r = norm_inverse(&t[h * C], C);
            a->r[n * H + h] = r;
            norm_and_turn(&y[h * C], &t[h * C], r, heads, (size_t)a->tree->depth[n]);
        }
        if (heads->rounding == ROUND_A8)
            quant_round_a8_rows(y, heads->gain ? y : t, H, C);
        else if (!heads->gain)
            memmove(y, t, width * sizeof *y);
    }
    if (heads->rounding == ROUND_CODE)
        quant_round_code_rows(&a->y[begin * width], &a->y[begin * width], (end - begin) * H, C,
                              &heads->codebook);
}

void cpu_heads_forward(struct cpu *cpu, float *y, float *t, float *r, const float *x,
                       const struct heads *heads, const struct tree *tree)
{
    struct heads_call a = {.y = y, .t = t, .r = r, .x = x, .heads = heads, .tree = tree};
    size_t cost = heads->head_count * heads->head_size * (heads->tap_count + 2);

    cpu_run_rows(cpu, tree->token_count, cost, heads_rows, &a);
}

/* dt = dy turned back; returns sum (1 + gain) dt t. dt may not be dy. */
static float turn_back(float *restrict dt, const float *dy, const float *t,
                       const struct heads *heads, size_t p)
{
    const size_t half = heads->head_size / 2;
    const float *cosine = &heads->cos[p * half], *sine = &heads->sin[p * half];
    const float *gain = heads->gain;
    strip sums = {0};
    float sum = 0;
    size_t c = 0;

    for (; c + STRIP <= half; c += STRIP) {
        const strip dy1 = load(&dy[c]), dy2 = load(&dy[c + half]);
        const strip turn = load(&cosine[c]), lift = load(&sine[c]);
        const strip z1 = dy1 * turn + dy2 * lift, z2 = dy2 * turn - dy1 * lift;
        store(&dt[c], z1);
        store(&dt[c + half], z2);
        sums += (load(&gain[c]) + 1.0f) * (z1 * load(&t[c]));
        sums += (load(&gain[c + half]) + 1.0f) * (z2 * load(&t[c + half]));
    }
    for (; c < half; c++) {
        dt[c] = dy[c] * cosine[c] + dy[c + half] * sine[c];
        dt[c + half] = dy[c + half] * cosine[c] - dy[c] * sine[c];
        sum += (1.0f + gain[c]) * (dt[c] * t[c]);
        sum += (1.0f + gain[c + half]) * (dt[c + half] * t[c + half]);
    }
    for (size_t k = 0; k < STRIP; k++)
        sum += sums[k];
    return sum;
}

/* dt of one head with a norm; dgain (or NULL) gets its share. */
static void head_backward(float *restrict dt, float *restrict dgain, const float *dy,
                          const float *t, float r, const struct heads *heads, size_t p)
{
    const size_t C = heads->head_size;
    const float *gain = heads->gain;
    const float pull = r * (r * (turn_back(dt, dy, t, heads, p) / (float)C));
    size_t c = 0;

    for (size_t k = 0; dgain && k < C; k++)
        dgain[k] += dt[k] * (t[k] * r);
    for (; c + STRIP <= C; c += STRIP)
        store(&dt[c], r * ((load(&gain[c]) + 1.0f) * load(&dt[c]) - load(&t[c]) * pull));
    for (; c < C; c++)
        dt[c] = r * ((1.0f + gain[c]) * dt[c] - t[c] * pull);
}

static void heads_backward_blocks(void *context, size_t begin, size_t end, size_t part)
{
    const struct heads_call *a = context;
    const size_t H = a->heads->head_count, C = a->heads->head_size;

    (void)part;
    for (size_t b = begin; b < end; b++) {
        float *dgain = a->partial ? &a->partial[b * C] : NULL;
        if (dgain)
            memset(dgain, 0, C * sizeof *dgain);
        for (size_t n = b * a->blocks.size; n < cpu_block_end(&a->blocks, b); n++)
            for (size_t i = n * H; i < (n + 1) * H; i++)
                head_backward(&a->y[i * C], dgain, &a->dy[i * C], &a->tapped[i * C], a->kept_r[i],
                              a->heads, (size_t)a->tree->depth[n]);
    }
}

void cpu_heads_backward(struct cpu *cpu, float *dx, float *dtaps, float *dgain, const float *dy,
                        const float *x, const float *t, const float *r, const struct heads *heads,
                        const struct tree *tree)
{
    const size_t N = tree->token_count, C = heads->head_size, width = heads->head_count * C;
    const struct cpu_blocks blocks = cpu_blocks(N);
    struct heads_call a = {.dy = dy, .tapped = t, .kept_r = r, .heads = heads, .tree = tree};
    const float *dt = dy;

    assert(dx != dy);
    if (heads->gain) {
        float *scratch = cpu_scratch(cpu, (heads->tap_count ? N * width : 0) + blocks.count * C);
        if (!scratch)
            return;
        a.y = heads->tap_count ? scratch + blocks.count * C : dx;
        a.partial = dgain ? scratch : NULL;
        a.blocks = blocks;
        team_run(cpu->team, blocks.count, 1, heads_backward_blocks, &a);
        if (dgain)
            cpu_add_partials(cpu, dgain, scratch, blocks.count, C, C);
        dt = a.y;
    }
    if (heads->tap_count)
        cpu_taps_backward(cpu, dx, dtaps, dt, x, heads->taps, tree, width, heads->tap_count, 1);
    else if (!heads->gain)
        memcpy(dx, dy, N * width * sizeof *dx);
}
