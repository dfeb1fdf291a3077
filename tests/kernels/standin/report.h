/*
 * report: findings, told once each.
 *
 * Purpose    Says which kernel, block and thread did what, and in which source line.
 * Ownership  None.
 * Threads    Under the stand-in's lock, or a host thread's own access.
 * Failure    None: what cannot be resolved to a line is printed as an address.
 */
#ifndef NEEDLED_STANDIN_REPORT_H
#define NEEDLED_STANDIN_REPORT_H

/* code: an address within the instruction at fault, NULL where the words name the line. The same
 * words from the same code are counted, and printed once. */
void report(const void *code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Then ends the process: the block cannot go on. */
[[noreturn]] void report_and_exit(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
