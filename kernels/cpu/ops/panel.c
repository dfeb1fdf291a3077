#include "kernels/cpu/ops/panel.h"

#include <assert.h>
#include <string.h>

#define ROWS_WANTED 96 /* of a panel: enough to use a tile in the first cache many times */

static size_t round_up(size_t count, size_t step)
{
    return (count + step - 1) / step * step;
}

struct panel_plan panel_plan(const struct attention *shape, const struct tree *tree)
{
    struct panel_plan plan = {.shape = shape, .tree = tree};
    const size_t N = tree->token_count;

    plan.share = shape->head_count / shape->kv_head_count;
    plan.c_width = round_up(shape->qk_size, TILE_CHUNK);
    plan.v_width = round_up(shape->v_size, TILE_CHUNK);
    plan.tile_count = (N + PANEL_KEYS - 1) / PANEL_KEYS;
    plan.token_count = round_up((ROWS_WANTED + plan.share - 1) / plan.share, TILE_ROWS);
    plan.row_count = plan.token_count * plan.share;
    plan.panel_count = (N + plan.token_count - 1) / plan.token_count;
    return plan;
}

void panel_place(struct panel *panel, const struct panel_plan *plan, struct panel_space *space)
{
    *panel = (struct panel){.plan = plan};
    panel->depth_floor = panel_take(space, plan->token_count);
    panel->row_token = panel_take(space, plan->row_count);
    panel->mask = panel_take(space, plan->token_count * PANEL_KEYS);
    panel->range = panel_take(space, plan->token_count * sizeof *panel->range / sizeof(float) + 1);
}

/* ---- keys and values ---------------------------------------------------------------------------
 */

static size_t tile_end(const struct panel_plan *plan, size_t tile)
{
    size_t end = (tile + 1) * PANEL_KEYS;
    return end < plan->tree->token_count ? end : plan->tree->token_count;
}

static struct panel_bounds bounds_of(const struct panel_plan *plan, size_t tile)
{
    const int32_t *end = plan->tree->end, *depth = plan->tree->depth;
    struct panel_bounds bounds = {INT32_MAX, 0, INT32_MAX, 0};

    for (size_t n = tile * PANEL_KEYS; n < tile_end(plan, tile); n++) {
        bounds.end_min = end[n] < bounds.end_min ? end[n] : bounds.end_min;
        bounds.end_max = end[n] > bounds.end_max ? end[n] : bounds.end_max;
        bounds.depth_min = depth[n] < bounds.depth_min ? depth[n] : bounds.depth_min;
        bounds.depth_max = depth[n] > bounds.depth_max ? depth[n] : bounds.depth_max;
    }
    return bounds;
}

void panel_find_bounds(struct panel_plan *plan)
{
    for (size_t tile = 0; tile < plan->tile_count; tile++)
        plan->bounds[tile] = bounds_of(plan, tile);
}

/* rows [KEYS,width] and columns [size,KEYS] of one head of the tile's keys; either may be NULL. */
static void pack_tile(float *rows, float *columns, const struct panel_plan *plan, size_t tile,
                      const float *heads, size_t g, size_t size, size_t width)
{
    const size_t G = plan->shape->kv_head_count, first = tile * PANEL_KEYS;
    const size_t count = tile_end(plan, tile) - first;

    if (rows)
        memset(rows, 0, PANEL_KEYS * width * sizeof *rows);
    if (columns && count < PANEL_KEYS)
        memset(columns, 0, PANEL_KEYS * size * sizeof *columns);
    for (size_t n = 0; n < count; n++) {
        const float *from = &heads[((first + n) * G + g) * size];
        if (rows)
            memcpy(&rows[n * width], from, size * sizeof *from);
        for (size_t c = 0; columns && c < size; c++)
            columns[c * PANEL_KEYS + n] = from[c];
    }
}

struct pack_call {
    const struct panel_plan *plan;
    const float *k, *v;
};

static float *place_in(float *array, size_t index, size_t size)
{
    return array ? &array[index * PANEL_KEYS * size] : NULL;
}

static void pack_tiles(void *context, size_t begin, size_t end, size_t part)
{
    const struct pack_call *call = context;
    const struct panel_plan *plan = call->plan;
    const size_t C = plan->shape->qk_size, V = plan->shape->v_size, G = plan->shape->kv_head_count;

    (void)part;
    for (size_t tile = begin; tile < end; tile++) {
        for (size_t g = 0; g < G; g++) {
            size_t at = tile * G + g;
            pack_tile(place_in(plan->k_rows, at, plan->c_width), place_in(plan->k_columns, at, C),
                      plan, tile, call->k, g, C, plan->c_width);
            pack_tile(place_in(plan->v_rows, at, plan->v_width), place_in(plan->v_columns, at, V),
                      plan, tile, call->v, g, V, plan->v_width);
        }
    }
}

void panel_pack(struct cpu *cpu, struct panel_plan *plan, const float *k, const float *v)
{
    struct pack_call call = {plan, k, v};

    team_deal(cpu->team, plan->tile_count, pack_tiles, &call);
}

/* ---- queries -----------------------------------------------------------------------------------
 */

