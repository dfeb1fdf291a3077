/*
 * outbound: which addresses this server calls, and how.
 *
 * Purpose    Nothing that a request names is ever called unless the setting webhook_hosts lists its host:
 *            "host", "*.domain" or "*". Private, loopback and other special addresses are called only
 *            for a host that is listed by its whole name, whatever a name resolves to at the time of the
 *            call. http and https only; no redirects, no proxies of the environment, no credentials.
 * Ownership  Texts are borrowed.
 * Threads    Any; read-only.
 * Failure    ERR_INVALID with param "url" says what is allowed.
 */
#ifndef NEEDLED_API_OUTBOUND_H
#define NEEDLED_API_OUTBOUND_H

#include "daemon/base/error.h"

#include <curl/curl.h>

struct sockaddr;

/* hosts: the setting, separated by commas; NULL or "": nothing is called. */
MUST_CHECK bool outbound_check_url(const char *hosts, const char *url, struct error *err);
/* An address of the public internet. */
bool outbound_is_public(const struct sockaddr *address);
/* Sets all that a call to that URL needs but its method and content; the easy handle is fresh. The URL is
 * checked again. Timeouts: 5 s to connect, timeout_s in all. *refused (it outlives the call) becomes true
 * when an address was passed over for what it is. */
MUST_CHECK bool outbound_prepare(CURL *easy, const char *hosts, const char *url, long timeout_s,
                                 bool *refused, struct error *err);

#endif
