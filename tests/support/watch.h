/*
 * watch: a cpu backend that counts some ops and acts at one of them.
 *
 * Purpose    Stops a run, breaks its device or lets an allocation fail at an exact place.
 * Ownership  watch_open / watch_close; one at a time.
 * Threads    The test's.
 * Failure    Fails the test.
 */
#ifndef NEEDLED_TEST_WATCH_H
#define NEEDLED_TEST_WATCH_H

#include "kernels/backend.h"

#include <stdatomic.h>

enum watch_op {
    WATCH_FORWARD,
    WATCH_BACKWARD,
    WATCH_COMPARED,
    WATCH_SUMMED,
    WATCH_STEPPED,
    WATCH_ALLOCATED,
    WATCH_COUNT
};

enum watch_act {
    WATCH_STOP,  /* raises *stop */
    WATCH_FAULT, /* the device fails */
    WATCH_SPOIL  /* a sum of squares comes out infinite */
};

struct watch {
    const struct backend_table *inner;
    size_t counts[WATCH_COUNT];
    enum watch_op kind;
    size_t at; /* 0: never */
    enum watch_act act;
    atomic_bool *stop;
};
extern struct watch watch;

struct backend *watch_open(void);
void watch_close(struct backend *be);
/* Counts from 0 again, and acts at the given call (0: never); an allocation returns NULL. */
void watch_for(enum watch_op kind, size_t at, enum watch_act act, atomic_bool *stop);

#endif
