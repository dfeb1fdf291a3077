/*
 * log: one line per event on stderr, key=value.
 *
 * Purpose    The daemon's only voice: `level=warn job=ftjob-12 msg="..."`. Under the journal a line
 *            becomes an entry with its priority and the pair as a field (journal.h), or starts with
 *            its priority (<4>), see sd-daemon(3). Above debug the same line stands there so many times a
 *            minute (repeats.h); then it is told how many were left out.
 * Ownership  None.
 * Threads    Any: a line is written with one write(2).
 * Failure    A line that cannot be written is dropped; logging never stops work.
 */
#ifndef NEEDLED_LOG_H
#define NEEDLED_LOG_H

#include "daemon/base/error.h"

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };

/* First before the first thread starts; the level may change later. */
void log_set_level(enum log_level level);

/* Lines go there as the journal's entries, and to stderr where it takes none; -1: to stderr alone. Before
 * the first thread starts; log_set_level does it where stderr is the journal. */
void log_set_journal(int descriptor);

/* Tells what was left out in the minutes that are over; is_last: in all. Now and then, and at the end. */
void log_settle(bool is_last);

/* format gives the message; it is quoted, control bytes are escaped, and it is cut at 1 KiB. */
void log_write(enum log_level level, const char *format, ...) PRINTF_LIKE(2, 3);

/* The same with one key=value pair in front of msg, e.g. log_write_for(LEVEL, "job", id, ...). */
void log_write_for(enum log_level level, const char *key, const char *value, const char *format,
                   ...) PRINTF_LIKE(4, 5);

#endif
