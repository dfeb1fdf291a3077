/*
 * bench_train: times the steps of one run.
 *
 *     bench_train [--base FOLDER] [--lines FILE] [--numerics w4a8|float32] [--batch N] [--steps N]
 *                 [--seconds S] [--threads N] [--level plain|avx2|avx512] [--evaluate FILE]
 *                 [--max-len N] [--device cpu|cuda|cuda:N] [--precision float32|tf32|bf16]
 *                 [--peak-size N] [--no-peak] [--no-profile] [--brief]
 *
 * --brief prints a line `step NUMBER TOKENS SECONDS LOSS` for each timed step and nothing else.
 *
 * --no-profile: without the table of operations, for which each one is waited for; a card is then as
 * fast as it is in a job. FILE may be mixed, long, one-app or shuffled: build/bench/<that>.jsonl, which make bench-base makes.
 */
#include "tests/bench/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const char usage[] =
    "usage: bench_train [--base FOLDER] [--lines FILE|mixed|long|one-app|shuffled]\n"
    "                   [--numerics w4a8|float32] [--batch N] [--steps N] [--seconds S]\n"
    "                   [--threads N] [--level plain|avx2|avx512] [--evaluate FILE]\n"
    "                   [--max-len N] [--device cpu|cuda|cuda:N] [--precision float32|tf32|bf16]\n"
    "                   [--peak-size N] [--no-peak] [--no-profile] [--brief]\n";

static const char *lines_path(const char *name)
{
    static const char *const known[][2] = {{"mixed", "build/bench/mixed.jsonl"},
                                           {"long", "build/bench/long.jsonl"},
                                           {"one-app", "build/bench/one-app.jsonl"},
                                           {"shuffled", "build/bench/shuffled.jsonl"}};

    for (size_t i = 0; i < COUNT_OF(known); i++)
        if (strcmp(name, known[i][0]) == 0)
            return known[i][1];
    return name;
}

static bool set_device(struct measure_options *options, const char *value)
{
    const char *number = strchr(value, ':');

    options->on_card = strncmp(value, "cuda", 4) == 0;
    options->device_index = number ? (int)strtoul(number + 1, NULL, 10) : 0;
    return options->on_card || strcmp(value, "cpu") == 0;
}

static bool set_precision(struct measure_options *options, const char *value)
{
    for (size_t i = 0; backend_precision_names[i]; i++)
        if (strcmp(value, backend_precision_names[i]) == 0) {
            options->precision = (enum backend_precision)i;
            return true;
        }
    return false;
}

static bool set_option(struct measure_options *options, const char *name, const char *value)
{
    if (strcmp(name, "--device") == 0)
        return set_device(options, value);
    if (strcmp(name, "--precision") == 0)
        return set_precision(options, value);

    if (strcmp(name, "--base") == 0)
        options->base_folder = value;
    else if (strcmp(name, "--lines") == 0)
        options->training_path = lines_path(value);
    else if (strcmp(name, "--evaluate") == 0)
        options->validation_path = lines_path(value);
    else if (strcmp(name, "--level") == 0)
        options->simd_level = value;
    else if (strcmp(name, "--batch") == 0)
        options->batch_size = strtoul(value, NULL, 10);
    else if (strcmp(name, "--max-len") == 0)
        options->max_len = strtoul(value, NULL, 10);
    else if (strcmp(name, "--peak-size") == 0)
        options->peak_size = strtoul(value, NULL, 10);
    else if (strcmp(name, "--steps") == 0)
        options->step_count = strtoul(value, NULL, 10);
    else if (strcmp(name, "--seconds") == 0)
        options->seconds = strtod(value, NULL);
    else if (strcmp(name, "--threads") == 0)
        options->thread_count = (int)strtoul(value, NULL, 10);
    else if (strcmp(name, "--numerics") == 0 && strcmp(value, "w4a8") == 0)
        options->numerics = NUMERICS_W4A8;
    else if (strcmp(name, "--numerics") == 0 && strcmp(value, "float32") == 0)
        options->numerics = NUMERICS_FLOAT32;
    else
        return false;
    return true;
}

static void print_steps(const struct measure *measure)
{
    for (size_t i = 0; i < measure->step_count; i++)
        printf("step %zu %zu %.6f %.6f\n", i + 2, measure->steps[i].counts.line_tokens,
               measure->steps[i].elapsed_s, measure->steps[i].loss);
}

int main(int argc, char **argv)
{
    static struct measure measure;
    struct measure_options options = {.base_folder = "build/bench/base",
                                      .training_path = lines_path("mixed"),
                                      .numerics = NUMERICS_W4A8,
                                      .batch_size = 8,
                                      .thread_count = 2,
                                      .step_count = 3};
    struct error err = {0};
    char title[512];
    bool brief = false;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--no-peak") == 0) {
            options.without_peak = true;
        } else if (strcmp(argv[i], "--no-profile") == 0) {
            options.without_profile = true;
        } else if (strcmp(argv[i], "--brief") == 0) {
            brief = true;
        } else if (i + 1 == argc || !set_option(&options, argv[i], argv[i + 1])) {
            (void)fputs(usage, stderr);
            return 2;
        } else {
            i++;
        }
    }
    if (options.batch_size < 1 || options.thread_count < 1 || options.step_count < 1 ||
        options.step_count > MEASURE_STEPS_MAX) {
        (void)fputs(usage, stderr);
        return 2;
    }
    if (!measure_run(&options, &measure, &err)) {
        (void)fprintf(stderr, "bench_train: %s\n", err.message);
        return 1;
    }
    if (brief) {
        print_steps(&measure);
        return 0;
    }
    (void)snprintf(title, sizeof(title), "%s, %s, batch %zu, %d threads, products in %s: %s",
                   options.training_path, options.numerics == NUMERICS_W4A8 ? "w4a8" : "float32",
                   options.batch_size, options.thread_count,
                   backend_precision_names[options.precision], measure.device);
    report_run(title, &measure);
    if (options.on_card)
        report_card(backend_precision_names[options.precision], &measure);
    else
        report_flops(&measure);
    return 0;
}
