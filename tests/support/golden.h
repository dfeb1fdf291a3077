/*
 * golden: a recorded run of the reference implementation, and a run of ours beside it.
 *
 * Purpose    Losses, rates, gradient norms, and the adapter after each recorded step and at the end,
 *            in both numerics and both recorded geometries, on whatever backend the test opened.
 * Ownership  golden_open / golden_close (caller's storage), with the training it set up.
 * Threads    The test's.
 * Failure    Fails the test and says which number is how far off.
 */
#ifndef NEEDLED_TEST_GOLDEN_H
#define NEEDLED_TEST_GOLDEN_H

#include "tests/support/training.h"

#define GOLDEN_MAIN FIXTURES "needle3"
#define GOLDEN_MINI FIXTURES "needle3/mini"

struct json;

/* What two right implementations differ by, with room; from the fixtures' own README. */
struct golden_bounds {
    double loss, valid_loss; /* absolute */
    double norm;             /* relative */
    double a, b;             /* relative, Frobenius, per matrix */
};

struct golden {
    struct training *training;
    struct json *run;
    const struct golden_bounds *bounds;
    bool is_mini;
    char data_path[128], adapter_path[128], steps_path[128];
    size_t stop_after_step; /* 0: the whole run */
    size_t compared_steps;  /* after which the adapters were compared */
};

/* The training has the recorded data and hyper-parameters; what a test wants else it sets. */
void golden_open(struct golden *golden, struct training *training, const char *folder,
                 enum numerics numerics);
void golden_close(struct golden *golden);

/* Runs it, to its end or the step to stop after, and compares all there is to compare; TRAIN_DONE or
 * TRAIN_STOPPED is checked to match. */
void golden_check_run(struct golden *golden, struct backend *be);

/* ---- comparing ------------------------------------------------------------------------------- */

void check_near(double found, double wanted, double bound, const char *what, size_t index);
/* |found - wanted| / |wanted|, of all values as one vector. */
double relative_difference(const float *found, const float *wanted, size_t count);

#endif
