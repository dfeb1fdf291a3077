/*
 * process: the process itself, before anything works in it and when all is done.
 *
 * Purpose    Mends what whoever started it left in a bad way, or says so: closed standard descriptors,
 *            which the first files to be opened would get; a limit of files' sizes, which kills.
 * Ownership  Owns nothing.
 * Threads    main's, before the first thread is made.
 * Failure    process_begin says what is wrong with the surroundings; nothing has been done then.
 */
#ifndef NEEDLED_PROCESS_H
#define NEEDLED_PROCESS_H

#include "daemon/base/error.h"

/* From here on a write past the limit of a file's size (ulimit -f) fails, with EFBIG, and kills nobody.
 * Closed standard descriptors are taken by ones that cannot be used: to write there fails as before. */
MUST_CHECK bool process_begin(struct error *err);

#endif
