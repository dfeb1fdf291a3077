/*
 * owners: whose a thing is, whatever it is.
 *
 * Purpose    One question for every table that has an owner: a key's id, "" the operator.
 * Ownership  None.
 * Threads    As store.h.
 * Failure    As store.h.
 */
#ifndef NEEDLED_STORE_OWNERS_H
#define NEEDLED_STORE_OWNERS_H

#include "store/store.h"

enum owned { OWNED_FILE, OWNED_UPLOAD, OWNED_JOB, OWNED_SWEEP, OWNED_MODEL, OWNED_WEBHOOK };

/* *ret_found false: there is no such thing. */
MUST_CHECK bool owners_find(struct store *store, enum owned kind, const char *id, bool *ret_found,
                            char ret_owner[STORE_ID_SIZE], struct error *err);

#endif
