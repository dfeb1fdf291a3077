/*
 * journal: log lines as the journal's own entries, with fields to look for.
 *
 * Purpose    The native protocol of systemd-journald: one datagram an entry, so that
 *            `journalctl -u needled JOB_ID=ftjob-12` finds what concerns a job.
 * Ownership  The descriptor is the process's, for its whole life.
 * Threads    journal_open before the first thread, journal_send from any.
 * Failure    journal_open gives -1 and journal_send false: the caller writes to stderr.
 */
#ifndef NEEDLED_JOURNAL_H
#define NEEDLED_JOURNAL_H

#include "daemon/base/error.h"

/* Whether stderr leads to the journal: JOURNAL_STREAM names its device and inode. */
bool journal_is_stderr(void);
int journal_open(void); /* -1: it cannot be reached */

struct journal_entry {
    int priority;     /* of syslog: 3 error, 4 warning, 6 info, 7 debug */
    const char *text; /* one line */
    const char *key;  /* "job", "device", ... become JOB_ID, DEVICE, ...; NULL: none */
    const char *value;
};
/* Never waits: false when the journal does not take it now. */
bool journal_send(int descriptor, const struct journal_entry *entry);

#endif
