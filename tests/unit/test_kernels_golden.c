/*
 * Proves that every forward op, chained over one layer with real shapes, gives the numbers that the
 * reference implementation (cactus-needle 3.2.8) recorded: two geometries, float32 and quantised,
 * each op from the recorded input of its own. Runs over every backend.
 */
#include "kernels/table.h"
#include "tests/support/op_fixture.h"
#include "tests/support/op_permutation.h"
#include "tests/support/op_run.h"

#include <math.h>

#define DEVICE_MAX 256

struct golden {
    struct backend *be;
    struct fixture *base, *forward, *quant;
    bool quantised;
    const char *folder, *mode;
    size_t B, T, N, D, L; /* lines, tokens a line, tokens, width, lanes */
    struct tree tree;
    float *device[DEVICE_MAX]; /* to be given back at the end */
    size_t device_count;
};

/* Difference allowed for results of f32 sums of some hundred terms of size 1, summed in another
 * order: measured 2.5e-6 against other implementations. */
#define CLOSE_ABS 2e-5

static float *device_copy(struct golden *g, const float *values, size_t count)
{
    float *device = backend_alloc(g->be, count * sizeof(*device));

    assert_non_null(device);
    assert_true(g->device_count < DEVICE_MAX);
    if (values)
        backend_upload(g->be, device, values, count * sizeof(*device));
    g->device[g->device_count++] = device;
    return device;
}

static float *device_zeroes(struct golden *g, size_t count)
{
    return device_copy(g, NULL, count);
}

static const float *recorded(struct golden *g, const char *name)
{
    char path[96];

    snprintf(path, sizeof(path), "%s/%s", g->mode, name);
    return fixture_values(g->forward, path, NULL);
}

static size_t recorded_count(struct golden *g, const char *name)
{
    char path[96];
    size_t count;

    snprintf(path, sizeof(path), "%s/%s", g->mode, name);
    (void)fixture_values(g->forward, path, &count);
    return count;
}

static float *input(struct golden *g, const char *name)
{
    return device_copy(g, recorded(g, name), recorded_count(g, name));
}

/* Compares with recorded values; `steps` of them per thousand may be one 8-bit step (1/127 of the
 * largest) off, because an input on the edge of a step goes either way. */
static void expect(struct golden *g, const char *name, const float *device, const float *values,
                   size_t count, size_t steps)
{
    float *ours = malloc(count * sizeof(*ours));
    double largest = 0;
    size_t off = 0;

    assert_non_null(ours);
    backend_download(g->be, ours, device, count * sizeof(*ours));
    if (backend_sync(g->be) != BACKEND_OK)
        fail_msg("%s", backend_fault(g->be));
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(values[i]));
    for (size_t i = 0; i < count; i++) {
        const double difference = fabs((double)ours[i] - values[i]);

        if (difference <= CLOSE_ABS)
            continue;
        off++;
        if (!(difference <= 1.01 * largest / 127) || off * 1000 > steps * count)
            fail_msg("%s, %s, %s, %s[%zu]: %.9g, recorded %.9g (%zu off)",
                     backend_name(g->be->kind), g->folder, g->mode, name, i, ours[i], values[i],
                     off);
    }
    free(ours);
}

static void expect_recorded(struct golden *g, const char *name, const float *device, size_t steps)
{
    expect(g, name, device, recorded(g, name), recorded_count(g, name), steps);
}

/* [B,H,T,C] as recorded to [B,T,H,C] as ours. */
static float *by_token(struct golden *g, const char *name, size_t H, size_t C)
{
    const float *values = recorded(g, name);
    float *turned = malloc(g->N * H * C * sizeof(*turned));

    assert_non_null(turned);
    for (size_t b = 0; b < g->B; b++)
        for (size_t h = 0; h < H; h++)
            for (size_t t = 0; t < g->T; t++)
                memcpy(&turned[((b * g->T + t) * H + h) * C], &values[((b * H + h) * g->T + t) * C],
                       C * sizeof(*turned));
    return turned;
}

/* ---- weights -----------------------------------------------------------------------------------
 */

static struct codebook codebook_of(struct golden *g, int bits, size_t group)
{
    char name[64];

    snprintf(name, sizeof(name), "codebook/b%d_g%zu", bits, group);
    return (struct codebook){
        .values = device_copy(g, fixture_values(g->quant, name, NULL), (size_t)1 << bits),
        .count = (size_t)1 << bits,
        .group = group};
}

