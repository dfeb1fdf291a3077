#include "daemon/model/geometry.h"

#include "daemon/base/json.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_ROPE_THETA 100000.0
#define ENGRAM_SUB 128 /* width of a table row where the config leaves the heads open */
#define MAX_ORDER 16   /* tokens of one hashed n-gram */

/* The whole numbers of a config: what is meant when one is absent, and what can be. A checkpoint
 * that lacks a field was saved before the field existed; then its fallback is not the default of a
 * new model. */
static const struct {
    const char *name;
    size_t offset;
    int64_t fallback, min, max;
} numbers[] = {
#define NUMBER(name, member, fallback, min, max)                                                   \
    {                                                                                              \
        name, offsetof(struct geometry, member), fallback, min, max                                \
    }
    NUMBER("vocab_size", vocab_size, 16384, 1, 1 << 22),
    NUMBER("d_model", d_model, 768, 1, 1 << 16),
    NUMBER("num_heads", head_count, 12, 1, 1 << 12),
    NUMBER("num_kv_heads", kv_head_count, 2, 1, 1 << 12),
    NUMBER("num_layers", layer_count, 20, 1, GEOMETRY_MAX_LAYERS),
    NUMBER("qk_head_dim", qk_head_size, 0, 0, 1 << 12),
    NUMBER("v_head_dim", v_head_size, 0, 0, 1 << 12),
    NUMBER("max_seq_len", max_seq_len, 4096, 1, 1 << 20),
    NUMBER("engram_heads", engram_heads, 0, 0, 1 << 10),
    NUMBER("engram_slots", engram_slots, 18432, 1, 1 << 26),
    NUMBER("engram_seed_heads", engram_seed_heads, 0, 0, 1 << 20),
    NUMBER("sliding_window", sliding_window, 0, 0, 1 << 20),
    NUMBER("mhc_lanes", lane_count, 4, 1, GEOMETRY_MAX_LANES),
    NUMBER("qkv_conv_taps", conv_taps, 0, 0, 16),
    NUMBER("out_vocab", out_vocab, 0, 0, 1 << 22),
#undef NUMBER
};

static bool refuse(struct error *err, const char *field, const char *format, ...) PRINTF_LIKE(3, 4);
static bool refuse(struct error *err, const char *field, const char *format, ...)
{
    char reason[256];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(reason, sizeof(reason), format,
                    arguments); /* cut is fine: words for a reader */
    va_end(arguments);
    return error_set_param(err, ERR_INVALID, field, "'%s' %s", field, reason);
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool read_numbers(const struct json *config, struct geometry *geometry, struct error *err)
{
    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        int64_t value = numbers[i].fallback;
        size_t size;

        if (!json_get_int(config, numbers[i].name, false, numbers[i].min, numbers[i].max, &value,
                          err))
            return false;
        size = (size_t)value;
        memcpy((char *)geometry + numbers[i].offset, &size, sizeof(size));
    }
    return true;
}

/* A list of whole numbers in [min, max], each once. Absent: ret_values and *ret_count stay. */
struct list_rule {
    const char *name;
    size_t min, max, capacity;
};

static bool read_list(const struct json *config, const struct list_rule *rule, size_t *ret_values,
                      size_t *ret_count, struct error *err)
{
    const struct json *list = NULL;
    size_t count = 0;

    if (!json_get_array(config, rule->name, false, &list, err))
        return false;
    if (!list)
        return true;
    if (json_count(list) > rule->capacity)
        return refuse(err, rule->name, "has %zu entries, at most %zu are possible",
                      json_count(list), rule->capacity);
    for (const struct json *entry = json_first(list); entry; entry = json_next(entry)) {
        double number = json_number(entry);

        if (json_kind_of(entry) != JSON_NUMBER || number < (double)rule->min ||
            number > (double)rule->max || number != (double)(size_t)number)
            return refuse(err, rule->name, "entry %zu must be a whole number from %zu to %zu",
                          count, rule->min, rule->max);
        for (size_t i = 0; i < count; i++)
            if (ret_values[i] == (size_t)number)
                return refuse(err, rule->name, "names %zu twice", ret_values[i]);
        ret_values[count++] = (size_t)number;
    }
    *ret_count = count;
    return true;
}

static bool read_lists(const struct json *config, struct geometry *geometry, struct error *err)
{
    static const size_t default_orders[] = {2, 3}, default_sites[] = {3, 7, 11, 15, 19};
    size_t order[GEOMETRY_MAX_LAYERS], order_count = 0, last = geometry->layer_count - 1;
    const struct list_rule orders = {"engram_orders", 1, MAX_ORDER, GEOMETRY_MAX_ORDERS};
    const struct list_rule sites = {"engram_layers", 0, last, GEOMETRY_MAX_SITES};
    const struct list_rule globals = {"global_layers", 0, last, GEOMETRY_MAX_LAYERS};
    const struct list_rule ladder = {"ladder_order", 0, last, GEOMETRY_MAX_LAYERS};
    const struct json *widths = NULL;

    geometry->engram_order_count = COUNT_OF(default_orders);
    memcpy(geometry->engram_orders, default_orders, sizeof(default_orders));
    geometry->engram_site_count = COUNT_OF(default_sites);
    memcpy(geometry->engram_layers, default_sites, sizeof(default_sites));
    if (!read_list(config, &orders, geometry->engram_orders, &geometry->engram_order_count, err) ||
        !read_list(config, &sites, geometry->engram_layers, &geometry->engram_site_count, err) ||
        !read_list(config, &globals, geometry->global_layers, &geometry->global_layer_count, err) ||
        !read_list(config, &ladder, order, &order_count, err) ||
        !json_get_array(config, "ladder_widths", false, &widths, err))
        return false;
    for (size_t i = 0; i < geometry->engram_site_count; i++)
        if (geometry->engram_layers[i] > last)
            return refuse(err, sites.name,
                          "is absent, which means a site at layer %zu, but there "
                          "are %zu layers",
                          geometry->engram_layers[i], geometry->layer_count);
    if (order_count && order_count != geometry->layer_count)
        return refuse(err, ladder.name, "names %zu layers, the model has %zu", order_count,
                      geometry->layer_count);
    geometry->split_permutations = widths && json_count(widths) > 0;
    return true;
}

