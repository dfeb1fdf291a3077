#include "tests/bench/flops.h"

#include "daemon/model/weights.h"

/* Nothing below the first layer's projections learns, so their inputs need no gradient there. */
static const char formula[] =
    "useful floating-point operations of a step (L layers, D wide, H heads of C and V, lanes n,\n"
    "Monarch P = a b, rank r; N rows of the tree, T of them with a target, E different ends of\n"
    "the longest n-gram, S pairs of a row and what it sees, summed over the layers):\n"
    "  projections  2 N sum(in out) L forward, the same for the gradient of the inputs but, in\n"
    "               the first layer, for the output's alone\n"
    "  adapter      4 N r sum(in + out) L for dA and dB; merging: 2 r sum(in out) L\n"
    "  attention    2 S H (C + V) forward, twice that for dq dk dv\n"
    "  Monarch      (6 P (a + b) + 2 m (D + P)) N L, m the rank of its condition; again for dx\n"
    "  hyper        (2 n D (2 n + n n) + 2 n D + 2 n n D + 2 n D) N L: coefficients, read, write;\n"
    "               again for the gradient of the lanes, and 2 n D (n + 2) for the coefficients';\n"
    "               nothing is counted backward in the first layer\n"
    "  engram       4 D D E a site: key and value; frozen, so nothing backward\n"
    "  head         2 D vocabulary T forward, the same for the gradient of the hidden rows\n";

void flops_print_formula(FILE *out)
{
    (void)fputs(formula, out);
}

struct projections {
    double kernels; /* sum of in times out */
    double sides;   /* sum of in plus out */
    double output;  /* in times out of the output projection */
};

static struct projections add_up(const struct geometry *geometry)
{
    struct projections sums = {0};

    for (int p = 0; p < PROJECTION_COUNT; p++) {
        size_t in, out;

        projection_shape(geometry, (enum projection)p, &in, &out);
        sums.kernels += (double)in * (double)out;
        sums.sides += (double)(in + out);
        if (p == PROJECTION_OUT)
            sums.output = (double)in * (double)out;
    }
    return sums;
}

static double visible_pairs(const struct geometry *geometry, const struct counts *counts)
{
    double pairs = 0;

    for (size_t layer = 0; layer < geometry->layer_count; layer++)
        pairs += geometry_is_global(geometry, layer) ? counts->global_pairs : counts->window_pairs;
    return pairs;
}

struct flops flops_of_forward(const struct geometry *g, const struct counts *counts)
{
    const double N = (double)counts->rows, D = (double)g->d_model, n = (double)g->lane_count;
    const double L = (double)g->layer_count, P = (double)g->monarch_size;
    const double factors = (double)(g->monarch_a + g->monarch_b);
    const double heads = (double)(g->head_count * (g->qk_head_size + g->v_head_size));

    return (struct flops){
        .projections = 2 * N * add_up(g).kernels * L,
        .attention = 2 * visible_pairs(g, counts) * heads,
        .monarch = (6 * P * factors + 2 * CONDITION_RANK * (D + P)) * N * L,
        .hyper = (2 * n * D * (2 * n + n * n) + 2 * n * D + 2 * n * n * D + 2 * n * D) * N * L,
        .engram = 4 * D * D * (double)counts->grams * (double)g->engram_site_count,
        .head = 2 * D * (double)g->out_vocab * (double)counts->target_rows,
    };
}

struct flops flops_of_step(const struct geometry *g, size_t lora_rank, const struct counts *counts)
{
    const struct projections sums = add_up(g);
    const double N = (double)counts->rows, D = (double)g->d_model, n = (double)g->lane_count;
    const double L = (double)g->layer_count, r = (double)lora_rank;
    struct flops flops = flops_of_forward(g, counts);

    flops.projections += 2 * N * (sums.kernels * (L - 1) + sums.output);
    flops.adapter = 4 * N * r * sums.sides * L + 2 * r * sums.kernels * L;
    flops.attention *= 3;
    flops.monarch *= 2;
    flops.hyper += (flops.hyper / L + 2 * n * D * (n + 2) * N) * (L - 1);
    flops.head *= 2;
    return flops;
}

double flops_total(const struct flops *flops)
{
    return flops->projections + flops->adapter + flops->attention + flops->monarch + flops->hyper +
           flops->engram + flops->head;
}

double flops_products(const struct flops *flops)
{
    return flops->projections + flops->adapter + flops->engram;
}
