/*
 * curve: a loss curve in characters.
 *
 * Purpose    Draws values over steps, thinned by means to the width of the plot.
 * Ownership  None.
 * Threads    Any.
 * Failure    Draws nothing for fewer than two finite values.
 */
#ifndef NEEDLED_CLIENT_CURVE_H
#define NEEDLED_CLIENT_CURVE_H

#include <stddef.h>
#include <stdio.h>

void curve_print(FILE *out, const double *values, size_t count);

#endif
