/*
 * quant: rounding to 8 bits and to code values, see kernels/ref/quant.c.
 *
 * Codes are found for LANES outputs side by side: a group is a tile [group, LANES], the product
 * with the Walsh-Hadamard matrix runs as butterflies over its rows, the nearest code by comparing
 * with every code value.
 *
 * Numerics  round_a8 bit for bit as in ref: adding 1.5 * 2^23 rounds half to even like rint.
 *           round_code in f32; butterflies add in another order than ref, which moves no index that
 *           is not within 2e-8 of the middle of two codes.
 */
#include "kernels/cpu/ops/quant.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/ops/vector.h"

#define GROUP_MAX 128
#define STRIP 8 /* rows of a tile whose codes are found together */

void quant_round_a8(float *y, const float *x, size_t C)
{
    const float largest = vector_max_abs(x, C), shift = 12582912.0f;
    const float scale = largest > 0 ? largest * (1.0f / 127.0f) : 1.0f;
    const float inverse = 1.0f / scale;

    for (size_t c = 0; c < C; c++) {
        float q = (x[c] * inverse + shift) - shift;
        q = q > -128.0f ? q : -128.0f;
        q = q < 127.0f ? q : 127.0f;
        y[c] = x[c] + (q * scale - x[c]);
    }
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
    int32_t index[GROUP_MAX][LANES];
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

/* value = H value / sqrt(group) in every lane. */
static void hadamard(float value[][LANES], size_t group)
{
    const float entry = 1.0f / sqrtf((float)group);

    for (size_t half = 1; half < group; half *= 2) {
        for (size_t i = 0; i < group; i += 2 * half) {
            for (size_t k = i; k < i + half; k++) {
                float *a = value[k], *b = value[k + half];
                for (size_t l = 0; l < LANES; l++) {
                    float sum = a[l] + b[l], difference = a[l] - b[l];
                    a[l] = sum;
                    b[l] = difference;
                }
            }
        }
    }
    for (size_t i = 0; i < group; i++)
        for (size_t l = 0; l < LANES; l++)
            value[i][l] *= entry;
}

/* The nearest code of each value. Distances are compared by their bits, which have the order of
 * floats without a sign: branches would stand in the way of SIMD. */
static void nearest(int32_t *restrict index, const float *restrict unit, size_t count,
                    const struct codebook *codebook)
{
    int32_t best[STRIP * LANES];

    for (size_t i = 0; i < count; i++) {
        best[i] = (int32_t)vector_bits(fabsf(unit[i] - codebook->values[0]));
        index[i] = 0;
    }
    for (int32_t k = 1; k < (int32_t)codebook->count; k++) {
        const float candidate = codebook->values[k];
        for (size_t i = 0; i < count; i++) {
            int32_t distance = (int32_t)vector_bits(fabsf(unit[i] - candidate));
            index[i] = distance < best[i] ? k : index[i];
            best[i] = distance < best[i] ? distance : best[i];
        }
    }
}

static void code_tile(struct tile *tile, const struct codebook *codebook)
{
    const size_t group = codebook->group, strip = group < STRIP ? group : STRIP;
    float sum[LANES] = {0}, divisor[LANES];

    hadamard(tile->value, group);
    for (size_t i = 0; i < group; i++)
        for (size_t l = 0; l < LANES; l++)
            sum[l] += tile->value[i][l] * tile->value[i][l];
    for (size_t l = 0; l < LANES; l++) {
        float norm = sqrtf(sum[l]);
        divisor[l] = norm > 1e-12f ? norm : 1e-12f;
        tile->norm[l] = to_float16(norm);
    }
    for (size_t i = 0; i < group; i++)
        for (size_t l = 0; l < LANES; l++)
            tile->value[i][l] /= divisor[l];
    for (size_t i = 0; i < group; i += strip)
        nearest(&tile->index[0][0] + i * LANES, &tile->value[0][0] + i * LANES, strip * LANES,
                codebook);
    for (size_t i = 0; i < group; i++)
        for (size_t l = 0; l < LANES; l++)
            tile->value[i][l] = codebook->values[tile->index[i][l]] * tile->norm[l];
    hadamard(tile->value, group);
}

struct round_code { /* element (output o, input i) is at o * output_stride + i * stride */
    float *y;
    uint8_t *index;
    float *norm;
    const float *w;
    const struct codebook *codebook;
    size_t outputs, inputs, output_stride, stride, groups;
};

/* One group of LANES outputs (fewer at the end) from `output`. */
static void round_tile(const struct round_code *a, struct tile *tile, size_t output, size_t number)
{
    const size_t group = a->codebook->group, start = number * group;
    const size_t used = a->inputs - start < group ? a->inputs - start : group;
    const size_t lanes = a->outputs - output < LANES ? a->outputs - output : LANES;
    const size_t base = output * a->output_stride + start * a->stride;

    for (size_t i = 0; i < group; i++)
        for (size_t l = 0; l < LANES; l++)
            tile->value[i][l] =
                i < used && l < lanes ? a->w[base + l * a->output_stride + i * a->stride] : 0.0f;
    code_tile(tile, a->codebook);
    for (size_t i = 0; i < used; i++) {
        for (size_t l = 0; l < lanes; l++) {
            size_t at = base + l * a->output_stride + i * a->stride;
            a->y[at] = a->w[at] + (tile->value[i][l] - a->w[at]);
        }
    }
    for (size_t l = 0; l < lanes; l++) {
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
    struct tile tile;

    (void)part;
    for (size_t t = begin; t < end; t++)
        round_tile(a, &tile, t / a->groups * LANES, t % a->groups);
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