void panel_start(struct panel *panel, size_t index, size_t g)
{
    const struct panel_plan *plan = panel->plan;
    const struct tree *tree = plan->tree;
    const size_t window = plan->shape->window;

    panel->g = g;
    panel->begin = index * plan->token_count;
    panel->end = panel->begin + plan->token_count;
    if (panel->end > tree->token_count)
        panel->end = tree->token_count;
    const size_t tokens = panel->end - panel->begin;
    panel->rows = round_up(tokens * plan->share, TILE_ROWS);
    panel->floor_min = INT32_MAX;
    panel->floor_max = -1;
    for (size_t t = 0; t < tokens; t++) {
        int32_t depth = tree->depth[panel->begin + t];
        int32_t floor = window && window <= (size_t)depth ? depth - (int32_t)window : -1;
        panel->depth_floor[t] = floor;
        panel->floor_min = floor < panel->floor_min ? floor : panel->floor_min;
        panel->floor_max = floor > panel->floor_max ? floor : panel->floor_max;
    }
    for (size_t row = 0; row < panel->rows; row++) {
        size_t t = row / plan->share;
        panel->row_token[row] = (int32_t)(t < tokens ? t : tokens - 1);
    }
}

void panel_gather(float *rows, size_t width, const struct panel *panel, const float *heads,
                  size_t size, float scale)
{
    const size_t H = panel->plan->shape->head_count, share = panel->plan->share;
    float *row = rows;

    if (width > size || panel->rows > (panel->end - panel->begin) * share)
        memset(rows, 0, panel->rows * width * sizeof *rows);
    for (size_t n = panel->begin; n < panel->end; n++) {
        const float *from = &heads[(n * H + panel->g * share) * size];
        for (size_t h = 0; h < share; h++, row += width, from += size)
            for (size_t c = 0; c < size; c++)
                row[c] = scale * from[c];
    }
}

/* Mask and range of the panel's token t. */
static void look_at_keys(struct panel *panel, size_t t, size_t tile)
{
    const struct tree *tree = panel->plan->tree;
    const size_t first = tile * PANEL_KEYS, count = tile_end(panel->plan, tile) - first;
    const size_t i = panel->begin + t, past = i < first ? 0 : i - first + 1;
    const size_t limit = past < count ? past : count; /* keys up to the query itself */
    const int32_t *end = tree->end + first, *depth = tree->depth + first;
    const int32_t query = (int32_t)i, floor = panel->depth_floor[t];
    int32_t *mask = &panel->mask[t * PANEL_KEYS], any[PANEL_CHUNKS] = {0}, all[PANEL_CHUNKS];
    struct panel_range range = {0, 0, true};

    for (size_t k = 0; k < limit; k++)
        mask[k] = (end[k] > query) & (depth[k] > floor) ? -1 : 0;
    memset(mask + limit, 0, (PANEL_KEYS - limit) * sizeof *mask);
    for (size_t chunk = 0; chunk < PANEL_CHUNKS; chunk++) {
        all[chunk] = -1;
        for (size_t k = 0; k < TILE_CHUNK; k++) {
            any[chunk] |= mask[chunk * TILE_CHUNK + k];
            all[chunk] &= mask[chunk * TILE_CHUNK + k];
        }
    }
    for (size_t chunk = 0; chunk < PANEL_CHUNKS; chunk++)
        if (any[chunk]) {
            range.begin = range.end ? range.begin : (uint8_t)chunk;
            range.end = (uint8_t)(chunk + 1);
        }
    for (size_t chunk = range.begin; chunk < range.end; chunk++)
        range.whole = range.whole && all[chunk];
    panel->range[t] = range;
}

bool panel_look(struct panel *panel, size_t tile)
{
    const struct panel_bounds *bounds = &panel->plan->bounds[tile];
    const int32_t last = (int32_t)panel->end - 1, first_key = (int32_t)(tile * PANEL_KEYS);

    if (first_key > last || bounds->end_max <= (int32_t)panel->begin ||
        bounds->depth_max <= panel->floor_min)
        return false;
    panel->masked = first_key + PANEL_KEYS - 1 > (int32_t)panel->begin || bounds->end_min <= last ||
                    bounds->depth_min <= panel->floor_max;
    for (size_t t = 0; panel->masked && t < panel->end - panel->begin; t++)
        look_at_keys(panel, t, tile);
    return true;
}

struct panel_range panel_rows_see(const struct panel *panel, size_t row)
{
    if (!panel->masked)
        return (struct panel_range){0, PANEL_CHUNKS, true};
    const size_t last = (size_t)panel->row_token[row + TILE_ROWS - 1];
    size_t t = (size_t)panel->row_token[row];
    struct panel_range all = panel->range[t];

    for (t++; t <= last; t++) {
        struct panel_range one = panel->range[t];
        all.whole = all.whole && one.whole && all.begin == one.begin && all.end == one.end;
        if (one.begin == one.end)
            continue;
        if (all.begin == all.end) {
            all.begin = one.begin;
            all.end = one.end;
        }
        all.begin = one.begin < all.begin ? one.begin : all.begin;
        all.end = one.end > all.end ? one.end : all.end;
    }
    return all;
}
