/*
 * inventory: what the devices are and do now, for whoever asks.
 *
 * Purpose    Readings (free memory, temperature, power) are made by a thread of its own and kept: who
 *            asks gets those of the last second, or, where a driver takes its time, older ones, and
 *            never waits for a device. Verdicts of the checks that a device passes before its first
 *            job: made once a device, whichever of its workers comes first.
 * Ownership  inventory_open / inventory_close; devices and folder outlive it.
 * Threads    Any. A lock guards readings and verdicts and is not held while a device is asked.
 * Failure    A device that does not answer keeps its last reading, which says when it was made.
 */
#ifndef NEEDLED_INVENTORY_H
#define NEEDLED_INVENTORY_H

#include "daemon/sched/devicecheck.h"

struct inventory;
struct json;

MUST_CHECK bool inventory_open(const struct devices *devices, const char *state_folder,
                               struct inventory **ret_inventory, struct error *err);
void inventory_close(struct inventory *inventory); /* NULL is fine */

enum inventory_answer {
    INVENTORY_USABLE,
    INVENTORY_FAILED, /* the device: it differs, or broke under the check */
    INVENTORY_LATER,  /* the check did not get to its end, for no fault of the device's */
};
/* Before the device's first job: checks it, unless that was done or is remembered by the state folder;
 * waits while another worker does. be is the worker's, of that device; after another answer than
 * INVENTORY_USABLE it is of no use any more. */
enum inventory_answer inventory_admit(struct inventory *inventory, size_t device,
                                      struct backend *be, const atomic_bool *stop, char *ret_reason,
                                      size_t reason_size);

/* Has readings older than a second made anew, and waits some milliseconds for them, not for more. */
void inventory_refresh(struct inventory *inventory);
/* Adds what is known of the device to its object of GET /v1/devices. */
void inventory_add_json(struct inventory *inventory, size_t device, struct json *object);
/* Adds memory_used_bytes of the last reading, where the device tells; has it made anew, and never waits. */
void inventory_add_memory(struct inventory *inventory, size_t device, struct json *object);

#endif
