/*
 * uploads: the first of an upload's three calls; the others are handlers.
 *
 * Purpose    Reserves an upload for a client that announces name and size and sends the bytes by PUT
 *            to a link, then completes it.
 * Ownership  The request's.
 * Threads    A pool thread, with request->store lent for the call.
 * Failure    As a handler: false, and err is answered.
 */
#ifndef NEEDLED_API_UPLOADS_H
#define NEEDLED_API_UPLOADS_H

#include "daemon/base/error.h"

struct request;

/* POST /v1/files with a JSON body. */
MUST_CHECK bool uploads_reserve(struct request *request, struct error *err);

#endif
