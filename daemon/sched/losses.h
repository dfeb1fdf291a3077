/*
 * losses: a database that has lost what the files beside it tell of.
 *
 * Purpose    A database that is gone, or that came back without its log, must not be replaced by a new and
 *            empty one, or taken for one: the next start would put everything among the strays. The
 *            folders of the state tell. A job's folder or adapter has a record since before it was made;
 *            an upload has one a moment after, so that a kill may leave it alone.
 * Ownership  Everything is borrowed for the call.
 * Threads    Main's, before there are others.
 * Failure    ERR_CORRUPT says what is there and the two ways on.
 */
#ifndef NEEDLED_LOSSES_H
#define NEEDLED_LOSSES_H

#include "daemon/base/error.h"

struct store;

/* Before a database is made: nothing of an earlier one may be there. One that is there and knows of nothing is
 * refused here already, as losses_check does, so that nothing is written first. */
MUST_CHECK bool losses_check_new(const char *state_folder, const char *database_path,
                                 struct error *err);
/* Of a database that was opened, before anything is put away. One that was just restored may know of
 * nothing (losses_allow). */
MUST_CHECK bool losses_check(const char *state_folder, struct store *store, struct error *err);
/* The next check lets it be what it is: it was put there on purpose. */
MUST_CHECK bool losses_allow(struct store *store, struct error *err);

#endif
