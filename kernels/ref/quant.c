/*
 * quant: rounding to the grids the model is shipped on; straight-through, so it has no backward.
 *
 *   round_a8, a row of C values:
 *     s = max_c |x[c]| (1/127), or 1 when the maximum is 0
 *     y[c] = x[c] + (clip(rint(x[c] (1/s)), -128, 127) s - x[c])
 *   round_code, a group of g values along the axis, zero-padded; H[i,j] = (-1)^bits(i & j) /
 * sqrt(g): rot = x H,   norm = sqrt(sum rot^2),   unit = rot / max(norm, 1e-12) index[j] = the
 * nearest code value to unit[j], the lower of two equally near y = x + ((values[index] norm16) H -
 * x),   norm16 = norm in float16
 *
 * Shapes    x y [N,C]; w y [rows,cols], groups along the last axis or (columns) the first;
 *           index [groups, g] and norm [groups], outputs first, then groups along the axis.
 * Writes    Everything is set; index, norm may be NULL. y may be x.
 * Numerics  f32, each operation rounded (no fused multiply-add), halves to even: bit-equal to the
 *           reference for round_a8. The two products with H are f64 sums in ref. The gradient is
 *           that of y = x.
 * Source    Needle quantize.py, fake_quant (with XLA's reciprocals), cq_quantize, cq_ste.
 */
#include "kernels/ref/ref.h"

#include <math.h>

#define GROUP_MAX 128

void ref_round_a8_row(float *y, const float *x, size_t C)
{
    float largest = 0;

    for (size_t c = 0; c < C; c++)
        largest = fmaxf(largest, fabsf(x[c]));

    const float scale = largest > 0 ? largest * (1.0f / 127.0f) : 1.0f;
    const float inverse = 1.0f / scale;
    for (size_t c = 0; c < C; c++) {
        const float q = fminf(fmaxf(rintf(x[c] * inverse), -128.0f), 127.0f) * scale;

        y[c] = x[c] + (q - x[c]);
    }
}

void ref_round_a8(float *y, const float *x, size_t N, size_t C)
{
    for (size_t n = 0; n < N; n++)
        ref_round_a8_row(&y[n * C], &x[n * C], C);
}

float ref_float16(float value)
{
    int exponent;

    if (!(fabsf(value) < 65520.0f)) /* halfway between 65504 and what would come next */
        return value * INFINITY;    /* NaN stays NaN */
    (void)frexpf(value, &exponent); /* |value| < 2^exponent */
    const float step = ldexpf(1.0f, (exponent < -13 ? -13 : exponent) - 11);
    return rintf(value / step) * step;
}

/* y = x H for one group; H is symmetric. */
static void hadamard(float *y, const float *x, size_t group)
{
    const float entry = 1.0f / sqrtf((float)group);

    for (size_t j = 0; j < group; j++) {
        double sum = 0;

        for (size_t i = 0; i < group; i++)
            sum += __builtin_parityl(i & j) ? -(double)x[i] : (double)x[i];
        y[j] = (float)(sum * entry);
    }
}

static size_t nearest(float value, const struct codebook *codebook)
{
    size_t right = 1;

    while (right < codebook->count - 1 && codebook->values[right] < value)
        right++;
    const float below = fabsf(value - codebook->values[right - 1]);
    const float above = fabsf(value - codebook->values[right]);
    return below <= above ? right - 1 : right;
}

/* One group of `used` values (the rest is padding); returns its float16 norm. */
static float round_group(float *y, uint8_t *index, const float *x, size_t used, size_t stride,
                         const struct codebook *codebook)
{
    float padded[GROUP_MAX] = {0}, rotated[GROUP_MAX];
    double sum = 0;

    for (size_t i = 0; i < used; i++)
        padded[i] = x[i * stride];
    hadamard(rotated, padded, codebook->group);
    for (size_t i = 0; i < codebook->group; i++)
        sum += (double)rotated[i] * rotated[i];

    const float norm = (float)sqrt(sum), norm16 = ref_float16(norm);
    const float divisor = fmaxf(norm, 1e-12f);
    for (size_t i = 0; i < codebook->group; i++) {
        const size_t code = nearest(rotated[i] / divisor, codebook);

        if (index)
            index[i] = (uint8_t)code;
        rotated[i] = codebook->values[code] * norm16;
    }
    hadamard(padded, rotated, codebook->group);
    for (size_t i = 0; i < used; i++)
        y[i * stride] = x[i * stride] + (padded[i] - x[i * stride]);
    return norm16;
}

void ref_round_code_row(float *y, uint8_t *index, float *norm, const float *x, size_t C,
                        size_t stride, const struct codebook *codebook)
{
    const size_t group = codebook->group;

    for (size_t start = 0, number = 0; start < C; start += group, number++) {
        const size_t used = C - start < group ? C - start : group;
        const float norm16 = round_group(&y[start * stride], index ? &index[number * group] : NULL,
                                         &x[start * stride], used, stride, codebook);

        if (norm)
            norm[number] = norm16;
    }
}

void ref_round_code(float *y, uint8_t *index, float *norm, const float *w,
                    const struct codebook *codebook, size_t rows, size_t cols, bool columns)
{
    const size_t outputs = columns ? cols : rows, inputs = columns ? rows : cols;
    const size_t output_stride = columns ? 1 : cols, stride = columns ? cols : 1;
    const size_t groups = (inputs + codebook->group - 1) / codebook->group;

    for (size_t output = 0; output < outputs; output++)
        ref_round_code_row(&y[output * output_stride],
                           index ? &index[output * groups * codebook->group] : NULL,
                           norm ? &norm[output * groups] : NULL, &w[output * output_stride], inputs,
                           stride, codebook);
}
