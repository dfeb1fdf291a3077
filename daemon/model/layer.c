#include "daemon/model/layer.h"

#include <math.h>
#include <stdio.h>

enum rounding layer_rounding(const struct weights *weights)
{
    const bool rounded = weights->numerics == NUMERICS_W4A8 && weights->geometry.act_bits;

    return rounded ? ROUND_A8 : ROUND_NONE;
}

enum rounding layer_kv_rounding(const struct weights *weights)
{
    if (weights->numerics != NUMERICS_W4A8 || weights->geometry.kv_bits == 0)
        return ROUND_NONE;
    return weights->geometry.kv_bits >= 8 ? ROUND_A8 : ROUND_CODE;
}

static const struct layer_weights *weights_of(const struct layer *layer)
{
    return &layer->weights->layers[layer->index];
}

static void show(const struct layer *layer, const char *what, const float *values, size_t cols)
{
    char name[64];

    if (!layer->probe)
        return;
    (void)snprintf(name, sizeof name, "layer%zu.%s", layer->index, what); /* short by nature */
    layer->probe(layer->probe_context, name, values, layer->tree->token_count, cols);
}

static struct heads heads_of(const struct layer *layer, enum projection projection)
{
    const struct geometry *g = &layer->weights->geometry;
    const struct layer_weights *w = weights_of(layer);
    struct heads heads = {.head_count = g->kv_head_count,
                          .head_size = g->qk_head_size,
                          .tap_count = g->conv_taps,
                          .cos = layer->weights->rope_cos,
                          .sin = layer->weights->rope_sin,
                          .rounding = layer_kv_rounding(layer->weights),
                          .codebook = layer->weights->kv_codebook};

    if (projection == PROJECTION_Q) {
        heads.head_count = g->head_count;
        heads.taps = w->q_taps;
        heads.gain = w->q_norm;
        heads.rounding = layer_rounding(layer->weights);
    } else if (projection == PROJECTION_K) {
        heads.taps = w->k_taps;
        heads.gain = w->k_norm;
    } else {
        heads.head_size = g->v_head_size;
        heads.taps = w->v_taps;
    }
    return heads;
}

static struct attention attention_of(const struct layer *layer)
{
    const struct geometry *g = &layer->weights->geometry;

    return (struct attention){
        .head_count = g->head_count,
        .kv_head_count = g->kv_head_count,
        .qk_size = g->qk_head_size,
        .v_size = g->v_head_size,
        .window = geometry_is_global(g, layer->index) ? 0 : g->sliding_window,
        .scale = 1.0f / sqrtf((float)g->qk_head_size),
    };
}

/* y = x W */
static void project_forward(const struct layer *layer, enum projection projection, float *y,
                            const float *x)
{
    struct matmul product = {.M = layer->tree->token_count, .alpha = 1};

    projection_shape(&layer->weights->geometry, projection, &product.K, &product.N);
    product.lda = product.K;
    product.ldb = product.ldc = product.N;
    backend_matmul(layer->weights->backend, y, x, weights_of(layer)->kernel[projection], &product);
}

/* Gradients of the adapter and of the kernel (dkernel NULL: not wanted), from the projection's own
 * input x and dy. */
static void project_backward_weights(const struct layer *layer, enum projection projection,
                                     float *dkernel, const float *dy, const float *x,
                                     float *lora_scratch)
{
    const size_t N = layer->tree->token_count;
    struct matmul product = {.K = N, .transpose_a = true, .alpha = 1, .beta = 1};

    for (size_t group = 0; layer->lora && group < layer->lora->group_count; group++)
        if (layer->lora->groups[group].projection == projection)
            lora_backward(layer->lora, group, layer->index, x, dy, N, lora_scratch);
    if (!dkernel)
        return;
    projection_shape(&layer->weights->geometry, projection, &product.M, &product.N);
    product.lda = product.M;
    product.ldb = product.ldc = product.N;
    backend_matmul(layer->weights->backend, dkernel, x, dy, &product);
}

/* dx = beta dx + dy W^T */
static void project_backward_input(const struct layer *layer, enum projection projection, float *dx,
                                   float beta, const float *dy)
{
    struct matmul product = {
        .M = layer->tree->token_count, .transpose_b = true, .alpha = 1, .beta = beta};

    projection_shape(&layer->weights->geometry, projection, &product.N, &product.K);
    product.lda = product.ldb = product.K;
    product.ldc = product.N;
    backend_matmul(layer->weights->backend, dx, dy, weights_of(layer)->kernel[projection],
                   &product);
}

