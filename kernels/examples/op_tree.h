/*
 * op_tree: forests of tokens for examples, their arrays on a backend's device.
 *
 * Purpose    Chains, forests and nested branches of a fixed seed, in preorder (kernels/README.md).
 * Ownership  op_tree_build hands arrays over; op_tree_release takes them back, also of a tree half
 *            built or all zero.
 * Threads    One.
 * Failure    False without memory. Parents out of order are a bug (asserted).
 */
#ifndef NEEDLED_OP_TREE_H
#define NEEDLED_OP_TREE_H

#include "kernels/examples/op.h"

bool op_tree_build(struct backend *be, enum tree_kind kind, size_t token_count,
                   struct tree *ret_tree);
/* The same from parents given on the host. */
bool op_tree_from_parents(struct backend *be, const int32_t *parent, size_t token_count,
                          struct tree *ret_tree);
void op_tree_release(struct backend *be, struct tree *tree);

#endif
