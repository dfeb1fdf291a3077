#include "api/courier.h"
#include "api/handlers.h"
#include "api/metrics.h"
#include "api/request.h"
#include "api/stores.h"
#include "api/stream.h"
#include "daemon/base/json.h"
#include "daemon/sched/scheduler.h"
#include "store/deliveries.h"
#include "store/figures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define TEXT_MAX ((size_t)4 << 20)

/* ---- jobs and devices ---- */

static bool print_jobs(struct store *store, struct buf *out, struct error *err)
{
    int64_t counts[JOB_STATE_COUNT];

    if (!figures_count_jobs(store, counts, err))
        return false;
    metrics_family(out, "needled_jobs", "gauge", "Jobs there are, by status.");
    for (int i = 0; i < JOB_STATE_COUNT; i++)
        metrics_sample(out, "needled_jobs", "status", job_state_name((enum job_state)i),
                       (double)counts[i]);
    return true;
}

struct figure {
    const char *name, *type, *help;
    const char *group, *member; /* of a device's object; group NULL: its own */
};

static const struct figure figures[] = {
    {"needled_device_in_service", "gauge", "1: jobs may run on it.", NULL, "in_service"},
    {"needled_device_jobs", "gauge", "Jobs that run on it.", NULL, "jobs"},
    {"needled_device_jobs_max", "gauge", "Jobs that may run on it at once.", NULL, "jobs_max"},
    {"needled_device_memory_total_bytes", "gauge", "Memory of the device.", NULL,
     "memory_total_bytes"},
    {"needled_device_memory_free_bytes", "gauge", "Of that, free now.", NULL, "memory_free_bytes"},
    {"needled_device_temperature_celsius", "gauge", "Where the device tells it.", NULL,
     "temperature_celsius"},
    {"needled_device_power_watts", "gauge", "Where the device tells it.", NULL, "power_watts"},
    {"needled_training_steps_total", "counter", "Steps made on the device.", "since_start",
     "steps"},
    {"needled_training_tokens_total", "counter", "Tokens computed in those steps.", "since_start",
     "tokens"},
    {"needled_training_step_seconds_total", "counter",
     "Time those steps took: its rate over that of the steps is the mean time of one.",
     "since_start", "seconds"},
};

/* False: the device does not tell it. */
static bool read_figure(const struct json *device, const struct figure *figure, double *ret_number)
{
    const struct json *from = figure->group ? json_member(device, figure->group) : device;
    const struct json *value = from ? json_member(from, figure->member) : NULL;

    if (!value)
        return false;
    switch (json_kind_of(value)) {
    case JSON_NUMBER:
        *ret_number = json_number(value);
        return true;
    case JSON_BOOL:
        *ret_number = json_flag(value);
        return true;
    case JSON_ARRAY:
        *ret_number = (double)json_count(value);
        return true;
    case JSON_NULL:
    case JSON_STRING:
    case JSON_OBJECT:
        break;
    }
    return false;
}

static bool print_devices(struct scheduler *scheduler, struct buf *out, struct error *err)
{
    struct json *list = scheduler_devices_json(scheduler);
    const struct json *data = list ? json_member(list, "data") : NULL;

    if (!data) {
        json_free(list);
        return error_set(err, ERR_NO_MEMORY, "no memory for the devices");
    }
    for (size_t i = 0; i < COUNT_OF(figures); i++) {
        bool told = false;

        for (const struct json *at = json_first(data); at; at = json_next(at)) {
            const char *id = json_text(json_member(at, "id"));
            double number;

            if (!id || !read_figure(at, &figures[i], &number))
                continue;
            if (!told)
                metrics_family(out, figures[i].name, figures[i].type, figures[i].help);
            told = true;
            metrics_sample(out, figures[i].name, "device", id, number);
        }
    }
    json_free(list);
    return true;
}

/* ---- the server's own ---- */

static void print_file(const char *path, const char *suffix, const char *name, const char *help,
                       struct buf *out)
{
    char whole[4200];
    struct stat about;

