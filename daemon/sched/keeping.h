/*
 * keeping: which files of the state folder stay.
 *
 * Purpose    Takes away what retention.h says, records and bytes, and tells it in the log and, where the
 *            job goes on, in its events. At the start it looks for files that no record names, which are
 *            put among the strays, and for records whose files are gone, which are told. What is not one of our files
 *            (links, folders, other users' files, other names) is told and left alone.
 * Ownership  Everything is borrowed for the call.
 * Threads    Any, with a store of its own; keeping_recover before the first upload and job.
 * Failure    The store's; a file that cannot be removed is logged.
 */
#ifndef NEEDLED_KEEPING_H
#define NEEDLED_KEEPING_H

#include "daemon/base/error.h"

#include <stddef.h>

struct scheduler_options;
struct store;

MUST_CHECK bool keeping_sweep(const struct scheduler_options *options, struct store *store,
                              struct error *err);
/* ERR_CORRUPT for folders of the state that are links, another user's, or none. */
MUST_CHECK bool keeping_check_folder(const char *path, struct error *err);
/* Makes it where it is missing, and checks it. */
MUST_CHECK bool keeping_make_folder(const char *path, struct error *err);
/* The same for all that the daemon writes into and removes from. */
MUST_CHECK bool keeping_make_folders(const char *state_folder, struct error *err);
MUST_CHECK bool keeping_recover(const char *state_folder, struct store *store, struct error *err);
/* ERR_CORRUPT where a file of the state that is to be read is a link, or another user's. One that is not
 * there is fine. */
MUST_CHECK bool keeping_check_file(const char *path, struct error *err);

#endif
