#include "daemon/sched/devices.h"

#include "daemon/base/buf.h"
#include "daemon/base/limits.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define LIST_BYTES 256
#define REASON_BYTES sizeof(((struct missing_platform *)0)->reason)

static const char default_list[] = "cuda,cpu";

bool devices_is_gpu(enum backend_kind kind)
{
    switch (kind) {
    case BACKEND_CUDA:
        return true;
    case BACKEND_REF:
    case BACKEND_CPU:
    case BACKEND_KIND_COUNT:
        break;
    }
    return false;
}

/* ---- the platform list -------------------------------------------------------------------------- */

struct list {
    const char *text, *source; /* what it says and where it stands */
    bool gpu_means_any;        /* JAX's word for any kind of GPU */
    bool required;             /* a missing one is an error */
};

static struct list choose_list(const char *list)
{
    const char *ours = getenv("NEEDLED_PLATFORMS");
    const char *theirs = getenv("JAX_PLATFORMS");

    if (list && list[0])
        return (struct list){list, "the platform list", false, true};
    if (ours && ours[0])
        return (struct list){ours, "NEEDLED_PLATFORMS", false, true};
    if (theirs && theirs[0])
        return (struct list){theirs, "JAX_PLATFORMS", true, true};
    return (struct list){default_list, "the default", false, false};
}

static bool has_kind(const struct devices *devices, enum backend_kind kind)
{
    for (size_t i = 0; i < devices->count; i++) {
        if (devices->items[i].kind == kind)
            return true;
    }
    return false;
}

static bool has_usable(const struct devices *devices, enum backend_kind kind)
{
    for (size_t i = 0; i < devices->count; i++) {
        if (devices->items[i].kind == kind && !devices->items[i].description.trouble[0])
            return true;
    }
    return false;
}

bool devices_explain_nodes(const char *root, char *reason, size_t size)
{
    char path[LIMIT_PATH_BYTES];
    const size_t used = strlen(reason);
    int node;

    (void)snprintf(path, sizeof(path), "%s/proc/driver/nvidia/version", root);
    if (access(path, F_OK) != 0)
        return false;
    (void)snprintf(path, sizeof(path), "%s/dev/nvidiactl", root);
    node = open(path, O_RDWR | O_CLOEXEC); /* a device */
    if (node >= 0) {
        (void)close(node); /* nothing was asked of it */
        return false;
    }
    (void)snprintf(
        reason + used, size - used,
        "; the kernel's driver runs, but '/dev/nvidiactl' cannot be opened: %s (a systemd "
        "unit needs gpu.conf)",
        strerror(errno));
    return true;
}

/* *ret_hidden: there is one, out of reach. */
static int count_devices(enum backend_kind kind, char *ret_reason, size_t size, bool *ret_hidden)
{
    const int count = backend_device_count(kind, ret_reason, size);

    *ret_hidden = count == 0 && kind == BACKEND_CUDA && devices_explain_nodes("", ret_reason, size);
    return count;
}

static void note_missing(struct devices *devices, enum backend_kind kind, const char *reason,
                         bool is_hidden)
{
    struct missing_platform *missing;

    for (size_t i = 0; i < devices->missing_count; i++) {
        if (strcmp(devices->missing[i].name, backend_name(kind)) == 0)
            return;
    }
    assert(devices->missing_count < COUNT_OF(devices->missing));
    missing = &devices->missing[devices->missing_count++];
    missing->is_hidden = is_hidden;
    (void)snprintf(missing->name, sizeof(missing->name), "%s", backend_name(kind));
    (void)snprintf(missing->reason, sizeof(missing->reason), "%s", reason);
}

static int usable_cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    return CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
}

static void add_kind(struct devices *devices, enum backend_kind kind)
{
    char reason[REASON_BYTES] = "no device";
    bool is_hidden;
    const int count = count_devices(kind, reason, sizeof(reason), &is_hidden);

    if (count == 0 || has_kind(devices, kind)) {
        if (count == 0)
            note_missing(devices, kind, reason, is_hidden);
        return;
    }
    for (int index = 0; index < count && devices->count < DEVICE_MAX; index++) {
        struct device *device = &devices->items[devices->count];

        *device = (struct device){.kind = kind, .index = index};
        if (backend_describe(kind, index, &device->description) == BACKEND_OK)
            devices->gpu_active = devices->gpu_active || devices_is_gpu(kind);
        else if (!device->description
                      .name[0]) /* it stays, with its trouble: others are not hidden */
            (void)snprintf(device->description.name, sizeof(device->description.name), "unknown");
        device->thread_count = kind == BACKEND_CPU ? usable_cores() : 1;
        (void)snprintf(device->id, sizeof(device->id), "%s:%d", backend_name(kind), index);
        devices->count++;
    }
}

