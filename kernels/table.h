/*
 * table: what a backend implements, seen from inside kernels/.
 *
 * Purpose    One function pointer per op and per memory call; backend.c dispatches through it.
 * Ownership  A backend's own struct starts with `struct backend`.
 * Threads    As backend.h.
 * Failure    A backend sets fault and status once, through backend_set_fault.
 */
#ifndef NEEDLED_TABLE_H
#define NEEDLED_TABLE_H

#include "kernels/backend.h"

#define OP_POINTER(name, parameters, arguments) OP_POINTER_(name, OP_STRIP parameters)
#define OP_POINTER_(name, ...) void (*name)(struct backend * be, __VA_ARGS__);

struct backend_table {
    void (*close)(struct backend *be);
    void *(*alloc)(struct backend *be, size_t size_bytes); /* NULL without memory */
    void (*free)(struct backend *be, void *memory);
    const void *(*import)(struct backend *be, const void *host, size_t size_bytes);
    void (*release_import)(struct backend *be, const void *imported);
    void (*upload)(struct backend *be, void *target, const void *source, size_t size_bytes);
    void (*download)(struct backend *be, void *target, const void *source, size_t size_bytes);
    void (*copy)(struct backend *be, void *target, const void *source, size_t size_bytes);
    void (*zero)(struct backend *be, void *target, size_t size_bytes);
    void (*sync)(struct backend *be);
    uint64_t (*free_bytes)(struct backend *be); /* NULL: as backend_describe says */
    OPS(OP_POINTER)
};
#undef OP_POINTER

struct backend {
    const struct backend_table *table;
    enum backend_kind kind;
    enum backend_status status; /* first fault */
    char fault[256];
    enum backend_precision precision;
    unsigned precisions; /* that the device has besides float32, as in backend.h */
    size_t allocated_bytes;
    bool is_profiled;
    struct backend_profile profile[BACKEND_PROFILE_COUNT];
    size_t import_count; /* not yet released */
};

void backend_set_fault(struct backend *be, enum backend_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Each kind's opener; on failure *ret_backend is untouched and the reason is written. */
enum backend_status ref_open(const struct backend_options *options, struct backend **ret_backend,
                             char *ret_reason, size_t reason_size);
enum backend_status cpu_open(const struct backend_options *options, struct backend **ret_backend,
                             char *ret_reason, size_t reason_size);

/* backend_choose_simd, of the processor. */
enum backend_status cpu_choose_simd(const char *wanted, const char **ret_level, char *ret_reason,
                                    size_t reason_size);
/* What the inventory shows of the processor. */
void cpu_describe(struct backend_device *ret_device);

#endif
