/*
 * scratch: a folder of a test's own that is gone afterwards.
 *
 * Purpose    Tests with real files: state folders, databases, damaged copies.
 * Ownership  scratch_new / scratch_free; the folder's content goes with it.
 * Threads    The test's.
 * Failure    Fails the test.
 */
#ifndef NEEDLED_SCRATCH_H
#define NEEDLED_SCRATCH_H

#include <stddef.h>

char *scratch_new(void);          /* the path */
void scratch_free(char *scratch); /* NULL is fine */
/* Set-up and tear-down of a group whose tests write into one folder. */
extern char *scratch_shared;
int scratch_make_shared(void **state);
int scratch_drop_shared(void **state);
/* Path of a file in it; valid until the eighth next call. */
const char *scratch_path(const char *scratch, const char *name);
void scratch_write(const char *path, const void *bytes, size_t size);
/* Whole content, NUL-terminated, for the caller to free(). */
char *scratch_read(const char *path, size_t *ret_size);

#endif
