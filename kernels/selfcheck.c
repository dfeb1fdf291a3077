#include "kernels/selfcheck.h"

#include "kernels/examples/op_cases.h"
#include "kernels/table.h"

#include <stdio.h>
#include <stdlib.h>

#define HOST_BYTES_MAX ((size_t)1 << 20)

/* Small: ref is slow, and this is run at each start. */
static const struct op_size sizes[] = {
    /* name   N    C   H  G half V lanes vocab tree     window */
    {"tails", 19, 37, 2, 1, 9, 17, 4, 35, TREE_NESTED, 5},
    {"whole", 16, 32, 1, 1, 8, 16, 4, 16, TREE_FOREST, 8},
};

struct pair {
    struct op_run run, oracle;
};

static enum backend_status fault_of(const struct op_run *run, char *ret_reason, size_t reason_size)
{
    const enum backend_status status = backend_sync(run->be);

    (void)snprintf(ret_reason, reason_size, "%s, size %s: %s", run->op->name, run->size->name,
                   op_fault(run));
    return status != BACKEND_OK ? status : BACKEND_NO_MEMORY;
}

static void note_share(struct backend_check *found, const char *op, double share)
{
    if (found->worst_op && share <= found->worst_share)
        return;
    found->worst_op = op;
    found->worst_share = share;
}

static enum backend_status check_one(struct pair *pair, struct backend *be, struct backend *ref,
                                     const struct op_case *op, const struct op_size *size,
                                     struct backend_check *found, char *ret_reason,
                                     size_t reason_size)
{
    struct op_run *run = &pair->run, *oracle = &pair->oracle;
    enum backend_status status = BACKEND_OK;

    if (!op_init(oracle, ref, op, size, HOST_BYTES_MAX) || !op_forward(oracle) ||
        !op_backward(oracle)) {
        status = fault_of(oracle, ret_reason, reason_size);
        goto out;
    }
    if (!op_init_as(run, be, oracle) || !op_forward(run) || !op_backward(run)) {
        status = fault_of(run, ret_reason, reason_size);
    } else {
        note_share(found, op->name, op_share_of_allowed(run, oracle));
        if (!op_agrees(run, oracle, ret_reason, reason_size))
            status = BACKEND_CHECK_FAILED;
    }
    op_release(run);
out:
    op_release(oracle);
    return status;
}

static enum backend_status check_all(struct pair *pair, struct backend *be, struct backend *ref,
                                     struct backend_check *found, char *ret_reason,
                                     size_t reason_size)
{
    enum backend_status status = BACKEND_OK;

    for (size_t table = 0; op_cases_all[table]; table++)
        for (const struct op_case *op = op_cases_all[table]; op->name; op++) {
            for (size_t i = 0; status == BACKEND_OK && i < sizeof(sizes) / sizeof(sizes[0]); i++)
                status = check_one(pair, be, ref, op, &sizes[i], found, ret_reason, reason_size);
            if (status != BACKEND_OK)
                return status;
            found->example_count++;
        }
    return BACKEND_OK;
}

enum backend_status selfcheck_run(struct backend *be, struct backend_check *ret_check,
                                  char *ret_reason, size_t reason_size)
{
    const struct backend_options options = {.thread_count = 1};
    struct backend *ref = NULL;
    struct pair *pair = NULL;
    struct backend_check found = {0};
    enum backend_status status = ref_open(&options, &ref, ret_reason, reason_size);

    if (status != BACKEND_OK)
        return status;
    pair = malloc(sizeof(*pair));
    if (pair) {
        status = check_all(pair, be, ref, &found, ret_reason, reason_size);
    } else {
        (void)snprintf(ret_reason, reason_size, "no memory for the check of the ops");
        status = BACKEND_NO_MEMORY;
    }
    if (ret_check)
        *ret_check = found;
    free(pair);
    backend_close(ref);
    return status;
}
