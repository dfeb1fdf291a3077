#include "daemon/base/clock.h"

#include <time.h>

int64_t clock_monotonic_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail with a clock every kernel has */
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t clock_unix_s(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now); /* as above */
    return now.tv_sec;
}

int64_t clock_unix_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now); /* as above */
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
