/*
 * chat: a data line in the chat format, as the reference reads it.
 *
 * Purpose    One user turn answered by one assistant turn, a system turn before them if there is
 *            one; anything else the reference passes over and strict reading refuses by name.
 * Ownership  As record.h.
 * Threads    One arena, one thread.
 * Failure    As record.h.
 */
#ifndef NEEDLED_CHAT_H
#define NEEDLED_CHAT_H

#include "daemon/train/record.h"

/* line: an object that has messages and no query. */
enum record_fate chat_read(const struct strict_value *line, struct arena *arena,
                           struct findings *findings, struct record *ret_record);

#endif
