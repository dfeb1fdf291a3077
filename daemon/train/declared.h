/*
 * declared: whether a record's calls and tools look as they should and fit each other.
 *
 * Purpose    Names calls of tools the line does not declare, texts that are not JSON, and elements
 *            of the wrong type.
 * Ownership  None; scratch goes to the arena.
 * Threads    One arena, one thread.
 * Failure    Findings only.
 */
#ifndef NEEDLED_DECLARED_H
#define NEEDLED_DECLARED_H

#include "daemon/train/record.h"

/* answers_field: what the line calls its answers. For records that are not chats. */
void declared_check(const struct record *record, const char *answers_field, struct arena *arena,
                    struct findings *findings);

/* A call of a tool that the record's tools do not declare is a warning. */
void declared_check_calls(const struct record *record, const char *answers_field,
                          struct arena *arena, struct findings *findings);

#endif
