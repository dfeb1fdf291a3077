/*
 * op_run: one op on one backend with named arrays.
 *
 * Purpose    A case declares its arrays by name; the run fills them with seeded numbers, puts them
 *            on the device and reads back what the op wrote. The same cases run over every backend.
 * Ownership  op_run_init / op_run_release (caller's storage); the backend is borrowed.
 * Threads    One.
 * Failure    A backend's fault or a misnamed array fails the test.
 */
#ifndef NEEDLED_TEST_OP_RUN_H
#define NEEDLED_TEST_OP_RUN_H

#include "kernels/backend.h"
#include "tests/support/test.h"

#define OP_ARRAYS_MAX 48

enum tree_kind { TREE_CHAIN, TREE_FOREST, TREE_NESTED };

struct op_size {
    const char *name;
    size_t N, C;          /* tokens, width */
    size_t H, G, half, V; /* heads, key/value heads, half the size of a q/k head, size of v */
    size_t lanes, vocab;
    enum tree_kind tree;
    size_t window;
};

struct op_array {
    char name[16];
    size_t count; /* 4-byte elements, or bytes when `bytes` */
    bool bytes;
    bool read, written; /* by the op: what is written only starts as NaN */
    double spread;      /* of the random values; steps of differences are a fraction of it */
    bool differentiable;
    const struct op_array *upstream_of; /* dy of y: weight of y in the loss */
    const struct op_array *gradient_of; /* dx of x */
    float *start;                       /* host: what stands there before the op */
    float *result;                      /* host: what was read back */
    void *device;
};

struct op_run;

struct op_case {
    const char *name;
    int variant;
    void (*declare)(struct op_run *run);
    void (*forward)(struct op_run *run);
    void (*backward)(struct op_run *run); /* NULL: none */
    double tolerance;                     /* normalised squared error against ref */
    const char *in_place[3][2];           /* outputs that may be an input: {"y", "x"} */
};

struct op_run {
    struct backend *be;
    const struct op_case *op;
    const struct op_size *size;
    struct tree tree; /* on the device */
    double loss_scale;
    struct op_array arrays[OP_ARRAYS_MAX];
    size_t array_count;
    uint64_t random;
};

/* ---- for cases: declarations; all values are normal with the given spread, from a fixed seed ----
 */
struct op_array *op_input(struct op_run *run, const char *name, size_t count, double spread);
struct op_array *op_fixed(struct op_run *run, const char *name, size_t count, double spread);
struct op_array *op_numbers(struct op_run *run, const char *name, size_t count, int first,
                            int past);
struct op_array *op_output(struct op_run *run, const char *name, size_t count);
struct op_array *op_output_bytes(struct op_run *run, const char *name, size_t count);
struct op_array *op_inout(struct op_run *run, const char *name, size_t count, double spread);
void op_upstream(struct op_run *run, const char *name, const char *output);
void op_gradient_sets(struct op_run *run, const char *name, const char *input);
void op_gradient_adds(struct op_run *run, const char *name, const char *input);
void *op_device(struct op_run *run, const char *name);
struct op_array *op_array(struct op_run *run, const char *name);
double op_normal(uint64_t *state);
uint64_t op_random(uint64_t *state);

/* ---- for tests ------------------------------------------------------------------------------- */
/*
 * Tolerances are normalised squared errors against ref. Two f32 evaluations of one formula differ
 * by about 1e-7 of the size of what is summed, 1e-14 squared; CLOSE leaves a factor of 1e3 for long
 * and cancelling sums. A value on the edge of an 8-bit step may go to the next one: a 1/127 of the
 * largest, at most 2e-4 of the sum of squares where such an edge is met, so FLIP covers a few.
 */
#define CLOSE 1e-11
#define FLIP 1e-5

void op_run_init(struct op_run *run, struct backend *be, const struct op_case *op,
                 const struct op_size *size);
void op_run_release(struct op_run *run);
void op_run_forward(struct op_run *run);  /* starts, uploads, runs, downloads */
void op_run_backward(struct op_run *run); /* after forward */
double op_run_loss(const struct op_run *run);

/* sum (a - b)^2 / sum (b^2 + floor^2); 0 when equal, infinite when one is not a number. The floor
 * is for results that cancel to nearly nothing: an error of 3e-6 floor passes CLOSE. */
double normalised_squared_error(const float *a, const float *b, size_t count, double floor);

/* A tree of the kind in preorder, its arrays on the device; the host copy is the caller's to free.
 */
void tree_build(struct backend *be, enum tree_kind kind, size_t token_count, struct tree *ret_tree);
/* The same from parents given on the host. */
void tree_from_parents(struct backend *be, const int32_t *parent, size_t token_count,
                       struct tree *ret_tree);
void tree_release(struct backend *be, struct tree *tree);

/* Opens the backend with two threads; NULL where it is not built or there is no device. */
struct backend *backend_for_test(enum backend_kind kind);
/* Calls body with every backend there is here, ref first; fails if there is none. */
void each_backend(void (*body)(struct backend *be));

#endif
