/*
 * quant: rounding to 8 bits and to code values, see kernels/ref/quant.c.
 *
 * Codes are found for LANES outputs side by side: a group is a tile [group, LANES], the product
 * with the Walsh-Hadamard matrix runs as butterflies over its rows, several stages at a time in
 * registers. Of two neighbouring codes the upper is nearest past the largest number of which the
 * lower still is: such thresholds are found once by the oracle's own comparison.
 *
 * Numerics  round_a8 bit for bit as in ref: adding 1.5 * 2^23 rounds half to even like rint.
 *           round_code in f32; butterflies add in another order than ref, which moves no index that
 *           is not within 2e-8 of the middle of two codes.
 */
#include "kernels/cpu/ops/quant.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/ops/vector.h"
#include "kernels/cpu/ops/wide.h"

#include <assert.h>

#define GROUP_MAX 128
#define CODES_MAX 16
#if WIDE == 16
#define STAGES_TOGETHER 4 /* 16 of 32 registers */
#else
#define STAGES_TOGETHER 3
#endif

static inline wide grid_a8(wide x, float scale, float inverse)
{
    const float shift = 12582912.0f;
    wide q = (x * inverse + shift) - shift;

    q = wide_max(q, wide_all(-128.0f));
    q = wide_min(q, wide_all(127.0f));
    return x + (q * scale - x);
}

void quant_round_a8_within(float *y, const float *x, float largest, size_t C)
{
    const float scale = largest > 0 ? largest * (1.0f / 127.0f) : 1.0f;
    const float inverse = 1.0f / scale;
    size_t c = 0;

    for (; c + WIDE <= C; c += WIDE)
        wide_store(&y[c], grid_a8(wide_load(&x[c]), scale, inverse));
    if (c < C)
        wide_store_some(&y[c], grid_a8(wide_load_some(&x[c], C - c), scale, inverse), C - c);
}

void quant_round_a8(float *y, const float *x, size_t C)
{
    quant_round_a8_within(y, x, vector_max_abs(x, C), C);
}

void quant_round_a8_rows(float *y, const float *x, size_t rows, size_t C)
{
    for (size_t n = 0; n < rows; n++)
        quant_round_a8(&y[n * C], &x[n * C], C);
}

struct round_a8 {
    float *y;
    const float *x;
    size_t C;
};

static void round_a8_rows(void *context, size_t begin, size_t end, size_t part)
{
    const struct round_a8 *a = context;

    (void)part;
    for (size_t n = begin; n < end; n++)
        quant_round_a8(&a->y[n * a->C], &a->x[n * a->C], a->C);
}

void cpu_round_a8(struct cpu *cpu, float *y, const float *x, size_t N, size_t C)
{
    struct round_a8 a = {y, x, C};
    cpu_run_rows(cpu, N, C, round_a8_rows, &a);
}

/* ---- codes ----------------------------------------------------------------------------------- */

struct tile {
    float value[GROUP_MAX][LANES];
    int32_t index[GROUP_MAX][LANES]; /* where wanted */
    float divisor[LANES];
    float norm[LANES]; /* in float16 */
};

/* A positive number or NaN to float16, half to even, and back; infinite past 65504. */
static float to_float16(float value)
{
    if (!(value < 65520.0f))
        return value * INFINITY;
    if (value < 0x1p-14f)
        return (value + 0.75f) - 0.75f; /* steps of 2^-24, as in the subnormal range */
    uint32_t bits = vector_bits(value);
    bits += 0xfffu + ((bits >> 13) & 1u);
    return vector_from_bits(bits & ~0x1fffu);
}