static bool read_bits(const struct json *config, struct geometry *geometry, struct error *err)
{
    int64_t act_bits = 8, kv_bits = 8;

    if (!json_get_int(config, "act_bits", false, 0, 32, &act_bits, err) ||
        !json_get_int(config, "kv_bits", false, 0, 32, &kv_bits, err))
        return false;
    if (act_bits != 8)
        return refuse(err, "act_bits", "is %d, only 8 is supported", (int)act_bits);
    if (kv_bits == 1 || (kv_bits > 4 && kv_bits < 8))
        return refuse(err, "kv_bits", "is %d, only 0, 2, 3, 4 and 8 are supported", (int)kv_bits);
    geometry->act_bits = 8;
    geometry->kv_bits = kv_bits > 8 ? 8 : (int)kv_bits;
    return true;
}

/* ---- what follows from the fields, and what contradicts itself --------------------------------
 */

static bool resolve_heads(struct geometry *geometry, struct error *err)
{
    size_t heads = geometry->head_count;

    if (heads % geometry->kv_head_count)
        return refuse(err, "num_kv_heads", "is %zu, which does not divide num_heads %zu",
                      geometry->kv_head_count, heads);
    if (!geometry->qk_head_size)
        geometry->qk_head_size = geometry->d_model / heads;
    if (!geometry->v_head_size)
        geometry->v_head_size = geometry->d_model / heads;
    if (!geometry->v_head_size)
        return refuse(err, "num_heads", "is %zu, more than d_model %zu", heads, geometry->d_model);
    if (!geometry->qk_head_size || geometry->qk_head_size % 2)
        return refuse(err, "qk_head_dim", "is %zu, rotation needs an even size",
                      geometry->qk_head_size);
    return true;
}

static bool resolve_engram(struct geometry *geometry, struct error *err)
{
    size_t orders = geometry->engram_order_count, tables;

    if (!geometry->engram_site_count) {
        geometry->engram_sub = 0;
        return true;
    }
    if (!orders)
        return refuse(err, "engram_orders", "is empty, but there are %zu engram layers",
                      geometry->engram_site_count);
    if (!geometry->engram_heads)
        geometry->engram_heads = geometry->d_model / (orders * ENGRAM_SUB);
    if (!geometry->engram_heads)
        geometry->engram_heads = 1;
    if (!geometry->engram_seed_heads)
        geometry->engram_seed_heads = geometry->engram_heads;
    tables = orders * geometry->engram_heads;
    if (geometry->d_model % tables)
        return refuse(err, "engram_heads", "gives %zu tables, which do not divide d_model %zu",
                      tables, geometry->d_model);
    geometry->engram_sub = geometry->d_model / tables;
    return true;
}

static void resolve_monarch(struct geometry *geometry)
{
    size_t bits = 0;

    while (((size_t)1 << bits) < geometry->d_model)
        bits++;
    geometry->monarch_size = (size_t)1 << bits;
    geometry->monarch_a = (size_t)1 << bits / 2;
    geometry->monarch_b = geometry->monarch_size / geometry->monarch_a;
}

static bool read_config(const struct json *config, struct geometry *geometry, struct error *err)
{
    if (json_kind_of(config) != JSON_OBJECT)
        return error_set(err, ERR_INVALID, "the config is not a JSON object");
    if (json_member(config, "attn_dim") && !json_member(config, "qk_head_dim"))
        return refuse(err, "attn_dim",
                      "without 'qk_head_dim': this is a Needle 2 checkpoint, "
                      "Needle 3 was needed");
    geometry->rope_theta = DEFAULT_ROPE_THETA;
    if (!read_numbers(config, geometry, err) || !read_lists(config, geometry, err) ||
        !read_bits(config, geometry, err) ||
        !json_get_double(config, "rope_theta", false, 1.0, 1e12, &geometry->rope_theta, err) ||
        !resolve_heads(geometry, err) || !resolve_engram(geometry, err))
        return false;
    if (geometry->out_vocab > geometry->vocab_size)
        return refuse(err, "out_vocab", "is %zu, more than vocab_size %zu", geometry->out_vocab,
                      geometry->vocab_size);
    if (!geometry->out_vocab)
        geometry->out_vocab = geometry->vocab_size;
    resolve_monarch(geometry);
    return true;
}

bool geometry_parse(const char *config_json, struct geometry *ret_geometry, struct error *err)
{
    struct geometry geometry = {0};
    struct json *config = NULL;
    bool ok = false;

    if (!json_parse(config_json, strlen(config_json), &config, err) ||
        !read_config(config, &geometry, err)) {
        error_wrap(err, "config of the checkpoint");
        goto out;
    }
    *ret_geometry = geometry;
    ok = true;
out:
    json_free(config);
    return ok;
}

bool geometry_is_global(const struct geometry *geometry, size_t layer)
{
    if (!geometry->sliding_window)
        return true;
    for (size_t i = 0; i < geometry->global_layer_count; i++)
        if (geometry->global_layers[i] == layer)
            return true;
    return false;
}

int geometry_engram_site(const struct geometry *geometry, size_t layer)
{
    for (size_t i = 0; i < geometry->engram_site_count; i++)
        if (geometry->engram_layers[i] == layer)
            return (int)i;
    return -1;
}
