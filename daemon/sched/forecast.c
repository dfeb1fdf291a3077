#include "daemon/sched/forecast.h"

#include "daemon/base/clock.h"
#include "daemon/base/json.h"
#include "daemon/sched/estimate.h"
#include "daemon/sched/placement.h"
#include "daemon/sched/request.h"
#include "store/line.h"
#include "store/rates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NEVER_S 1e15 /* later than that is not known */

struct expected { /* of one that waits */
    char id[STORE_ID_SIZE];
    int64_t start_unix_s; /* 0: not known */
};
struct forecast {
    struct placement_view view;
    double free_s[SLOTS_MAX]; /* from now; NAN: not known */
    struct expected line[FORECAST_MAX];
    size_t count;
};

/* ---- how long a job takes ----------------------------------------------------------------------------- */

static bool is_waiting(enum job_state state)
{
    return state == JOB_VALIDATING_FILES || state == JOB_QUEUED;
}

/* Of one epoch, as far as the plan tells; 0: it does not. */
static double tokens_of(const struct job_record *job, const struct hyperparameters *hyper)
{
    struct json *plan = NULL;
    int64_t tokens = 0;
    const struct json *data;

    if (!job->plan_json || !json_parse(job->plan_json, strlen(job->plan_json), &plan, NULL))
        return 0;
    data = json_member(plan, "training_data");
    if (data && !json_get_int(data, "tokens", false, 0, INT64_MAX / 4, &tokens, NULL))
        tokens = 0;
    json_free(plan);
    return (double)tokens * (job->validation_file[0] ? 1 : 1 - hyper->val_split);
}

/* NAN: not known. */
static double seconds_on(struct store *store, const struct job_record *job, const char *device)
{
    struct hyperparameters hyper;
    struct rate_record rate;
    double tokens, done = 0;
    bool found = false;

    if (!request_hyper_parse(job->hyperparameters_json, &hyper, NULL))
        return (double)NAN;
    tokens = tokens_of(job, &hyper) * (double)hyper.n_epochs;
    estimate_rate_key(device, job->base_model, &hyper, &rate);
    if (!(tokens > 0) || !rates_get(store, &rate, &found, NULL) || !found ||
        !(rate.tokens_per_second > 0))
        return (double)NAN;
    if (job->total_steps > 0)
        done = (double)job->completed_steps / (double)job->total_steps;
    return tokens * (1 - done) / rate.tokens_per_second;
}

/* ---- who gets which slot, and when -------------------------------------------------------------------- */

/* The slot that is known to be free first; false: of none it is known. */
static bool find_slot(const struct forecast *forecast, const struct job_record *job,
                      size_t *ret_slot)
{
    const struct slots *slots = &forecast->view.queue->slots;
    bool suited[DEVICE_MAX];
    size_t best = slots->count;

    placement_list_suited(&forecast->view, job, suited);
    for (size_t i = 0; i < slots->count; i++) {
        if (suited[slots->items[i].device] && !isnan(forecast->free_s[i]) &&
            (best == slots->count || forecast->free_s[i] < forecast->free_s[best]))
            best = i;
    }
    *ret_slot = best;
    return best < slots->count;
}

/* A slot is free now, and yet the job has a reason to wait. */
static bool is_held_back(const struct job_record *job, double free_s)
{
    return strncmp(job->state_reason, "disk f", strlen("disk f")) == 0 || /* full, failing */
           (free_s <= 0 && job->state == JOB_QUEUED && job->state_reason[0]);
}

static void expect(struct forecast *forecast, struct store *store, const struct job_record *job,
                   int64_t now_unix_s)
{
    struct expected *expected = &forecast->line[forecast->count++];
    size_t slot;

    memcpy(expected->id, job->id, sizeof(expected->id));
    expected->start_unix_s = 0;
    if (!find_slot(forecast, job, &slot) || is_held_back(job, forecast->free_s[slot]))
        return;
    if (forecast->free_s[slot] < NEVER_S)
        expected->start_unix_s = now_unix_s + (int64_t)forecast->free_s[slot];
    forecast->free_s[slot] +=
        seconds_on(store, job, slots_device(&forecast->view.queue->slots, slot)->id);
}

static bool make(struct queue *queue, struct store *store, struct forecast *forecast,
                 struct error *err)
{
    const int64_t now_ns = clock_monotonic_ns(), now_unix_s = clock_unix_s();
    struct job_record *jobs = NULL;
    size_t count = 0;

    placement_glance(queue, &forecast->view);
    for (size_t i = 0; i < queue->slots.count; i++)
        forecast->free_s[i] = slots_remaining_s(&queue->slots, i, now_ns);
    forecast->count = 0;
    if (!jobs_list_waiting(store, FORECAST_MAX, &jobs, &count, err))
        return false;
    for (size_t i = 0; i < count; i++)
        expect(forecast, store, &jobs[i], now_unix_s);
    jobs_free(jobs, count);
    return true;
}

/* ---- answers ------------------------------------------------------------------------------------------ */

static int64_t finish_of(struct queue *queue, const struct job_record *job)
{
    double left = (double)NAN;
    size_t slot;

    if (job->state == JOB_RUNNING && slots_find(&queue->slots, job->id, &slot))
        left = slots_remaining_s(&queue->slots, slot, clock_monotonic_ns());
    return left < NEVER_S ? clock_unix_s() + (int64_t)left : 0; /* false for NAN */
}

static bool answer(const struct forecast *forecast, struct store *store,
                   const struct job_record *job, struct job_outlook *ret_outlook, struct error *err)
{
    size_t i = 0;

    while (i < forecast->count && strcmp(forecast->line[i].id, job->id) != 0)
        i++;
    if (i == forecast->count)
        return line_rank(store, &job->place, &ret_outlook->queue_position, err);
    ret_outlook->queue_position = (int64_t)i + 1;
    ret_outlook->start_unix_s = forecast->line[i].start_unix_s;
    return true;
}

bool forecast_jobs(struct queue *queue, struct store *store, const struct job_record *jobs,
                   size_t count, struct job_outlook *ret_outlooks, struct error *err)
{
    struct forecast *forecast = NULL; /* made for the first that waits */
    bool ok = true;

    for (size_t i = 0; ok && i < count; i++) {
        ret_outlooks[i] = (struct job_outlook){.finish_unix_s = finish_of(queue, &jobs[i])};
        if (!is_waiting(jobs[i].state))
            continue;
        if (!forecast) {
            forecast = malloc(sizeof(*forecast));
            ok = forecast ? make(queue, store, forecast, err)
                          : error_set(err, ERR_NO_MEMORY, "no memory for the queue's times");
        }
        ok = ok && answer(forecast, store, &jobs[i], &ret_outlooks[i], err);
    }
    free(forecast);
    return ok;
}
