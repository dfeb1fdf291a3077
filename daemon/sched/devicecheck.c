#include "daemon/sched/devicecheck.h"

#include "daemon/base/buf.h"
#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/base/limits.h"
#include "daemon/sched/keeping.h"
#include "daemon/train/trial.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FORMAT 2 /* 1: without the faster precisions */
#define FOLDER "device-checks"

const char *check_verdict_name(enum check_verdict verdict)
{
    static const char *const names[] = {"none", "running", "passed", "failed"};

    static_assert(COUNT_OF(names) == CHECK_FAILED + 1, "a name for each verdict");
    return names[verdict];
}

/* ---- the ops --------------------------------------------------------------------------------- */

static bool check_ops(struct backend *be, struct device_check *check, struct error *err)
{
    struct backend_check found;
    const enum backend_status status =
        backend_check(be, &found, check->reason, sizeof(check->reason));

    if (status != BACKEND_OK && status != BACKEND_CHECK_FAILED) {
        const enum error_code code = status == BACKEND_NO_MEMORY ? ERR_NO_MEMORY : ERR_DEVICE;

        return error_set(err, code, "check of the ops: %s", check->reason);
    }
    check->verdict = status == BACKEND_OK ? CHECK_PASSED : CHECK_FAILED;
    check->example_count = found.example_count;
    check->worst_share = found.worst_share;
    (void)snprintf(check->worst_op, sizeof(check->worst_op), "%s",
                   found.worst_op ? found.worst_op : "");
    return true;
}

/* ---- the tiny job ---------------------------------------------------------------------------- */

/* A precision concerns products alone, which are the same in both numerics: in float32 nothing else
 * differs, and the least is seen. */
static const struct {
    enum numerics numerics;
    enum backend_precision precision; /* of the device, where it has it; the other has float32 */
    const char *name;
    double tolerance;
} trials[] = {
    {NUMERICS_FLOAT32, BACKEND_FLOAT32, "float32", TRIAL_TOLERANCE_FLOAT32},
    {NUMERICS_FLOAT32, BACKEND_TF32, "tf32", TRIAL_TOLERANCE_TF32},
    {NUMERICS_FLOAT32, BACKEND_BF16, "bf16", TRIAL_TOLERANCE_BF16},
    {NUMERICS_W4A8, BACKEND_FLOAT32, "w4a8", TRIAL_TOLERANCE_W4A8}, /* last: its loss is shown */
};

static bool make_folder(char ret_path[LIMIT_PATH_BYTES], struct error *err)
{
    const char *parent = getenv("TMPDIR");

    if (!file_join(ret_path, LIMIT_PATH_BYTES, parent && parent[0] ? parent : "/tmp",
                   "needled-check-XXXXXX", err))
        return false;
    return mkdtemp(ret_path) != NULL ||
           error_set(err, ERR_IO, "make '%s': %s", ret_path, strerror(errno));
}

static void remove_folder(const char *path)
{
    char base[LIMIT_PATH_BYTES];

    if (file_join(base, sizeof(base), path, "base.safetensors", NULL) && file_remove(base, NULL))
        (void)rmdir(path); /* what stays is small, and in the folder for such files */
}

/* A failure of the device itself is told from one of memory by what the backend kept. */
static void name_trouble(struct backend *be, struct error *err)
{
    switch (backend_sync(be)) {
    case BACKEND_OK:
        break;
    case BACKEND_NO_MEMORY:
        err->code = ERR_NO_MEMORY;
        break;
    case BACKEND_ABSENT:
    case BACKEND_FAULT:
    case BACKEND_CHECK_FAILED:
        err->code = ERR_DEVICE;
    }
}

struct pair {
    struct backend *be, *reference;
    const char *reference_name, *folder;
    const atomic_bool *stop;
};

/* The two runs of one trial. A loss that is not a number is the device's failure, and its verdict. */
static bool compare(const struct pair *pair, size_t trial, struct device_check *check,
                    struct error *err)
{
    double losses[TRIAL_STEPS], expected[TRIAL_STEPS];
    struct error why = {0};

    if (!trial_run(pair->reference, pair->folder, trials[trial].numerics, pair->stop, expected,
                   err))
        return false;
    if (!trial_run(pair->be, pair->folder, trials[trial].numerics, pair->stop, losses, &why)) {
        if (why.code == ERR_INVALID) {
            check->verdict = CHECK_FAILED;
            (void)snprintf(check->reason, sizeof(check->reason), "a tiny job (%s): %.200s",
                           trials[trial].name, why.message);
            return true;
        }
        name_trouble(pair->be, &why);
        if (err)
            *err = why;
        return false;
    }