/* `stages` stages (a constant where this is called) from distance `half` on, times `factor`. */
WIDE_INLINE void butterflies(float value[][LANES], size_t group, size_t half, size_t stages,
                             float factor)
{
    const size_t radix = (size_t)1 << stages;

    for (size_t i = 0; i < group; i += half * radix) {
        for (size_t k = i; k < i + half; k++) {
            for (size_t l = 0; l < LANES; l += WIDE) {
                wide v[1 << STAGES_TOGETHER];
#pragma GCC unroll 16
                for (size_t q = 0; q < radix; q++)
                    v[q] = wide_load(&value[k + q * half][l]);
#pragma GCC unroll 4
                for (size_t stage = 0; stage < stages; stage++) {
#pragma GCC unroll 8
                    for (size_t pair = 0; pair < radix / 2; pair++) {
                        const size_t step = (size_t)1 << stage;
                        const size_t q = pair / step * 2 * step + pair % step;
                        const wide sum = v[q] + v[q + step], difference = v[q] - v[q + step];
                        v[q] = sum;
                        v[q + step] = difference;
                    }
                }
#pragma GCC unroll 16
                for (size_t q = 0; q < radix; q++)
                    wide_store(&value[k + q * half][l], v[q] * factor);
            }
        }
    }
}

/* value = H value / sqrt(group) in every lane. */
static void hadamard(float value[][LANES], size_t group)
{
    const float entry = 1.0f / sqrtf((float)group);
    size_t stages = 0, left;

    while ((size_t)1 << stages < group)
        stages++;
    for (size_t half = 1; stages > 0; stages = left) {
        const size_t now = stages < STAGES_TOGETHER ? stages : STAGES_TOGETHER;
        left = stages - now;
        const float factor = left ? 1.0f : entry;
        if (now == 1)
            butterflies(value, group, half, 1, factor);
        else if (now == 2)
            butterflies(value, group, half, 2, factor);
        else if (now == 3)
            butterflies(value, group, half, 3, factor);
        else
            butterflies(value, group, half, STAGES_TOGETHER, factor);
        half <<= now;
    }
}

/* ---- the nearest code ------------------------------------------------------------------------ */

struct codes { /* above[k]: the largest number whose nearest code is at most k; then infinity */
    float value[CODES_MAX], above[CODES_MAX];
    size_t count;
};

/* Floats in their order as integers, and back. */
static int32_t order_of(float x)
{
    const int32_t bits = (int32_t)vector_bits(x);
    return bits < 0 ? INT32_MIN - bits : bits;
}

static float float_at(int32_t order)
{
    return vector_from_bits((uint32_t)(order < 0 ? INT32_MIN - order : order));
}

static struct codes codes_of(const struct codebook *codebook)
{
    struct codes codes = {.count = codebook->count};

    assert(codebook->count >= 1 && codebook->count <= CODES_MAX);
    for (size_t k = 0; k < CODES_MAX; k++) {
        codes.value[k] = codebook->values[k < codes.count ? k : codes.count - 1];
        codes.above[k] = INFINITY;
    }
    for (size_t k = 0; k + 1 < codes.count; k++) {
        const float lower = codes.value[k], upper = codes.value[k + 1];
        const float reach = 0x1p-20f * (fabsf(lower) + fabsf(upper));
        int32_t yes = order_of((lower + upper) * 0.5f - reach);
        int32_t no = order_of((lower + upper) * 0.5f + reach);

        while ((int64_t)no - yes > 1) {
            const int32_t middle = (int32_t)(((int64_t)yes + no) >> 1);
            const float x = float_at(middle);
            if (fabsf(x - lower) <= fabsf(x - upper))
                yes = middle;
            else
                no = middle;
        }
        codes.above[k] = float_at(yes);
    }
    return codes;
}

