/*
 * settings: what the daemon itself remembers, a text by name.
 *
 * Purpose    Values made once and kept, such as the secret that links are signed with.
 * Ownership  Values go to the caller's storage.
 * Threads    As store.h.
 * Failure    As store.h.
 */
#ifndef NEEDLED_STORE_SETTINGS_H
#define NEEDLED_STORE_SETTINGS_H

#include "store/store.h"

#define SETTING_VALUE_SIZE 128

/* The value of that name; the first caller's proposal becomes it. */
MUST_CHECK bool settings_get_or_set(struct store *store, const char *name, const char *proposal,
                                    char ret_value[SETTING_VALUE_SIZE], struct error *err);

/* *ret_before: the value of that name, "" where there was none. Then it is `value`. */
MUST_CHECK bool settings_exchange(struct store *store, const char *name, const char *value,
                                  char ret_before[SETTING_VALUE_SIZE], struct error *err);

#endif