static float *plain_weight(struct golden *g, const char *name, size_t count)
{
    return device_copy(g, fixture_values(g->base, name, NULL), count); /* layer 0 comes first */
}

/* A matrix of layer 0, on its grid in the quantised mode. */
static float *weight(struct golden *g, const char *name, size_t rows, size_t cols, bool columns)
{
    float *w = plain_weight(g, name, rows * cols);

    if (g->quantised) {
        const struct codebook codebook = codebook_of(g, 4, 128);

        backend_round_code(g->be, w, NULL, NULL, w, &codebook, rows, cols, columns);
    }
    return w;
}

static float *layer_weight(struct golden *g, const char *name, size_t count)
{
    char path[96];

    snprintf(path, sizeof(path), "stack/layers/block/%s", name);
    return plain_weight(g, path, count);
}

static float *product(struct golden *g, const float *x, const char *kernel, size_t K, size_t M)
{
    float *y = device_zeroes(g, g->N * M);
    const struct matmul shape = {
        .M = g->N, .N = M, .K = K, .lda = K, .ldb = M, .ldc = M, .alpha = 1};

    backend_matmul(g->be, y, x, weight(g, kernel, K, M, true), &shape);
    return y;
}

static enum rounding rounding_of(const struct golden *g)
{
    return g->quantised ? ROUND_A8 : ROUND_NONE;
}

/* ---- the layer, piece by piece ------------------------------------------------------------------
 */

static void check_embedding(struct golden *g)
{
    const size_t vocab = fixture_axis(g->base, "embedding/embedding", 1);
    const float *numbers = fixture_values(g->forward, "tokens", NULL);
    uint32_t *tokens = (uint32_t *)device_zeroes(g, g->N);
    float *x = device_zeroes(g, g->N * g->D);

    for (size_t n = 0; n < g->N; n++) {
        const uint32_t token = (uint32_t)numbers[n];

        backend_upload(g->be, tokens + n, &token, sizeof(token));
    }
    backend_embed_forward(g->be, x, weight(g, "embedding/embedding", vocab, g->D, false), tokens,
                          (float)sqrt((double)g->D), g->N, g->D);
    expect_recorded(g, "x0", x, 0);
}

static void check_engram(struct golden *g)
{
    const size_t tables = fixture_axis(g->base, "engrams_0/embedding", 2);
    const size_t slots = fixture_axis(g->base, "engrams_0/embedding", 1);
    const size_t sub = fixture_axis(g->base, "engrams_0/embedding", 0), width = tables * sub;
    const float *numbers = fixture_values(g->forward, "engram_indices", NULL);
    const float *ok = recorded(g, "engrams_0.ngram_ok");
    int32_t *index = (int32_t *)device_zeroes(g, g->N * tables);
    float *e = device_zeroes(g, g->N * width), *value = device_zeroes(g, g->N * g->D);
    const struct codebook codebook = codebook_of(g, 4, 128);
    const struct table table = {plain_weight(g, "engrams_0/embedding", tables * slots * sub),
                                STORAGE_F32, g->quantised ? &codebook : NULL};
    const size_t site_count = g->N * g->D; /* the first site's share of engram_k and engram_v */

    for (size_t i = 0; i < g->N * tables; i++) {
        const bool whole = ok[i % (g->T * tables)] != 0;
        const int32_t slot = whole ? (int32_t)numbers[i] : -1;

        backend_upload(g->be, index + i, &slot, sizeof(slot));
    }
    backend_gather_forward(g->be, e, &table, index, g->N, tables, slots, sub, rounding_of(g));
    expect(g, "engram_k", product(g, e, "engrams_0/key_proj/kernel", width, g->D),
           recorded(g, "engram_k"), site_count, 0);
    backend_taps_forward(g->be, value, product(g, e, "engrams_0/value_proj/kernel", width, g->D),
                         plain_weight(g, "engrams_0/taps", 4 * g->D), &g->tree, g->D, 4, 3);
    expect(g, "engram_v", value, recorded(g, "engram_v"), site_count, 0);
}

