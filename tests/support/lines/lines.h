/*
 * lines: tool-calling lines, one at a time.
 *
 * Purpose    Prints a line of training data: a short one for the demo, or one of the length that
 *            products have.
 * Ownership  None.
 * Threads    Standard output's.
 * Failure    False without memory. Standard output keeps what it has: fflush tells.
 */
#ifndef NEEDLED_LINES_LINES_H
#define NEEDLED_LINES_LINES_H

#include "tests/support/lines/draw.h"

#include <stdbool.h>

enum rich_kind { RICH_MIXED, RICH_LONG, RICH_ONE_APP, RICH_SHUFFLED };

void lines_print_small(struct random *random);
/* `order` draws the order of the tools where the kind has one per line, and nothing else: the lines
 * of one-app and shuffled differ in that alone. */
bool lines_print_rich(enum rich_kind kind, struct random *random, struct random *order);

#endif
