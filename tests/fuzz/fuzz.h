/*
 * fuzz: what the fuzz targets share.
 *
 * Purpose    A file with the fuzzer's bytes, texts that end where they end, checks that hold whatever the
 *            bytes are. Each target is fuzz_<name>.c with LLVMFuzzerTestOneInput.
 * Ownership  The folder and its files go with the process. Texts are for the caller to free().
 * Threads    One.
 * Failure    A broken promise says which and aborts, which libFuzzer keeps the input of.
 */
#ifndef NEEDLED_FUZZ_H
#define NEEDLED_FUZZ_H

#include "daemon/base/error.h"

#include <stddef.h>
#include <stdint.h>

#define FUZZ_MINI "tests/fixtures/needle3/mini/" /* the program runs in the root of the sources */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* A folder of this process, in memory where there is such a file system. */
const char *fuzz_folder(void);
/* A file in it with these bytes; the path is good until the next call. */
const char *fuzz_file(const char *name, const void *bytes, size_t size);
/* The bytes with a NUL behind them, in memory that ends there. */
char *fuzz_text(const uint8_t *bytes, size_t size);

/* Aborts, saying what was promised, unless it holds. */
void fuzz_promise(bool holds, const char *what);
/* A call that failed has said why; err was zeroed before it. */
void fuzz_promise_reason(bool ok, const struct error *err);

/* A safetensors file of a header's JSON, up to the first NUL, and the data behind that, continued with
 * zeros as far as the header's ranges go (1 MB at most): small inputs name large tensors. */
const char *fuzz_tensors(const char *name, const uint8_t *bytes, size_t size);

#endif
