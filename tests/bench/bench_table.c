/*
 * bench_table: make bench: what a step takes on this machine, and the figures that bind.
 *
 *     bench_table DAEMON FOLDER [quick]
 *
 * DAEMON is the built daemon, FOLDER what make bench-base makes. Every figure also stands on a line
 * `bench NAME VALUE UNIT`.
 */
#include "tests/bench/daemon.h"
#include "tests/bench/report.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum lines { MIXED, LONG, ONE_APP, SHUFFLED };
static const char *const lines_names[] = {"mixed", "long", "one-app", "shuffled"};

struct bench_runs {
    const char *folder;
    bool quick;
    int thread_count; /* two, or one where there is one core */
    struct measure mixed, alone, mixed_float32, one_app, shuffled;
};

static void make_path(char path[LIMIT_PATH_BYTES], const struct bench_runs *runs, enum lines lines)
{
    (void)snprintf(path, LIMIT_PATH_BYTES, "%s/%s.jsonl", runs->folder, lines_names[lines]);
}

/* Runs and reports; `seconds` is for the timed steps of a whole run. */
static bool run(const struct bench_runs *runs, enum lines lines, struct measure_options options,
                double seconds, struct measure *ret_measure, struct error *err)
{
    char path[LIMIT_PATH_BYTES], base[LIMIT_PATH_BYTES], title[256];

    make_path(path, runs, lines);
    (void)snprintf(base, sizeof(base), "%s/base", runs->folder);
    options.base_folder = base;
    options.training_path = path;
    options.seconds = runs->quick ? seconds / 6 : seconds;
    if (options.step_count == 0 && !options.first_step_only)
        options.step_count = MEASURE_STEPS_MAX;
    if (!measure_run(&options, ret_measure, err))
        return false;
    (void)snprintf(title, sizeof(title), "%s lines, %s, batch %zu, %d thread%s", lines_names[lines],
                   options.numerics == NUMERICS_W4A8 ? "w4a8" : "float32", options.batch_size,
                   options.thread_count, options.thread_count == 1 ? "" : "s");
    report_run(title, ret_measure);
    return true;
}

/* ---- the runs ---------------------------------------------------------------------------------- */

static bool run_mixed(struct bench_runs *runs, struct error *err)
{
    struct measure_options options = {.batch_size = 8, .thread_count = runs->thread_count};
    struct measure_options alone = {.batch_size = 8, .thread_count = 1};
    struct measure_options float32 = {
        .batch_size = 8, .thread_count = runs->thread_count, .numerics = NUMERICS_FLOAT32};

    if (!run(runs, MIXED, options, 30, &runs->mixed, err))
        return false;
    report_flops(&runs->mixed);
    printf("  on %s\n", runs->mixed.device);
    return run(runs, MIXED, alone, 30, &runs->alone, err) &&
           run(runs, MIXED, float32, 30, &runs->mixed_float32, err);
}

static bool run_shared(struct bench_runs *runs, struct error *err)
{
    const struct measure_options options = {.batch_size = 16, .thread_count = runs->thread_count};

    return run(runs, ONE_APP, options, 20, &runs->one_app, err) &&
           run(runs, SHUFFLED, options, 45, &runs->shuffled, err);
}

static bool run_evaluation(const struct bench_runs *runs, struct error *err)
{
    static struct measure measure;
    char path[LIMIT_PATH_BYTES];
    const struct measure_options options = {.batch_size = 8,
                                            .thread_count = runs->thread_count,
                                            .first_step_only = true,
                                            .line_count = 8,
                                            .validation_path = path,
                                            .validation_line_count = runs->quick ? 16 : 64};

    make_path(path, runs, MIXED);
    if (!run(runs, MIXED, options, 0, &measure, err))
        return false;
    report_figure("evaluation_tokens_per_s", (double)measure.evaluated_tokens / measure.evaluated_s,
                  "tokens/s");
    return true;
}

static bool run_memory(const struct bench_runs *runs, struct error *err)
{
    static struct measure measure;
    const struct measure_options options = {.batch_size = 16,
                                            .thread_count = runs->thread_count,
                                            .first_step_only = true,
                                            .without_peak = true};

    if (!run(runs, runs->quick ? MIXED : LONG, options, 0, &measure, err))
        return false;
    report_figure("peak_rss_mb", measure.peak_rss_mb, "MB");
    return true;
}