/* The nearest codes of `unit`, and their numbers: how many thresholds it is past. */
#if WIDE == CODES_MAX && !defined(__clang__) /* which has no shuffle by numbers */
WIDE_INLINE wide nearest(wide unit, const struct codes *codes, wide_bits *ret_index)
{
    const wide above = wide_load(codes->above);
    wide_bits index = {0};

#pragma GCC unroll 4
    for (int32_t step = CODES_MAX / 2; step > 0; step /= 2)
        index += (unit > __builtin_shuffle(above, index + (step - 1))) & step;
    *ret_index = index;
    return __builtin_shuffle(wide_load(codes->value), index);
}
#else
WIDE_INLINE wide nearest(wide unit, const struct codes *codes, wide_bits *ret_index)
{
    wide_bits index = {0}, code = (wide_bits)wide_all(codes->value[0]);

    for (size_t k = 0; k + 1 < codes->count; k++) {
        const wide_bits past = unit > wide_all(codes->above[k]);
        code = (past & (wide_bits)wide_all(codes->value[k + 1])) | (~past & code);
        index -= past;
    }
    *ret_index = index;
    return (wide)code;
}
#endif

/* Each lane's norm over the group, as a divisor and as a float16. The sum is ref's, in f64: a norm
 * one bit off would move values that stand near a threshold. */
static void measure_lanes(struct tile *tile, size_t group)
{
    double squares[LANES] = {0};

    for (size_t i = 0; i < group; i++)
        for (size_t l = 0; l < LANES; l++)
            squares[l] += (double)tile->value[i][l] * (double)tile->value[i][l];
    for (size_t l = 0; l < LANES; l++) {
        const float norm = (float)sqrt(squares[l]);
        tile->divisor[l] = norm > 1e-12f ? norm : 1e-12f;
        tile->norm[l] = to_float16(norm);
    }
}

static void code_tile(struct tile *tile, size_t group, const struct codes *codes, bool indices)
{
    hadamard(tile->value, group);
    measure_lanes(tile, group);
    for (size_t l = 0; l < LANES; l += WIDE) {
        const wide divisor = wide_load(&tile->divisor[l]), norm = wide_load(&tile->norm[l]);
        for (size_t i = 0; i < group; i++) {
            wide_bits index;
            const wide unit = wide_load(&tile->value[i][l]) / divisor;
            wide_store(&tile->value[i][l], nearest(unit, codes, &index) * norm);
            if (indices)
                memcpy(&tile->index[i][l], &index, sizeof index);
        }
    }
    hadamard(tile->value, group);
}

/* ---- tiles ----------------------------------------------------------------------------------- */

struct round_code { /* element (output o, input i) is at o * output_stride + i * stride */
    float *y;
    uint8_t *index;
    float *norm;
    const float *w;
    const struct codebook *codebook;
    size_t outputs, inputs, output_stride, stride, groups;
};

/* The tile's place in w and y, and what of it there is. */
struct place {
    size_t base, used, lanes;
};

static void read_tile(struct tile *tile, const struct round_code *a, const struct place *at)
{
    const size_t group = a->codebook->group;
    const float *w = &a->w[at->base];

    if (at->used == group && at->lanes == LANES && a->output_stride == 1) {
        for (size_t i = 0; i < group; i++)
            memcpy(tile->value[i], &w[i * a->stride], sizeof tile->value[i]);
    } else if (at->used == group && at->lanes == LANES && a->stride == 1 && group % 4 == 0) {
        for (size_t l = 0; l < LANES; l += 4)
            for (size_t i = 0; i < group; i += 4)
                wide_transpose_quad(&tile->value[i][l], LANES, &w[l * a->output_stride + i],
                                    a->output_stride);
    } else {
        for (size_t i = 0; i < group; i++)
            for (size_t l = 0; l < LANES; l++)
                tile->value[i][l] =
                    i < at->used && l < at->lanes ? w[l * a->output_stride + i * a->stride] : 0.0f;
    }
}

/* y = w + (value - w), `count` of each; y may be w. */
static void write_values(float *y, const float *w, const float *value, size_t count)
{
    for (size_t l = 0; l < count; l += WIDE) {
        const size_t some = count - l < WIDE ? count - l : WIDE;
        const wide before = wide_load_some(&w[l], some);
        wide_store_some(&y[l], before + (wide_load_some(&value[l], some) - before), some);
    }
}