/* phi, bias with the offsets of lane 0 and scale of layer 0, side by side: pre, post, res. */
static struct hyper hyper_of(struct golden *g)
{
    static const char *const parts[] = {"pre", "post", "res"};
    const size_t n = g->L, M = 2 * n + n * n, rows = n * g->D;
    float *phi = calloc(rows * M, sizeof(*phi)), *bias = calloc(M, sizeof(*bias)), scale[3];
    struct hyper weights = {.lanes = n, .D = g->D, .rounding = rounding_of(g)};

    for (size_t p = 0, first = 0; p < 3; p++) {
        const size_t cols = p == 2 ? n * n : n;
        char name[64];

        snprintf(name, sizeof(name), "stack/mhc_phi_%s", parts[p]);
        const float *values = fixture_values(g->base, name, NULL);
        for (size_t k = 0; k < rows * cols; k++)
            phi[k / cols * M + first + k % cols] = values[k];
        snprintf(name, sizeof(name), "stack/mhc_b_%s", parts[p]);
        values = fixture_values(g->base, name, NULL);
        for (size_t m = 0; m < cols; m++) {
            const float offset = p == 0 ? (m == 0 ? 4 : -4) : p == 1 ? (m == 0 ? 0 : -4) : 0;

            bias[first + m] = values[m] + offset;
        }
        snprintf(name, sizeof(name), "stack/mhc_a_%s", parts[p]);
        scale[p] = fixture_values(g->base, name, NULL)[0];
        first += cols;
    }
    float *phi_device = device_copy(g, phi, rows * M);
    if (g->quantised) {
        const struct codebook codebook = codebook_of(g, 4, 128);

        backend_round_code(g->be, phi_device, NULL, NULL, phi_device, &codebook, rows, M, true);
    }
    weights.phi = phi_device;
    weights.bias = device_copy(g, bias, M);
    weights.scale = device_copy(g, scale, 3);
    free(phi);
    free(bias);
    return weights;
}

static void check_hyper(struct golden *g)
{
    const size_t n = g->L, M = 2 * n + n * n;
    const struct hyper weights = hyper_of(g);
    float *S = device_zeroes(g, g->N * n * g->D), *T = device_zeroes(g, g->N * n * g->D);
    float *u = device_zeroes(g, g->N * g->D), *mean = device_zeroes(g, g->N * g->D);
    float *h = device_zeroes(g, g->N * M), *raw = device_zeroes(g, g->N * M);
    float *golden = calloc(g->N * M, sizeof(*golden));
    const float *pre = recorded(g, "layer0.hpre"), *post = recorded(g, "layer0.hpost");
    const float *res = recorded(g, "layer0.hres");

    backend_lanes_spread_forward(g->be, S, input(g, "x0"), g->N, n, g->D);
    backend_hyper_read_forward(g->be, u, h, raw, device_zeroes(g, g->N), S, &weights, g->N);
    for (size_t t = 0; t < g->N; t++) {
        memcpy(&golden[t * M], &pre[t * n], n * sizeof(*golden));
        memcpy(&golden[t * M + n], &post[t * n], n * sizeof(*golden));
        memcpy(&golden[t * M + 2 * n], &res[t * n * n], n * n * sizeof(*golden));
    }
    expect(g, "layer0.hpre, hpost, hres", h, golden, g->N * M, 0);
    expect_recorded(g, "layer0.block_in", u, 0);
    backend_hyper_write_forward(g->be, T, S, h, input(g, "layer0.block_out"), u, g->N, n, g->D);
    backend_lanes_mean_forward(g->be, mean, T, g->N, n, g->D);
    expect(g, "hidden, layer 0", mean, recorded(g, "hidden"), g->N * g->D, 0);
    free(golden);
}

/* What attention is given: block_in, with the engram where its first site is layer 0. */
static float *block_stream(struct golden *g)
{
    float *u = input(g, "layer0.block_in"), *y = device_zeroes(g, g->N * g->D);
    float *alpha = device_zeroes(g, g->N);

    backend_inject_forward(g->be, y, alpha, u, input(g, "engram_k"), input(g, "engram_v"), g->N,
                           g->D);
    expect(g, "layer0.engram_alpha", alpha, recorded(g, "layer0.engram_alpha"), g->N, 0);
    return strstr(g->folder, "mini") ? y : u; /* there the first site is layer 0 */
}

