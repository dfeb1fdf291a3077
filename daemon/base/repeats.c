#include "daemon/base/repeats.h"

#include "daemon/base/error.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define MINUTE_NS INT64_C(60000000000)
#define HASH_BEGIN UINT64_C(14695981039346656037) /* FNV-1a: good enough to tell lines apart */
#define HASH_PRIME UINT64_C(1099511628211)

static uint64_t mix(uint64_t hash, const char *text)
{
    for (; text && *text; text++)
        hash = (hash ^ (unsigned char)*text) * HASH_PRIME;
    return (hash ^ 0xff) * HASH_PRIME; /* no byte of UTF-8: ends the text */
}

static bool is_over(const struct repeats_count *count, int64_t now_ns)
{
    return now_ns - count->begun_ns >= MINUTE_NS;
}

static const char *value_of(const struct repeats_line *line)
{
    return line->key && strcmp(line->key, "request") != 0 ? line->value : NULL;
}

/* The line's count, a new one in the place of one that is not needed any more; NULL: no room. */
static struct repeats_count *find(struct repeats *repeats, const struct repeats_line *line,
                                  int64_t now_ns)
{
    const uint64_t hash =
        mix(mix(mix(HASH_BEGIN + (uint64_t)line->level, line->key), value_of(line)), line->text);
    struct repeats_count *free_count = NULL;

    for (size_t i = 0; i < REPEATS_LINES; i++) {
        struct repeats_count *count = &repeats->lines[i];

        if (count->begun_ns != 0 && count->hash == hash)
            return count;
        if (count->left_out == 0 && (!free_count || count->begun_ns < free_count->begun_ns))
            free_count = count;
    }
    if (!free_count || (free_count->written > 1 && !is_over(free_count, now_ns)))
        return NULL; /* what repeats already is not forgotten for what may */
    *free_count = (struct repeats_count){.level = line->level, .begun_ns = now_ns, .hash = hash};
    (void)snprintf(free_count->key, sizeof(free_count->key), "%s", line->key ? line->key : "");
    (void)snprintf(free_count->value, sizeof(free_count->value), "%s",
                   value_of(line) ? value_of(line) : "");
    (void)snprintf(free_count->text, sizeof(free_count->text), "%s", line->text);
    return free_count;
}

static bool has_room(struct repeats_count *count, int64_t max, int64_t now_ns)
{
    if (count->left_out == 0 && (count->begun_ns == 0 || is_over(count, now_ns))) {
        count->begun_ns = now_ns;
        count->written = 0;
    }
    return count->written < max; /* one that left something out begins anew when that was told */
}

bool repeats_take(struct repeats *repeats, const struct repeats_line *line, int64_t now_ns)
{
    struct repeats_count *all, *same;

    assert(line->level >= 0 && line->level < REPEATS_LEVELS);
    all = &repeats->levels[line->level];
    same = find(repeats, line, now_ns);
    all->level = line->level;
    if (same && !has_room(same, REPEATS_SAME_MAX, now_ns)) {
        same->left_out++;
        return false;
    }
    if (!has_room(all, REPEATS_ALL_MAX, now_ns)) {
        all->left_out++;
        return false;
    }
    all->written++;
    if (same)
        same->written++;
    return true;
}

static bool settle(struct repeats_count *count, int64_t now_ns, struct repeats_count *ret_count)
{
    if (count->left_out == 0 || !is_over(count, now_ns))
        return false;
    *ret_count = *count;
    count->left_out = 0;
    count->written = 0;
    count->begun_ns = 0;
    return true;
}

bool repeats_settle(struct repeats *repeats, int64_t now_ns, struct repeats_count *ret_count)
{
    for (size_t i = 0; i < REPEATS_LINES; i++) {
        if (settle(&repeats->lines[i], now_ns, ret_count))
            return true;
    }
    for (size_t i = 0; i < REPEATS_LEVELS; i++) {
        if (settle(&repeats->levels[i], now_ns, ret_count))
            return true;
    }
    return false;
}
