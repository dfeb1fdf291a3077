#include "daemon/sched/deaths.h"

#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/base/limits.h"
#include "daemon/base/log.h"
#include "daemon/sched/changes.h"
#include "daemon/sched/jobfiles.h"
#include "daemon/sched/place.h"
#include "daemon/sched/queue.h"
#include "store/settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOKED_AT 256 /* jobs recovered at once */
#define MACHINE_SETTING "machine"
#define MEMORY_HINT "; the kernel has ended a process of this machine for want of memory meanwhile"

/* ---- the machine ------------------------------------------------------------------------------------ */

struct machine {
    char boot_id[64];          /* "" not known */
    int64_t memory_kill_count; /* processes that the kernel ended for want of memory, since then */
};

static struct machine read_machine(void)
{
    struct machine machine = {0};
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    static const char word[] = "oom_kill ";
    char line[128];

    if (file) {
        if (fscanf(file, "%63s", machine.boot_id) != 1)
            machine.boot_id[0] = '\0';
        (void)fclose(file); /* only read */
    }
    file = fopen("/proc/vmstat", "re");
    while (file && fgets(line, sizeof(line), file)) {
        if (strncmp(line, word, strlen(word)) == 0)
            machine.memory_kill_count = strtoimax(line + strlen(word), NULL, 10);
    }
    if (file)
        (void)fclose(file); /* only read */
    return machine;
}

/* What happened to the machine since the last start. */
struct meanwhile {
    bool restarted, short_of_memory;
};

static bool look_at_machine(struct store *store, struct meanwhile *ret_meanwhile, struct error *err)
{
    const struct machine now = read_machine();
    char text[SETTING_VALUE_SIZE], known[SETTING_VALUE_SIZE];
    char *rest = NULL;
    int64_t before;

    (void)snprintf(text, sizeof(text), "%" PRId64 " %s", now.memory_kill_count, now.boot_id);
    if (!settings_exchange(store, MACHINE_SETTING, text, known, err))
        return false;
    before = strtoimax(known, &rest, 10);
    *ret_meanwhile = (struct meanwhile){0};
    if (known[0] == '\0' || *rest != ' ' || now.boot_id[0] == '\0')
        return true;
    ret_meanwhile->restarted = strcmp(rest + 1, now.boot_id) != 0;
    ret_meanwhile->short_of_memory = !ret_meanwhile->restarted && now.memory_kill_count > before;
    return true;
}

/* ---- the rule --------------------------------------------------------------------------------------- */

/* Steps made in the run that broke off. */
static int64_t find_place(const struct queue *queue, const struct attempt_record *attempt)
{
    char folder[LIMIT_PATH_BYTES];
    int64_t step;

    if (attempt->is_reading)
        return ATTEMPT_READING;
    if (jobfiles_find_checkpoints(queue->options->state_folder, attempt->job_id, folder,
                                  sizeof(folder), NULL) &&
        place_read(folder, attempt->attempt_count, &step))
        return step;
    return attempt->kept_step; /* it died before it got to a step */
}

/* kept_step: one beyond the last place has ended the suspicion already. */
static bool is_same_place(const struct attempt_record *attempt, int64_t step)
{
    if (attempt->death_count == 0)
        return false;
    if (step == ATTEMPT_READING || attempt->death_step == ATTEMPT_READING)
        return step == attempt->death_step;
    return llabs(step - attempt->death_step) <= DEATHS_NEAR;
}

struct death {                     /* of the daemon, for one of the jobs that were at work */
    struct attempt_record attempt; /* as it is to be kept */
    bool is_held;
    struct meanwhile meanwhile;
};

static struct death judge(const struct queue *queue, const struct attempt_record *attempt,
                          struct meanwhile meanwhile, bool others_suspected)
{
    struct death death = {.attempt = *attempt, .meanwhile = meanwhile};
    const int64_t step = find_place(queue, attempt);

    death.is_held = !meanwhile.restarted && (attempt->death_count > 0 || !others_suspected);
    if (death.is_held) {
        death.attempt.death_count = is_same_place(attempt, step) ? attempt->death_count + 1 : 1;
        death.attempt.death_step = step;
    }
    return death;
}

/* "attempt 2, after step 57", or what was done instead. */
static void describe(const struct death *death, int64_t step, char *ret_text, size_t capacity)
{
    if (death->attempt.is_reading)
        (void)snprintf(ret_text, capacity, "while the job's files were read");
    else
        (void)snprintf(ret_text, capacity,
                       "while the job ran (attempt %" PRId64 ", after step %" PRId64 ")",
                       death->attempt.attempt_count, step);
}

static struct json *death_data(const struct death *death, int64_t step, const char *state_name)
{
    struct json *data = notes_status(state_name);

    json_add_int(data, "attempt", death->attempt.attempt_count);
    if (!death->attempt.is_reading)
        json_add_int(data, "step", step);
    json_add_int(data, "deaths", death->attempt.death_count);
    return data;
}

/* Back to where it was: the line, or those whose files are to be read. */
static bool give_back(struct queue *queue, const struct death *death, int64_t step,
                      struct error *err)
{
    const enum job_state state = death->attempt.is_reading ? JOB_VALIDATING_FILES : JOB_QUEUED;
    struct job_change change = JOB_CHANGE_NONE;
    struct notes notes;
    char where[96];
    bool ok;

