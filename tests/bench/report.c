#include "tests/bench/report.h"

#include <stdio.h>
#include <stdlib.h>

void report_figure(const char *name, double value, const char *unit)
{
    printf("bench %s %.4g %s\n", name, value, unit);
    (void)fflush(stdout);
}

static int by_time(const void *a, const void *b)
{
    const struct backend_profile *x = a, *y = b;

    return (x->elapsed_ns < y->elapsed_ns) - (x->elapsed_ns > y->elapsed_ns);
}

static void print_row(const char *name, double calls, double ms, double share, double cycles)
{
    printf("  %-24s %8.0f %10.1f %7.1f %% %9.2f\n", name, calls, ms, 100 * share, cycles);
}

/* Where the time of the timed steps went; what no op had is a line of its own. */
static void print_operations(const struct measure *measure)
{
    struct backend_profile ops[BACKEND_PROFILE_COUNT];
    const double total_ns = measure_total_s(measure) * 1e9;
    const double steps = (double)measure->step_count;
    const double rows = (double)measure_counts(measure).rows;
    double inside_ns = 0;

    for (size_t i = 0; i < BACKEND_PROFILE_COUNT; i++) {
        ops[i] = measure->profile[i];
        inside_ns += (double)ops[i].elapsed_ns;
    }
    qsort(ops, BACKEND_PROFILE_COUNT, sizeof(ops[0]), by_time);
    printf("  %-24s %8s %10s %9s %9s\n", "operation", "calls", "ms a step", "share", "us a row");
    for (size_t i = 0; i < BACKEND_PROFILE_COUNT; i++) {
        const double ns = (double)ops[i].elapsed_ns;

        if (ops[i].call_count > 0)
            print_row(ops[i].name, (double)ops[i].call_count / steps, ns / steps / 1e6,
                      ns / total_ns, ns / rows / 1e3);
    }
    print_row("outside operations", 0, (total_ns - inside_ns) / steps / 1e6,
              (total_ns - inside_ns) / total_ns, (total_ns - inside_ns) / rows / 1e3);
}

static double mb(size_t bytes)
{
    return (double)bytes / 1e6;
}

static void print_memory(const struct measure *measure)
{
    printf("  memory: peak RSS %.0f MB; planned weights %.0f, adapter %.0f, activations %.0f MB\n",
           measure->peak_rss_mb, mb(measure->plan.weights_bytes), mb(measure->plan.adapter_bytes),
           mb(measure->plan.activations_bytes));
    printf("  start-up to the first step %.2f s", measure->startup_s);
    if (measure->evaluated_s > 0)
        printf("; evaluation %.1f real tokens/s",
               (double)measure->evaluated_tokens / measure->evaluated_s);
    printf("\n");
    (void)fflush(stdout);
}

void report_run(const char *title, const struct measure *measure)
{
    const struct counts counts = measure_counts(measure);
    const double steps = (double)measure->step_count;

    printf("\n%s\n", title);
    if (measure->step_count == 0) {
        printf("  one step in %.0f ms\n", measure->first_step_s * 1e3);
        print_memory(measure);
        return;
    }
    printf("  %.1f real tokens/s, %.0f ms a step (medians of %zu steps; the first took %.0f ms)\n",
           measure_tokens_per_second(measure), measure_step_ms(measure), measure->step_count,
           measure->first_step_s * 1e3);
    printf("  a step: %.0f tokens of lines, %.0f rows of the tree, %.0f target rows; batches of at "
           "most %zu rows\n",
           (double)counts.line_tokens / steps, (double)counts.rows / steps,
           (double)counts.target_rows / steps, measure->batch_tokens);
    if (measure->peak_gflops > 0)
        printf("  %.1f %% of the peak of products (%.1f GFLOP/s in this run)\n",
               100 * measure_peak_share(measure), measure->peak_gflops);
    if (measure_products_gflops(measure) > 0)
        printf("  products %.1f GFLOP/s\n", measure_products_gflops(measure));
    print_memory(measure);
    printf("  page faults a step: %.0f minor, %.0f major\n", (double)measure->minor_faults / steps,
           (double)measure->major_faults / steps);
    print_operations(measure);
    (void)fflush(stdout);
}

void report_card(const char *precision, const struct measure *measure)
{
    const struct {
        const char *name;
        double value;
        const char *unit;
    } figures[] = {
        {"tokens_per_s", measure_tokens_per_second(measure), "tokens/s"},
        {"step_ms", measure_step_ms(measure), "ms"},
        {"peak_tflops", measure->peak_gflops / 1e3, "TFLOP/s"},
        {"peak_share", measure->peak_gflops > 0 ? measure_peak_share(measure) : 0, ""},
        {"products_tflops", measure_products_gflops(measure) / 1e3, "TFLOP/s"},
        {"memory_mb", (double)measure->device_bytes / 1e6, "MB"},
    };

    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
        char name[64];

        (void)snprintf(name, sizeof(name), "card_%s_%s", figures[i].name, precision);
        if (figures[i].value > 0)
            report_figure(name, figures[i].value, figures[i].unit);
    }
}

void report_flops(const struct measure *measure)
{
    const struct counts counts = measure_counts(measure);
    const struct flops flops = flops_of_step(&measure->geometry, measure->lora_rank, &counts);
    const struct {
        const char *name;
        double value;
    } parts[] = {{"projections", flops.projections},
                 {"adapter", flops.adapter},
                 {"attention", flops.attention},
                 {"Monarch", flops.monarch},
                 {"hyper", flops.hyper},
                 {"engram", flops.engram},
                 {"head", flops.head}};

    flops_print_formula(stdout);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        printf("  %-12s %8.1f MFLOP a row\n", parts[i].name,
               parts[i].value / (double)counts.rows / 1e6);
    printf("  %-12s %8.1f MFLOP a row, %.1f a real token\n", "all",
           flops_total(&flops) / (double)counts.rows / 1e6,
           flops_total(&flops) / (double)counts.line_tokens / 1e6);
}
