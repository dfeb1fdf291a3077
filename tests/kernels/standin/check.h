/*
 * check: what every load and store of kernels and host code is held against.
 *
 * Purpose    In the race build the compiler calls out at each access (-fsanitize=thread); here stand
 *            the functions it calls. They find races within a block and between blocks, reads of
 *            what nobody wrote, accesses outside of buffers, host memory in kernels and device
 *            memory in host code, whatever order the threads ran in. Other builds: empty.
 * Ownership  None.
 * Threads    Kernels run under the stand-in's lock; host accesses are looked at without it.
 * Failure    Reports with the line of the access.
 *
 * How        For every 4 bytes two marks: who wrote last, who read last, in which stretch between
 *            barriers (the interval) and between warp barriers. Two accesses to a byte, one of them
 *            a write, by two threads of a block in one interval are a race, unless a warp barrier
 *            lies between and both are of that warp; in device memory so are accesses by two blocks
 *            of one launch. Shuffles order nothing: NVIDIA's guide gives them no memory order.
 */
#ifndef NEEDLED_STANDIN_CHECK_H
#define NEEDLED_STANDIN_CHECK_H

#include <stddef.h>

#if defined(STANDIN_RACE)

void check_launch_begins(const void *arguments, size_t arguments_size);
void check_launch_ended(void);
void check_block_begins(void); /* fills shared memory with NaN, marked as not written */
void check_block_ended(void);
void check_barrier_opened(void);
void check_warp_synchronised(int warp);

/* Device memory, from the runtime: a copy, a fill, a matrix product. */
void check_allocated(const void *memory, size_t size_bytes); /* nobody wrote it yet */
void check_device_read(const void *memory, size_t size_bytes, const char *who);
void check_device_written(const void *memory, size_t size_bytes);

/* Host memory that a queued copy will write (or read): host code keeps off until it ran. */
void check_host_pending(const void *memory, size_t size_bytes, bool will_be_written);
void check_host_settled(const void *memory);

#else

void check_block_begins(void); /* fills shared memory with NaN, where it can */

static inline void check_launch_begins(const void *, size_t)
{
}
static inline void check_launch_ended(void)
{
}
static inline void check_block_ended(void)
{
}
static inline void check_barrier_opened(void)
{
}
static inline void check_warp_synchronised(int)
{
}
static inline void check_allocated(const void *, size_t)
{
}
static inline void check_device_read(const void *, size_t, const char *)
{
}
static inline void check_device_written(const void *, size_t)
{
}
#if defined(__SANITIZE_ADDRESS__)
/* A target is poisoned until the copy ran: reading it early ends the process. */
void check_host_pending(const void *memory, size_t size_bytes, bool will_be_written);
void check_host_settled(const void *memory);
#else
static inline void check_host_pending(const void *, size_t, bool)
{
}
static inline void check_host_settled(const void *)
{
}
#endif

#endif

#endif