static void forward_attention(const struct layer *layer, struct layer_activations *a,
                              const float *x)
{
    struct backend *be = layer->weights->backend;
    const struct geometry *g = &layer->weights->geometry;
    const struct layer_weights *w = weights_of(layer);
    const struct heads q = heads_of(layer, PROJECTION_Q), k = heads_of(layer, PROJECTION_K);
    const struct heads v = heads_of(layer, PROJECTION_V);
    const struct attention shape = attention_of(layer);
    const enum rounding rounding = layer_rounding(layer->weights);
    const size_t N = layer->tree->token_count, D = g->d_model;
    const size_t width = g->head_count * g->v_head_size;

    backend_rmsnorm_forward(be, a->attn_in, a->attn_in_r, x, w->attn_norm, N, D, rounding);
    project_forward(layer, PROJECTION_Q, a->q_proj, a->attn_in);
    project_forward(layer, PROJECTION_K, a->k_proj, a->attn_in);
    project_forward(layer, PROJECTION_V, a->v_proj, a->attn_in);
    project_forward(layer, PROJECTION_GATE, a->gate_proj, a->attn_in);
    backend_heads_forward(be, a->q, a->q_tap, a->q_r, a->q_proj, &q, layer->tree);
    backend_heads_forward(be, a->k, a->k_tap, a->k_r, a->k_proj, &k, layer->tree);
    backend_heads_forward(be, a->v, a->v_tap, NULL, a->v_proj, &v, layer->tree);
    backend_attention_forward(be, a->heads, a->lse, a->q, a->k, a->v, &shape, layer->tree);
    backend_gate_forward(be, a->out_in, a->heads, a->gate_proj, N, width, rounding);
    project_forward(layer, PROJECTION_OUT, a->attn_out, a->out_in);
    backend_residual_norm_forward(be, a->middle, a->attn_out_r, x, a->attn_out, w->post_attn_norm,
                                  w->attn_gate, N, D);
}

static void show_block(const struct layer *layer, const struct layer_activations *a)
{
    const struct geometry *g = &layer->weights->geometry;
    const size_t D = g->d_model, lanes = g->lane_count;
    const size_t q = g->head_count * g->qk_head_size, k = g->kv_head_count * g->qk_head_size;
    const size_t v = g->kv_head_count * g->v_head_size, o = g->head_count * g->v_head_size;

    show(layer, "coefficients", a->h, 2 * lanes + lanes * lanes); /* pre, post, res */
    show(layer, "block_in", a->u, D);
    if (layer->key)
        show(layer, "engram_alpha", a->alpha, 1);
    show(layer, "q_proj_in", a->attn_in, D);
    show(layer, "q_proj_out", a->q_proj, q);
    show(layer, "k_proj_out", a->k_proj, k);
    show(layer, "v_proj_out", a->v_proj, v);
    show(layer, "gate_proj_out", a->gate_proj, o);
    show(layer, "q_ready", a->q, q);
    show(layer, "k_ready", a->k, k);
    show(layer, "v_ready", a->v, v);
    show(layer, "attn_heads", a->heads, o);
    show(layer, "out_proj_in", a->out_in, o);
    show(layer, "attn_out", a->attn_out, D);
    show(layer, "attn_stream", a->middle, D); /* the stream after attention */
    show(layer, "hada_in", a->mlp_in, D);
    show(layer, "block_out", a->out, D);
}

void layer_forward_block(const struct layer *layer, struct layer_activations *a)
{
    struct backend *be = layer->weights->backend;
    const struct layer_weights *w = weights_of(layer);
    const size_t N = layer->tree->token_count, D = layer->weights->geometry.d_model;
    const float *x = a->u;

    if (layer->key) {
        backend_inject_forward(be, a->injected, a->alpha, a->u, layer->key, layer->value, N, D);
        x = a->injected;
    }
    forward_attention(layer, a, x);
    backend_rmsnorm_forward(be, a->mlp_in, a->mlp_in_r, a->middle, w->pre_hada_norm, N, D,
                            ROUND_NONE);
    backend_monarch_forward(be, a->out, a->middle, a->mlp_in, &w->monarch, N);
    show_block(layer, a);
}

