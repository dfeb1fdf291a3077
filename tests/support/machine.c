#include "tests/support/machine.h"

#include "daemon/sched/disk.h"
#include "daemon/sched/events.h"
#include "store/models.h"
#include "tests/support/scratch.h"

#include <math.h>

uint64_t machine_total_bytes[MACHINE_DEVICE_COUNT];
uint64_t machine_free_bytes[MACHINE_DEVICE_COUNT];

static struct error fault; /* of the last CHECK */

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if (!(call))                                                                               \
            fail_msg("%s: %s", #call, fault.message);                                              \
    } while (0)

static size_t number_of(const struct device *device)
{
    return device->kind == BACKEND_CPU ? CPU : GPU0 + (size_t)device->index;
}

static void describe(const struct device *device, struct backend_device *ret_now)
{
    ret_now->memory_total_bytes = machine_total_bytes[number_of(device)];
    ret_now->memory_free_bytes = machine_free_bytes[number_of(device)];
}

static void add_device(struct devices *devices, enum backend_kind kind, int index, int threads)
{
    struct device *device = &devices->items[devices->count++];

    *device = (struct device){.kind = kind, .index = index, .thread_count = threads};
    (void)snprintf(device->id, sizeof(device->id), "%s:%d", backend_name(kind), index);
}

struct machine *machine_new(size_t jobs_per_device, int cpu_threads)
{
    struct machine *machine = calloc(1, sizeof(*machine));

    assert_non_null(machine);
    memset(machine_total_bytes, 0, sizeof(machine_total_bytes));
    memset(machine_free_bytes, 0, sizeof(machine_free_bytes));
    machine->folder = scratch_new();
    (void)snprintf(machine->database, sizeof(machine->database), "%s/needled.db", machine->folder);
    CHECK(store_open(machine->database, true, &machine->store, &fault));
    CHECK(disk_open(machine->folder, 0, &machine->disk, &fault));
    add_device(&machine->devices, BACKEND_CPU, 0, cpu_threads);
    add_device(&machine->devices, BACKEND_CUDA, 0, 1);
    add_device(&machine->devices, BACKEND_CUDA, 1, 1);
    machine->options = (struct scheduler_options){.state_folder = machine->folder,
                                                  .models_folder = machine->folder,
                                                  .database_path = machine->database,
                                                  .devices = &machine->devices,
                                                  .disk = machine->disk,
                                                  .feed = events_feed_new(),
                                                  .jobs_per_device = jobs_per_device,
                                                  .describe = describe};
    machine->mailbox = mailbox_new();
    CHECK(queue_open(&machine->options, machine->mailbox, &machine->queue, &fault));
    return machine;
}

void machine_free(struct machine *machine)
{
    queue_close(machine->queue);
    mailbox_free(machine->mailbox);
    events_feed_free(machine->options.feed);
    disk_close(machine->disk);
    store_close(machine->store);
    scratch_free(machine->folder);
    free(machine);
}

void machine_restart(struct machine *machine)
{
    queue_close(machine->queue);
    machine->queue = NULL;
    CHECK(queue_open(&machine->options, machine->mailbox, &machine->queue, &fault));
}

void machine_add_record(struct machine *machine, struct job_record *job, const char *plan)
{
    struct queue_verdict verdict = {.job_id = job->id, .plan_json = plan};

    CHECK(queue_submit(machine->queue, job, &fault));
    CHECK(queue_judge(machine->queue, &verdict, &fault));
}

void machine_add_job(struct machine *machine, const char *id, const char *device, const char *plan)
{
    struct job_record job = {.base_model = "needle-3", .numerics = "w4a8", .created_unix_s = 1};

    (void)snprintf(job.id, sizeof(job.id), "%s", id);
    (void)snprintf(job.device_wanted, sizeof(job.device_wanted), "%s", device);
    machine_add_record(machine, &job, plan);
}

struct queue_claim machine_claim(struct machine *machine, size_t slot)
{
    struct queue_claim claim = {.slot = slot};

    CHECK(queue_take(machine->queue, &claim, &fault));
    if (claim.found)
        job_record_release(&claim.job);
    return claim;
}

const char *machine_take(struct machine *machine, size_t slot)
{
    static char id[STORE_ID_SIZE];
    const struct queue_claim claim = machine_claim(machine, slot);

    (void)snprintf(id, sizeof(id), "%s", claim.found ? claim.job.id : "");
    return id;
}

bool machine_end(struct machine *machine, size_t slot, const char *id, enum outcome_kind kind,
                 const struct error *why)
{
    struct model_record model = {.valid_loss = NAN};
    struct queue_outcome outcome = {.slot = slot,
                                    .job_id = id,
                                    .kind = kind,
                                    .fault = why,
                                    .steps = 5,
                                    .models = &model,
                                    .model_count = 1};

    (void)snprintf(model.id, sizeof(model.id), "ft:%s", id);
    (void)snprintf(model.job_id, sizeof(model.job_id), "%s", id);
    CHECK(queue_end(machine->queue, &outcome, &fault));
    return outcome.kept;
}

void machine_set_service(struct machine *machine, size_t slot, const char *reason)
{
    struct queue_fault service = {.slot = slot, .reason = reason};

    CHECK(queue_set_service(machine->queue, &service, &fault));
}

struct job_record machine_get(struct machine *machine, const char *id)
{
    struct job_record job;

    CHECK(jobs_get(machine->store, id, &job, &fault));
    job_record_release(&job);
    return job;
}

size_t machine_count_events(struct machine *machine, const char *id, const char *word)
{
    struct event_record *events = NULL;
    size_t count = 0, found = 0;

    CHECK(events_since(machine->store, id, 0, 1000, &events, &count, &fault));
    for (size_t i = 0; i < count; i++)
        found += strstr(events[i].message, word) != NULL;
    events_free(events, count);
    return found;
}
