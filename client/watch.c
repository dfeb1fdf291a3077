#include "client/watch.h"

#include "client/curve.h"
#include "client/follow.h"
#include "client/http.h"
#include "client/output.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BAR_WIDTH 24

struct watch {
    enum watch_form form;
    bool terminal, bar_shown;
    double started_s; /* monotonic, at the first step seen */
    double first_step;
    double *losses;
    size_t loss_count, loss_capacity;
    char state[32];
};

static double monotonic_s(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double number_of(const cJSON *data, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(data, name);

    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

static void keep_loss(struct watch *watch, double loss)
{
    if (watch->loss_count == watch->loss_capacity) {
        size_t capacity = watch->loss_capacity == 0 ? 1024 : 2 * watch->loss_capacity;
        double *grown = realloc(watch->losses, capacity * sizeof(*grown));

        if (grown == NULL)
            return; /* the curve is cut short, nothing else */
        watch->losses = grown;
        watch->loss_capacity = capacity;
    }
    watch->losses[watch->loss_count++] = loss;
}

static void clear_bar(struct watch *watch)
{
    if (watch->bar_shown)
        (void)fputs("\r\033[K", stdout);
    watch->bar_shown = false;
}

static void show_step(struct watch *watch, const cJSON *data)
{
    double step = number_of(data, "step");
    double total = number_of(data, "total_steps");
    double rate = number_of(data, "tokens_per_second");
    double loss = number_of(data, "train_loss");

    if (isnan(step) || isnan(total) || total < 1)
        return;
    keep_loss(watch, loss);
    if (watch->started_s == 0) {
        watch->started_s = monotonic_s();
        watch->first_step = step;
    }
    if (!watch->terminal) {
        printf("step %.0f/%.0f  loss %.4f  lr %.3g  grad %.3f  %.0f tokens/s\n", step, total, loss,
               number_of(data, "learning_rate"), number_of(data, "grad_norm"), rate);
        return;
    }
    char bar[BAR_WIDTH + 1];
    size_t filled = (size_t)(step / total * BAR_WIDTH);
    double elapsed_s = monotonic_s() - watch->started_s;

    memset(bar, '.', BAR_WIDTH);
    memset(bar, '#', filled < BAR_WIDTH ? filled : BAR_WIDTH);
    bar[BAR_WIDTH] = '\0';
    printf("\r\033[K[%s] %.0f/%.0f  loss %.4f  %.0f tokens/s", bar, step, total, loss, rate);
    if (step > watch->first_step && elapsed_s > 1) {
        double left_s = (total - step) * elapsed_s / (step - watch->first_step);

        printf("  %.0f:%02.0f left", floor(left_s / 60), fmod(left_s, 60));
    }
    watch->bar_shown = true;
}

static bool take_event(void *context, const struct sse_event *event)
{
    struct watch *watch = context;
    cJSON *json = cJSON_Parse(event->data);
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(json, "data");
    const cJSON *message = cJSON_GetObjectItemCaseSensitive(json, "message");
    const cJSON *level = cJSON_GetObjectItemCaseSensitive(json, "level");
    const cJSON *state = cJSON_GetObjectItemCaseSensitive(data, "status");

    if (watch->form == WATCH_JSON) {
        (void)output_json(json); /* its status is of no use in the middle of a list */
    } else if (strcmp(event->type, "metrics") == 0) {
        show_step(watch, data);
    } else if (cJSON_IsString(message) && strcmp(event->type, "done") != 0) {
        clear_bar(watch);
        if (cJSON_IsString(level) && strcmp(level->valuestring, "info") != 0)
            printf("%s: ", level->valuestring);
        printf("%s\n", message->valuestring);
    }
    if (cJSON_IsString(state))
        (void)snprintf(watch->state, sizeof(watch->state), "%s", state->valuestring);
    (void)fflush(stdout);
    cJSON_Delete(json);
    return strcmp(event->type, "done") != 0;
}

/* The job's own record has the last word, whatever the stream said. */
static enum watch_status closing_status(struct http *http, const char *job_id, enum watch_form form)
{
    char path[256];
    cJSON *job = NULL;
    enum watch_status status = WATCH_LOST;
    const cJSON *state;

    (void)snprintf(path, sizeof(path), "/v1/fine_tuning/jobs/%s", job_id);
    if (!http_call(http, path, NULL, &job)) {
        (void)fprintf(stderr, "needlectl: %s\n", http_error(http));
        return WATCH_LOST;
    }
    state = cJSON_GetObjectItemCaseSensitive(job, "status");
    if (cJSON_IsString(state)) {
        if (strcmp(state->valuestring, "succeeded") == 0)
            status = WATCH_SUCCEEDED;
        else if (strcmp(state->valuestring, "cancelled") == 0)
            status = WATCH_CANCELLED;
        else if (strcmp(state->valuestring, "failed") == 0)
            status = WATCH_FAILED;
    }
    if (form == WATCH_JSON) {
        (void)output_json(job); /* the exit status is the job's */
    } else if (status == WATCH_SUCCEEDED) {
        const cJSON *model = cJSON_GetObjectItemCaseSensitive(job, "fine_tuned_model");

        printf("succeeded: %s\n", cJSON_IsString(model) ? model->valuestring : "(no model)");
    } else if (status == WATCH_FAILED) {
        const cJSON *error = cJSON_GetObjectItemCaseSensitive(job, "error");
        const cJSON *message = cJSON_GetObjectItemCaseSensitive(error, "message");

        (void)fprintf(stderr, "failed: %s\n",
                      cJSON_IsString(message) ? message->valuestring : "(no reason given)");
    }
    cJSON_Delete(job);
    return status;
}

/* Ctrl-C leaves the job running and says how to come back. */
static char farewell[256];

static void leave(int signal_number)
{
    (void)!write(STDERR_FILENO, farewell,
                 strlen(farewell)); /* nothing is left to be done about it */
    _exit(128 + signal_number);
}

enum watch_status watch_job(struct http *http, const char *job_id, enum watch_form form)
{
    struct watch watch = {.terminal = isatty(STDOUT_FILENO) == 1, .form = form};
    enum watch_status status = WATCH_LOST;
    char path[256];

    (void)snprintf(farewell, sizeof(farewell), "\nthe job goes on: needlectl watch %s\n", job_id);
    (void)signal(SIGINT, leave);
    (void)snprintf(path, sizeof(path), "/v1/fine_tuning/jobs/%s/events?stream=true", job_id);
    switch (follow_stream(http, path, "", take_event, &watch)) {
    case FOLLOW_STOPPED:
    case FOLLOW_READ:
        clear_bar(&watch);
        status = closing_status(http, job_id, form);
        break;
    case FOLLOW_REFUSED:
        clear_bar(&watch);
        (void)fprintf(stderr, "needlectl: %s\n", http_error(http));
        status = WATCH_FAILED;
        break;
    case FOLLOW_LOST:
        clear_bar(&watch);
        (void)fprintf(stderr, "needlectl: %s; the job goes on: needlectl watch %s\n",
                      http_error(http), job_id);
        break;
    }
    if (form == WATCH_CURVE && status == WATCH_SUCCEEDED)
        curve_print(stdout, watch.losses, watch.loss_count);
    free(watch.losses);
    return status;
}
