/*
 * report: what was measured, for people and for programs.
 *
 * Purpose    Tables, and one line `bench NAME VALUE UNIT` for each figure.
 * Ownership  None.
 * Threads    The caller's.
 * Failure    None.
 */
#ifndef NEEDLED_BENCH_REPORT_H
#define NEEDLED_BENCH_REPORT_H

#include "tests/bench/measure.h"

/* bench NAME VALUE UNIT, at once. */
void report_figure(const char *name, double value, const char *unit);
/* Speed, memory and the table of operations of one run. */
void report_run(const char *title, const struct measure *measure);
/* A line for each figure of a run on a card; what was not measured is left out. */
void report_card(const char *precision, const struct measure *measure);
/* The formula with this run's numbers in it. */
void report_flops(const struct measure *measure);

#endif
