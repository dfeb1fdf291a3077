/*
 * bench_http: make bench-http: many readers of events while a job trains.
 *
 *     bench_http DAEMON MODELS BASE [readers N] [pairs N] [seconds S] [batch N] [words N]
 *
 * DAEMON is the built daemon, MODELS a folder with the base BASE. One job trains through the whole run, on
 * lines of N words each, so that its steps are alike; windows without and with readers take turns, so that
 * what else the machine does comes to both. Half of the readers follow the job, half all jobs; they look
 * every READERS_NAP_MS, so that their own wake-ups, which would be another machine's, take little from the
 * job. The delay is from a step's end (`time` in its event) to the reader's look, with the wait for the
 * commit that it shares with others (at most 50 ms).
 */
#include "client/http.h"
#include "daemon/base/clock.h"
#include "tests/bench/readers.h"
#include "tests/bench/report.h"
#include "tests/bench/session.h"

#include <cJSON.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define PAIRS_MAX 64
#define LINES 4000
#define SETTLE_MS 700
#define PAGE 1000
#define DRAIN_S 10 /* the longest wait for a window's last events */
#define WARMUP_STEPS 10
#define WARMUP_S 300

struct window {
    int64_t start_ns, end_ns; /* wall clock */
    int64_t first, last;      /* numbers of the events before and after */
    double serving_s;         /* processor time of the daemon's HTTP threads */
    double rate;              /* steps a second */
};

struct delays {
    float *ms;
    size_t count, capacity;
};

struct bench {
    const char *program, *models, *base;
    size_t reader_count, pair_count, batch_size, word_count;
    double seconds;
    struct session session;
    char job[SESSION_ID_BYTES];
    struct window without[PAIRS_MAX], with[PAIRS_MAX];
    double *step_times_s; /* by event number; 0: no step */
    size_t time_count;
    struct {
        struct arrival *arrivals;
        size_t count;
    } kept[PAIRS_MAX];
    double readers_cpu_s, readers_wall_s, resident_before_mb, resident_mb;
};

static int64_t wall_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- the daemon -------------------------------------------------------------------------------- */

/* Processor time of the threads that serve: the library's and the streams' own. */
static double serving_cpu_s(const struct bench *bench)
{
    char path[512], text[1024];
    double ticks = 0;
    struct dirent *entry;
    DIR *folder;

    (void)snprintf(path, sizeof(path), "/proc/%ld/task", (long)bench->session.process);
    folder = opendir(path);
    while (folder && (entry = readdir(folder))) {
        unsigned long user = 0, system = 0;
        const char *name, *rest;
        FILE *file;

        (void)snprintf(path, sizeof(path), "/proc/%ld/task/%s/stat", (long)bench->session.process,
                       entry->d_name);
        file = fopen(path, "re");
        if (!file)
            continue;
        text[0] = '\0';
        if (fgets(text, sizeof(text), file) && (name = strchr(text, '(')) &&
            (rest = strrchr(text, ')')) &&
            (strncmp(name, "(MHD-", 5) == 0 || strncmp(name, "(streams", 8) == 0) &&
            sscanf(rest + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                   &system) == 2)
            ticks += (double)(user + system);
        (void)fclose(file);
    }
    if (folder)
        (void)closedir(folder);
    return ticks / (double)sysconf(_SC_CLK_TCK);
}

static bool read_events(const struct bench *bench, int64_t before, size_t limit, cJSON **ret_page,
                        struct error *err)
{
    char path[256], after[48] = "";

    if (before > 0)
        (void)snprintf(after, sizeof(after), "&after=%lld", (long long)before);
    (void)snprintf(path, sizeof(path), "/v1/fine_tuning/jobs/%s/events?limit=%zu%s", bench->job,
                   limit, after);
    return http_call(bench->session.http, path, NULL, ret_page) ||
           error_set(err, ERR_IO, "%s", http_error(bench->session.http));
}

static double number_of(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static bool newest_number(const struct bench *bench, int64_t *ret_number, struct error *err)
{
    cJSON *page = NULL;

    if (!read_events(bench, 0, 1, &page, err))
        return false;
    *ret_number = (int64_t)number_of(
        cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(page, "data"), 0), "number");
    cJSON_Delete(page);
    return true;
}