    const double difference = trial_difference(losses, expected);
    const double share = difference / trials[trial].tolerance;
    check->loss = losses[TRIAL_STEPS - 1];
    check->reference_loss = expected[TRIAL_STEPS - 1];
    if (share > check->loss_share)
        check->loss_share = share;
    if (share > 1) {
        check->verdict = CHECK_FAILED;
        (void)snprintf(
            check->reason, sizeof(check->reason),
            "a tiny job's losses (%s) differ by %.3g of their size, allowed is %.3g; the "
            "last is %.6f, on %s it is %.6f",
            trials[trial].name, difference, trials[trial].tolerance, check->loss,
            pair->reference_name, check->reference_loss);
    }
    return true;
}

static bool check_job(struct backend *be, enum backend_kind kind, const atomic_bool *stop,
                      struct device_check *check, struct error *err)
{
    const enum backend_kind reference_kind = kind == BACKEND_CPU ? BACKEND_REF : BACKEND_CPU;
    const struct backend_options options = {.thread_count = 1};
    char folder[LIMIT_PATH_BYTES], reason[200] = "";
    struct pair pair = {
        .be = be, .reference_name = backend_name(reference_kind), .folder = folder, .stop = stop};
    bool ok;

    if (!make_folder(folder, err))
        return false;
    ok = trial_write_base(folder, err);
    if (ok && backend_open(reference_kind, &options, &pair.reference, reason, sizeof(reason)) !=
                  BACKEND_OK)
        ok = error_set(err, ERR_INTERNAL, "%s, to compare with: %s", pair.reference_name, reason);
    for (size_t i = 0; ok && check->verdict == CHECK_PASSED && i < COUNT_OF(trials); i++) {
        if (backend_set_precision(be, trials[i].precision) == trials[i].precision)
            ok = compare(&pair, i, check, err);
    }
    (void)backend_set_precision(be, BACKEND_FLOAT32); /* which every device has */
    if (!ok)
        error_wrap(err, "a tiny job");
    backend_close(pair.reference);
    remove_folder(folder);
    return ok;
}

bool devicecheck_run(struct backend *be, enum backend_kind kind, const atomic_bool *stop,
                     struct device_check *ret_check, struct error *err)
{
    struct device_check check = {.checked_unix_s = clock_unix_s()};
    const int64_t started_ns = clock_monotonic_ns();

    if (!check_ops(be, &check, err))
        return false;
    if (check.verdict == CHECK_PASSED && !check_job(be, kind, stop, &check, err))
        return false;
    check.elapsed_ns = clock_monotonic_ns() - started_ns;
    *ret_check = check;
    return true;
}

/* ---- what is remembered ---------------------------------------------------------------------- */

/* What the verdict holds for: another one of these, and it says nothing. */
struct holds_for {
    const char *key, *value;
};
#define HOLDS_FOR_COUNT 6

static void list_conditions(const struct backend_device *device,
                            struct holds_for ret_conditions[HOLDS_FOR_COUNT])
{
    const struct holds_for conditions[] = {
        {"uuid", device->uuid},       {"name", device->name},    {"driver", device->driver},
        {"library", device->library}, {"plugin", device->build}, {"version", NEEDLED_VERSION},
    };

    static_assert(COUNT_OF(conditions) == HOLDS_FOR_COUNT, "all of them");
    memcpy(ret_conditions, conditions, sizeof(conditions));
}

/* False where the device has no number of its own, or one that is no name of a file. */
static bool path_of(const char *state_folder, const struct backend_device *device,
                    char ret_path[LIMIT_PATH_BYTES])
{
    const size_t length = strlen(device->uuid);

    if (length == 0 || strspn(device->uuid, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                            "abcdefghijklmnopqrstuvwxyz-") != length)
        return false;
    return (size_t)snprintf(ret_path, LIMIT_PATH_BYTES, "%s/" FOLDER "/%s.json", state_folder,
                            device->uuid) < LIMIT_PATH_BYTES;
}

static bool read_check(const struct json *json, const struct backend_device *device,
                       struct device_check *ret_check)
{
    struct holds_for conditions[HOLDS_FOR_COUNT];
    struct device_check check = {.verdict = CHECK_PASSED, .remembered = true};
    const char *text = NULL;
    int64_t format = 0, example_count = 0;

