/*
 * safetensors: named tensors in one file, read without trusting a byte of it.
 *
 * Purpose    Reader over a mapped file and writer of whole files. Layout: 8 bytes little-endian
 *            header length, JSON header (name -> dtype, shape, data_offsets; "__metadata__": text
 *            to text), data. Format: github.com/huggingface/safetensors, README.
 * Ownership  safetensors_open / _close; tensors, names and data are borrowed from the open file.
 * Threads    An open file may be read by several threads.
 * Failure    The data stays in the file: if somebody cuts the file short while it is open, reading
 *            what is gone ends the process (SIGBUS). Files are therefore replaced by renaming a new
 *            one over them; safetensors_check_unchanged finds most other ways in time.
 *            Every fault of the file is named with the tensor and the numbers (wanted, found); a
 *            Python pickle is recognised and refused as such.
 */
#ifndef NEEDLED_SAFETENSORS_H
#define NEEDLED_SAFETENSORS_H

#include "daemon/base/error.h"
#include "daemon/base/limits.h"

#include <stddef.h>
#include <stdint.h>

enum tensor_type {
    TENSOR_F32,
    TENSOR_F16,
    TENSOR_BF16,
    TENSOR_F64,
    TENSOR_I64,
    TENSOR_I32,
    TENSOR_I16,
    TENSOR_I8,
    TENSOR_U8,
    TENSOR_BOOL,
    TENSOR_U16,
    TENSOR_U32,
    TENSOR_U64,
    TENSOR_TYPE_COUNT
};

struct tensor {
    const char *name;
    enum tensor_type type;
    size_t rank; /* number of dimensions */
    size_t shape[LIMIT_TENSOR_RANK];
    size_t element_count;
    const void *data; /* in the mapping; not aligned to anything */
    size_t size_bytes;
};

const char *tensor_type_name(enum tensor_type type); /* "F32", ... */
size_t tensor_type_size(enum tensor_type type);      /* bytes of an element */

struct safetensors;

MUST_CHECK bool safetensors_open(const char *path, struct safetensors **ret_file,
                                 struct error *err);
void safetensors_close(struct safetensors *file); /* NULL is fine */
size_t safetensors_count(const struct safetensors *file);
const struct tensor *safetensors_at(const struct safetensors *file, size_t index); /* name order */
const struct tensor *safetensors_find(const struct safetensors *file, const char *name);
size_t safetensors_size_bytes(const struct safetensors *file);
/* False when the file behind the mapping has another size or date of change than when opened. */
MUST_CHECK bool safetensors_check_unchanged(const struct safetensors *file, struct error *err);
const char *safetensors_metadata(const struct safetensors *file, const char *key); /* or NULL */

/* Converts to float32 exactly by the tensor's own type (F32, F16, BF16; others are refused by
 * name). ret_values has room for element_count. */
MUST_CHECK bool tensor_to_f32(const struct tensor *tensor, float *ret_values, struct error *err);
/* The largest magnitude; infinite or NaN when a value is not finite, 0 without values. The same
 * types, asserted. */
float tensor_largest(const struct tensor *tensor);
/* Takes the tensor's pages out of the process's memory; a later read brings them back from the
 * file. */
void tensor_drop_pages(const struct tensor *tensor);
float f16_to_f32(uint16_t half);
uint16_t f32_to_f16(float value); /* nearest, ties to even; past 65504 infinite */

/* ---- writing -------------------------------------------------------------------------------- */

struct tensor_out {
    const char *name;
    enum tensor_type type;
    size_t rank;
    size_t shape[LIMIT_TENSOR_RANK];
    const void *data;
};
struct metadata_out {
    const char *key, *value;
};

/* Writes names in byte order, data aligned to 8 bytes (the header is padded with spaces), the same
 * bytes for the same input. The file appears whole or not at all. */
MUST_CHECK bool safetensors_write(const char *path, const struct tensor_out *tensors,
                                  size_t tensor_count, const struct metadata_out *metadata,
                                  size_t metadata_count, uint64_t *ret_size_bytes,
                                  char ret_sha256[65], struct error *err);

#endif
