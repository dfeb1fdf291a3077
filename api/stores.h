/*
 * stores: open database handles, lent to one request at a time.
 *
 * Purpose    A struct store belongs to one thread at a time; a request takes one and gives it back.
 * Ownership  stores_new / stores_free; every handle is back before stores_free.
 * Threads    Any.
 * Failure    A handle that cannot be opened is the store's own error.
 */
#ifndef NEEDLED_API_STORES_H
#define NEEDLED_API_STORES_H

#include "daemon/base/error.h"

#include <stdint.h>

struct store;
struct stores;

struct stores *stores_new(const char *database_path); /* NULL without memory */
void stores_free(struct stores *stores);              /* NULL is fine */
MUST_CHECK bool stores_take(struct stores *stores, struct store **ret_store, struct error *err);
const char *stores_path(const struct stores *stores); /* of the database */
/* How often handles that were given back had waited for a lock. */
uint64_t stores_busy_count(struct stores *stores);
/* One copy of the database is made at a time: ERR_UNAVAILABLE until the one before has ended. */
MUST_CHECK bool stores_begin_copy(struct stores *stores, struct error *err);
void stores_end_copy(struct stores *stores);
void stores_give(struct stores *stores, struct store *store); /* NULL is fine */

#endif
