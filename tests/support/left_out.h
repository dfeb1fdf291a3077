/*
 * left_out: tables of ops in which one op does nothing.
 *
 * Purpose    Tests of what must notice such a table: every op of the list, one after the other.
 * Ownership  Tables are values.
 * Threads    The test's; `left_out_called` is set by whichever thread calls the op.
 * Failure    None.
 */
#ifndef NEEDLED_LEFT_OUT_H
#define NEEDLED_LEFT_OUT_H

#include "kernels/cpu/level.h"

#include <stdbool.h>
#include <stddef.h>

static bool left_out_called; /* the op that does nothing */

/* Each op of the list once as a function that does nothing with what it is given. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define LEFT_OUT_NOTHING(name, parameters, arguments) LEFT_OUT_NOTHING_(name, OP_STRIP parameters)
#define LEFT_OUT_NOTHING_(name, ...)                                                               \
    static void left_out_##name(struct backend *be, __VA_ARGS__)                                   \
    {                                                                                              \
        left_out_called = true;                                                                    \
    }
OPS(LEFT_OUT_NOTHING)
#pragma GCC diagnostic pop

/* Each op of the list once as the number of a table in which it does nothing. */
#define LEFT_OUT_NUMBER(name, parameters, arguments) WITHOUT_##name,
enum { OPS(LEFT_OUT_NUMBER) WITHOUT_COUNT };

#define LEFT_OUT_NAME(name, parameters, arguments) #name,
static const char *const left_out_names[] = {OPS(LEFT_OUT_NAME)};

/* The best table that this build has, without that op. */
static inline struct backend_table left_out(size_t op)
{
    struct backend_table table = *levels[LEVEL_COUNT - 1].table;

#define LEFT_OUT(name, parameters, arguments)                                                      \
    if (op == WITHOUT_##name)                                                                      \
        table.name = left_out_##name;
    OPS(LEFT_OUT)
    return table;
}

#endif
