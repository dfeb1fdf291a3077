/*
 * check: whether settings fit this machine, as far as can be told without changing anything.
 *
 * Purpose    What --check-config looks at besides the text of the settings: folders that are none, a socket
 *            that cannot be made where it is to be, a reserve larger than its disk. What only the daemon's
 *            user may see counts as fine for others.
 * Ownership  None.
 * Threads    Any.
 * Failure    ERR_INVALID with the setting as param.
 */
#ifndef NEEDLED_CHECK_H
#define NEEDLED_CHECK_H

#include "daemon/base/error.h"

struct config;

/* The folders alone; those that are not there can be made. */
MUST_CHECK bool check_folders(const struct config *config, struct error *err);
MUST_CHECK bool check_machine(const struct config *config, struct error *err);

#endif
