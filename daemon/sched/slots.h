/*
 * slots: the devices of this machine, how many jobs each may run at once, and which run now.
 *
 * Purpose    A device has as many slots as it may run jobs; a slot has one worker and at most one job.
 *            A device is in service or not with all of its slots.
 * Ownership  slots_init / slots_release (caller's storage); the devices outlive it.
 * Threads    The scheduler's occupies and vacates; the rest from any.
 * Failure    None.
 */
#ifndef NEEDLED_SLOTS_H
#define NEEDLED_SLOTS_H

#include "daemon/base/buf.h"
#include "daemon/base/limits.h"
#include "daemon/base/pulse.h"
#include "daemon/sched/devices.h"
#include "store/store.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define SLOTS_MAX (DEVICE_MAX * LIMIT_JOBS_PER_DEVICE)

/* The flags are set by the scheduler's thread: cancelled before stop, so that a worker that has seen
 * stop (acquire) also sees cancelled. They are cleared when a job is claimed, on the same thread, so
 * none is left over for the next job. */
struct slot_step { /* that a job has made */
    int64_t number, total;
    double seconds; /* what it took by itself; 0: not known */
    int64_t tokens; /* that it computed */
    int64_t at_ns;  /* clock_monotonic_ns */
};
struct slot {
    size_t device;    /* in slots.devices */
    int thread_count; /* compute threads of its worker */
    atomic_bool stop, cancelled;
    struct pulse pulse;           /* of its worker, while it runs a job */
    char job_id[STORE_ID_SIZE];   /* guarded by lock; "" idle */
    uint64_t reserved_bytes;      /* guarded by lock: what its job has still to take of memory */
    uint64_t disk_bytes;          /* guarded by lock: what its job writes in all */
    struct slot_step first, last; /* guarded by lock: of this run; number 0: none yet */
};

struct slot_device {
    const struct device *device;
    size_t slot_count;
    bool in_service;                 /* guarded by lock */
    char reason[256];                /* guarded by lock: why it is not */
    int64_t step_count, token_count; /* guarded by lock: since the start, */
    double step_s;                   /* guarded by lock: in so many seconds */
};

struct slots {
    pthread_mutex_t lock;
    struct slot_device devices[DEVICE_MAX];
    size_t device_count;
    struct slot items[SLOTS_MAX]; /* a device's stand together, in the order of the devices */
    size_t count;
};

/* per_device: 0 counts as 1, more than LIMIT_JOBS_PER_DEVICE as that. Slots of a processor share its
 * threads evenly, so it has no more of them than threads; the rest of a division stays unused. */
void slots_init(struct slots *slots, const struct devices *devices, size_t per_device);
void slots_release(struct slots *slots);

const struct device *slots_device(const struct slots *slots, size_t slot);

/* The job is the slot's until vacated. reserved_bytes are counted as taken until slots_settle. */
void slots_occupy(struct slots *slots, size_t slot, const char *job_id, uint64_t reserved_bytes,
                  uint64_t disk_bytes);
/* The job of the slot, "" none, and what it writes in all. */
void slots_disk_use(struct slots *slots, size_t slot, char ret_job_id[STORE_ID_SIZE],
                    uint64_t *ret_bytes);
/* The slot's job has taken its memory, which the device's own figure shows from now on. False: it was
 * known already. */
bool slots_settle(struct slots *slots, size_t slot);
void slots_vacate(struct slots *slots, size_t slot);
void slots_note_step(struct slots *slots, size_t slot, const struct slot_step *step);
/* What the slot's job has still to do at now_ns, in seconds: the steps left, at the mean pace of those of
 * this run (with what lies between them), or of the first one. NAN: no step was made; 0: idle. */
double slots_remaining_s(struct slots *slots, size_t slot, int64_t now_ns);
/* What runs now, in one line for people, as "training ftjob-12 on cpu:0, step 3 of 108"; "idle". */
void slots_print_status(struct slots *slots, struct buf *out);
/* A slot whose job has shown nothing for so long; false: none. */
bool slots_find_stuck(const struct slots *slots, int64_t limit_ns, size_t *ret_slot);
/* The slot that runs the job; false: none. */
bool slots_find(struct slots *slots, const char *job_id, size_t *ret_slot);
void slots_cancel(struct slots *slots, const char *job_id); /* tells its worker, if it has one */
void slots_pause(struct slots *slots, const char *job_id);  /* the same: it keeps the last step */
void slots_stop(struct slots *slots);                       /* tells all workers */

/* reason NULL: in service again. The first reason stays while it is out of service: false when the
 * call changed nothing. */
bool slots_set_service(struct slots *slots, size_t device, const char *reason);

struct slot_use { /* of one device */
    bool in_service;
    char reason[256];
    size_t running, idle; /* slots */
    uint64_t reserved_bytes;
};
struct slot_use slots_use(struct slots *slots, size_t device);
size_t slots_devices_in_service(struct slots *slots);
bool slots_gpu_in_service(struct slots *slots); /* at least one */

struct inventory;
/* The list of GET /v1/devices. */
struct json *slots_json(struct slots *slots, struct inventory *inventory);

#endif