/* Whether one of the kind's devices can be used; if not, why. */
static bool is_available(enum backend_kind kind, char *ret_reason, size_t reason_size)
{
    bool is_hidden;
    const int count = count_devices(kind, ret_reason, reason_size, &is_hidden);
    struct backend_device device;

    for (int i = 0; i < count; i++) {
        if (backend_describe(kind, i, &device) == BACKEND_OK)
            return true;
        (void)snprintf(ret_reason, reason_size, "%s", device.trouble);
    }
    return false;
}

/* "available: cpu; not: cuda (needled-cuda.so is not installed)" of this binary and machine. */
static void describe_all(char *ret_text, size_t capacity)
{
    static const enum backend_kind shown[] = {BACKEND_CUDA, BACKEND_CPU};
    struct buf available, absent;

    buf_init(&available, LIST_BYTES);
    buf_init(&absent, 1024);
    for (size_t i = 0; i < COUNT_OF(shown); i++) {
        char reason[REASON_BYTES] = "no device";

        if (is_available(shown[i], reason, sizeof(reason)))
            buf_format(&available, "%s%s", available.size ? ", " : "", backend_name(shown[i]));
        else
            buf_format(&absent, "%s%s (%s)", absent.size ? ", " : "; not: ", backend_name(shown[i]),
                       reason);
    }
    (void)snprintf(ret_text, capacity, "available: %s%s", available.size ? available.data : "none",
                   absent.size ? absent.data : "");
    buf_release(&available);
    buf_release(&absent);
}

/* code: ERR_UNAVAILABLE for what may be there at another time. */
static bool refuse_name(const struct list *list, const char *name, const char *what,
                        enum error_code code, struct error *err)
{
    char all[sizeof(err->message)];

    describe_all(all, sizeof(all));
    return error_set_param(err, code, "platforms", "platform '%.32s' in %s %s; %s", name,
                           list->source, what, all);
}

static bool add_any_gpu(const struct list *list, struct devices *devices, struct error *err)
{
    bool found = false;

    for (size_t kind = 0; kind < BACKEND_KIND_COUNT; kind++) {
        if (!devices_is_gpu((enum backend_kind)kind))
            continue;
        add_kind(devices, (enum backend_kind)kind);
        found = found || has_usable(devices, (enum backend_kind)kind);
    }
    return found || refuse_name(list, "gpu", "is not available", ERR_UNAVAILABLE, err);
}

static bool add_name(const struct list *list, const char *name, struct devices *devices,
                     struct error *err)
{
    if (list->gpu_means_any && strcasecmp(name, "gpu") == 0)
        return add_any_gpu(list, devices, err);
    for (size_t i = 0; i < BACKEND_KIND_COUNT; i++) {
        enum backend_kind kind = (enum backend_kind)i;

        if (strcasecmp(name, backend_name(kind)) != 0)
            continue;
        add_kind(devices, kind);
        if (list->required && !has_usable(devices, kind))
            return refuse_name(list, name, "is not available", ERR_UNAVAILABLE, err);
        return true;
    }
    return refuse_name(list, name, "is not known", ERR_INVALID, err);
}

bool devices_detect(const char *list, struct devices *ret_devices, struct error *err)
{
    struct list chosen = choose_list(list);
    struct devices devices = {0};
    char text[LIST_BYTES];
    char *rest = text, *name;

    if (strlen(chosen.text) >= sizeof(text))
        return error_set_param(err, ERR_INVALID, "platforms", "%s is longer than %zu bytes",
                               chosen.source, sizeof(text) - 1);
    (void)snprintf(text, sizeof(text), "%s", chosen.text);
    while ((name = strsep(&rest, ",")) != NULL) {
        name += strspn(name, " \t");
        name[strcspn(name, " \t")] = '\0';
        if (name[0] && !add_name(&chosen, name, &devices, err))
            return false;
    }
    if (devices.count == 0)
        return refuse_name(&chosen, chosen.text, "gives no device",
                           chosen.text[strspn(chosen.text, ", \t")] ? ERR_UNAVAILABLE : ERR_INVALID,
                           err);
    *ret_devices = devices;
    return true;
}

/* ---- the level of SIMD --------------------------------------------------------------------------- */

bool devices_choose_simd(struct devices *devices, const char *wanted, struct error *err)
{
    const char *source = "the setting 'simd'";

    if (!wanted || !wanted[0]) {
        wanted = getenv("NEEDLED_SIMD");
        source = "NEEDLED_SIMD";
    }
    if (wanted && !wanted[0])
        wanted = NULL; /* empty: as if unset */
    for (size_t i = 0; i < devices->count; i++) {
        struct device *device = &devices->items[i];
        const char *level =
            wanted ? wanted : ""; /* where none passes: asked for again, and refused */
        char reason[sizeof(device->simd_warning)] = "";
        const enum backend_status status =
            backend_choose_simd(device->kind, wanted, &level, reason, sizeof(reason));

        if (status == BACKEND_ABSENT)
            return error_set_param(err, ERR_INVALID, "simd", "%s: %s", source, reason);
        (void)snprintf(device->simd_level, sizeof(device->simd_level), "%s", level);
        (void)snprintf(device->simd_warning, sizeof(device->simd_warning), "%s", reason);
    }
    return true;
}

