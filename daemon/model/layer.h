/*
 * layer: one block of the network, forward and backward.
 *
 * Purpose    Reads like its formula:
 *              u, h = hyper_read(S)                        the lanes, mixed, and their coefficients
 *              x = u + alpha(u, key) value                 at an engram site; else u
 *              a = round(norm(x))
 *              q, k, v = heads(a W_q), heads(a W_k), heads(a W_v)
 *              x = x + sigmoid(s) norm(round(attention(q, k, v) sigmoid(a W_g)) W_o)
 *              y = x + monarch(norm(x))
 *              T = hyper_write(S, h, y - u)
 * Ownership  A struct layer borrows everything for the length of one run.
 * Threads    The worker's.
 * Failure    None of its own: the backend keeps faults.
 */
#ifndef NEEDLED_LAYER_H
#define NEEDLED_LAYER_H

#include "daemon/model/activations.h"
#include "daemon/model/gradients.h"

struct layer {
    const struct weights *weights;
    const struct lora *lora; /* NULL: no adapter */
    const struct tree *tree;
    size_t index;
    const float *key, *value; /* of its engram site; NULL: none */
    network_probe_fn *probe;  /* NULL: none */
    void *probe_context;
};

/* To which grid activations, keys and values go: none in float32 numerics. */
enum rounding layer_rounding(const struct weights *weights);
enum rounding layer_kv_rounding(const struct weights *weights);

/* T = the next layer's lanes from S. */
void layer_forward(const struct layer *layer, struct layer_activations *a, const float *S,
                   float *T);
/* The part between reading and writing the lanes: a->out from a->u. */
void layer_forward_block(const struct layer *layer, struct layer_activations *a);
/* What layer_backward reads of the layer, made again from its lanes: all of it, or what is cheap
 * when the products of the layer's forward still stand in `a`. To the same bits. */
void layer_recall(const struct layer *layer, struct layer_activations *a, const float *S,
                  bool products_kept);
/* T once more, from S and what is always kept. */
void layer_recall_lanes(const struct layer *layer, struct layer_activations *a, const float *S,
                        float *T);
/* b->dlanes, that of the layer's output, becomes that of its input; adds the gradients of the
 * layer's adapter, and of its weights where `gradients` is not NULL (then b->dkey and b->dvalue are
 * set at a site). Nothing below the first layer learns without `gradients`: none is made there. */
void layer_backward(const struct layer *layer, const struct layer_activations *a, const float *S,
                    struct backward *b, const struct layer_gradients *gradients);

#endif
