#include "daemon/sched/place.h"

#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "daemon/base/limits.h"
#include "daemon/sched/deaths.h"
#include "daemon/train/trainer.h"

#include <fcntl.h>
#include <unistd.h>

#define NAME "resume-place" /* removed with what else begins so */

struct mark {
    int64_t attempt_count, step;
};

/* -1: it cannot be; what is no file of that name is left alone. */
static int open_mark(const char *folder, int flags)
{
    char path[LIMIT_PATH_BYTES];
    int descriptor = -1;

    return file_join(path, sizeof(path), folder, NAME, NULL) &&
                   file_open(path, flags | O_NOFOLLOW, &descriptor, NULL)
               ? descriptor
               : -1;
}

bool place_begin(struct place *place, struct store *store, const char *job_id,
                 struct train_job *job, struct error *err)
{
    *place = (struct place){.descriptor = -1, .store = store};
    if (!attempts_get(store, job_id, &place->attempt, err))
        return false;
    if (place->attempt.death_count > 0) {
        job->checkpoint_soon = true;
        job->checkpoint_interval_ns /= DEATHS_HURRY;
    }
    place->descriptor = open_mark(job->checkpoint_folder, O_WRONLY | O_CREAT);
    place_note(place, place->attempt.kept_step);
    return true;
}

void place_note(const struct place *place, int64_t step)
{
    const struct mark mark = {place->attempt.attempt_count, step};

    if (place->descriptor >= 0 && pwrite(place->descriptor, &mark, sizeof(mark), 0) < 0)
        return; /* the one before, or the checkpoint, stands for it */
}

bool place_keep(struct place *place, int64_t step, uint64_t size_bytes, bool *ret_cleared,
                struct error *err)
{
    struct attempt_record *attempt = &place->attempt;

    *ret_cleared = false;
    attempt->kept_step = step;
    attempt->kept_unix_s = clock_unix_s();
    attempt->kept_bytes = (int64_t)size_bytes;
    if (!attempts_keep(place->store, attempt, err))
        return false;
    *ret_cleared = attempt->death_count > 0 && step > attempt->death_step;
    if (*ret_cleared)
        attempt->death_count = 0;
    return true;
}

void place_end(struct place *place)
{
    if (place->descriptor >= 0)
        (void)close(place->descriptor); /* only a hint was written */
    place->descriptor = -1;
}

bool place_read(const char *folder, int64_t attempt_count, int64_t *ret_step)
{
    struct mark mark = {0};
    int descriptor = open_mark(folder, O_RDONLY);
    bool whole;

    if (descriptor < 0)
        return false;
    whole = read(descriptor, &mark, sizeof(mark)) == (ssize_t)sizeof(mark);
    (void)close(descriptor); /* only read */
    if (!whole || mark.attempt_count != attempt_count)
        return false;
    *ret_step = mark.step;
    return true;
}