/* ---- what a job may ask for --------------------------------------------------------------------- */

bool devices_match(const struct device *device, const char *wanted)
{
    return strcmp(wanted, "auto") == 0 || strcmp(wanted, device->id) == 0 ||
           strcmp(wanted, backend_name(device->kind)) == 0;
}

bool devices_check_wanted(const struct devices *devices, const char *wanted, struct error *err)
{
    struct buf ids;
    size_t platform_length = strcspn(wanted, ":");

    for (size_t i = 0; i < devices->count; i++) {
        if (devices_match(&devices->items[i], wanted))
            return true;
    }
    for (size_t i = 0; i < devices->missing_count; i++) {
        struct missing_platform missing = devices->missing[i];

        error_hide_paths(missing.reason); /* a client is told it */
        if (strlen(missing.name) == platform_length &&
            strncmp(missing.name, wanted, platform_length) == 0)
            return error_set_param(err, ERR_INVALID, "device", "no device '%.32s': %s", wanted,
                                   missing.reason);
    }
    buf_init(&ids, sizeof(err->message) / 2);
    for (size_t i = 0; i < devices->count; i++)
        buf_format(&ids, ", %s", devices->items[i].id);
    error_set_param(err, ERR_INVALID, "device", "no device '%.32s': there is auto%s", wanted,
                    ids.data ? ids.data : "");
    buf_release(&ids);
    return false;
}

static void add_part(char *text, size_t capacity, const char *before, const char *part)
{
    const size_t used = strlen(text);

    if (part[0])
        (void)snprintf(text + used, capacity - used, "%s%s%s", used ? ", " : "", before, part);
}

void devices_write_detail(const struct device *device, char ret_text[DEVICE_DETAIL_BYTES])
{
    const struct backend_device *known = &device->description;
    char precisions[32] = "";

    if (known->precisions & ~BACKEND_PRECISION_BIT(BACKEND_FLOAT32))
        (void)snprintf(precisions, sizeof(precisions), "float32%s%s",
                       known->precisions & BACKEND_PRECISION_BIT(BACKEND_TF32) ? " tf32" : "",
                       known->precisions & BACKEND_PRECISION_BIT(BACKEND_BF16) ? " bf16" : "");
    ret_text[0] = '\0';
    add_part(ret_text, DEVICE_DETAIL_BYTES, "capability ", known->capability);
    add_part(ret_text, DEVICE_DETAIL_BYTES, "driver ", known->driver);
    add_part(ret_text, DEVICE_DETAIL_BYTES, "", device->simd_level);
    add_part(ret_text, DEVICE_DETAIL_BYTES, "", known->library);
    add_part(ret_text, DEVICE_DETAIL_BYTES, "", known->library_warning);
    add_part(ret_text, DEVICE_DETAIL_BYTES, "", precisions);
}

static void print_device(const struct device *device, struct buf *out)
{
    const struct backend_device *known = &device->description;
    char detail[DEVICE_DETAIL_BYTES];

    devices_write_detail(device, detail);
    buf_format(out, "%-8s %-9s %-40s %6.1f GiB %6.1f GiB  %s", device->id,
               backend_name(device->kind), known->name,
               (double)known->memory_total_bytes / (1 << 30),
               (double)known->memory_free_bytes / (1 << 30), detail);
    if (devices_is_gpu(device->kind))
        buf_format(out, "; %d multiprocessors", known->core_count);
    else
        buf_format(out, "; %d threads of %d cores", device->thread_count, known->core_count);
    if (known->temperature_celsius)
        buf_format(out, ", %d C", known->temperature_celsius);
    if (known->power_watts)
        buf_format(out, ", %d W", known->power_watts);
    buf_append_text(out, "\n");
    if (known->trouble[0])
        buf_format(out, "%-8s cannot be used: %s\n", device->id, known->trouble);
    if (device->simd_warning[0])
        buf_format(out, "%-8s warning: %s\n", device->id, device->simd_warning);
}

void devices_print(const struct devices *devices, struct buf *out)
{
    buf_format(out, "%-8s %-9s %-40s %10s %10s  %s\n", "DEVICE", "PLATFORM", "NAME", "MEMORY",
               "FREE", "DETAIL");
    for (size_t i = 0; i < devices->count; i++)
        print_device(&devices->items[i], out);
    for (size_t i = 0; i < devices->missing_count; i++)
        buf_format(out, "%-8s not available: %s\n", devices->missing[i].name,
                   devices->missing[i].reason);
    buf_format(out, "GPU acceleration: %s\n", devices->gpu_active ? "active" : "not active");
}
