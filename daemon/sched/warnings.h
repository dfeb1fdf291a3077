/*
 * warnings: what a job goes on with although it is not as it should be.
 *
 * Purpose    The array of a job's record: {rule, reason} here; report.h adds what was found in files.
 * Ownership  Trees belong to the caller.
 * Threads    Any.
 * Failure    Without memory the array is NULL, which json_add takes and printing refuses.
 */
#ifndef NEEDLED_WARNINGS_H
#define NEEDLED_WARNINGS_H

#include <stdbool.h>

struct json;

struct json *warnings_read(const char *warnings_json); /* NULL or unreadable: none yet */
/* False: the same reason is there already, from before the job was interrupted. */
bool warnings_add(struct json *warnings, const char *rule, const char *reason);

#endif