/* The products are there: only what is cheap is made, by the ops that made it first. */
static void recall_block(const struct layer *layer, struct layer_activations *a)
{
    struct backend *be = layer->weights->backend;
    const struct geometry *g = &layer->weights->geometry;
    const struct layer_weights *w = weights_of(layer);
    struct heads q = heads_of(layer, PROJECTION_Q), k = heads_of(layer, PROJECTION_K);
    const enum rounding rounding = layer_rounding(layer->weights);
    const size_t N = layer->tree->token_count, D = g->d_model;
    const float *x = a->u;

    if (layer->key) {
        backend_inject_forward(be, a->injected, a->alpha, a->u, layer->key, layer->value, N, D);
        x = a->injected;
    }
    backend_rmsnorm_forward(be, a->attn_in, a->attn_in_r, x, w->attn_norm, N, D, rounding);
    q.tap_count = k.tap_count = 0; /* they are behind us */
    backend_heads_forward(be, a->q, NULL, a->q_r, g->conv_taps ? a->q_tap : a->q_proj, &q,
                          layer->tree);
    backend_heads_forward(be, a->k, NULL, a->k_r, g->conv_taps ? a->k_tap : a->k_proj, &k,
                          layer->tree);
    backend_gate_forward(be, a->out_in, a->heads, a->gate_proj, N, g->head_count * g->v_head_size,
                         rounding);
    backend_residual_norm_forward(be, a->middle, a->attn_out_r, x, a->attn_out, w->post_attn_norm,
                                  w->attn_gate, N, D);
    backend_rmsnorm_forward(be, a->mlp_in, a->mlp_in_r, a->middle, w->pre_hada_norm, N, D,
                            ROUND_NONE);
}

void layer_recall(const struct layer *layer, struct layer_activations *a, const float *S,
                  bool products_kept)
{
    struct backend *be = layer->weights->backend;
    const struct geometry *g = &layer->weights->geometry;
    const size_t N = layer->tree->token_count;

    if (products_kept) {
        backend_hyper_mix(be, a->u, S, a->h, N, g->lane_count, g->d_model);
        recall_block(layer, a);
    } else {
        backend_hyper_read_forward(be, a->u, a->h, a->raw, a->h_r, S, &weights_of(layer)->hyper, N);
        layer_forward_block(layer, a);
    }
}

void layer_recall_lanes(const struct layer *layer, struct layer_activations *a, const float *S,
                        float *T)
{
    struct backend *be = layer->weights->backend;
    const struct geometry *g = &layer->weights->geometry;
    const size_t N = layer->tree->token_count;

    backend_hyper_mix(be, a->u, S, a->h, N, g->lane_count, g->d_model);
    backend_hyper_write_forward(be, T, S, a->h, a->out, a->u, N, g->lane_count, g->d_model);
}

void layer_forward(const struct layer *layer, struct layer_activations *a, const float *S, float *T)
{
    struct backend *be = layer->weights->backend;
    const struct layer_weights *w = weights_of(layer);
    const size_t N = layer->tree->token_count, D = layer->weights->geometry.d_model;
    const size_t lanes = layer->weights->geometry.lane_count;

    backend_hyper_read_forward(be, a->u, a->h, a->raw, a->h_r, S, &w->hyper, N);
    layer_forward_block(layer, a);
    backend_hyper_write_forward(be, T, S, a->h, a->out, a->u, N, lanes, D);
    show(layer, "lanes", T, lanes * D);
}

/* dskip, the gradient of the stream after attention, from dout, that of the block's output. */
static void backward_mlp(const struct layer *layer, const struct layer_activations *a,
                         struct backward *b, const struct layer_gradients *gradients)
{
    struct backend *be = layer->weights->backend;
    const struct layer_weights *w = weights_of(layer);
    const size_t N = layer->tree->token_count, D = layer->weights->geometry.d_model;

    backend_monarch_backward(be, b->dbranch, &gradients->monarch, b->dout, a->mlp_in, &w->monarch,
                             N);
    backend_rmsnorm_backward(be, b->dskip, gradients->pre_hada_norm, b->dbranch, a->middle,
                             w->pre_hada_norm, a->mlp_in_r, N, D);
    backend_add_scaled(be, b->dskip, b->dout, 1, N * D);
}

/* From dskip to the gradients of the four projections' outputs; adapters learn on the way. */
static void backward_attention(const struct layer *layer, const struct layer_activations *a,
                               struct backward *b, const struct layer_gradients *gradients)
{
    struct backend *be = layer->weights->backend;
    const struct geometry *g = &layer->weights->geometry;
    const struct layer_weights *w = weights_of(layer);
    const struct heads q = heads_of(layer, PROJECTION_Q), k = heads_of(layer, PROJECTION_K);
    const struct heads v = heads_of(layer, PROJECTION_V);
    const struct attention shape = attention_of(layer);
    const size_t N = layer->tree->token_count, width = g->head_count * g->v_head_size;
    const bool tapped = g->conv_taps > 0;
    float *const *dkernel = gradients->kernel;

