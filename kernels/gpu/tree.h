/*
 * tree: walks along a token's ancestors.
 *
 * Purpose    struct tree of ops.h, read by kernels.
 * Ownership  None.
 * Threads    Each for itself.
 * Failure    None.
 */
#ifndef NEEDLED_GPU_TREE_H
#define NEEDLED_GPU_TREE_H

#include "kernels/gpu/gpu.h"

/* The ancestor `steps` above n (0: n itself), or -1; n may be -1. Chains of neighbours are taken at
 * once. */
DEVICE int tree_ancestor(GLOBAL const int *parent, GLOBAL const int *run, int n, int steps)
{
    while (n >= 0 && steps > 0) {
        const int first = run[n];

        if (n - first >= steps)
            return n - steps;
        steps -= n - first + 1;
        n = parent[first];
    }
    return n;
}

#endif
