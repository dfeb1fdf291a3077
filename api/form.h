/*
 * form: an upload's form on its way to disk.
 *
 * Purpose    Reads POST /v1/files: parts `purpose`, `file` and `expires_after[...]` in any order, the
 *            file straight into daemon/sched/datasets.h, in pieces.
 * Ownership  form_new / form_free; free aborts an upload that was not finished and leaves nothing.
 * Threads    One thread at a time.
 * Failure    ERR_INVALID with param; past the size limit ERR_LIMIT; the upload's own errors.
 */
#ifndef NEEDLED_API_FORM_H
#define NEEDLED_API_FORM_H

#include "daemon/base/error.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct file_record;
struct form;
struct json;
struct store;
struct upload_terms;

/* helpers: see upload_set_helpers. */
MUST_CHECK bool form_new(const char *content_type, const char *state_folder,
                         size_t file_limit_bytes, atomic_int *helpers, struct form **ret_form,
                         struct error *err);
void form_free(struct form *form); /* NULL is fine */
MUST_CHECK bool form_feed(struct form *form, const char *bytes, size_t size, struct error *err);
/* Whole: checked, on disk and committed; see upload_finish. Of the terms the form says how long. */
MUST_CHECK bool form_finish(struct form *form, struct store *store, struct upload_terms *terms,
                            struct file_record *ret_file, struct json **ret_lines,
                            struct error *err);

/* How long a file is kept: 0 (for ever) or seconds from its creation. The texts are those of
 * expires_after[anchor] and [seconds], NULL where not given; ERR_INVALID has the word invalid_expiry. */
MUST_CHECK bool form_read_lifetime(const char *anchor, const char *seconds, int64_t *ret_lifetime_s,
                                   struct error *err);

#endif