    backend_residual_norm_backward(be, b->dbranch, gradients->post_attn_norm, gradients->attn_gate,
                                   b->dskip, a->attn_out, w->post_attn_norm, w->attn_gate,
                                   a->attn_out_r, N, g->d_model);
    project_backward_weights(layer, PROJECTION_OUT, dkernel[PROJECTION_OUT], b->dbranch, a->out_in,
                             b->lora);
    project_backward_input(layer, PROJECTION_OUT, b->dout_in, 0, b->dbranch);
    backend_gate_backward(be, b->dheads, b->dgate_proj, b->dout_in, a->heads, a->gate_proj, N,
                          width);
    backend_attention_backward(be, b->dq, b->dk, b->dv, b->dheads, a->heads, a->lse, a->q, a->k,
                               a->v, &shape, layer->tree);
    backend_heads_backward(be, b->dq_proj, gradients->q_taps, gradients->q_norm, b->dq, a->q_proj,
                           tapped ? a->q_tap : a->q_proj, a->q_r, &q, layer->tree);
    backend_heads_backward(be, b->dk_proj, gradients->k_taps, gradients->k_norm, b->dk, a->k_proj,
                           tapped ? a->k_tap : a->k_proj, a->k_r, &k, layer->tree);
    backend_heads_backward(be, b->dv_proj, gradients->v_taps, NULL, b->dv, a->v_proj,
                           tapped ? a->v_tap : a->v_proj, NULL, &v, layer->tree);
    project_backward_weights(layer, PROJECTION_Q, dkernel[PROJECTION_Q], b->dq_proj, a->attn_in,
                             b->lora);
    project_backward_weights(layer, PROJECTION_K, dkernel[PROJECTION_K], b->dk_proj, a->attn_in,
                             b->lora);
    project_backward_weights(layer, PROJECTION_V, dkernel[PROJECTION_V], b->dv_proj, a->attn_in,
                             b->lora);
    project_backward_weights(layer, PROJECTION_GATE, dkernel[PROJECTION_GATE], b->dgate_proj,
                             a->attn_in, b->lora);
}

/* dskip, that of the stream after attention, becomes that of the stream before it. */
static void backward_block_input(const struct layer *layer, const struct layer_activations *a,
                                 struct backward *b, const struct layer_gradients *gradients)
{
    struct backend *be = layer->weights->backend;
    const struct layer_weights *w = weights_of(layer);
    const size_t N = layer->tree->token_count, D = layer->weights->geometry.d_model;

    project_backward_input(layer, PROJECTION_Q, b->dbranch, 0, b->dq_proj);
    project_backward_input(layer, PROJECTION_K, b->dbranch, 1, b->dk_proj);
    project_backward_input(layer, PROJECTION_V, b->dbranch, 1, b->dv_proj);
    project_backward_input(layer, PROJECTION_GATE, b->dbranch, 1, b->dgate_proj);
    backend_rmsnorm_backward(be, b->dnorm, gradients->attn_norm, b->dbranch,
                             layer->key ? a->injected : a->u, w->attn_norm, a->attn_in_r, N, D);
    backend_add_scaled(be, b->dskip, b->dnorm, 1, N * D);
}

void layer_backward(const struct layer *layer, const struct layer_activations *a, const float *S,
                    struct backward *b, const struct layer_gradients *gradients)
{
    static const struct layer_gradients none = {0};
    struct backend *be = layer->weights->backend;
    const struct layer_weights *w = weights_of(layer);
    const size_t N = layer->tree->token_count, D = layer->weights->geometry.d_model;
    const size_t lanes = layer->weights->geometry.lane_count;
    const struct layer_gradients *wanted = gradients ? gradients : &none;
    float *du = b->dskip;

    backend_hyper_write_backward(be, b->dlanes, b->dout, b->dh, b->dlanes, S, a->h, a->out, a->u, N,
                                 lanes, D);
    backward_mlp(layer, a, b, wanted);
    backward_attention(layer, a, b, wanted);
    if (layer->index == 0 && !gradients)
        return;

    backward_block_input(layer, a, b, wanted);
    if (layer->key) {
        du = b->dnorm;
        backend_inject_backward(be, du, gradients ? b->dkey : NULL, gradients ? b->dvalue : NULL,
                                b->dskip, a->alpha, a->u, layer->key, layer->value, N, D);
    }
    backend_add_scaled(be, du, b->dout, -1, N * D); /* y - u is written to the lanes */
    backend_hyper_read_backward(be, b->dlanes, &wanted->hyper, du, b->dh, S, a->h, a->raw, a->h_r,
                                &w->hyper, N);
}