static bool run_daemon(const struct bench_runs *runs, const char *program, struct error *err)
{
    struct daemon_figures figures;
    char path[LIMIT_PATH_BYTES];

    make_path(path, runs, MIXED);
    if (!daemon_measure(program, runs->folder, "base", path, &figures, err))
        return false;
    printf("\nthe daemon, over HTTP\n");
    report_figure("daemon_start_s", figures.start_s, "s");
    report_figure("idle_rss_mb", figures.idle_rss_mb, "MB");
    report_figure("idle_rss_after_jobs_mb", figures.idle_rss_after_mb, "MB");
    report_figure("first_post_to_first_step_s", figures.first_post_to_step_s, "s");
    report_figure("post_to_first_step_s", figures.post_to_step_s, "s");
    return true;
}

/* ---- the figures ------------------------------------------------------------------------------- */

static void tell_speed(const char *name, const struct measure *measure)
{
    char figure[64];

    (void)snprintf(figure, sizeof(figure), "tokens_per_s_%s", name);
    report_figure(figure, measure_tokens_per_second(measure), "tokens/s");
    (void)snprintf(figure, sizeof(figure), "step_ms_%s", name);
    report_figure(figure, measure_step_ms(measure), "ms");
    (void)snprintf(figure, sizeof(figure), "peak_share_%s", name);
    report_figure(figure, measure_peak_share(measure), "of_peak");
}

static void tell_sharing(const struct bench_runs *runs)
{
    const struct counts app = measure_counts(&runs->one_app);
    const struct counts shuffled = measure_counts(&runs->shuffled);
    const double gain = measure_speedup(&runs->one_app, &runs->shuffled);
    const double of_lines = (double)app.line_rows / (double)app.rows;
    const double still_shared = (double)shuffled.line_rows / (double)shuffled.rows;

    printf("\nshared beginnings, batch 16: one app's lines are %.2f times the rows of their tree; "
           "shuffled,\nthey are %.2f times theirs (six tools cannot begin sixteen lines in sixteen "
           "ways), which leaves\n%.2f times at most\n",
           of_lines, still_shared, of_lines / still_shared);
    report_figure("shared_prefix_gain", gain, "times");
    report_figure("shared_prefix_ceiling", of_lines / still_shared, "times");
    report_figure("shared_prefix_share", gain / (of_lines / still_shared), "of_ceiling");
    report_figure("shared_prefix_share_of_lines", gain / of_lines, "of_lines_by_tree");
}

static void tell(const struct bench_runs *runs)
{
    const struct measure *mixed = &runs->mixed;

    printf("\n");
    tell_speed("w4a8", mixed);
    tell_speed("float32", &runs->mixed_float32);
    tell_speed("one_app", &runs->one_app);
    tell_speed("shuffled", &runs->shuffled);
    report_figure("startup_to_first_step_s", mixed->startup_s, "s");
    report_figure("sgemm_peak_gflops", mixed->peak_gflops, "GFLOP/s");
    report_figure("products_gflops", measure_products_gflops(mixed), "GFLOP/s");
    tell_sharing(runs);
    report_figure("peak_share", measure_peak_share(mixed), "of_peak");
    if (runs->thread_count > 1)
        report_figure("threads_2_over_1", measure_speedup(mixed, &runs->alone), "times");
}

int main(int argc, char **argv)
{
    static struct bench_runs runs;
    struct error err = {0};

    if (argc < 3 || argc > 4 || (argc == 4 && strcmp(argv[3], "quick") != 0)) {
        (void)fputs("usage: bench_table DAEMON FOLDER [quick]\n", stderr);
        return 2;
    }
    runs.folder = argv[2];
    runs.quick = argc == 4;
    runs.thread_count = sysconf(_SC_NPROCESSORS_ONLN) > 1 ? 2 : 1;
    if (!run_mixed(&runs, &err) || !run_shared(&runs, &err) || !run_evaluation(&runs, &err) ||
        !run_memory(&runs, &err) || !run_daemon(&runs, argv[1], &err)) {
        (void)fprintf(stderr, "bench_table: %s\n", err.message);
        return 1;
    }
    tell(&runs);
    return 0;
}
