#include "tests/support/op_run.h"

#include "kernels/examples/op_tree.h"
#include "kernels/table.h"
#include "tests/support/op_cases.h"

#define HOST_BYTES_MAX ((size_t)1 << 30)

/* ---- runs that must succeed ------------------------------------------------------------------ */

static void must(const struct op_run *run, bool ok)
{
    if (!ok)
        fail_msg("%s %s %s: %s", backend_name(run->be->kind), run->op->name, run->size->name,
                 op_fault(run));
}

void op_run_init(struct op_run *run, struct backend *be, const struct op_case *op,
                 const struct op_size *size)
{
    must(run, op_init(run, be, op, size, HOST_BYTES_MAX));
}

void op_run_init_as(struct op_run *run, struct backend *be, const struct op_run *other)
{
    must(run, op_init_as(run, be, other));
}

void op_run_release(struct op_run *run)
{
    op_release(run);
}

void op_run_forward(struct op_run *run)
{
    must(run, op_forward(run));
}

void op_run_backward(struct op_run *run)
{
    must(run, op_backward(run));
}

double op_run_loss(const struct op_run *run)
{
    double loss = 0;

    for (size_t i = 0; i < run->array_count; i++) {
        const struct op_array *weight = &run->arrays[i];

        for (size_t k = 0; weight->upstream_of && k < weight->count; k++)
            loss += (double)weight->start[k] * weight->upstream_of->result[k];
    }
    return loss * run->loss_scale;
}

void each_op_case(struct backend *be, size_t size_count,
                  void (*body)(struct backend *be, const struct op_case *op,
                               const struct op_size *size))
{
    for (size_t table = 0; op_cases_all[table]; table++)
        for (const struct op_case *op = op_cases_all[table]; op->name; op++)
            for (size_t size = 0; size < size_count; size++)
                body(be, op, &op_sizes[size]);
}

double normalised_squared_error(const float *a, const float *b, size_t count, double floor)
{
    return op_squared_error(a, b, count, floor);
}

/* ---- trees ----------------------------------------------------------------------------------- */

void tree_from_parents(struct backend *be, const int32_t *parent, size_t token_count,
                       struct tree *ret_tree)
{
    assert_true(op_tree_from_parents(be, parent, token_count, ret_tree));
}

void tree_build(struct backend *be, enum tree_kind kind, size_t token_count, struct tree *ret_tree)
{
    assert_true(op_tree_build(be, kind, token_count, ret_tree));
}

void tree_release(struct backend *be, struct tree *tree)
{
    op_tree_release(be, tree);
}

/* ---- backends -------------------------------------------------------------------------------- */

struct backend *backend_for_test(enum backend_kind kind)
{
    const struct backend_options options = {.device_index = 0, .thread_count = 2};
    struct backend *be = NULL;
    char reason[256] = "";
    enum backend_status status = backend_open(kind, &options, &be, reason, sizeof(reason));

    if (status == BACKEND_ABSENT)
        return NULL;
    if (status != BACKEND_OK)
        fail_msg("%s does not open: %s", backend_name(kind), reason);
    return be;
}

void each_backend(void (*body)(struct backend *be))
{
    size_t count = 0;

    for (enum backend_kind kind = BACKEND_REF; kind < BACKEND_KIND_COUNT; kind++) {
        struct backend *be = backend_for_test(kind);

        if (!be)
            continue;
        body(be);
        if (backend_allocated_bytes(be) != 0)
            fail_msg("%s: %zu bytes not given back", backend_name(kind),
                     backend_allocated_bytes(be));
        backend_close(be);
        count++;
    }
    assert_true(count > 0);
}
