/*
 * tree: ways along a tree of tokens.
 *
 * Purpose    Finds an ancestor without a walk over all those between.
 * Ownership  Plain values; the tree is borrowed.
 * Threads    Any.
 * Failure    None.
 */
#ifndef NEEDLED_TREE_H
#define NEEDLED_TREE_H

#include "kernels/ops.h"

/* The ancestor `steps` above n (0: n itself), or -1. Runs are skipped whole. */
static inline int32_t tree_ancestor(const struct tree *tree, size_t n, size_t steps)
{
    int32_t at = (int32_t)n;

    while (at >= 0) {
        size_t chain = (size_t)(at - tree->run[at]);
        if (steps <= chain)
            return at - (int32_t)steps;
        steps -= chain + 1;
        at = tree->parent[tree->run[at]];
    }
    return -1;
}

#endif
