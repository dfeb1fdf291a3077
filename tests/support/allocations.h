/*
 * allocations: memory that a test makes run out.
 *
 * Purpose    Functions told again and again, each time with another of their allocations failing: what they call
 *            that, what they leave, whether the next call works. Defines malloc, calloc and realloc, which come
 *            before the library's: one file of a test program includes it.
 * Ownership  None.
 * Threads    The allocations of the calling thread alone fail.
 * Failure    Fails the test. A sanitizer has its own malloc: with one nothing fails, and these tests skip.
 */
#ifndef NEEDLED_ALLOCATIONS_H
#define NEEDLED_ALLOCATIONS_H

#include "tests/support/test.h"

#include <errno.h>

static _Thread_local size_t allocations_seen, allocations_fail_at; /* 0: none */
static _Thread_local size_t allocations_in_a_row = 1;              /* fail from there on */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool allocations_can_fail = false;
#else
static const bool allocations_can_fail = true;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);

static bool allocations_fail(void)
{
    if (allocations_fail_at == 0 || ++allocations_seen < allocations_fail_at ||
        allocations_seen >= allocations_fail_at + allocations_in_a_row)
        return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t size)
{
    return allocations_fail() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return allocations_fail() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    return allocations_fail() ? NULL : __libc_realloc(memory, size);
}
#endif

/* Tells the story with each allocation failing in turn, every `stride`th of them, until it is not reached
 * any more. The story says how it went; `check` looks at what is left behind, after a failure too. */
static inline void allocations_fail_each(bool (*story)(void *context, struct error *err),
                                         void (*check)(void *context, bool ok), void *context,
                                         size_t stride)
{
    size_t failed_count = 0, nth = 1;
    bool reached = allocations_can_fail;

    for (; reached; nth += stride) {
        struct error err = {0};
        bool ok;

        allocations_seen = 0;
        allocations_fail_at = nth;
        ok = story(context, &err);
        reached = allocations_seen >= nth;
        allocations_fail_at = 0;
        if (!ok && err.code != ERR_NO_MEMORY)
            fail_msg("allocation %zu: %s: %s", nth, error_code_name(err.code), err.message);
        failed_count += !ok;
        if (check)
            check(context, ok);
    }
    print_message("%zu allocations, one in %zu failed with %zu in a row, %zu times the story did\n",
                  nth - stride - 1, stride, allocations_in_a_row, failed_count);
    assert_true(failed_count > 0);
}

#endif
