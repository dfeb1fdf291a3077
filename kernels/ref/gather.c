/*
 * gather: one row from each of several tables, side by side.
 *
 *   y[n, t sub + s] = grid(table[t, index[n,t], :])[s], 0 where index[n,t] is -1; then the row n is
 *                     rounded
 *   dtable[t, index[n,t], s] += dy[n, t sub + s]
 *
 * Shapes    y dy [N, tables sub]; table dtable [tables, slots, sub]; index [N, tables]. The grid is
 *           round_code's, groups along sub; without a codebook there is none.
 * Writes    y is set; dtable accumulates, n ascending.
 * Numerics  The table is converted to f32 exactly; ROUND_NONE or ROUND_A8 with one scale for the whole row; the gradient passes the
 *           rounding unchanged.
 * Source    n-gram tables: Needle architecture.py, Engram.
 */
#include "kernels/ref/ref.h"

void ref_gather_forward(float *y, const struct table *table, const int32_t *index, size_t N,
                        size_t tables, size_t slots, size_t sub, enum rounding rounding)
{
    for (size_t n = 0; n < N; n++) {
        float *row = &y[n * tables * sub];

        for (size_t t = 0; t < tables; t++) {
            const int32_t slot = index[n * tables + t];

            for (size_t s = 0; s < sub; s++)
                row[t * sub + s] =
                    slot < 0 ? 0 : ref_table_value(table, (t * slots + (size_t)slot) * sub + s);
            if (table->codebook)
                ref_round_code_row(&row[t * sub], NULL, NULL, &row[t * sub], sub, 1,
                                   table->codebook);
        }
        if (rounding == ROUND_A8)
            ref_round_a8_row(row, row, tables * sub);
    }
}

void ref_gather_backward(float *dtable, const float *dy, const int32_t *index, size_t N,
                         size_t tables, size_t slots, size_t sub)
{
    if (!dtable)
        return;
    for (size_t n = 0; n < N; n++) {
        for (size_t t = 0; t < tables; t++) {
            const int32_t slot = index[n * tables + t];

            for (size_t s = 0; slot >= 0 && s < sub; s++)
                dtable[(t * slots + (size_t)slot) * sub + s] += dy[(n * tables + t) * sub + s];
        }
    }
}
