/*
 * sample: a base of random weights, of any geometry.
 *
 * Purpose    A device is tried out by training on something small, where no base is at hand. Every
 *            weight counts: none is zero, so that no op can go wrong unseen.
 * Ownership  The file is the caller's.
 * Threads    Any.
 * Failure    What geometry_parse says of the config; no memory; the file system's.
 */
#ifndef NEEDLED_SAMPLE_H
#define NEEDLED_SAMPLE_H

#include "daemon/base/error.h"

#include <stdint.h>

/* config: the checkpoint's JSON text. Same config and seed: same bytes. */
MUST_CHECK bool sample_write(const char *path, const char *config, uint64_t seed,
                             struct error *err);

#endif
