/*
 * tree: walks along the ancestors and over the descendants of a token.
 *
 * Purpose    Lists of tokens that a token sees, or that see it, some at a time.
 * Ownership  Plain values; the tree is borrowed.
 * Threads    Any.
 * Failure    None.
 */
#ifndef NEEDLED_TREE_H
#define NEEDLED_TREE_H

#include "kernels/ops.h"

#define TREE_LIST 64 /* tokens of one list */

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

/* n and its ancestors, upwards, as far as the window reaches (0: to the root). */
struct tree_upward {
    const struct tree *tree;
    int32_t at; /* next token, -1 at the end */
    size_t left;
};

static inline struct tree_upward tree_upward(const struct tree *tree, size_t n, size_t window)
{
    size_t seen = (size_t)tree->depth[n] + 1;
    return (struct tree_upward){tree, (int32_t)n, window && window < seen ? window : seen};
}

static inline size_t tree_next_upward(struct tree_upward *walk, int32_t list[TREE_LIST])
{
    const struct tree *tree = walk->tree;
    size_t count = 0;

    while (walk->left > 0 && walk->at >= 0 && count < TREE_LIST) {
        size_t chain = (size_t)(walk->at - tree->run[walk->at]) + 1, take = TREE_LIST - count;
        take = take < walk->left ? take : walk->left;
        take = take < chain ? take : chain;
        for (size_t i = 0; i < take; i++)
            list[count + i] = walk->at - (int32_t)i;
        count += take;
        walk->left -= take;
        walk->at = take < chain ? walk->at - (int32_t)take : tree->parent[tree->run[walk->at]];
    }
    return count;
}

/* n and its descendants, ascending, as far as the window lets them see n. */
struct tree_downward {
    const struct tree *tree;
    int32_t at, end, depth_end; /* tokens of depth_end and below do not see n */
};

static inline struct tree_downward tree_downward(const struct tree *tree, size_t n, size_t window)
{
    int32_t depth_end =
        window && window < INT32_MAX / 2 ? tree->depth[n] + (int32_t)window : INT32_MAX;
    return (struct tree_downward){tree, (int32_t)n, tree->end[n], depth_end};
}

static inline size_t tree_next_downward(struct tree_downward *walk, int32_t list[TREE_LIST])
{
    const struct tree *tree = walk->tree;
    size_t count = 0;

    while (walk->at < walk->end && count < TREE_LIST) {
        if (tree->depth[walk->at] >= walk->depth_end) {
            walk->at = tree->end[walk->at]; /* nor does anything below it */
            continue;
        }
        list[count++] = walk->at++;
    }
    return count;
}

#endif
