/*
 * machine: a queue on a machine with a processor and two GPUs that exist only here.
 *
 * Purpose    Tests of who gets which device: the functions of the scheduler's thread are called one by
 *            one, and no other thread runs. The devices' memory is what a test says.
 * Ownership  machine_new / machine_free; everything goes with it.
 * Threads    The test's.
 * Failure    Fails the test, with what was said last.
 */
#ifndef NEEDLED_MACHINE_H
#define NEEDLED_MACHINE_H

#include "daemon/sched/queue.h"
#include "tests/support/test.h"

enum { CPU, GPU0, GPU1, MACHINE_DEVICE_COUNT };

struct machine {
    char *folder;
    char database[4096];
    struct devices devices;
    struct disk *disk;
    struct scheduler_options options;
    struct mailbox *mailbox;
    struct queue *queue;
    struct store *store; /* the test's */
};

/* Bytes of the devices; 0: they cannot say, as at the start of each test. */
extern uint64_t machine_total_bytes[MACHINE_DEVICE_COUNT];
extern uint64_t machine_free_bytes[MACHINE_DEVICE_COUNT];

struct machine *machine_new(size_t jobs_per_device, int cpu_threads);
void machine_free(struct machine *machine);
void machine_restart(struct machine *machine); /* as after a kill */

/* Created and found good, with that plan (NULL: none). */
void machine_add_record(struct machine *machine, struct job_record *job, const char *plan);
void machine_add_job(struct machine *machine, const char *id, const char *device, const char *plan);
/* Which job the slot takes, "" none; the claim as it was, without its record's texts. */
const char *machine_take(struct machine *machine, size_t slot);
struct queue_claim machine_claim(struct machine *machine, size_t slot);
/* Whether the end became the job's state. */
bool machine_end(struct machine *machine, size_t slot, const char *id, enum outcome_kind kind,
                 const struct error *why);
void machine_set_service(struct machine *machine, size_t slot, const char *reason);
/* Its values; its texts are gone. */
struct job_record machine_get(struct machine *machine, const char *id);
size_t machine_count_events(struct machine *machine, const char *id, const char *word);

#endif
