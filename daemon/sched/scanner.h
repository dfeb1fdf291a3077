/*
 * scanner: the lines of an upload, parsed beside the writing of its bytes.
 *
 * Purpose    A small upload is parsed where it is written. A large one gets a thread of its own for it:
 *            hashing and writing take about as long as parsing does, and need not wait for it.
 * Ownership  scanner_new / scanner_free. helpers, shared by all uploads, counts such threads; it is
 *            borrowed and outlives the scanner.
 * Threads    One upload, one thread at a time. Where SCANNER_HELPERS_MAX threads are at work, or the
 *            system has none, the caller parses.
 * Failure    As dataset_scan_feed; what its thread met is told at the next call. Full, feed waits for
 *            the parser, as it would have to parse itself.
 */
#ifndef NEEDLED_SCANNER_H
#define NEEDLED_SCANNER_H

#include "daemon/base/error.h"

#include <stdatomic.h>
#include <stddef.h>

#define SCANNER_HELPERS_MAX 4
#define SCANNER_SMALL_BYTES ((size_t)4 << 20) /* parsed before a thread is worth its start */

struct dataset_report;
struct scanner;

MUST_CHECK bool scanner_new(struct scanner **ret_scanner, struct error *err);
void scanner_free(struct scanner *scanner); /* NULL is fine */
/* NULL (as at first): the caller parses all of it. */
void scanner_set_helpers(struct scanner *scanner, atomic_int *helpers);
MUST_CHECK bool scanner_feed(struct scanner *scanner, const void *bytes, size_t size,
                             struct error *err);
/* After the last byte; as dataset_scan_finish. */
MUST_CHECK bool scanner_finish(struct scanner *scanner, struct dataset_report *ret_report,
                               struct error *err);

#endif