    (void)snprintf(whole, sizeof(whole), "%s%s", path, suffix); /* longer ones cannot be opened */
    if (stat(whole, &about) == 0)
        metrics_single(out, name, "gauge", help, (double)about.st_size);
}

static void print_database(const struct services *services, struct buf *out)
{
    const char *path = stores_path(services->stores);
    struct statvfs disk;

    print_file(path, "", "needled_sqlite_database_bytes", "Size of the database.", out);
    print_file(path, "-wal", "needled_sqlite_wal_bytes", "Size of its write-ahead log.", out);
    metrics_single(out, "needled_sqlite_busy_waits_total", "counter",
                   "Times that a request waited for the database's lock.",
                   (double)stores_busy_count(services->stores));
    if (statvfs(services->state_folder, &disk) == 0)
        metrics_single(out, "needled_state_disk_free_bytes", "gauge",
                       "Free where the state folder lies.",
                       (double)disk.f_bavail * (double)disk.f_frsize);
    metrics_single(out, "needled_state_disk_writable", "gauge",
                   "1; 0 while it is full or refuses writes, and jobs wait.",
                   scheduler_check_disk(services->scheduler, 0, NULL));
}

static bool print_webhooks(const struct services *services, struct store *store, struct buf *out,
                           struct error *err)
{
    static const char family[] = "needled_webhook_calls_total";
    struct courier_counts counts;
    int64_t waiting = 0;

    if (!deliveries_count_waiting(store, &waiting, err))
        return false;
    courier_read_counts(services->courier, &counts);
    metrics_family(out, family, "counter", "Calls of webhooks, by how they went.");
    metrics_sample(out, family, "result", "delivered", (double)counts.delivered);
    metrics_sample(out, family, "result", "failed", (double)counts.failed);
    metrics_single(out, "needled_webhook_deliveries_given_up_total", "counter",
                   "Events that a webhook was not told after all attempts.",
                   (double)counts.given_up);
    metrics_single(out, "needled_webhook_deliveries_waiting", "gauge",
                   "Events that webhooks are still to be told.", (double)waiting);
    return true;
}

/* Under the names that every Prometheus client has. */
static void print_process(struct buf *out)
{
    char text[128] = "";
    struct rusage used;
    FILE *file = fopen("/proc/self/statm", "re");
    const char *pages = file && fgets(text, sizeof(text), file) ? strchr(text, ' ') : NULL;

    if (file)
        (void)fclose(file); /* only read */
    if (pages)              /* the second number */
        metrics_single(out, "process_resident_memory_bytes", "gauge", "Resident memory.",
                       strtod(pages, NULL) * (double)sysconf(_SC_PAGESIZE));
    if (getrusage(RUSAGE_SELF, &used) == 0)
        metrics_single(out, "process_cpu_seconds_total", "counter", "Processor time used.",
                       (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6);
}

bool metrics_handle_get(struct request *request, struct error *err)
{
    const struct services *services = request->services;
    struct buf out;

    buf_init(&out, TEXT_MAX);
    metrics_family(&out, "needled_build_info", "gauge", "1; the version is in the label.");
    metrics_sample(&out, "needled_build_info", "version", NEEDLED_VERSION, 1);
    if (!print_jobs(request->store, &out, err) || !print_devices(services->scheduler, &out, err) ||
        !print_webhooks(services, request->store, &out, err)) {
        buf_release(&out);
        return false;
    }
    metrics_print(services->metrics, &out);
    metrics_single(&out, "needled_http_requests_in_flight", "gauge",
                   "Requests begun and not over, event streams among them.",
                   (double)atomic_load_explicit(services->open_count, memory_order_relaxed));
    metrics_single(&out, "needled_event_streams", "gauge", "Readers of events.",
                   (double)streams_count(services->streams));
    print_database(services, &out);
    print_process(&out);
    return response_set_text(&request->response, "text/plain; version=0.0.4; charset=utf-8", &out,
                             err);
}
