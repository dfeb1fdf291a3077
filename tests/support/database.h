/*
 * database: a real database of a test's own.
 *
 * Purpose    Set-up and tear-down for the store's tests, and CHECK, which fails a test with the reason of
 *            a call that was to succeed.
 * Ownership  The test's state; it and its folder are gone afterwards.
 * Threads    The test's.
 * Failure    Fails the test.
 */
#ifndef NEEDLED_DATABASE_H
#define NEEDLED_DATABASE_H

#include "store/store.h"
#include "tests/support/scratch.h"
#include "tests/support/test.h"

struct database {
    char *folder;
    char path[4096];
    struct store *store;
};

int database_set_up(void **state); /* *state: a struct database */
int database_tear_down(void **state);

static struct error fault; /* of the last CHECK */

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if (!(call))                                                                               \
            fail_msg("%s: %s", #call, fault.message);                                              \
    } while (0)

#endif
