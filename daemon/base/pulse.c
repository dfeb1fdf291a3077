#include "daemon/base/pulse.h"

#include "daemon/base/clock.h"

#include <stddef.h>

/* The thread's own: what beats is far below who knows whose beat it is. Relaxed order does, nothing else
 * is told by it. */
static _Thread_local struct pulse *mine;

void pulse_begin(struct pulse *pulse)
{
    mine = pulse;
    pulse_beat();
}

void pulse_beat(void)
{
    if (mine)
        atomic_store_explicit(&mine->beat_ns, clock_monotonic_ns(), memory_order_relaxed);
}

void pulse_pause(void)
{
    if (mine)
        atomic_store_explicit(&mine->beat_ns, 0, memory_order_relaxed);
}

void pulse_end(void)
{
    pulse_pause();
    mine = NULL;
}

void pulse_owe(struct pulse *pulse)
{
    int64_t paused = 0;

    (void)atomic_compare_exchange_strong_explicit(&pulse->beat_ns, &paused, clock_monotonic_ns(),
                                                  memory_order_relaxed, memory_order_relaxed);
}

int64_t pulse_rest_ns(const struct pulse *pulse, int64_t now_ns)
{
    const int64_t beat_ns = atomic_load_explicit(&pulse->beat_ns, memory_order_relaxed);

    return beat_ns == 0 || now_ns < beat_ns ? 0 : now_ns - beat_ns;
}