static void write_tile(const struct tile *tile, const struct round_code *a, const struct place *at)
{
    const size_t group = a->codebook->group;
    const float *w = &a->w[at->base];
    float *y = &a->y[at->base];

    if (a->output_stride == 1) {
        for (size_t i = 0; i < at->used; i++)
            write_values(&y[i * a->stride], &w[i * a->stride], tile->value[i], at->lanes);
        return;
    }
    for (size_t l = 0; l < at->lanes; l++) {
        const size_t output = l * a->output_stride;
        float row[GROUP_MAX];
        for (size_t i = 0; i < group; i++)
            row[i] = tile->value[i][l];
        for (size_t i = 0; i < at->used; i++)
            y[output + i * a->stride] =
                /* cppcheck-suppress uninitvar ; at->used is at most group */
                w[output + i * a->stride] + (row[i] - w[output + i * a->stride]);
    }
}

/* One group of LANES outputs (fewer at the end) from `output`. */
static void round_tile(const struct round_code *a, const struct codes *codes, struct tile *tile,
                       size_t output, size_t number)
{
    const size_t group = a->codebook->group, start = number * group;
    const struct place at = {
        .base = output * a->output_stride + start * a->stride,
        .used = a->inputs - start < group ? a->inputs - start : group,
        .lanes = a->outputs - output < LANES ? a->outputs - output : LANES,
    };

    read_tile(tile, a, &at);
    code_tile(tile, group, codes, a->index != NULL);
    write_tile(tile, a, &at);
    for (size_t l = 0; l < at.lanes; l++) {
        size_t place = (output + l) * a->groups + number;
        if (a->norm)
            a->norm[place] = tile->norm[l];
        for (size_t i = 0; a->index && i < group; i++)
            a->index[place * group + i] = (uint8_t)tile->index[i][l];
    }
}

static void round_tiles(void *context, size_t begin, size_t end, size_t part)
{
    const struct round_code *a = context;
    const struct codes codes = codes_of(a->codebook);
    struct tile tile;

    (void)part;
    for (size_t t = begin; t < end; t++)
        round_tile(a, &codes, &tile, t / a->groups * LANES, t % a->groups);
}

static size_t tile_count(const struct round_code *a)
{
    return (a->outputs + LANES - 1) / LANES * a->groups;
}

void cpu_round_code(struct cpu *cpu, float *y, uint8_t *index, float *norm, const float *w,
                    const struct codebook *codebook, size_t rows, size_t cols, bool columns)
{
    struct round_code a = {.y = y, .index = index, .norm = norm, .w = w, .codebook = codebook};

    a.outputs = columns ? cols : rows;
    a.inputs = columns ? rows : cols;
    a.output_stride = columns ? 1 : cols;
    a.stride = columns ? cols : 1;
    a.groups = (a.inputs + codebook->group - 1) / codebook->group;
    team_run(cpu->team, tile_count(&a), 2, round_tiles, &a);
}

void quant_round_code_rows(float *y, const float *x, size_t rows, size_t C,
                           const struct codebook *codebook)
{
    struct round_code a = {.y = y, .w = x, .codebook = codebook, .outputs = rows, .inputs = C};

    a.output_stride = C;
    a.stride = 1;
    a.groups = (C + codebook->group - 1) / codebook->group;
    round_tiles(&a, 0, tile_count(&a), 0);
}

void quant_round_code_columns(float *y, size_t rows, size_t cols, size_t stride,
                              const struct codebook *codebook)
{
    struct round_code a = {.y = y, .w = y, .codebook = codebook, .outputs = cols, .inputs = rows};

    a.output_stride = 1;
    a.stride = stride;
    a.groups = (rows + codebook->group - 1) / codebook->group;
    round_tiles(&a, 0, tile_count(&a), 0);
}
