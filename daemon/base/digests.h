/*
 * digests: SHA-256 of files, remembered while they are untouched.
 *
 * Purpose    A base of hundreds of megabytes is hashed for each job; the second job on it should
 *            not wait for that. A file is the same while device, inode, size and both times of
 *            change are. What changed in the last seconds may change again within one tick of the
 *            file system's clock and is not remembered.
 * Ownership  digests_new / digests_free.
 * Threads    Any number; two may hash the same file at once.
 * Failure    As file_sha256.
 */
#ifndef NEEDLED_DIGESTS_H
#define NEEDLED_DIGESTS_H

#include "daemon/base/file.h"

#define DIGESTS_MAX 32 /* files; then the oldest is forgotten */

struct digests;

MUST_CHECK bool digests_new(struct digests **ret_digests, struct error *err);
void digests_free(struct digests *digests); /* NULL is fine */

/* digests NULL: always hashed. */
MUST_CHECK bool digests_of_file(struct digests *digests, const char *path,
                                char ret_sha256[SHA256_HEX_SIZE], struct error *err);
/* Files hashed so far. */
size_t digests_hashed_count(struct digests *digests);

#endif
