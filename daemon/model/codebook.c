#include "daemon/model/codebook.h"

#include <assert.h>
#include <math.h>

/*
 * Code values of a standard normal, in float64, as the reference implementation computes them and
 * never stores: sort numpy.random.RandomState(0).randn(400000), start from its (k + 1/2) / 2^bits
 * quantiles, then 200 rounds of Lloyd-Max (each value becomes the mean of the samples nearer to it
 * than to its neighbours), then sort. They are written with the digits that read back equal.
 */
static const double values2[] = {-1.5066708475715247, -0.45144060939344055, 0.4529474939511613,
                                 1.5099326242547164};
static const double values3[] = {-2.141247862845774,   -1.3337164609389895, -0.7483982925010272,
                                 -0.23774016363616235, 0.2500446195658646,  0.7555868210708537,
                                 1.3379826350451236,   2.1476362705161423};
static const double values4[] = {
    -2.709990028558534,  -2.0444556051349227, -1.5947570221842273,  -1.233336191082712,
    -0.9222139662739897, -0.6395373737253813, -0.37266394934485414, -0.11445072030649898,
    0.14380628677643073, 0.4039889754802918,  0.6726933686864701,   0.9614053009735016,
    1.2755257831234952,  1.6370587960592824,  2.0844263722579237,   2.7410141261982846};

size_t codebook_values(int bits, size_t group, float ret_values[CODEBOOK_MAX])
{
    const double *values = bits == 2 ? values2 : bits == 3 ? values3 : values4;
    size_t count = (size_t)1 << bits;
    double root = sqrt((double)group);

    assert(bits >= 2 && bits <= 4);
    assert(group > 0);
    for (size_t i = 0; i < count; i++)
        ret_values[i] = (float)(values[i] / root);
    return count;
}
