/*
 * hosts: names of hosts as people write them into settings.
 *
 * Purpose    Refuses what could never be the name of a host, so that a list that cannot match anything is
 *            told when it is read and not wondered at later. Nothing is looked up.
 * Ownership  None.
 * Threads    Any.
 * Failure    ERR_INVALID with the setting as param, what stands there and what is needed.
 */
#ifndef NEEDLED_HOSTS_H
#define NEEDLED_HOSTS_H

#include "daemon/base/error.h"

#include <stdbool.h>

/* Names and addresses, IPv6 without brackets, separated by commas or blanks; with patterns also
 * "*.domain" and "*". "" is a list of none. */
MUST_CHECK bool hosts_check_list(const char *setting, const char *list, bool patterns,
                                 struct error *err);
/* "https://host[:port][/path]" or http, without a user, a query and a fragment; "" is none. */
MUST_CHECK bool hosts_check_url(const char *setting, const char *url, struct error *err);

#endif
