/*
 * memory: device memory of all fake devices, and pinned memory.
 *
 * Purpose    Each buffer has pages of its own, ends at the end of a page as far as its alignment of
 *            256 bytes allows, is followed by a gap, and starts as NaN; addresses come again as late
 *            as possible. So what runs over, or comes late, meets memory that is nobody's.
 * Ownership  cudaMalloc and cudaMallocHost hand over; cudaFree and cudaFreeHost take back.
 * Threads    Under the stand-in's lock, but for memory_is_device.
 * Failure    cudaErrorMemoryAllocation when a device's memory is used up.
 */
#ifndef NEEDLED_STANDIN_MEMORY_H
#define NEEDLED_STANDIN_MEMORY_H

#include "tests/kernels/standin/cuda_runtime.h"

struct allocation {
    unsigned char *start;
    size_t size_bytes;
    unsigned char *pages;
    size_t pages_bytes;
    int device;
};

/* Whether the address is in the range that devices allocate from, live or not. */
bool memory_is_device(const void *address);
const unsigned char *memory_device_range(size_t *ret_size_bytes);

/* The buffer that holds the address, or the nearest below; NULL: none. */
const struct allocation *memory_find(const void *address);
bool memory_within(const struct allocation *allocation, const void *address, size_t size_bytes);
/* Whether [address, + size) lies in one live buffer of the device; reports it if not. */
bool memory_check(const void *address, size_t size_bytes, int device, const char *who);

/* Whether [address, + size) lies in one live buffer of cudaMallocHost. */
bool memory_is_pinned(const void *address, size_t size_bytes);

int memory_current_device(void); /* of the launch that runs */
void memory_set_current_device(int device);
size_t memory_used_bytes(int device);

/* Sealed, device memory opens to work on a stream alone: host code that uses a device's address
 * crashes, as it would with a card. Not in the race build, which reports it. */
void memory_seal(void); /* from now on */
void memory_work_begins(void);
void memory_work_ended(void);

/* Zeroed address space that takes real memory where it is touched; aborts when there is none. */
void *memory_reserve(size_t size_bytes);

#endif
