#include "tests/bench/session.h"

#include "client/http.h"
#include "daemon/base/clock.h"

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

double session_seconds_since(int64_t started_ns)
{
    return (double)(clock_monotonic_ns() - started_ns) / NS_PER_S;
}

void session_wait_ms(long ms)
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

bool session_start(struct session *session, const char *program, const char *models_folder,
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
        session_wait_ms(1);
        session->port = find_port(session->log);
    }
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%d", session->port);
    session->http = http_open(url, NULL);
    return session->http || error_set(err, ERR_NO_MEMORY, "no memory for a client");
}

void session_stop(struct session *session)
{
    char command[64];

    http_close(session->http);
    if (session->process > 0 && kill(session->process, SIGTERM) == 0)
        (void)waitpid(session->process, NULL, 0);
    (void)snprintf(command, sizeof(command), "rm -rf %s", session->folder);
    if (session->folder[0] && system(command) != 0)
        (void)fprintf(stderr, "left behind: %s\n", session->folder);
}

double session_resident_mb(const struct session *session)
{
    char path[64], line[256];
    double kb = 0;
    FILE *status;

    (void)snprintf(path, sizeof(path), "/proc/%ld/status", (long)session->process);
    status = fopen(path, "re");
    while (status && fgets(line, sizeof(line), status))
        if (strncmp(line, "VmRSS:", 6) == 0)
            kb = strtod(line + 6, NULL);
    if (status)
        (void)fclose(status);
    return kb / 1000;
}

/* ---- requests ---------------------------------------------------------------------------------- */

static bool refuse(const struct session *session, struct error *err)
{
    return error_set(err, ERR_IO, "%s", http_error(session->http));
}

/* The answer is freed. */
static bool take_id(cJSON *answer, char ret_id[SESSION_ID_BYTES], struct error *err)
{
    const char *id = cJSON_GetStringValue(cJSON_GetObjectItem(answer, "id"));

    if (id)
        (void)snprintf(ret_id, SESSION_ID_BYTES, "%s", id);
    cJSON_Delete(answer);
    return id || error_set(err, ERR_IO, "an answer without an id");
}

bool session_upload(const struct session *session, const char *path, char ret_id[SESSION_ID_BYTES],
                    struct error *err)
{
    cJSON *answer = NULL;

    if (!http_upload(session->http, path, &answer))
        return refuse(session, err);
    return take_id(answer, ret_id, err);
}

bool session_create_job(const struct session *session, const char *body,
                        char ret_id[SESSION_ID_BYTES], struct error *err)
{
    cJSON *answer = NULL;

    if (!http_call(session->http, "/v1/fine_tuning/jobs", body, &answer))
        return refuse(session, err);
    return take_id(answer, ret_id, err);
}

bool session_cancel_job(const struct session *session, const char *job, struct error *err)
{
    char path[LIMIT_PATH_BYTES];
    cJSON *answer = NULL;

    (void)snprintf(path, sizeof(path), "/v1/fine_tuning/jobs/%s/cancel", job);
    if (!http_call(session->http, path, "", &answer))
        return refuse(session, err);
    cJSON_Delete(answer);
    return true;
}
