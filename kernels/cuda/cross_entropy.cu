/*
 * cross_entropy: blocks of targets by tiles of the vocabulary, so that of the logits only one such
 * piece ever exists; its products are matmuls, what stands between them is
 * kernels/gpu/cross_entropy.cu.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/gpu/attention.h"

/* 32 MiB of logits: large enough products, little beside the activations of as many rows. */
#define BLOCK_TARGETS 1024
#define TILE_COLUMNS 8192

#define ALIGNED(count) (((count) + 63) / 64 * 64)

/* A block of targets: what the op was given from the first on, and its scratch. */
struct block {
    const float *table;
    const int32_t *row, *label;
    const float *weight;
    float gradient_scale;
    size_t targets, vocab, D, tile; /* tile: columns of logits at a time */
    float *logits, *rows, *drows;   /* [targets,tile], [targets,D] */
    float *largest, *total, *wanted;
    int *best;
};

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t block_room(const struct block *block)
{
    return ALIGNED(block->targets * block->tile) + 2 * ALIGNED(block->targets * block->D) +
           4 * ALIGNED(block->targets);
}

static void block_place(struct block *block, float *scratch)
{
    const size_t each = ALIGNED(block->targets);

    block->logits = scratch;
    block->rows = block->logits + ALIGNED(block->targets * block->tile);
    block->drows = block->rows + ALIGNED(block->targets * block->D);
    block->largest = block->drows + ALIGNED(block->targets * block->D);
    block->total = block->largest + each;
    block->wanted = block->total + each;
    block->best = (int *)(void *)(block->wanted + each);
}

/* logits = rows table[first ...]^T */
static void make_logits(struct cuda *cuda, const struct block *block, size_t first, size_t width)
{
    const struct matmul shape = {block->targets, width,    block->D, false, true,
                                 block->D,       block->D, width,    1,     0};

    cuda_matmul(cuda, block->logits, block->rows, block->table + first * block->D, &shape);
}

static void block_losses(struct cuda *cuda, const struct block *block, float *loss, float *hit)
{
    for (size_t first = 0; first < block->vocab; first += block->tile) {
        const size_t width = min_size(block->tile, block->vocab - first);

        make_logits(cuda, block, first, width);
        CUDA_LAUNCH(cuda, gpu_entropy_look, cuda_groups(block->targets, 1), block->largest,
                    block->total, block->wanted, block->best, block->logits, block->label,
                    (int)first, (int)width);
    }
    CUDA_LAUNCH(cuda, gpu_entropy_loss, cuda_groups(block->targets, GROUP_SIZE), loss, hit,
                block->largest, block->total, block->wanted, block->best, block->label,
                (int)block->targets);
}

static void block_gradients(struct cuda *cuda, const struct block *block, float *dx, float *dtable)
{
    const size_t D = block->D;

    for (size_t first = 0; first < block->vocab; first += block->tile) {
        const size_t width = min_size(block->tile, block->vocab - first);
        const struct matmul to_rows = {block->targets, D, width, false, false,
                                       width,          D, D,     1,     first > 0 ? 1.0f : 0.0f};
        const struct matmul to_table = {width, D, block->targets, true, false, width, D, D, 1, 1};

        if (block->tile < block->vocab) /* else they are still there */
            make_logits(cuda, block, first, width);
        CUDA_LAUNCH(cuda, gpu_entropy_gradient,
                    dim3(cuda_groups(width, GROUP_SIZE), cuda_groups(block->targets, 1)),
                    block->logits, block->largest, block->total, block->label, block->weight,
                    block->gradient_scale, (int)first, (int)width);
        if (dx)
            cuda_matmul(cuda, block->drows, block->logits, block->table + first * D, &to_rows);
        if (dtable)
            cuda_matmul(cuda, dtable + first * D, block->logits, block->rows, &to_table);
    }
    if (dx)
        CUDA_LAUNCH(cuda, gpu_entropy_scatter, cuda_groups(block->targets, 1), dx, block->drows,
                    block->row, (int)block->targets, (int)D);
}

void cuda_cross_entropy(struct cuda *cuda, float *loss, float *hit, float *dx, float *dtable,
                        const float *x, const float *table, const int32_t *row,
                        const uint32_t *label, const float *weight, float gradient_scale,
                        size_t targets, size_t N, size_t vocab, size_t D)
{
    struct block block = {};

    if (dx && N > 0)
        (void)cuda_good(cuda, cudaMemsetAsync(dx, 0, N * D * sizeof(float), cuda->stream),
                        "cross_entropy");
    block.table = table;
    block.gradient_scale = gradient_scale;
    block.targets = min_size(targets, BLOCK_TARGETS);
    block.vocab = vocab;
    block.D = D;
    block.tile = min_size(vocab, TILE_COLUMNS);
    float *scratch = targets > 0 ? cuda_scratch(cuda, block_room(&block)) : NULL;
    if (!scratch)
        return;

    block_place(&block, scratch);
    for (size_t first = 0; first < targets; first += BLOCK_TARGETS) {
        block.targets = min_size(targets - first, BLOCK_TARGETS);
        block.row = row + first;
        block.label = (const int32_t *)(const void *)(label + first);
        block.weight = weight + first;
        CUDA_LAUNCH(cuda, gpu_entropy_gather, cuda_groups(block.targets, 1), block.rows, x,
                    block.row, (int)D);
        block_losses(cuda, &block, loss + first, hit + first);
        if (dx || dtable)
            block_gradients(cuda, &block, dx, dtable);
    }
}