static void check_heads(struct golden *g, char which, size_t H, size_t C, bool normed)
{
    const size_t taps = (size_t)fixture_config(g->base, "qkv_conv_taps", 0);
    const double theta = fixture_config(g->base, "rope_theta", 0);
    const int kv_bits = (int)fixture_config(g->base, "kv_bits", 8);
    struct heads heads = {.head_count = H, .head_size = C, .tap_count = taps};
    float *cosine = calloc(g->T * C, sizeof(float)), *sine = calloc(g->T * C, sizeof(float));
    float *y = device_zeroes(g, g->N * H * C), *t = device_zeroes(g, g->N * H * C), *turned;
    char name[64];

    for (size_t p = 0; p < g->T; p++) {
        for (size_t c = 0; c < C / 2; c++) {
            const float power = powf((float)theta, (float)(2 * c) / (float)C);
            const float angle = (float)p * (1.0f / power);

            cosine[p * (C / 2) + c] = cosf(angle);
            sine[p * (C / 2) + c] = sinf(angle);
        }
    }
    heads.cos = device_copy(g, cosine, g->T * C);
    heads.sin = device_copy(g, sine, g->T * C);
    free(cosine);
    free(sine);
    snprintf(name, sizeof(name), "self_attn/%c_taps", which);
    if (taps > 0)
        heads.taps = layer_weight(g, name, taps * H * C);
    snprintf(name, sizeof(name), "self_attn/%c_norm/scale", which);
    if (normed)
        heads.gain = layer_weight(g, name, C);
    if (g->quantised)
        heads.rounding = which == 'q' || kv_bits >= 8 ? ROUND_A8 : ROUND_CODE;
    if (heads.rounding == ROUND_CODE)
        heads.codebook = codebook_of(g, kv_bits, 64);
    snprintf(name, sizeof(name), "layer0.%c_proj_out", which);
    backend_heads_forward(g->be, y, taps ? t : NULL, normed ? device_zeroes(g, g->N * H) : NULL,
                          input(g, name), &heads, &g->tree);
    snprintf(name, sizeof(name), "layer0.%c_ready", which);
    turned = by_token(g, name, H, C);
    expect(g, name, y, turned, g->N * H * C, g->quantised);
    free(turned);
}

static void check_attention(struct golden *g, size_t H, size_t G, size_t C, size_t V)
{
    const struct attention shape = {.head_count = H,
                                    .kv_head_count = G,
                                    .qk_size = C,
                                    .v_size = V,
                                    .window = (size_t)fixture_config(g->base, "sliding_window", 0),
                                    .scale = 1 / sqrtf((float)C)};
    float *q = by_token(g, "layer0.q_ready", H, C), *k = by_token(g, "layer0.k_ready", G, C);
    float *v = by_token(g, "layer0.v_ready", G, V), *o = device_zeroes(g, g->N * H * V);

    backend_attention_forward(g->be, o, device_zeroes(g, g->N * H), device_copy(g, q, g->N * H * C),
                              device_copy(g, k, g->N * G * C), device_copy(g, v, g->N * G * V),
                              &shape, &g->tree);
    expect_recorded(g, "layer0.attn_heads", o, 0);
    free(q);
    free(k);
    free(v);
}

