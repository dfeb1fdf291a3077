/*
 * op: an example of one op, run on one backend, with its arrays by name.
 *
 * Purpose    A case of the table (op_cases.h) declares its arrays; a run fills them with numbers of a
 *            fixed seed, puts them on the device and reads back what the op wrote. The check at start
 *            and the tests run the same cases over every backend.
 * Ownership  op_init or op_init_as, op_release (caller's storage, also after a failure); the backend
 *            is borrowed.
 * Threads    One.
 * Failure    The first one is kept in words (op_fault); what follows does nothing and returns false.
 *            A misnamed array is a bug (asserted).
 */
#ifndef NEEDLED_OP_H
#define NEEDLED_OP_H

#include "kernels/backend.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
    bool halves;        /* each value written must be one that float16 holds */
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
    size_t host_bytes, host_bytes_max; /* taken for arrays, and the most that may be */
    char fault[160];                   /* "": none */
};

/* ---- a run ----------------------------------------------------------------------------------- */

/* host_bytes_max bounds the arrays on the host; as many bytes are taken on the device. */
bool op_init(struct op_run *run, struct backend *be, const struct op_case *op,
             const struct op_size *size, size_t host_bytes_max);
/* The same on another backend, with the numbers of a run that was made. */
bool op_init_as(struct op_run *run, struct backend *be, const struct op_run *other);
void op_release(struct op_run *run);
bool op_forward(struct op_run *run);  /* starts, uploads, runs, downloads */
bool op_backward(struct op_run *run); /* after op_forward; true without one */
const char *op_fault(const struct op_run *run);

/*
 * Tolerances are normalised squared errors against ref. Two f32 evaluations of one formula differ
 * by about 1e-7 of the size of what is summed, 1e-14 squared; CLOSE leaves a factor of 1e3 for long
 * and cancelling sums. A value on the edge of an 8-bit step may go to the next one: a 1/127 of the
 * largest, at most 2e-4 of the sum of squares where such an edge is met, so FLIP covers a few.
 */
#define CLOSE 1e-11
#define FLIP 1e-5

/* sum (a - b)^2 / sum (b^2 + floor^2); 0 when equal, infinite when one is not a number. The floor
 * is for results that cancel to nearly nothing: an error of 3e-6 floor passes CLOSE. */
double op_squared_error(const float *a, const float *b, size_t count, double floor);

/* Whether all that the op wrote is as in the run of another backend. False: the reason names op,
 * size and array, with the error and what is allowed. */
bool op_agrees(const struct op_run *run, const struct op_run *oracle, char *ret_reason,
               size_t reason_size);
/* The largest error of what the op wrote, over what is allowed: agreeing is at most 1. */
double op_share_of_allowed(const struct op_run *run, const struct op_run *oracle);

/* ---- for cases: all values are normal with the given spread ------------------------------------
 * NULL after a failure, also one before. */
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
/* An input with a gradient that is that of rounding for rounded ops, not of the rounded values. */
void op_input_of(struct op_run *run, const char *name, size_t count, double spread, bool is_smooth);

void *op_device(struct op_run *run, const char *name);
struct op_array *op_array(struct op_run *run, const char *name); /* NULL after a failure */
double op_normal(uint64_t *state);
uint64_t op_random(uint64_t *state);

#endif
