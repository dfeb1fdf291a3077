#include "tests/support/watch.h"

#include "kernels/table.h"
#include "tests/support/training.h"

#include <math.h>
#include <string.h>

struct watch watch;

static bool is_due(enum watch_op kind)
{
    return ++watch.counts[kind] == watch.at && watch.kind == kind;
}

/* True when the op's result is to be spoilt. */
static bool count(struct backend *be, enum watch_op kind)
{
    if (!is_due(kind))
        return false;
    switch (watch.act) {
    case WATCH_STOP:
        atomic_store(watch.stop, true);
        return false;
    case WATCH_FAULT:
        backend_set_fault(be, BACKEND_FAULT, "the device fell off");
        return false;
    case WATCH_SPOIL:
        return true;
    }
    return false;
}

static void watched_attention_forward(struct backend *be, float *o, float *lse, const float *q,
                                      const float *k, const float *v, const struct attention *shape,
                                      const struct tree *tree)
{
    (void)count(be, WATCH_FORWARD);
    watch.inner->attention_forward(be, o, lse, q, k, v, shape, tree);
}

static void watched_attention_backward(struct backend *be, float *dq, float *dk, float *dv,
                                       const float *dout, const float *o, const float *lse,
                                       const float *q, const float *k, const float *v,
                                       const struct attention *shape, const struct tree *tree)
{
    (void)count(be, WATCH_BACKWARD);
    watch.inner->attention_backward(be, dq, dk, dv, dout, o, lse, q, k, v, shape, tree);
}

static void watched_cross_entropy(struct backend *be, float *loss, float *hit, float *dx,
                                  float *dtable, const float *x, const float *table,
                                  const int32_t *row, const uint32_t *label, const float *weight,
                                  float gradient_scale, size_t targets, size_t N, size_t vocab,
                                  size_t D)
{
    (void)count(be, WATCH_COMPARED);
    watch.inner->cross_entropy(be, loss, hit, dx, dtable, x, table, row, label, weight,
                               gradient_scale, targets, N, vocab, D);
}

static void watched_sum_squares(struct backend *be, float *sum, const float *x, size_t size)
{
    const float spoilt = INFINITY;
    const bool spoil = count(be, WATCH_SUMMED);

    watch.inner->sum_squares(be, sum, x, size);
    if (spoil)
        watch.inner->upload(be, sum, &spoilt, sizeof(spoilt));
}

static void watched_adamw(struct backend *be, float *p, float *m, float *v, const float *g,
                          const struct adamw *step, size_t size)
{
    (void)count(be, WATCH_STEPPED);
    watch.inner->adamw(be, p, m, v, g, step, size);
}

static void *watched_alloc(struct backend *be, size_t size_bytes)
{
    return is_due(WATCH_ALLOCATED) ? NULL : watch.inner->alloc(be, size_bytes);
}

struct backend *watch_open(void)
{
    static struct backend_table table;
    struct backend *be = training_backend(BACKEND_CPU);

    memset(&watch, 0, sizeof(watch));
    watch.inner = be->table;
    table = *be->table;
    table.attention_forward = watched_attention_forward;
    table.attention_backward = watched_attention_backward;
    table.cross_entropy = watched_cross_entropy;
    table.sum_squares = watched_sum_squares;
    table.adamw = watched_adamw;
    table.alloc = watched_alloc;
    be->table = &table;
    return be;
}

void watch_for(enum watch_op kind, size_t at, enum watch_act act, atomic_bool *stop)
{
    memset(watch.counts, 0, sizeof(watch.counts));
    watch.kind = kind;
    watch.at = at;
    watch.act = act;
    watch.stop = stop;
}

void watch_close(struct backend *be)
{
    be->table = watch.inner;
    backend_close(be);
}
