/*
 * backend: the one interface through which the model computes.
 *
 * Purpose    Hides which device runs an op: ref (plain loops, the oracle), cpu (fast), cuda. Device
 *            memory is addressed by plain pointers the host does not dereference; a device API
 *            without pointers reserves address space and finds its buffer by address.
 * Ownership  backend_open hands a backend over; backend_close takes it back. Memory is freed and
 *            imports are released first.
 * Threads    A backend belongs to the worker that opened it; ops run in call order on one stream.
 * Failure    Wrong shapes are bugs (asserted). The first device fault is kept, later ops do
 *            nothing, backend_sync reports it: model code reads like its formula.
 */
#ifndef NEEDLED_BACKEND_H
#define NEEDLED_BACKEND_H

#include "kernels/ops.h"

enum backend_kind { BACKEND_REF, BACKEND_CPU, BACKEND_CUDA, BACKEND_KIND_COUNT };

enum backend_status {
    BACKEND_OK,
    BACKEND_ABSENT,       /* not built in, or no such device: backend_reason says why */
    BACKEND_NO_MEMORY,    /* backend_fault says needed and free bytes */
    BACKEND_FAULT,        /* the device failed */
    BACKEND_CHECK_FAILED, /* the start-up self-check found wrong results */
};

/* In which the factors of matrix products are read; they are stored, and sums are made, in float32.
 * Devices without the faster ones compute in float32. */
enum backend_precision { BACKEND_FLOAT32, BACKEND_TF32, BACKEND_BF16 };
#define BACKEND_PRECISION_COUNT (BACKEND_BF16 + 1)
extern const char *const backend_precision_names[]; /* "float32", "tf32", "bf16", NULL */

struct backend_options {
    int device_index;
    int thread_count;       /* CPU backends: compute threads of this worker, at least 1 */
    const char *simd_level; /* cpu: "plain", "avx2", "avx512"; NULL: the best there is */
};

/* A set of enum backend_precision: BACKEND_PRECISION_BIT(BACKEND_TF32) | ... */
#define BACKEND_PRECISION_BIT(precision) (1u << (precision))

struct backend_device { /* what an inventory shows; a text that does not apply is "" */
    char name[128];
    char uuid[48];             /* of a card, or of a slice of one: "GPU-...", "MIG-..." */
    char driver[64];           /* of a card: "580.65.06, CUDA 13.0" */
    char capability[16];       /* of a card: "9.0" */
    char library[128];         /* that multiplies matrices, with its version */
    char library_warning[200]; /* why it is missing: our own kernels multiply */
    char build[64];            /* changes with the plug-in's file */
    char trouble[200];         /* why the device cannot be used */
    unsigned precisions;       /* what backend_set_precision has an effect on; bits as above */
    uint64_t memory_total_bytes, memory_free_bytes;
    int core_count;
    int temperature_celsius, power_watts; /* 0: not known */
};

struct backend;

/* Name as in NEEDLED_PLATFORMS: "ref", "cpu", "cuda". */
const char *backend_name(enum backend_kind kind);
/* Number of devices of the kind (0: none, reason written, e.g. "not built into this binary"). */
int backend_device_count(enum backend_kind kind, char *ret_reason, size_t reason_size);
/* As it is now. A device that does not answer, or cannot be used, is described as far as it can be:
 * ret_device is written in any case, and its trouble says why the status is not BACKEND_OK. */
enum backend_status backend_describe(enum backend_kind kind, int device_index,
                                     struct backend_device *ret_device);

/*
 * The cpu backend checks its matrix products against plain loops first (odd sizes, K = 0, beta = 0),
 * and each level of SIMD it may use op by op against ref, once a process: BACKEND_CHECK_FAILED with
 * the reason when they differ. Where a lower level passes, that one is taken: BACKEND_OK, and the
 * reason names the level passed over and the op; it is empty when nothing is wrong.
 */
