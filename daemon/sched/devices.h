/*
 * devices: what this machine can compute with, and why not more.
 *
 * Purpose    Inventory at start from an ordered platform list (NEEDLED_PLATFORMS, else
 *            JAX_PLATFORMS where "gpu" means any GPU): platform, name, memory, threads, the reason a
 *            platform is missing; the level of SIMD (NEEDLED_SIMD), checked against ref.
 * Ownership  devices_detect fills a caller's struct.
 * Threads    Read-only after start.
 * Failure    Unknown or unavailable names are ERR_INVALID and say what is available and why the
 *            others are not.
 */
#ifndef NEEDLED_DEVICES_H
#define NEEDLED_DEVICES_H

#include "daemon/base/error.h"
#include "kernels/backend.h"

#define DEVICE_MAX 32
#define DEVICE_DETAIL_BYTES 512

struct device {
    char id[32]; /* "cpu:0" */
    enum backend_kind kind;
    int index, thread_count;
    struct backend_device description;
    char simd_level[16]; /* what its backend is opened with; "": it has none, or none was chosen */
    char simd_warning[256]; /* "": none; why it is not a better one, or not usable */
};
struct missing_platform {
    char name[16];
    char reason[256];
    bool is_hidden; /* a card is there, and this process may not reach it: worth a warning */
};
struct devices {
    struct device items[DEVICE_MAX];
    size_t count;
    struct missing_platform missing[BACKEND_KIND_COUNT];
    size_t missing_count;
    bool gpu_active;
};

/* list NULL: the environment, else the default "cuda,cpu" where missing ones are only reported. */
MUST_CHECK bool devices_detect(const char *list, struct devices *ret_devices, struct error *err);
/* To the reason why there is no NVIDIA card: its kernel driver runs, but the node below root ("": the
 * machine's) that leads to it cannot be opened, as in a unit or a container without it. False: not so. */
bool devices_explain_nodes(const char *root, char *reason, size_t size);
/* Chooses and checks the level of SIMD of each device that has levels: wanted, or NULL: the
 * environment, else the best there is. A level that fails its check is replaced by a lower one, with a
 * warning; where none passes the device stays, with the warning, and will not open. An unknown or
 * unsupported one is ERR_INVALID (param "simd") and says what there is. Milliseconds. */
MUST_CHECK bool devices_choose_simd(struct devices *devices, const char *wanted, struct error *err);
/* "auto" or a device or platform name: ERR_INVALID (param "device") with the reason when this machine
 * has no such device. */
MUST_CHECK bool devices_check_wanted(const struct devices *devices, const char *wanted,
                                     struct error *err);
/* "auto", the device's platform or its id. */
bool devices_match(const struct device *device, const char *wanted);
bool devices_is_gpu(enum backend_kind kind);
/* What it computes with, for people: "capability 9.0, driver 580.65.06, CUDA 13.0, cuBLAS 13.0.2, float32
 * tf32 bf16", "avx512, OpenBLAS 0.3.21 (SkylakeX)"; the reason for a missing library. */
void devices_write_detail(const struct device *device, char ret_text[DEVICE_DETAIL_BYTES]);
struct buf;
void devices_print(const struct devices *devices, struct buf *out); /* the table of --devices */

#endif
