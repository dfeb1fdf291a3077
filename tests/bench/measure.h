/*
 * measure: one run of the real trainer, timed, in a process of its own.
 *
 * Purpose    Whole training steps with one set of options: what a step took, where its time went,
 *            what the machine's sgemm reached between the steps, memory and page faults. A child
 *            process each, so that no run sees another's memory.
 * Ownership  The result is the caller's storage.
 * Threads    The caller has no others.
 * Failure    As train_run; a child that dies says how.
 */
#ifndef NEEDLED_BENCH_MEASURE_H
#define NEEDLED_BENCH_MEASURE_H

#include "daemon/train/trainer.h"
#include "tests/bench/flops.h"

#define MEASURE_STEPS_MAX 64

struct measure_options {
    const char *base_folder, *training_path;
    const char *validation_path; /* NULL: nothing is evaluated */
    enum numerics numerics;
    size_t batch_size;
    size_t max_len; /* 0: the default */
    bool on_card;   /* CUDA; else the processor */
    int device_index;
    enum backend_precision precision;
    int thread_count;
    const char *simd_level;                   /* NULL: the best */
    size_t line_count, validation_line_count; /* the first of the files' lines; 0: all */
    size_t step_count;                        /* timed, after a first one that is not */
    bool first_step_only;                     /* no step is timed */
    double seconds;                           /* no further step after so long; 0: all of them */
    bool without_peak;                        /* its arrays are not the trainer's memory */
    bool without_profile;                     /* it waits for each op: a card idles meanwhile */
    size_t peak_size;                         /* of a card's products; 0: PEAK_SIZE_CARD */
};

struct measure_step {
    double elapsed_s;
    struct counts counts;
    double loss;
};

struct measure {
    struct measure_step steps[MEASURE_STEPS_MAX]; /* the timed ones */
    size_t step_count;
    double startup_s;    /* from the call to the first step's start */
    double first_step_s; /* the one that is not counted */
    double peak_gflops;
    double evaluated_s;
    size_t evaluated_tokens;
    struct geometry geometry;
    size_t lora_rank, batch_tokens;
    bool keeps_activations;
    struct model_plan plan;
    struct backend_profile profile[BACKEND_PROFILE_COUNT]; /* of the timed steps */
    long minor_faults, major_faults;                       /* in the timed steps */
    double peak_rss_mb;                                    /* of the process, from start to end */
    uint64_t device_bytes;                                 /* of a card's memory, after a step */
    char device[256];
};

MUST_CHECK bool measure_run(const struct measure_options *options, struct measure *ret_measure,
                            struct error *err);

/* Medians over the steps. */
double measure_tokens_per_second(const struct measure *measure);
double measure_step_ms(const struct measure *measure);
/* Useful operations over what sgemm would have done in the same time. */
double measure_peak_share(const struct measure *measure);
/* Real tokens per second of one run over another's, step by step: their median. For runs whose
 * steps have the same lines, or lines of the same length. */
double measure_speedup(const struct measure *fast, const struct measure *slow);
/* Sums over the timed steps. */
double measure_total_s(const struct measure *measure);
struct counts measure_counts(const struct measure *measure);
double measure_products_gflops(const struct measure *measure);

#endif
