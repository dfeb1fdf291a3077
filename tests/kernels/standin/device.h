/*
 * device: the fake devices, the last error, and what every call of the API does first.
 *
 * Purpose    One lock around the stand-in; current device and last error a thread; a device that
 *            broke answers everything with the error that broke it.
 * Ownership  None.
 * Threads    Any.
 * Failure    As the real API: an error is returned, and kept as the thread's last.
 */
#ifndef NEEDLED_STANDIN_DEVICE_H
#define NEEDLED_STANDIN_DEVICE_H

#include "tests/kernels/standin/cuda_runtime.h"
#include "tests/kernels/standin/standin.h"

enum api_kind { API_NEEDS_DEVICE, API_ON_BROKEN_DEVICE, API_NEEDS_NOTHING };

/* Stands at the start of each call: takes the lock until the call returns, and says whether the
 * current device answers. */
struct api_call {
    explicit api_call(enum api_kind kind = API_NEEDS_DEVICE);
    ~api_call();
    api_call(const api_call &) = delete;
    api_call &operator=(const api_call &) = delete;
    cudaError_t error;
};

/* Keeps the error as the thread's last and returns it. */
cudaError_t api_fail(cudaError_t error);

int device_current(void);
size_t device_memory_bytes(void);
size_t device_others_bytes(int device); /* of these, taken by other programs */
bool device_is_short(int device);       /* whether this allocation is the one that must not fit */
size_t device_address_bytes(void);
bool device_is_deferred(void);
bool device_skips(const char *kernel); /* its launches do nothing */
bool device_negates(const char *precision);
cudaError_t device_fault(int device); /* what broke it; cudaSuccess: it works */
struct standin_counts *device_counts(int device);
/* Counts a launch; breaks the device when this is the one to fail. */
void device_count_launch(int device);

#endif