    if (!json_get_int(json, "format", true, FORMAT, FORMAT, &format, NULL) ||
        !json_get_int(json, "checked_at", true, 0, INT64_MAX / 2, &check.checked_unix_s, NULL) ||
        !json_get_int(json, "elapsed_ns", true, 0, INT64_MAX / 2, &check.elapsed_ns, NULL) ||
        !json_get_int(json, "ops", true, 1, 1 << 20, &example_count, NULL) ||
        !json_get_double(json, "worst_share", true, 0, 1, &check.worst_share, NULL) ||
        !json_get_double(json, "loss_share", true, 0, 1, &check.loss_share, NULL) ||
        !json_get_double(json, "loss", true, -1e9, 1e9, &check.loss, NULL) ||
        !json_get_double(json, "reference_loss", true, -1e9, 1e9, &check.reference_loss, NULL) ||
        !json_get_string(json, "worst_op", true, &text, NULL))
        return false;
    check.example_count = (size_t)example_count;
    (void)snprintf(check.worst_op, sizeof(check.worst_op), "%s", text);
    list_conditions(device, conditions);
    for (size_t i = 0; i < HOLDS_FOR_COUNT; i++) {
        if (!json_get_string(json, conditions[i].key, true, &text, NULL) ||
            strcmp(text, conditions[i].value) != 0)
            return false;
    }
    *ret_check = check;
    return true;
}

bool devicecheck_recall(const char *state_folder, const struct backend_device *device,
                        struct device_check *ret_check)
{
    struct mapping map = MAPPING_NONE;
    struct json *json = NULL;
    char path[LIMIT_PATH_BYTES];
    bool found = false;

    if (path_of(state_folder, device, path) && mapping_open(&map, path, NULL) && map.size > 0 &&
        json_parse((const char *)map.data, map.size, &json, NULL))
        found = json_kind_of(json) == JSON_OBJECT && read_check(json, device, ret_check);
    json_free(json);
    mapping_close(&map);
    return found;
}

static struct json *check_json(const struct backend_device *device,
                               const struct device_check *check)
{
    struct holds_for conditions[HOLDS_FOR_COUNT];
    struct json *json = json_new_object();

    json_add_int(json, "format", FORMAT);
    list_conditions(device, conditions);
    for (size_t i = 0; i < HOLDS_FOR_COUNT; i++)
        json_add_string(json, conditions[i].key, conditions[i].value);
    json_add_int(json, "checked_at", check->checked_unix_s);
    json_add_int(json, "elapsed_ns", check->elapsed_ns);
    json_add_int(json, "ops", (int64_t)check->example_count);
    json_add_string(json, "worst_op", check->worst_op);
    json_add_double(json, "worst_share", check->worst_share);
    json_add_double(json, "loss", check->loss);
    json_add_double(json, "reference_loss", check->reference_loss);
    json_add_double(json, "loss_share", check->loss_share);
    return json;
}

bool devicecheck_remember(const char *state_folder, const struct backend_device *device,
                          const struct device_check *check, struct error *err)
{
    char path[LIMIT_PATH_BYTES], folder[LIMIT_PATH_BYTES];
    struct json *json;
    char *text = NULL;
    bool ok;

    if (!path_of(state_folder, device, path))
        return true;
    if (check->verdict != CHECK_PASSED)
        return file_remove_inside(path, err);
    json = check_json(device, check);
    ok = json_print_text(json, &text, err) &&
         file_join(folder, sizeof(folder), state_folder, FOLDER, err) &&
         keeping_make_folder(folder, err) && file_write(path, text, strlen(text), err);
    free(text);
    json_free(json);
    return ok;
}

void devicecheck_print(const struct devices *devices, const char *state_folder, struct buf *out)
{
    for (size_t i = 0; i < devices->count; i++) {
        const struct device *device = &devices->items[i];
        struct device_check check;
        struct tm date = {0};
        time_t when;

        if (!devices_is_gpu(device->kind) || device->description.trouble[0])
            continue;
        if (!devicecheck_recall(state_folder, &device->description, &check)) {
            buf_format(out,
                       "%-8s not checked yet with this driver and version of needled: it will be "
                       "before its first job, and is by --devices --check\n",
                       device->id);
            continue;
        }
        when = (time_t)check.checked_unix_s;
        (void)gmtime_r(&when, &date); /* else the date of nothing */
        buf_format(out,
                   "%-8s checked on %04d-%02d-%02d: %zu ops and a tiny job agree; %s comes closest "
                   "to what is allowed, %.2g of it\n",
                   device->id, date.tm_year + 1900, date.tm_mon + 1, date.tm_mday,
                   check.example_count, check.worst_op, check.worst_share);
    }
}

