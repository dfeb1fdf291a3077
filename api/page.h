/*
 * page: the query of a listing, and its answer.
 *
 * Purpose    Reads limit, after and order; builds the list object with its cursors.
 * Ownership  The page borrows the request's texts.
 * Threads    One request, one thread.
 * Failure    ERR_INVALID with param "limit" or "order".
 */
#ifndef NEEDLED_API_PAGE_H
#define NEEDLED_API_PAGE_H

#include "daemon/base/error.h"

#include <stddef.h>

struct json;
struct request;
struct store_page;

/* Unknown query fields are not looked at. */
MUST_CHECK bool page_read(const struct request *request, size_t default_limit, size_t max_limit,
                          struct store_page *ret_page, struct error *err);
/* {object: "list", data, has_more, first_id, last_id}; data is taken over, its elements have `id`. */
struct json *page_answer(struct json *data, bool has_more);

#endif