static void check_attention_block(struct golden *g)
{
    const size_t H = (size_t)fixture_config(g->base, "num_heads", 0);
    const size_t G = (size_t)fixture_config(g->base, "num_kv_heads", 0);
    const size_t C = (size_t)fixture_config(g->base, "qk_head_dim", 0);
    const size_t V = (size_t)fixture_config(g->base, "v_head_dim", 0);
    const char *const block = "stack/layers/block/self_attn";
    float *a = device_zeroes(g, g->N * g->D), *r = device_zeroes(g, g->N), *x = block_stream(g);
    float *gated = device_zeroes(g, g->N * H * V), *y = device_zeroes(g, g->N * g->D);
    float *gain = layer_weight(g, "ZCRMSNorm_0/scale", g->D), *in = input(g, "layer0.q_proj_in");
    char kernel[96];

    backend_rmsnorm_forward(g->be, a, r, x, gain, g->N, g->D, ROUND_NONE);
    expect_recorded(g, "layer0.attn_in", a, 0);
    backend_rmsnorm_forward(g->be, a, r, x, gain, g->N, g->D, rounding_of(g));
    expect_recorded(g, "layer0.q_proj_in", a, g->quantised);
    snprintf(kernel, sizeof(kernel), "%s/q_proj/kernel", block);
    expect_recorded(g, "layer0.q_proj_out", product(g, in, kernel, g->D, H * C), 0);
    snprintf(kernel, sizeof(kernel), "%s/gate_proj/kernel", block);
    expect_recorded(g, "layer0.gate_proj_out", product(g, in, kernel, g->D, H * V), 0);
    check_heads(g, 'q', H, C, true);
    check_heads(g, 'k', G, C, true);
    check_heads(g, 'v', G, V, false);
    check_attention(g, H, G, C, V);
    backend_gate_forward(g->be, gated, input(g, "layer0.attn_heads"),
                         input(g, "layer0.gate_proj_out"), g->N, H * V, rounding_of(g));
    expect_recorded(g, "layer0.out_proj_in", gated, g->quantised);
    snprintf(kernel, sizeof(kernel), "%s/out_proj/kernel", block);
    expect_recorded(g, "layer0.attn_out",
                    product(g, input(g, "layer0.out_proj_in"), kernel, H * V, g->D), 0);
    backend_residual_norm_forward(g->be, y, r, x, input(g, "layer0.attn_out"),
                                  layer_weight(g, "post_attn_norm/scale", g->D),
                                  layer_weight(g, "attn_gate", 1), g->N, g->D);
    backend_rmsnorm_forward(g->be, a, r, y, layer_weight(g, "pre_hada_norm/scale", g->D), g->N,
                            g->D, ROUND_NONE);
    expect_recorded(g, "layer0.hada_in", a, 0);
}

/* ---- the Monarch layer, with the permutations of NumPy's RandomState(seed)
 * ------------------------ */

static int32_t *permutation(struct golden *g, size_t P, uint32_t seed)
{
    int32_t *numbers = calloc(P, sizeof(*numbers)), *device = (int32_t *)device_zeroes(g, P);

    if (fixture_config_count(g->base, "ladder_widths") > 0) { /* each half in itself */
        numpy_permutation(numbers, P / 2, 0, seed);
        numpy_permutation(numbers + P / 2, P / 2, (int32_t)(P / 2), seed + 977);
    } else {
        numpy_permutation(numbers, P, 0, seed);
    }
    backend_upload(g->be, device, numbers, P * sizeof(*numbers));
    free(numbers);
    return device;
}

static void check_monarch(struct golden *g)
{
    const char *const prefix = "stack/layers/block/hadamard_mlp";
    const size_t P = fixture_axis(g->base, "stack/layers/block/hadamard_mlp/d1", 0);
    const size_t a = fixture_axis(g->base, "stack/layers/block/hadamard_mlp/w1a", 0);
    const size_t rank = fixture_axis(g->base, "stack/layers/block/hadamard_mlp/cond_v", 0);
    struct monarch m = {.D = g->D, .P = P, .a = a, .b = P / a, .rank = rank};
    const struct {
        const char *name;
        const float **field;
        size_t count;
    } fields[] = {{"w1a", &m.w1a, a * a},
                  {"w1b", &m.w1b, m.b * m.b},
                  {"w2a", &m.w2a, a * a},
                  {"w2b", &m.w2b, m.b * m.b},
                  {"w3a", &m.w3a, a * a},
                  {"w3b", &m.w3b, m.b * m.b},
                  {"d1", &m.d1, P},
                  {"d2", &m.d2, P},
                  {"b2", &m.b2, P},
                  {"d3", &m.d3, P},
                  {"d4", &m.d4, P},
                  {"cond_v", &m.cond_v, g->D * rank},
                  {"cond_u", &m.cond_u, rank * P}};
    float *y = device_zeroes(g, g->N * g->D);

    for (size_t i = 0; i < COUNT_OF(fields); i++) {
        char name[96];

        snprintf(name, sizeof(name), "%s/%s", prefix, fields[i].name);
        *fields[i].field = plain_weight(g, name, fields[i].count);
    }
    m.p1 = permutation(g, P, 11);
    m.p2 = permutation(g, P, 13);
    backend_monarch_forward(g->be, y, device_zeroes(g, g->N * g->D), input(g, "layer0.hada_in"), &m,
                            g->N);
    expect_recorded(g, "layer0.hada_out", y, 0);
}