/* ---- the table of --check -------------------------------------------------------------------- */

struct check_table {
    const char *state_folder;
    devicecheck_show_fn *show;
    void *context;
    bool agrees;
};

static void show_check(struct check_table *table, const char *id, const char *level,
                       const struct device_check *check)
{
    const bool passed = check->verdict == CHECK_PASSED;
    char row[512];

    (void)snprintf(
        row, sizeof(row), "%-8s %-7s %4zu  %-24s %8.2g  %10.6f %10.6f %8.2g %8.2f  %s%s%s", id,
        level[0] ? level : "-", check->example_count, check->worst_op, check->worst_share,
        check->loss, check->reference_loss, check->loss_share, (double)check->elapsed_ns / 1e9,
        passed ? "agrees" : "DIFFERS", passed ? "" : ": ", passed ? "" : check->reason);
    table->agrees = table->agrees && passed;
    table->show(table->context, row);
}

static void show_trouble(struct check_table *table, const char *id, const char *level,
                         const char *why)
{
    char row[512];

    (void)snprintf(row, sizeof(row), "%-8s %-7s not checked: %s", id, level[0] ? level : "-", why);
    table->agrees = false;
    table->show(table->context, row);
}

/* What an earlier check found no longer holds: the daemon's next start is not to trust it. A pass is not
 * written down: this may run as another user than the daemon, who could not replace the file. */
static void forget(struct check_table *table, const struct device *device)
{
    const struct device_check failed = {.verdict = CHECK_FAILED};
    struct error err = {0};
    char row[512];

    if (devices_is_gpu(device->kind) &&
        !devicecheck_remember(table->state_folder, &device->description, &failed, &err)) {
        (void)snprintf(row, sizeof(row), "%-8s an earlier pass is still remembered: %s", device->id,
                       err.message);
        table->show(table->context, row);
    }
}

static void check_level(struct check_table *table, const struct device *device, const char *level)
{
    const struct backend_options options = {
        .device_index = device->index, .thread_count = 1, .simd_level = level[0] ? level : NULL};
    struct backend *be = NULL;
    struct device_check check = {0};
    struct error err = {0};
    char reason[256] = "";

    if (backend_open(device->kind, &options, &be, reason, sizeof(reason)) != BACKEND_OK)
        show_trouble(table, device->id, level, reason);
    else if (reason[0] && level[0]) /* another level would be taken in its place */
        show_trouble(table, device->id, level, reason);
    else if (devicecheck_run(be, device->kind, NULL, &check, &err))
        show_check(table, device->id, level, &check);
    else
        show_trouble(table, device->id, level, err.message);
    if (check.verdict == CHECK_FAILED || err.code == ERR_DEVICE)
        forget(table, device);
    backend_close(be);
}

bool devicecheck_table(const struct devices *devices, const char *state_folder,
                       devicecheck_show_fn *show, void *context)
{
    static const char *const levels[] = {"plain", "avx2", "avx512"};
    struct check_table table = {state_folder, show, context, true};
    char head[128];

    (void)snprintf(head, sizeof(head), "%-8s %-7s %4s  %-24s %8s  %10s %10s %8s %8s  %s", "DEVICE",
                   "LEVEL", "OPS", "WORST OP", "ERROR*", "LOSS", "REFERENCE", "ERROR*", "SECONDS",
                   "VERDICT");
    show(context, head);
    for (size_t i = 0; i < devices->count; i++) {
        const struct device *device = &devices->items[i];

        if (device->kind != BACKEND_CPU)
            check_level(&table, device, "");
        for (size_t n = 0; device->kind == BACKEND_CPU && n < COUNT_OF(levels); n++) {
            const char *chosen;
            char reason[256];

            if (backend_choose_simd(device->kind, levels[n], &chosen, reason, sizeof(reason)) !=
                BACKEND_ABSENT)
                check_level(&table, device, levels[n]);
        }
    }
    for (size_t i = 0; i < devices->missing_count; i++) {
        char row[320];

        (void)snprintf(row, sizeof(row), "%-8s not available: %s", devices->missing[i].name,
                       devices->missing[i].reason);
        show(context, row);
    }
    show(context, "* over what is allowed: at most 1 where it agrees");
    return table.agrees;
}
