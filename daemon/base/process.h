/*
 * process: the process itself, before anything works in it and when all is done.
 *
 * Purpose    Mends what whoever started it left in a bad way, or says so: closed standard descriptors,
 *            which the first files to be opened would get; limits of files' sizes and of the stack, which
 *            kill; the limit of open files.
 * Ownership  Owns nothing.
 * Threads    main's: process_begin before the first thread is made. process_raise_files, _count_files: any.
 * Failure    process_begin says what is wrong with the surroundings; nothing has been done then. An
 *            output that cannot be written changes a status of 0 to 1, and is told.
 */
#ifndef NEEDLED_PROCESS_H
#define NEEDLED_PROCESS_H

#include "daemon/base/error.h"

#include <stddef.h>

/* From here on a write past the limit of a file's size (ulimit -f) fails, with EFBIG, and kills nobody.
 * Closed standard descriptors are taken by ones that cannot be used: to write there fails as before. */
MUST_CHECK bool process_begin(struct error *err);

/* Raises the limit of open files (ulimit -n) as far as it may be and is of use; returns what it is then. */
size_t process_raise_files(void);
size_t process_count_files(void); /* that are open */

/* Ends the process at once. No library's own end is waited for: one of OpenBLAS's joins threads of its own,
 * which without memory never end. */
_Noreturn void process_end(int status);

#endif
