#include "kernels/cpu/verdict.h"

#include "kernels/cpu/cpu.h"
#include "kernels/selfcheck.h"

#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct verdict verdicts[LEVEL_COUNT]; /* guarded by lock */
const struct verdict_list verdict_list = {levels, verdicts, LEVEL_COUNT};

static struct verdict read_verdict(const struct verdict *verdict)
{
    (void)pthread_mutex_lock(&lock); /* a normal mutex of ours: cannot fail */
    const struct verdict copy = *verdict;
    (void)pthread_mutex_unlock(&lock);
    return copy;
}

static void write_verdict(struct verdict *verdict, const struct verdict *found)
{
    (void)pthread_mutex_lock(&lock); /* as above */
    *verdict = *found;
    (void)pthread_mutex_unlock(&lock);
}

/* On a backend of its own: an op that went wrong leaves nothing behind. */
static enum backend_status check(const struct level *level, struct verdict *ret_found)
{
    struct backend *be = NULL;
    char reason[VERDICT_REASON_BYTES] = "";
    enum backend_status status = cpu_open_level(level, 1, &be, reason, sizeof(reason));

    if (status == BACKEND_OK) {
        status = selfcheck_run(be, NULL, reason, sizeof(reason));
        backend_close(be);
    }
    *ret_found = (struct verdict){.state = status == BACKEND_OK             ? VERDICT_PASSED
                                           : status == BACKEND_CHECK_FAILED ? VERDICT_FAILED
                                                                            : VERDICT_NONE};
    (void)snprintf(ret_found->reason, sizeof(ret_found->reason), "%s", reason);
    return status;
}

enum backend_status verdict_choose(const struct verdict_list *list, const char *wanted,
                                   const struct level **ret_level, char *ret_reason,
                                   size_t reason_size)
{
    const struct level *level =
        level_find(list->levels, list->count, wanted, ret_reason, reason_size);

    if (!level)
        return BACKEND_ABSENT;
    ret_reason[0] = 0;
    for (size_t i = (size_t)(level - list->levels); i < list->count; i++) {
        struct verdict found = read_verdict(&list->verdicts[i]);

        if (!list->levels[i].is_supported())
            continue;
        if (found.state == VERDICT_NONE) {
            const enum backend_status status = check(&list->levels[i], &found);

            if (found.state == VERDICT_NONE) {
                (void)snprintf(ret_reason, reason_size, "check of SIMD level %s: %s",
                               list->levels[i].name, found.reason);
                return status;
            }
            write_verdict(&list->verdicts[i], &found);
        }
        if (found.state == VERDICT_PASSED) {
            *ret_level = &list->levels[i];
            return BACKEND_OK;
        }
        if (ret_reason[0] == 0) /* the first one is the one that was meant */
            (void)snprintf(ret_reason, reason_size, "SIMD level %s computes wrong results here: %s",
                           list->levels[i].name, found.reason);
    }
    return BACKEND_CHECK_FAILED;
}
