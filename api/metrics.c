#include "api/metrics.h"

#include "api/request.h"
#include "api/router.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Any other status is counted with the last of its hundred: 499, 599. */
static const unsigned statuses[] = {200, 201, 204, 206, 299, 307, 399, 400, 401,
                                    402, 403, 404, 405, 409, 410, 413, 415, 416,
                                    422, 429, 499, 500, 501, 503, 507, 599};
#define STATUS_COUNT COUNT_OF(statuses)

static const double bounds_s[] = {0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60};
#define BOUND_COUNT COUNT_OF(bounds_s)

struct route_counts {
    _Atomic uint64_t answers[COUNT_OF(statuses)];
    _Atomic uint64_t buckets[COUNT_OF(bounds_s) + 1]; /* the last: longer than every bound */
    _Atomic uint64_t elapsed_ns;
};

struct metrics {
    size_t route_count;
    _Atomic uint64_t upload_count, upload_bytes;
    struct route_counts
        routes[]; /* as the router's table, and one for paths that are in no route */
};

static void add(_Atomic uint64_t *counter, uint64_t number)
{
    (void)atomic_fetch_add_explicit(counter, number, memory_order_relaxed); /* figures alone */
}

static double read_counter(const _Atomic uint64_t *counter)
{
    return (double)atomic_load_explicit(counter, memory_order_relaxed);
}

struct metrics *metrics_new(void)
{
    struct metrics *metrics;
    size_t count = 0;

    (void)router_routes(&count);
    metrics = calloc(1, sizeof(*metrics) + (count + 1) * sizeof(struct route_counts));
    if (metrics)
        metrics->route_count = count;
    return metrics;
}

void metrics_free(struct metrics *metrics)
{
    free(metrics);
}

static size_t status_index(unsigned status)
{
    size_t i = 0;

    while (i + 1 < STATUS_COUNT && statuses[i] < status)
        i++;
    /* What is not listed goes to its hundred's last. */
    while (statuses[i] != status && statuses[i] % 100 != 99 && i + 1 < STATUS_COUNT)
        i++;
    return i;
}

void metrics_count_request(struct metrics *metrics, const struct request *request,
                           int64_t elapsed_ns)
{
    const struct route *route = request->route;
    const unsigned status = request->response.status;
    size_t count = 0, bucket = 0;
    struct route_counts *counts =
        &metrics->routes[route ? (size_t)(route - router_routes(&count)) : metrics->route_count];

    add(&counts->answers[status_index(status)], 1);
    if (route && route->body >= ROUTE_BODY_FILE && status < 300) {
        add(&metrics->upload_count, 1);
        add(&metrics->upload_bytes, request->body_bytes);
    }
    if (request->response.kind == RESPONSE_STREAM)
        return;
    while (bucket < BOUND_COUNT && (double)elapsed_ns / 1e9 > bounds_s[bucket])
        bucket++;
    add(&counts->buckets[bucket], 1);
    add(&counts->elapsed_ns, elapsed_ns > 0 ? (uint64_t)elapsed_ns : 0);
}

/* ---- text ---- */

void metrics_family(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_format(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void metrics_sample(struct buf *out, const char *name, const char *label, const char *value,
                    double number)
{
    buf_append_text(out, name);
    if (label) {
        buf_format(out, "{%s=\"", label);
        for (const char *at = value; *at; at++) {
            if (*at == '"' || *at == '\\')
                buf_append_char(out, '\\');
            buf_append_char(out, *at == '\n' ? ' ' : *at);
        }
        buf_append_text(out, "\"}");
    }
    buf_format(out, " %.17g\n", number);
}

void metrics_single(struct buf *out, const char *name, const char *type, const char *help,
                    double number)
{
    metrics_family(out, name, type, help);
    metrics_sample(out, name, NULL, NULL, number);
}

struct route_name {
    const char *method, *path;
};

static struct route_name name_of(const struct metrics *metrics, size_t i)
{
    size_t count = 0;
    const struct route *routes = router_routes(&count);

    assert(count == metrics->route_count);
    return i < count ? (struct route_name){routes[i].method, routes[i].path}
                     : (struct route_name){"", "none"};
}

static void print_answers(const struct metrics *metrics, struct buf *out)
{
    metrics_family(out, "needled_http_requests_total", "counter",
                   "Requests, by route and status; 499: the client left before its answer. 499 and "
                   "599 stand for rarer ones, too.");
    for (size_t i = 0; i <= metrics->route_count; i++) {
        struct route_name name = name_of(metrics, i);

        for (size_t j = 0; j < STATUS_COUNT; j++) {
            double number = read_counter(&metrics->routes[i].answers[j]);

            if (number > 0)
                buf_format(out,
                           "needled_http_requests_total{method=\"%s\",route=\"%s\",code=\"%u\"} "
                           "%.17g\n",
                           name.method, name.path, statuses[j], number);
        }
    }
}

static void print_durations(const struct metrics *metrics, struct buf *out)
{
    static const char family[] = "needled_http_request_duration_seconds";

    metrics_family(out, family, "histogram",
                   "From a request's header to the end of its answer; event streams left out.");
    for (size_t i = 0; i <= metrics->route_count; i++) {
        struct route_name name = name_of(metrics, i);
        double numbers[COUNT_OF(bounds_s) + 1], total = 0;

        for (size_t j = 0; j <= BOUND_COUNT; j++) { /* read once, so that they agree */
            total += read_counter(&metrics->routes[i].buckets[j]);
            numbers[j] = total;
        }
        if (total == 0)
            continue;
        for (size_t j = 0; j < BOUND_COUNT; j++)
            buf_format(out, "%s_bucket{method=\"%s\",route=\"%s\",le=\"%g\"} %.17g\n", family,
                       name.method, name.path, bounds_s[j], numbers[j]);
        buf_format(out, "%s_bucket{method=\"%s\",route=\"%s\",le=\"+Inf\"} %.17g\n", family,
                   name.method, name.path, total);
        buf_format(out, "%s_sum{method=\"%s\",route=\"%s\"} %.9g\n", family, name.method, name.path,
                   read_counter(&metrics->routes[i].elapsed_ns) / 1e9);
        buf_format(out, "%s_count{method=\"%s\",route=\"%s\"} %.17g\n", family, name.method,
                   name.path, total);
    }
}

void metrics_print(const struct metrics *metrics, struct buf *out)
{
    print_answers(metrics, out);
    print_durations(metrics, out);
    metrics_single(out, "needled_uploads_total", "counter", "Uploads that were taken.",
                   read_counter(&metrics->upload_count));
    metrics_single(out, "needled_upload_bytes_total", "counter",
                   "Bytes of the bodies of uploads that were taken.",
                   read_counter(&metrics->upload_bytes));
}
