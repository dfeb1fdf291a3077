/*
 * render: a record as the texts the tokenizer gets.
 *
 * Purpose    Prompt and target, byte for byte as the reference renders them.
 * Ownership  Texts go to the caller's bufs.
 * Threads    One buf, one thread.
 * Failure    The buf's own: check it at the end.
 */
#ifndef NEEDLED_RENDER_H
#define NEEDLED_RENDER_H

#include "daemon/base/buf.h"
#include "daemon/train/record.h"

#include <stdint.h>

void render_prompt(const struct record *record, struct buf *out);
void render_target(const struct record *record, struct buf *out);

/* tools and answers alone: a string verbatim, anything else as compact JSON, NULL as []. */
void render_list(const struct strict_value *list, struct buf *out);

/* Markers the template itself writes into prompt and target; more of them come from the user. */
size_t render_prompt_markers(const struct record *record);
size_t render_target_markers(const struct record *record);

/* Markers in a text, in any of the template's spellings. ret_marker (may be NULL): the first. */
size_t render_count_markers(const char *text, size_t size, const char **ret_marker);

/* Ids of the markers the template can write, among the ids of a text. */
size_t render_count_marker_ids(const uint32_t *ids, size_t count);

#endif