    change.death = &death->attempt;
    describe(death, step, where, sizeof(where));
    notes_init(&notes);
    notes_add(&notes, EVENT_WARN, state == JOB_QUEUED ? "state" : "message",
              death_data(death, step, job_state_name(state)), "The %s %s%s; %s",
              death->meanwhile.restarted ? "machine restarted" : "daemon ended", where,
              death->meanwhile.short_of_memory ? MEMORY_HINT : "",
              state == JOB_QUEUED ? "it is queued again and goes on from its last checkpoint"
                                  : "they are read again");
    if (state == JOB_QUEUED)
        ok = changes_move(queue, death->attempt.job_id, JOB_RUNNING, JOB_QUEUED, &change, &notes,
                          err);
    else
        ok = !notes.failed && jobs_update(queue->store, death->attempt.job_id, &change,
                                          notes.drafts, notes.count, err);
    notes_release(&notes);
    return ok;
}

static bool fail(struct queue *queue, const struct death *death, int64_t step, struct error *err)
{
    const struct attempt_record *attempt = &death->attempt;
    struct job_change change = JOB_CHANGE_NONE;
    struct error fault = {0};
    char where[96];

    change.death = attempt;
    describe(death, step, where, sizeof(where));
    error_set_word(&fault, ERR_INTERNAL, "daemon_died", attempt->is_reading ? "training_file" : "",
                   "the daemon died %" PRId64 " times in a row in the same place, the last time "
                   "%s%s; the job is not started again",
                   attempt->death_count, where,
                   death->meanwhile.short_of_memory ? MEMORY_HINT : "");
    log_write_for(LOG_LEVEL_ERROR, "job", attempt->job_id, "%s", fault.message);
    if (!changes_fail(queue, attempt->job_id,
                      attempt->is_reading ? JOB_VALIDATING_FILES : JOB_RUNNING, &change, &fault,
                      err))
        return false;
    jobfiles_remove_resume(queue->options->state_folder, attempt->job_id);
    return true;
}

static bool recover_job(struct queue *queue, const struct death *death, struct error *err)
{
    const int64_t limit = (int64_t)queue->options->crash_limit;
    const int64_t step = find_place(queue, &death->attempt);

    if (death->is_held && limit > 0 && death->attempt.death_count >= limit)
        return fail(queue, death, step, err);
    return give_back(queue, death, step, err);
}

bool deaths_recover(struct queue *queue, struct error *err)
{
    struct attempt_record *attempts = NULL;
    struct meanwhile meanwhile;
    size_t count = 0;
    bool suspected = false, ok = true;

    if (!look_at_machine(queue->store, &meanwhile, err))
        return false;
    do {
        ok = attempts_list_broken(queue->store, LOOKED_AT, &attempts, &count, err);
        for (size_t i = 0; ok && i < count; i++)
            suspected = suspected || attempts[i].death_count > 0;
        for (size_t i = 0; ok && i < count; i++) {
            const struct death death = judge(queue, &attempts[i], meanwhile, suspected);

            ok = recover_job(queue, &death, err);
        }
        free(attempts);
        attempts = NULL;
    } while (ok && count > 0);
    return ok;
}

/* ---- one suspected job at a time ---------------------------------------------------------------------- */

bool deaths_find_suspects(struct queue *queue, struct deaths_suspects *ret_suspects,
                          struct error *err)
{
    *ret_suspects = (struct deaths_suspects){0};
    return attempts_list_suspects(queue->store, DEATHS_SUSPECTS_MAX, &ret_suspects->all,
                                  &ret_suspects->count, err);
}

void deaths_release(struct deaths_suspects *suspects)
{
    free(suspects->all);
    *suspects = (struct deaths_suspects){0};
}

static bool is_at_work(const struct queue *queue, const struct attempt_record *attempt)
{
    if (attempt->is_reading)
        return true;
    for (size_t i = 0; i < queue->slots.count; i++) {
        if (strcmp(queue->slots.items[i].job_id, attempt->job_id) ==
            0) /* only this thread writes it */
            return true;
    }
    return false;
}

const char *deaths_waits_for(const struct queue *queue, const struct deaths_suspects *suspects,
                             const char *job_id)
{
    const char *other = NULL;
    bool suspected = false;

    for (size_t i = 0; i < suspects->count; i++) {
        const struct attempt_record *attempt = &suspects->all[i];

        if (strcmp(attempt->job_id, job_id) == 0)
            suspected = true;
        else if (!other && is_at_work(queue, attempt))
            other = attempt->job_id;
    }
    return suspected ? other : NULL;
}

bool deaths_begin_reading(void *owner, void *arguments, struct error *err)
{
    struct queue *queue = owner;
    const char *job_id = arguments;
    struct deaths_suspects suspects;
    const char *other;
    bool ok;

    if (queue->stopping)
        return error_set(err, ERR_CANCELLED, "the daemon stops");
    if (!deaths_find_suspects(queue, &suspects, err))
        return false;
    other = deaths_waits_for(queue, &suspects, job_id);
    ok = !other ||
         error_set(err, ERR_LIMIT, "its files are read when job '%.48s' has got on", other);
    deaths_release(&suspects);
    return ok && attempts_begin_reading(queue->store, job_id, err);
}