/* ---- the loss, against the recorded logits
 * -------------------------------------------------------- */

static void check_loss(struct golden *g)
{
    const size_t vocab = fixture_axis(g->forward, "float/logits", 0), targets = g->N;
    const size_t rows = fixture_axis(g->base, "embedding/embedding", 1);
    const float *logits = recorded(g, "logits"), *x = recorded(g, "final_norm_out");
    float *loss = device_zeroes(g, targets), *hit = device_zeroes(g, targets);
    float *golden_loss = calloc(targets, sizeof(float)),
          *golden_hit = calloc(targets, sizeof(float));
    int32_t *row = (int32_t *)device_zeroes(g, targets);
    uint32_t *label = (uint32_t *)device_zeroes(g, targets);

    for (size_t m = 0; m < targets; m++) { /* label: the likeliest token in every third row */
        const float *z = &logits[m * vocab];
        uint32_t best = 0, wanted = (uint32_t)(m * 37 % vocab);
        const int32_t number = (int32_t)m;
        double total = 0;

        for (size_t w = 0; w < vocab; w++) {
            best = z[w] > z[best] ? (uint32_t)w : best;
            total += exp(z[w]);
        }
        wanted = m % 3 ? wanted : best;
        golden_loss[m] = (float)(log(total) - z[wanted]);
        golden_hit[m] = wanted == best;
        backend_upload(g->be, row + m, &number, sizeof(number));
        backend_upload(g->be, label + m, &wanted, sizeof(wanted));
    }
    backend_cross_entropy(g->be, loss, hit, NULL, NULL, device_copy(g, x, g->N * g->D),
                          weight(g, "embedding/embedding", rows, g->D, false), row, label,
                          device_zeroes(g, targets), 1, targets, g->N, vocab, g->D);
    expect(g, "loss", loss, golden_loss, targets, 0);
    expect(g, "hit", hit, golden_hit, targets, 0);
    free(golden_loss);
    free(golden_hit);
}

/* ---- both geometries in both modes
 * --------------------------------------------------------------- */

static struct fixture *open_in(const char *folder, const char *name)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s.safetensors", folder, name);
    return fixture_open(path);
}

static void check_geometry(struct backend *be, const char *folder, bool quantised)
{
    struct golden g = {.be = be,
                       .folder = folder,
                       .quantised = quantised,
                       .mode = quantised ? "qat" : "float",
                       .base = open_in(folder, "base"),
                       .forward = open_in(folder, "forward"),
                       .quant = open_in(folder, "quant")};
    int32_t *parent;

    g.B = fixture_axis(g.forward, "tokens", 1);
    g.T = fixture_axis(g.forward, "tokens", 0);
    g.N = g.B * g.T;
    g.D = (size_t)fixture_config(g.base, "d_model", 0);
    g.L = (size_t)fixture_config(g.base, "mhc_lanes", 0);
    parent = calloc(g.N, sizeof(*parent));
    for (size_t n = 0; n < g.N; n++)
        parent[n] = n % g.T ? (int32_t)n - 1 : -1;
    tree_from_parents(be, parent, g.N, &g.tree);
    free(parent);
    check_embedding(&g);
    check_engram(&g);
    check_hyper(&g);
    check_attention_block(&g);
    check_monarch(&g);
    if (!quantised) /* the quantised logits were recorded in another run than what leads to them */
        check_loss(&g);
    for (size_t i = 0; i < g.device_count; i++)
        backend_free(be, g.device[i]);
    tree_release(be, &g.tree);
    fixture_close(g.base);
    fixture_close(g.forward);
    fixture_close(g.quant);
}

static void check_float(struct backend *be)
{
    check_geometry(be, FIXTURES "needle3", false);
    check_geometry(be, FIXTURES "needle3/mini", false);
}

static void check_quantised(struct backend *be)
{
    check_geometry(be, FIXTURES "needle3", true);
    check_geometry(be, FIXTURES "needle3/mini", true);
}

static void float_ops_give_the_recorded_layer(void **state)
{
    (void)state;
    each_backend(check_float);
}

static void quantised_ops_give_the_recorded_layer(void **state)
{
    (void)state;
    each_backend(check_quantised);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float_ops_give_the_recorded_layer),
        cmocka_unit_test(quantised_ops_give_the_recorded_layer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