/* Every step's own time, by the number of its event. */
static bool read_step_times(struct bench *bench, struct error *err)
{
    int64_t newest = 0;

    if (!newest_number(bench, &newest, err))
        return false;
    bench->time_count = (size_t)newest + 1;
    bench->step_times_s = calloc(bench->time_count, sizeof(*bench->step_times_s));
    if (!bench->step_times_s)
        return error_set(err, ERR_NO_MEMORY, "no memory for %lld events", (long long)newest);
    for (int64_t before = newest + 1; before > 1;) {
        const cJSON *event;
        cJSON *page = NULL;

        if (!read_events(bench, before, PAGE, &page, err))
            return false;
        cJSON_ArrayForEach(event, cJSON_GetObjectItemCaseSensitive(page, "data"))
        {
            before = (int64_t)number_of(event, "number");
            bench->step_times_s[before] =
                number_of(cJSON_GetObjectItemCaseSensitive(event, "data"), "time");
        }
        cJSON_Delete(page);
    }
    return true;
}

/* ---- the run ----------------------------------------------------------------------------------- */

static bool start_job(struct bench *bench, struct error *err)
{
    char path[LIMIT_PATH_BYTES], file_id[SESSION_ID_BYTES], body[512];
    int64_t number = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/lines.jsonl", bench->session.folder);
    file = fopen(path, "we");
    for (int i = 0; file && i < LINES; i++) {
        (void)fprintf(file, "{\"query\":\"say %04d", i);
        for (size_t j = 1; j < bench->word_count; j++)
            (void)fputs(" again", file);
        (void)fputs("\",\"tools\":[],\"answers\":[]}\n", file);
    }
    if (!file || fclose(file) != 0)
        return error_set(err, ERR_IO, "no lines in '%s'", path);
    if (!session_upload(&bench->session, path, file_id, err))
        return false;
    (void)snprintf(body, sizeof(body),
                   "{\"model\":\"%s\",\"training_file\":\"%s\",\"hyperparameters\":{\"batch_size\":"
                   "%zu,\"n_epochs\":50,\"val_split\":0,\"lora_rank\":4,\"lora_alpha\":8}}",
                   bench->base, file_id, bench->batch_size);
    if (!session_create_job(&bench->session, body, bench->job, err))
        return false;
    for (int i = 0; i < 10 * WARMUP_S; i++) {
        if (!newest_number(bench, &number, err))
            return false;
        if (number > WARMUP_STEPS)
            return true;
        session_wait_ms(100);
    }
    return error_set(err, ERR_IO, "job %s makes no steps", bench->job);
}

static bool run_window(struct bench *bench, size_t reader_count, struct window *window,
                       size_t index, struct error *err)
{
    struct readers *readers = NULL;
    const struct arrival *arrivals;
    char path[256];
    const char *const paths[] = {path, "/v1/events"}; /* one job: its numbers are the rows */
    double serving_s, cpu_s = 0;
    int64_t number = 0;
    bool ok = false;

    (void)snprintf(path, sizeof(path), "/v1/fine_tuning/jobs/%s/events", bench->job);
    if (!newest_number(bench, &number, err))
        return false;
    if (reader_count > 0 &&
        !readers_open(bench->session.port, paths, number, reader_count, &readers, err))
        return false;
    session_wait_ms(SETTLE_MS);
    serving_s = serving_cpu_s(bench);
    window->start_ns = wall_ns();
    session_wait_ms((long)(1000 * bench->seconds));
    window->end_ns = wall_ns();
    window->serving_s = serving_cpu_s(bench) - serving_s;
    if (!readers) {
        bench->resident_before_mb = session_resident_mb(&bench->session);
        return true;
    }
    if (session_resident_mb(&bench->session) > bench->resident_mb)
        bench->resident_mb = session_resident_mb(&bench->session);
    /* What ended inside the window is waited for: a late event counts. */
    if (!newest_number(bench, &number, err))
        ok = false;
    else if (!readers_wait(readers, number, DRAIN_S))
        error_set(err, ERR_IO, "a reader has not got event %lld after %d s", (long long)number,
                  DRAIN_S);
    else if (readers_stop(readers, &arrivals, &bench->kept[index].count, &cpu_s, err)) {
        bench->kept[index].arrivals = malloc(bench->kept[index].count * sizeof(*arrivals) + 1);
        memcpy(bench->kept[index].arrivals, arrivals, bench->kept[index].count * sizeof(*arrivals));
        bench->readers_cpu_s += cpu_s;
        bench->readers_wall_s += (double)(wall_ns() - window->start_ns) / 1e9 + SETTLE_MS / 1e3;
        ok = true;
    }
    readers_close(readers);
    return ok;
}

