/*
 * attention: over the tiles of kernels/gpu/attention.cu and attention_backward.cu.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/gpu/attention.h"

#include <limits.h>

static size_t tile_count(const struct tree *tree)
{
    return cuda_groups(tree->token_count, ATTENTION_TILE);
}

/* A window wider than any depth hides nothing. */
static int window_of(const struct attention *shape)
{
    return shape->window > INT_MAX ? 0 : (int)shape->window;
}

/* What the tiles hold, at the start of scratch, in which `more` floats follow. NULL: fault set. */
static int *tiles_make(struct cuda *cuda, const struct tree *tree, size_t more)
{
    const size_t tiles = tile_count(tree);
    float *scratch = cuda_scratch(cuda, 4 * tiles + more);
    int *table = (int *)(void *)scratch;

    if (table)
        CUDA_LAUNCH(cuda, gpu_attention_tiles, cuda_groups(tiles, GROUP_SIZE), table, tree->parent,
                    tree->depth, tree->run, tree->end, (int)tree->token_count);
    return table;
}

/* Tiles of tokens by heads and parts of their width. */
static dim3 tile_groups(const struct tree *tree, size_t heads, size_t width)
{
    return dim3((unsigned)tile_count(tree),
                cuda_groups(heads * cuda_groups(width, ATTENTION_TILE), 1));
}

void cuda_attention_forward(struct cuda *cuda, float *o, float *lse, const float *q, const float *k,
                            const float *v, const struct attention *shape, const struct tree *tree)
{
    const size_t H = shape->head_count, G = shape->kv_head_count;

    if (tree->token_count == 0)
        return;
    const int *tiles = tiles_make(cuda, tree, 0);
    if (!tiles)
        return;

    CUDA_LAUNCH(cuda, gpu_attention_forward, tile_groups(tree, H, shape->v_size), o, lse, q, k, v,
                tree->depth, tree->end, tiles, (int)tree->token_count, (int)H, (int)G,
                (int)shape->qk_size, (int)shape->v_size, window_of(shape), shape->scale);
}

void cuda_attention_backward(struct cuda *cuda, float *dq, float *dk, float *dv, const float *dout,
                             const float *o, const float *lse, const float *q, const float *k,
                             const float *v, const struct attention *shape, const struct tree *tree)
{
    const size_t N = tree->token_count, H = shape->head_count, G = shape->kv_head_count;
    const size_t C = shape->qk_size, V = shape->v_size;

    if (N == 0)
        return;
    int *tiles = tiles_make(cuda, tree, N * H);
    if (!tiles)
        return;
    float *dots = (float *)(void *)(tiles + 4 * tile_count(tree));

    CUDA_LAUNCH(cuda, gpu_attention_dots, cuda_groups(N * H, GPU_HEADS), dots, dout, o, N * H,
                (int)V);
    CUDA_LAUNCH(cuda, gpu_attention_backward_q, tile_groups(tree, H, C), dq, dout, dots, lse, q, k,
                v, tree->depth, tree->end, tiles, (int)N, (int)H, (int)G, (int)C, (int)V,
                window_of(shape), shape->scale);
    CUDA_LAUNCH(cuda, gpu_attention_backward_kv, tile_groups(tree, G, C > V ? C : V), dk, dv, dout,
                dots, lse, q, k, v, tree->depth, tree->end, tiles, (int)N, (int)H, (int)G, (int)C,
                (int)V, window_of(shape), shape->scale);
}
