#include "tests/bench/daemon.h"

#include "client/http.h"
#include "client/sse.h"
#include "daemon/base/clock.h"
#include "tests/bench/session.h"

#include <cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REST_WAIT_MS 2000
#define JOBS 3

struct wait {
    struct sse sse;
    const char *type, *start; /* of the event waited for: its type, how its message begins */
    bool seen;
};

static bool take_event(void *context, const struct sse_event *event)
{
    struct wait *wait = context;
    cJSON *data;
    const char *message;

    if (strcmp(event->type, wait->type) != 0)
        return true;
    data = cJSON_Parse(event->data);
    message = cJSON_GetStringValue(cJSON_GetObjectItem(data, "message"));
    wait->seen =
        !wait->start || (message && strncmp(message, wait->start, strlen(wait->start)) == 0);
    cJSON_Delete(data);
    return !wait->seen;
}

static bool take_bytes(void *context, const char *bytes, size_t size)
{
    return sse_feed(context, bytes, size);
}

/* Listens from the job's beginning until the event comes. */
static bool await(const struct session *session, const char *job, const char *type,
                  const char *message_start, struct error *err)
{
    struct wait wait = {.type = type, .start = message_start};
    char path[LIMIT_PATH_BYTES];

    (void)snprintf(path, sizeof(path), "/v1/fine_tuning/jobs/%s/events?stream=true", job);
    sse_init(&wait.sse, take_event, &wait);
    (void)http_stream(session->http, path, "", take_bytes, &wait.sse); /* ends at the event */
    sse_release(&wait.sse);
    return wait.seen ||
           error_set(err, ERR_IO, "job %s told no '%s': %s", job, type, http_error(session->http));
}

/* Submits, waits for the first step's start, lets the step end, cancels. */
static bool run_job(const struct session *session, const char *base, const char *file_id,
                    double *ret_wait_s, struct error *err)
{
    char body[512], job[SESSION_ID_BYTES];
    const int64_t started_ns = clock_monotonic_ns();

    (void)snprintf(body, sizeof(body),
                   "{\"model\":\"%s\",\"training_file\":\"%s\",\"hyperparameters\":"
                   "{\"batch_size\":8,\"n_epochs\":1,\"val_split\":0}}",
                   base, file_id);
    if (!session_create_job(session, body, job, err) ||
        !await(session, job, "message", "Training ", err))
        return false;
    *ret_wait_s = session_seconds_since(started_ns);
    return await(session, job, "metrics", NULL, err) && session_cancel_job(session, job, err) &&
           await(session, job, "done", NULL, err);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static bool measure(struct session *session, const char *base, const char *lines,
                    struct daemon_figures *figures, struct error *err)
{
    char file_id[SESSION_ID_BYTES];
    double waits_s[JOBS];

    figures->idle_rss_mb = session_resident_mb(session);
    if (!session_upload(session, lines, file_id, err) ||
        !run_job(session, base, file_id, &figures->first_post_to_step_s, err))
        return false;
    for (int i = 0; i < JOBS; i++)
        if (!run_job(session, base, file_id, &waits_s[i], err))
            return false;
    qsort(waits_s, JOBS, sizeof(waits_s[0]), compare);
    figures->post_to_step_s = waits_s[JOBS / 2];
    /* The end of a job is told before the worker has given everything back. */
    figures->idle_rss_after_mb = session_resident_mb(session);
    for (int waited = 0; waited < REST_WAIT_MS; waited += 100) {
        const double now = session_resident_mb(session);

        if (now < figures->idle_rss_after_mb)
            figures->idle_rss_after_mb = now;
        session_wait_ms(100);
    }
    return true;
}

bool daemon_measure(const char *program, const char *models_folder, const char *base,
                    const char *lines, struct daemon_figures *ret_figures, struct error *err)
{
    struct session session = {0};
    struct daemon_figures figures = {0};
    const int64_t started_ns = clock_monotonic_ns();
    bool ok = session_start(&session, program, models_folder, err);

    figures.start_s = session_seconds_since(started_ns);
    ok = ok && measure(&session, base, lines, &figures, err);
    session_stop(&session);
    if (ok)
        *ret_figures = figures;
    return ok;
}