static bool run(struct bench *bench, struct error *err)
{
    for (size_t i = 0; i < bench->pair_count; i++) {
        const bool with_first = i % 2 == 1; /* what drifts comes to both */

        if (with_first && !run_window(bench, bench->reader_count, &bench->with[i], i, err))
            return false;
        if (!run_window(bench, 0, &bench->without[i], i, err))
            return false;
        if (!with_first && !run_window(bench, bench->reader_count, &bench->with[i], i, err))
            return false;
    }
    return session_cancel_job(&bench->session, bench->job, err) && read_step_times(bench, err);
}

/* ---- the figures ------------------------------------------------------------------------------- */

/* From the first end of a step in the window to the last: whole steps, however few there are. */
static void find_rate(const struct bench *bench, struct window *window)
{
    double first_s = 0, last_s = 0;
    size_t count = 0;

    for (size_t i = 0; i < bench->time_count; i++) {
        const double at_s = bench->step_times_s[i];

        if (at_s * 1e9 < (double)window->start_ns || at_s * 1e9 >= (double)window->end_ns)
            continue;
        first_s = count++ == 0 ? at_s : first_s;
        last_s = at_s;
    }
    window->rate = count > 1 ? (double)(count - 1) / (last_s - first_s) : NAN;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int by_delay(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

/* Steps that ended inside the window, once for each reader. */
static void add_delays(const struct bench *bench, size_t index, struct delays *delays)
{
    int64_t *reached = calloc(bench->reader_count, sizeof(*reached));
    const struct window *window = &bench->with[index];

    for (size_t i = 0; reached && i < bench->kept[index].count; i++) {
        const struct arrival *arrival = &bench->kept[index].arrivals[i];
        int64_t number = reached[arrival->reader];

        reached[arrival->reader] = arrival->number;
        if (number == 0)
            continue; /* its first: may have been history */
        while (++number <= arrival->number && (size_t)number < bench->time_count) {
            const double at_ns = bench->step_times_s[number] * 1e9;

            if (at_ns < (double)window->start_ns || at_ns >= (double)window->end_ns)
                continue;
            if (delays->count == delays->capacity) {
                delays->capacity = 2 * delays->capacity + 65536;
                delays->ms = realloc(delays->ms, delays->capacity * sizeof(*delays->ms));
                if (!delays->ms)
                    abort();
            }
            delays->ms[delays->count++] = (float)(((double)arrival->at_ns - at_ns) / 1e6);
        }
    }
    free(reached);
}

/* bench http_NAME_BASE VALUE UNIT */
static void figure(const struct bench *bench, const char *name, double value, const char *unit)
{
    char full[128];

    (void)snprintf(full, sizeof(full), "http_%s_%s", name, bench->base);
    report_figure(full, value, unit);
}

static void tell_delays(const struct bench *bench, double serving_share)
{
    struct delays delays = {0};
    double seconds = 0;

    for (size_t i = 0; i < bench->pair_count; i++) {
        add_delays(bench, i, &delays);
        seconds += bench->seconds;
    }
    figure(bench, "deliveries", (double)delays.count / seconds, "events/s");
    if (delays.count == 0)
        return;
    qsort(delays.ms, delays.count, sizeof(delays.ms[0]), by_delay);
    figure(bench, "serving", 1e6 * serving_share * seconds / (double)delays.count, "us_a_delivery");
    figure(bench, "step_to_reader_p50", (double)delays.ms[delays.count / 2], "ms");
    figure(bench, "step_to_reader_p99", (double)delays.ms[delays.count * 99 / 100], "ms");
    figure(bench, "step_to_reader_max", (double)delays.ms[delays.count - 1], "ms");
    free(delays.ms);
}

static void tell(struct bench *bench)
{
    const double n = (double)bench->pair_count, cores = (double)sysconf(_SC_NPROCESSORS_ONLN);
    double slower[PAIRS_MAX], rate = 0, serving = 0;
    double readers = bench->readers_cpu_s / bench->readers_wall_s;

    printf("\n%s, batch %zu: %zu readers, half of the job's events, half of all jobs'\n",
           bench->base, bench->batch_size, bench->reader_count);
    printf("%8s %14s %14s %10s\n", "pair", "steps/s alone", "with readers", "slower");
    for (size_t i = 0; i < bench->pair_count; i++) {
        struct window *without = &bench->without[i], *with = &bench->with[i];

        find_rate(bench, without);
        find_rate(bench, with);
        slower[i] = 100 * (1 - with->rate / without->rate);
        rate += with->rate / n;
        serving += (with->serving_s - without->serving_s) / bench->seconds / n;
        printf("%8zu %14.2f %14.2f %8.1f %%\n", i + 1, without->rate, with->rate, slower[i]);
    }
    qsort(slower, bench->pair_count, sizeof(slower[0]), by_value);
    figure(bench, "readers", (double)bench->reader_count, "readers");
    figure(bench, "events", rate, "events/s");
    figure(bench, "training_slower", slower[bench->pair_count / 2], "%");
    figure(bench, "training_slower_quartile_1", slower[bench->pair_count / 4], "%");
    figure(bench, "training_slower_quartile_3", slower[bench->pair_count * 3 / 4], "%");
    figure(bench, "serving_of_machine", 100 * serving / cores, "%");
    figure(bench, "readers_of_machine", 100 * readers / cores, "%");
    tell_delays(bench, serving);
    figure(bench, "rss_with_readers", bench->resident_mb, "MB");
    figure(bench, "rss_a_reader",
           1000 * (bench->resident_mb - bench->resident_before_mb) / (double)bench->reader_count,
           "kB");
}

static bool read_options(struct bench *bench, int count, char **arguments)
{
    for (int i = 0; i + 1 < count; i += 2) {
        const double value = strtod(arguments[i + 1], NULL);

        if (strcmp(arguments[i], "readers") == 0)
            bench->reader_count = (size_t)value;
        else if (strcmp(arguments[i], "pairs") == 0)
            bench->pair_count = (size_t)value;
        else if (strcmp(arguments[i], "seconds") == 0)
            bench->seconds = value;
        else if (strcmp(arguments[i], "batch") == 0)
            bench->batch_size = (size_t)value;
        else if (strcmp(arguments[i], "words") == 0)
            bench->word_count = (size_t)value;
        else
            return false;
    }
    return count % 2 == 0 && bench->reader_count > 0 && bench->pair_count > 0 &&
           bench->pair_count <= PAIRS_MAX && bench->seconds > 0;
}

int main(int argc, char **argv)
{
    static struct bench bench = {
        .reader_count = 500, .pair_count = 8, .seconds = 3, .batch_size = 1, .word_count = 1};
    struct rlimit limit;
    struct error err = {0};
    bool ok;

    if (argc < 4 || !read_options(&bench, argc - 4, argv + 4)) {
        (void)fputs(
            "usage: bench_http DAEMON MODELS BASE [readers N] [pairs N] [seconds S] [batch N]"
            " [words N]\n",
            stderr);
        return 2;
    }
    bench.program = argv[1];
    bench.models = argv[2];
    bench.base = argv[3];
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    ok = session_start(&bench.session, bench.program, bench.models, &err) &&
         start_job(&bench, &err) && run(&bench, &err);
    if (ok)
        tell(&bench);
    else
        (void)fprintf(stderr, "bench_http: %s\n", err.message);
    session_stop(&bench.session);
    return ok ? 0 : 1;
}
