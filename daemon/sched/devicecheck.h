/*
 * devicecheck: whether a device computes what it should, and what is remembered of it.
 *
 * Purpose    Every op's examples against ref, then a tiny job there and on the processor (a processor's:
 *            on ref) whose losses must agree, in each precision that the device has. A card that passed is remembered in a file of the state
 *            folder, by card, driver, library, plug-in and version of this program: the next start
 *            need not check it again. A failure is never remembered, so each start tries again; a
 *            file that is damaged or says anything else about the card counts as none.
 * Ownership  Files in <state>/device-checks, one a card.
 * Threads    devicecheck_run: the one that owns the backend. Files: one thread a card.
 * Failure    A check that comes to its end has a verdict and is no error. ERR_DEVICE: the device
 *            failed under it; others (no memory, no room on disk) say nothing about the device.
 */
#ifndef NEEDLED_DEVICECHECK_H
#define NEEDLED_DEVICECHECK_H

#include "daemon/sched/devices.h"

#include <stdatomic.h>
#include <stdint.h>

enum check_verdict { CHECK_NONE, CHECK_RUNNING, CHECK_PASSED, CHECK_FAILED };

struct device_check {
    enum check_verdict verdict;
    bool remembered; /* by the state folder: an earlier start made it */
    int64_t checked_unix_s, elapsed_ns;
    size_t
        example_count; /* of ops, that agreed; 0: the levels of a processor, checked at each start */
    char worst_op[48]; /* of them, and its error over what is allowed */
    double worst_share;
    double loss, reference_loss; /* the last of the tiny job, in W4A8 */
    double loss_share;           /* largest difference of a step's losses over what is allowed */
    char reason[256];            /* of a failure */
};

/* "none", "running", "passed", "failed" */
const char *check_verdict_name(enum check_verdict verdict);

/* Checks be, a backend of that kind. *stop (may be NULL) is looked at in the tiny job. */
MUST_CHECK bool devicecheck_run(struct backend *be, enum backend_kind kind, const atomic_bool *stop,
                                struct device_check *ret_check, struct error *err);

/* The verdict that an earlier start left; false: none that holds for this device as it is now. */
bool devicecheck_recall(const char *state_folder, const struct backend_device *device,
                        struct device_check *ret_check);
/* Keeps a pass; a failure takes an older pass away. Of a device without a number of its own nothing
 * is kept. */
MUST_CHECK bool devicecheck_remember(const char *state_folder, const struct backend_device *device,
                                     const struct device_check *check, struct error *err);

struct buf;
/* A line for each card: what is remembered of it. */
void devicecheck_print(const struct devices *devices, const char *state_folder, struct buf *out);

/* The table of `needled --devices --check`, row by row as they are made, through `show`. Each level of
 * SIMD of a processor is a row. False when something does not agree, or a device cannot be checked; a
 * pass of a card that the state folder remembers ends then. */
typedef void devicecheck_show_fn(void *context, const char *row);
bool devicecheck_table(const struct devices *devices, const char *state_folder,
                       devicecheck_show_fn *show, void *context);

#endif
