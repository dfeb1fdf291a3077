#include "tests/bench/daemon.h"

#include "client/http.h"
#include "client/sse.h"
#include "daemon/base/clock.h"
#include "daemon/base/limits.h"

#include <cJSON.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1e9
#define START_WAIT_MS 30000
#define REST_WAIT_MS 2000
#define JOBS 3
#define ID_BYTES 80

struct session {
    char folder[32], log[LIMIT_PATH_BYTES];
    pid_t process;
    int port;
    struct http *http;
    char file_id[ID_BYTES];
};

static double seconds_since(int64_t started_ns)
{
    return (double)(clock_monotonic_ns() - started_ns) / NS_PER_S;
}

static void wait_ms(long ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    (void)nanosleep(&time, NULL);
}

/* ---- the process ------------------------------------------------------------------------------- */

/* The number in the log's line ... port 12345"; 0 when it is not there yet. */
static int find_port(const char *log)
{
    FILE *file = fopen(log, "re");
    char line[1024];
    int port = 0;

    while (file && port == 0 && fgets(line, sizeof(line), file)) {
        const char *word = strstr(line, "port ");

        port = word ? (int)strtol(word + 5, NULL, 10) : 0;
    }
    if (file)
        (void)fclose(file);
    return port;
}

static void be_daemon(const struct session *session, const char *program, const char *models_folder)
{
    const int log = open(session->log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (log >= 0 && dup2(log, STDERR_FILENO) >= 0)
        (void)execl(program, program, "--state-dir", session->folder, "--models-dir", models_folder,
                    "--listen", "127.0.0.1:0", (char *)NULL);
    _exit(127);
}

static bool start(struct session *session, const char *program, const char *models_folder,
                  struct error *err)
{
    char url[64];

    (void)snprintf(session->folder, sizeof(session->folder), "/tmp/needled-bench-XXXXXX");
    if (!mkdtemp(session->folder))
        return error_set(err, ERR_IO, "no folder under /tmp");
    (void)snprintf(session->log, sizeof(session->log), "%s/log", session->folder);
    session->process = fork();
    if (session->process == 0)
        be_daemon(session, program, models_folder);
    if (session->process < 0)
        return error_set(err, ERR_IO, "no process for '%s'", program);
    for (int waited = 0; session->port == 0; waited++) {
        if (waited == START_WAIT_MS || waitpid(session->process, NULL, WNOHANG) != 0)
            return error_set(err, ERR_IO, "'%s' does not listen", program);
        wait_ms(1);
        session->port = find_port(session->log);
    }
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%d", session->port);
    session->http = http_open(url, NULL);
    return session->http || error_set(err, ERR_NO_MEMORY, "no memory for a client");
}

static void stop(struct session *session)
{
    char command[64];

    http_close(session->http);
    if (session->process > 0 && kill(session->process, SIGTERM) == 0)
        (void)waitpid(session->process, NULL, 0);
    (void)snprintf(command, sizeof(command), "rm -rf %s", session->folder);
    if (session->folder[0] && system(command) != 0)
        (void)fprintf(stderr, "left behind: %s\n", session->folder);
}

static double resident_mb(pid_t process)
{
    char path[64], line[256];
    double kb = 0;
    FILE *status;

    (void)snprintf(path, sizeof(path), "/proc/%ld/status", (long)process);
    status = fopen(path, "re");
    while (status && fgets(line, sizeof(line), status))
        if (strncmp(line, "VmRSS:", 6) == 0)
            kb = strtod(line + 6, NULL);
    if (status)
        (void)fclose(status);
    return kb / 1000;
}

/* ---- jobs -------------------------------------------------------------------------------------- */

static bool refuse(const struct session *session, struct error *err)
{
    return error_set(err, ERR_IO, "%s", http_error(session->http));
}

static bool copy_id(const cJSON *answer, char ret_id[ID_BYTES], struct error *err)
{
    const char *id = cJSON_GetStringValue(cJSON_GetObjectItem(answer, "id"));

    if (!id)
        return error_set(err, ERR_IO, "an answer without an id");
    (void)snprintf(ret_id, ID_BYTES, "%s", id);
    return true;
}

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
static bool run_job(const struct session *session, const char *base, double *ret_wait_s,
                    struct error *err)
{
    char body[512], path[LIMIT_PATH_BYTES], job[ID_BYTES];
    const int64_t started_ns = clock_monotonic_ns();
    cJSON *answer = NULL;
    bool ok;

    (void)snprintf(body, sizeof(body),
                   "{\"model\":\"%s\",\"training_file\":\"%s\",\"hyperparameters\":"
                   "{\"batch_size\":8,\"n_epochs\":1,\"val_split\":0}}",
                   base, session->file_id);
    if (!http_call(session->http, "/v1/fine_tuning/jobs", body, &answer))
        return refuse(session, err);
    ok = copy_id(answer, job, err);
    cJSON_Delete(answer);
    if (!ok || !await(session, job, "message", "Training ", err))
        return false;
    *ret_wait_s = seconds_since(started_ns);

    (void)snprintf(path, sizeof(path), "/v1/fine_tuning/jobs/%s/cancel", job);
    if (!await(session, job, "metrics", NULL, err))
        return false;
    if (!http_call(session->http, path, "", &answer))
        return refuse(session, err);
    cJSON_Delete(answer);
    return await(session, job, "done", NULL, err);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static bool measure(struct session *session, const char *base, const char *lines,
                    struct daemon_figures *figures, struct error *err)
{
    double waits_s[JOBS];
    cJSON *answer = NULL;
    bool ok;

    figures->idle_rss_mb = resident_mb(session->process);
    if (!http_upload(session->http, lines, &answer))
        return refuse(session, err);
    ok = copy_id(answer, session->file_id, err);
    cJSON_Delete(answer);
    if (!ok || !run_job(session, base, &figures->first_post_to_step_s, err))
        return false;
    for (int i = 0; i < JOBS; i++)
        if (!run_job(session, base, &waits_s[i], err))
            return false;
    qsort(waits_s, JOBS, sizeof(waits_s[0]), compare);
    figures->post_to_step_s = waits_s[JOBS / 2];
    /* The end of a job is told before the worker has given everything back. */
    figures->idle_rss_after_mb = resident_mb(session->process);
    for (int waited = 0; waited < REST_WAIT_MS; waited += 100) {
        const double now = resident_mb(session->process);

        if (now < figures->idle_rss_after_mb)
            figures->idle_rss_after_mb = now;
        wait_ms(100);
    }
    return true;
}

bool daemon_measure(const char *program, const char *models_folder, const char *base,
                    const char *lines, struct daemon_figures *ret_figures, struct error *err)
{
    struct session session = {0};
    struct daemon_figures figures = {0};
    const int64_t started_ns = clock_monotonic_ns();
    bool ok = start(&session, program, models_folder, err);

    figures.start_s = seconds_since(started_ns);
    ok = ok && measure(&session, base, lines, &figures, err);
    stop(&session);
    if (ok)
        *ret_figures = figures;
    return ok;
}