enum backend_status backend_open(enum backend_kind kind, const struct backend_options *options,
                                 struct backend **ret_backend, char *ret_reason,
                                 size_t reason_size);
void backend_close(struct backend *be); /* NULL is fine */

/* The level that backend_open takes when options ask for `wanted` (NULL: the best), with the checks
 * and the reasons of that; "" where the kind has no levels. */
enum backend_status backend_choose_simd(enum backend_kind kind, const char *wanted,
                                        const char **ret_level, char *ret_reason,
                                        size_t reason_size);

struct backend_check {
    size_t example_count; /* that agreed */
    const char *worst_op; /* lives as long as the program; NULL: none was run */
    double worst_share;   /* its error over what is allowed, at most 1 where it agrees */
};
/* Every op's examples against ref, forward and backward, on two small sizes. BACKEND_CHECK_FAILED: an
 * op differs, and the reason names it with the numbers. Others: the check did not get to its end. */
enum backend_status backend_check(struct backend *be, struct backend_check *ret_check,
                                  char *ret_reason, size_t reason_size);

/* From the next op on; BACKEND_FLOAT32 after opening. Returns what the device computes in then:
 * BACKEND_FLOAT32 where it lacks the one asked for. */
enum backend_precision backend_set_precision(struct backend *be, enum backend_precision precision);

/* 64-byte aligned and zeroed; NULL (and the fault BACKEND_NO_MEMORY kept) when it does not fit. */
void *backend_alloc(struct backend *be, size_t size_bytes);
void backend_free(struct backend *be, void *memory); /* NULL is fine */
/* Makes host memory readable to ops as if it had been uploaded, to where the result points. A device
 * that reads the host's memory returns `host` itself, and takes no memory of its own; it need not be
 * aligned to anything. The host memory stays as it is until the import is released; NULL (and the
 * fault kept) when a copy does not fit. */
const void *backend_import(struct backend *be, const void *host, size_t size_bytes);
void backend_release_import(struct backend *be, const void *imported); /* NULL is fine */
void backend_upload(struct backend *be, void *target, const void *host_source, size_t size_bytes);
void backend_download(struct backend *be, void *host_target, const void *source,
                      size_t size_bytes); /* waits */
void backend_copy(struct backend *be, void *target, const void *source, size_t size_bytes);
void backend_zero(struct backend *be, void *target, size_t size_bytes);

enum backend_status backend_sync(struct backend *be); /* waits; returns the first fault */
const char *backend_fault(const struct backend *be);  /* its words, "" when there is none */
size_t backend_allocated_bytes(const struct backend *be);
uint64_t backend_free_bytes(struct backend *be); /* of its device, now; 0: not known */

/* ---- profile: where the time goes, op by op -------------------------------------------------- */

struct backend_profile {
    const char *name; /* of the op; "memory": copies, clearing, to and from the host */
    uint64_t call_count;
    int64_t elapsed_ns; /* of the caller's clock */
};

#define OP_COUNT_ONE(name, parameters, arguments) +1
enum { BACKEND_PROFILE_COUNT = OPS(OP_COUNT_ONE) + 1 };
#undef OP_COUNT_ONE

/* Counts from zero until stopped. Off, it costs an op one branch; on, each op is waited for. */
void backend_profile_start(struct backend *be);
void backend_profile_stop(struct backend *be); /* what was counted can still be read */
void backend_profile_read(const struct backend *be,
                          struct backend_profile ret_profile[BACKEND_PROFILE_COUNT]);

/* ---- ops: backend_matmul(be, ...), backend_rmsnorm_forward(be, ...), ... --------------------- */

#define OP_DECLARE(name, parameters, arguments) OP_DECLARE_(name, OP_STRIP parameters)
#define OP_STRIP(...) __VA_ARGS__
#define OP_DECLARE_(name, ...) void backend_##name(struct backend *be, __VA_ARGS__);
OPS(OP_DECLARE)
#undef OP_DECLARE

#endif
