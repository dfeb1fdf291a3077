/*
 * descriptors: how the limit of open files is shared out.
 *
 * Purpose    Each connection is a descriptor, and so is each file that the daemon works with. What the daemon
 *            needs for itself is set aside first; connections get what is left, so that they can never take
 *            the last ones from a job or the database. Where the limit is low there are fewer threads, too,
 *            as each has descriptors of its own.
 * Ownership  None.
 * Threads    Any.
 * Failure    ERR_LIMIT with both figures where the limit leaves no room for connections.
 */
#ifndef NEEDLED_API_DESCRIPTORS_H
#define NEEDLED_API_DESCRIPTORS_H

#include "daemon/base/error.h"

#include <stddef.h>

struct descriptors_needs {
    size_t limit;      /* of the process */
    size_t used;       /* before the server has opened any */
    size_t job_files;  /* that jobs will open */
    size_t tcp, local; /* listeners there will be: of addresses, and Unix sockets */
};

struct descriptors_share {
    unsigned serving_threads;  /* of the library, for each listener */
    unsigned working_threads;  /* handlers at once */
    size_t call_max;           /* webhooks called at once */
    size_t linger_max;         /* sockets read dry at once */
    size_t tcp_max, local_max; /* connections of each such listener */
    size_t stream_max;         /* event streams among all of them */
};

MUST_CHECK bool descriptors_share(const struct descriptors_needs *needs,
                                  struct descriptors_share *ret_share, struct error *err);

/* Of so many connections, from how many on new ones shut silent ones: the rest are about to close. */
size_t descriptors_crowd(size_t connection_max);

#endif
