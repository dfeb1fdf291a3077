/*
 * standin: what a test asks of the stand-in beyond the runtime's API.
 *
 * Purpose    The order threads run in, deferred streams, fake devices and their failures; how many
 *            faults were found in kernels and their host side.
 * Ownership  None.
 * Threads    Set options while nothing is in flight.
 * Failure    Findings go to stderr with file and line ("standin: ...") and are counted; what cannot
 *            go on (threads that wait for each other for ever) ends the process.
 *
 * Without standin_set the environment decides, which is how the whole daemon is tested:
 *   STANDIN_ORDER        forward (the default), reverse, or a number: a seed
 *   STANDIN_DEFER        1: streams do their work only when somebody waits for it
 *   STANDIN_SEAL         1: host code that uses a device's address crashes, as with a card
 *   STANDIN_DEVICES      how many devices there are, 0 to 4; 1
 *   STANDIN_MEMORY       bytes of each device; 1 GiB
 *   STANDIN_FAIL_LAUNCH  DEVICE:N, the Nth launch on that device breaks it for good
 *   STANDIN_FAIL_FILE    DEVICE:FILE, the first launch on that device once FILE is there breaks it for good
 *   STANDIN_FULL_FILE    DEVICE:FILE, while FILE is there other programs hold seven eighths of its memory
 *   STANDIN_CLOSED_FILE  DEVICE:FILE, while FILE is there others leave no memory for a first use of it
 *   STANDIN_OUT_OF_MEMORY DEVICE:N, the first allocation on that device after N launches does not fit
 *   STANDIN_SKIP         a kernel's name: its launches do nothing, so that its op is wrong
 *   STANDIN_NEGATE       tf32 or bf16: products in it have the wrong sign
 *   STANDIN_OLD          a device that is too old for us
 *   STANDIN_MUTE         a device that does not answer when asked what it is
 */
#ifndef NEEDLED_STANDIN_H
#define NEEDLED_STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STANDIN_DEVICES_MAX 4

#ifdef __cplusplus
extern "C" {
#endif

enum standin_order { STANDIN_FORWARD, STANDIN_REVERSE, STANDIN_SEEDED };

struct standin_options {
    enum standin_order order;
    uint64_t seed;
    bool deferred;
    int device_count;
    size_t memory_bytes;  /* of each device */
    size_t address_bytes; /* of each device, before addresses come again; at most 2 GiB */
    int fail_device;
    uint64_t fail_launch; /* 1 is the first; 0: none */
};

/* One device of 1 GiB, forward, nothing deferred, no failure. */
extern const struct standin_options standin_defaults;

/* Also mends broken devices and starts counting launches anew. */
void standin_set(const struct standin_options *options);

/* What a program asked of a device: what costs time on a real one and none here. */
struct standin_counts {
    uint64_t launches;
    uint64_t products;         /* of cuBLAS */
    uint64_t allocations;      /* and frees: each waits for the device */
    uint64_t synchronisations; /* the host waits for a stream, an event, the device */
    uint64_t uploads;          /* copies from the host... */
    uint64_t pageable_uploads; /* ...of which these wait: not from pinned memory */
    uint64_t downloads;
};

const char *standin_build(void);                  /* "fast", "asan" or "race" */
size_t standin_report_count(void);                /* since the start */
size_t standin_allocation_count(void);            /* device and pinned memory not yet freed */
struct standin_counts standin_counts(int device); /* since standin_set */

#ifdef __cplusplus
}
#endif

#endif
