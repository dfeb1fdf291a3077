#include "daemon/sched/plan.h"

#include "daemon/base/json.h"
#include "daemon/base/log.h"
#include "daemon/sched/notes.h"
#include "daemon/train/trainer.h"
#include "store/jobs.h"

#include <stdio.h>

static struct json *memory_json(const struct train_plan *plan)
{
    const struct model_plan *memory = &plan->memory;
    const size_t counted =
        memory->weights_bytes + memory->adapter_bytes + memory->activations_bytes;
    struct json *object = json_new_object();

    json_add_int(object, "weights_bytes", (int64_t)memory->weights_bytes);
    json_add_int(object, "adapter_and_optimizer_bytes", (int64_t)memory->adapter_bytes);
    json_add_int(object, "activations_bytes", (int64_t)memory->activations_bytes);
    json_add_int(object, "other_bytes", (int64_t)(plan->total_bytes - counted));
    json_add_int(object, "total_bytes", (int64_t)plan->total_bytes);
    json_add_int(object, "mapped_bytes", (int64_t)memory->mapped_bytes);
    json_add_int(object, "batch_tokens", (int64_t)plan->batch_tokens);
    json_add_int(object, "layers", (int64_t)plan->layer_count);
    json_add_int(object, "recomputed_layers", (int64_t)plan->recomputed_layers);
    return object;
}

#define MEGABYTES(bytes) ((bytes) / 1000000)

void plan_note_memory(const struct job_record *job, const struct train_plan *plan,
                      struct notes *notes)
{
    const struct model_plan *memory = &plan->memory;
    char layers[80], text[320];

    if (plan->recomputed_layers > 0)
        (void)snprintf(layers, sizeof(layers), "%zu of %zu layers are computed again in backward",
                       plan->recomputed_layers, plan->layer_count);
    else
        (void)snprintf(layers, sizeof(layers), "no layer is computed again");
    (void)snprintf(text, sizeof(text),
                   "Memory: %zu MB, of them weights %zu, adapter and optimiser %zu, activations "
                   "%zu; %zu tokens at once, %s",
                   MEGABYTES(plan->total_bytes), MEGABYTES(memory->weights_bytes),
                   MEGABYTES(memory->adapter_bytes), MEGABYTES(memory->activations_bytes),
                   plan->batch_tokens, layers);
    notes_add(notes, EVENT_INFO, "message", memory_json(plan), "%s", text);
    log_write_for(LOG_LEVEL_INFO, "job", job->id, "%s", text);
}

struct json *plan_json(const struct job_record *job, const struct train_plan *plan)
{
    static const char *const kept[] = {"training_data", "validation_data", "test_data",
                                       "disk_bytes", "memory_needs"};
    struct json *object = json_new_object();
    struct json *groups = json_new_array();
    struct json *old = json_parse_or(job->plan_json, json_new_null);

    for (size_t i = 0; i < COUNT_OF(kept); i++) {
        if (!old || json_member(old, kept[i])) /* no memory for it: there is no plan */
            json_add(object, kept[i], old ? json_copy(json_member(old, kept[i])) : NULL);
    }
    json_free(old);
    json_add_int(object, "training_examples", (int64_t)plan->example_count);
    json_add_int(object, "validation_examples", (int64_t)plan->validation_count);
    json_add_int(object, "total_steps", (int64_t)plan->total_steps);
    json_add_int(object, "steps_per_epoch", (int64_t)plan->steps_per_epoch);
    json_add_int(object, "warmup_steps", (int64_t)plan->warmup_steps);
    json_add_int(object, "first_step", (int64_t)plan->first_step);
    json_add_int(object, "trained_tokens_per_epoch", (int64_t)plan->trained_tokens_per_epoch);
    json_add_int(object, "batch_tokens", (int64_t)plan->batch_tokens);
    json_add(object, "memory", memory_json(plan));
    for (size_t i = 0; i < plan->skipped_group_count; i++) {
        struct json *group = json_new_object();

        json_add_string(group, "path", plan->skipped_groups[i]);
        json_add_string(group, "reason", "all zero in the base");
        json_add(groups, NULL, group);
    }
    json_add(object, "skipped_groups", groups);
    return object;
}
