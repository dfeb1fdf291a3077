#include "kernels/examples/op_tree.h"

#include <assert.h>
#include <stdlib.h>

static const int32_t *to_device(struct backend *be, const int32_t *numbers, size_t count)
{
    void *device = backend_alloc(be, count * sizeof(*numbers));

    if (device)
        backend_upload(be, device, numbers, count * sizeof(*numbers));
    return device;
}

bool op_tree_from_parents(struct backend *be, const int32_t *parent, size_t token_count,
                          struct tree *ret_tree)
{
    int32_t *depth = calloc(3 * token_count + 1, sizeof(*depth));

    if (!depth)
        return false;

    int32_t *run = depth + token_count, *end = run + token_count;
    for (size_t n = 0; n < token_count; n++) {
        const bool continues = n > 0 && parent[n] == (int32_t)n - 1;

        assert(parent[n] < (int32_t)n);
        depth[n] = parent[n] < 0 ? 0 : depth[parent[n]] + 1;
        run[n] = continues ? run[n - 1] : (int32_t)n;
        for (int32_t m = (int32_t)n; m >= 0; m = parent[m])
            end[m] = (int32_t)n + 1;
    }
    *ret_tree = (struct tree){.token_count = token_count,
                              .parent = to_device(be, parent, token_count),
                              .depth = to_device(be, depth, token_count),
                              .run = to_device(be, run, token_count),
                              .end = to_device(be, end, token_count)};
    free(depth);
    if (ret_tree->parent && ret_tree->depth && ret_tree->run && ret_tree->end)
        return true;
    op_tree_release(be, ret_tree);
    return false;
}

bool op_tree_build(struct backend *be, enum tree_kind kind, size_t token_count,
                   struct tree *ret_tree)
{
    int32_t *parent = calloc(token_count + 1, sizeof(*parent));
    uint64_t random = 7;

    if (!parent)
        return false;
    for (size_t n = 0; n < token_count; n++) {
        const uint64_t dice = op_random(&random) % 16;

        parent[n] = (int32_t)n - 1;
        if (n > 0 && kind == TREE_FOREST && (n == 1 || dice < 3))
            parent[n] = -1;
        /* Climbing from the token before keeps the preorder; 1: a new root now and then. */
        for (uint64_t climb = 0; kind == TREE_NESTED && dice < 6 && parent[n] >= 0 && climb < dice;
             climb++)
            parent[n] = parent[parent[n]];
        if (kind == TREE_NESTED && parent[n] < 0 && n < token_count / 2 && n > 0)
            parent[n] = 0; /* keep the first tree going: more branches, several children */
    }

    const bool ok = op_tree_from_parents(be, parent, token_count, ret_tree);
    free(parent);
    return ok;
}

void op_tree_release(struct backend *be, struct tree *tree)
{
    union {
        const int32_t *numbers;
        void *memory;
    } arrays[] = {{tree->parent}, {tree->depth}, {tree->run}, {tree->end}};

    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++)
        backend_free(be, arrays[i].memory);
    *tree = (struct tree){0};
}
