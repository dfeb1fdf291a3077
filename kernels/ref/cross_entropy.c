/*
 * cross_entropy: from hidden rows to losses and gradients, over a list of targets.
 *
 *   logit[m,w] = sum_d x[row[m],d] table[w,d]
 *   loss[m]    = log sum_w exp(logit[m,w]) - logit[m,label[m]]
 *   hit[m]     = 1 when label[m] is the first of the largest logits, else 0
 *   g[m,w]     = gradient_scale weight[m] (exp(logit[m,w]) / sum_v exp(logit[m,v]) - (w ==
 * label[m])) dx[i,d]    = sum_{m: row[m] = i} sum_w g[m,w] table[w,d] dtable[w,d] += sum_m g[m,w]
 * x[row[m],d]
 *
 * Shapes    loss hit row label weight [targets], row ascending; x dx [N,D]; table dtable [vocab,D].
 * Writes    loss, hit, dx are set (dx is 0 in rows without a target); dtable accumulates. dx and
 *           dtable may be NULL. dx may not be x.
 * Numerics  f32 in and out; logits, softmax and dx f64 in ref; logits are computed twice, not
 * stored. Source    Plain; Needle training.py counts the loss over masked next tokens.
 */
#include "kernels/ref/ref.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static double logit_of(const float *x, const float *row, size_t D)
{
    double sum = 0;

    for (size_t d = 0; d < D; d++)
        sum += (double)x[d] * row[d];
    return sum;
}

/* log sum exp of all logits of one hidden row, in one pass, and the first largest. */
static double log_total(uint32_t *ret_best, const float *x, const float *table, size_t vocab,
                        size_t D)
{
    double largest = logit_of(x, table, D), total = 1; /* total of exp(logit - largest) */
    uint32_t best = 0;

    for (size_t w = 1; w < vocab; w++) {
        const double logit = logit_of(x, &table[w * D], D);

        if (logit > largest) {
            total = total * exp(largest - logit) + 1;
            largest = logit;
            best = (uint32_t)w;
        } else {
            total += exp(logit - largest);
        }
    }
    *ret_best = best;
    return largest + log(total);
}

struct target_run { /* the targets of one row: first .. past - 1, and the sum of their weights */
    size_t first, past;
    double weight_total;
};

static void run_backward(float *dx, float *dtable, const struct target_run *run, const float *x,
                         const float *table, const uint32_t *label, const float *weight,
                         double scale, double lse, size_t vocab, size_t D)
{
    double sums[REF_WIDTH_MAX] = {0};

    for (size_t w = 0; w < vocab; w++) {
        double g = run->weight_total * exp(logit_of(x, &table[w * D], D) - lse);

        for (size_t m = run->first; m < run->past; m++)
            g -= label[m] == w ? weight[m] : 0;
        g *= scale;
        for (size_t d = 0; d < D; d++) {
            sums[d] += g * table[w * D + d];
            if (dtable)
                dtable[w * D + d] += (float)(g * x[d]);
        }
    }
    for (size_t d = 0; dx && d < D; d++)
        dx[d] = (float)sums[d];
}

void ref_cross_entropy(float *loss, float *hit, float *dx, float *dtable, const float *x,
                       const float *table, const int32_t *row, const uint32_t *label,
                       const float *weight, float gradient_scale, size_t targets, size_t N,
                       size_t vocab, size_t D)
{
    struct target_run run = {0};

    assert(D <= REF_WIDTH_MAX);
    if (dx)
        memset(dx, 0, N * D * sizeof(*dx));
    for (; run.first < targets; run.first = run.past) {
        const size_t i = (size_t)row[run.first];
        uint32_t best;

        assert(i < N);
        const double lse = log_total(&best, &x[i * D], table, vocab, D);
        run.weight_total = 0;
        for (run.past = run.first; run.past < targets && (size_t)row[run.past] == i; run.past++) {
            const uint32_t wanted = label[run.past];

            assert(wanted < vocab);
            loss[run.past] = (float)(lse - logit_of(&x[i * D], &table[(size_t)wanted * D], D));
            hit[run.past] = wanted == best ? 1 : 0;
            run.weight_total += weight[run.past];
        }
        assert(run.past == targets || row[run.past] > row[run.first]);
        if (dx || dtable)
            run_backward(dx ? &dx[i * D] : NULL, dtable, &run, &x[i * D], table, label, weight,
                         gradient_scale, lse, vocab, D);
    }
}
