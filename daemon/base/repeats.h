/*
 * repeats: how often a line may stand in the log.
 *
 * Purpose    A client that hammers or a device that fails must not fill the log: the same line is written
 *            so many times a minute, all lines of a level together so many. What is left out is counted,
 *            and the count is a line of its own.
 * Ownership  The caller's storage, zeroed.
 * Threads    One at a time; log.c has the lock.
 * Failure    None: where more different lines repeat than there is room for, only the level's bound counts.
 */
#ifndef NEEDLED_REPEATS_H
#define NEEDLED_REPEATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REPEATS_LINES 64    /* different ones that are watched at once */
#define REPEATS_LEVELS 4    /* as log.h counts them */
#define REPEATS_SAME_MAX 60 /* a minute */
#define REPEATS_ALL_MAX 3000

struct repeats_line {
    int level;
    const char *key, *value; /* NULL: none. A request's id is no difference: each has another */
    const char *text;
};

struct repeats_count {
    int level;
    int64_t begun_ns; /* of this minute; 0: nothing was written yet */
    int64_t written, left_out;
    uint64_t hash;
    char key[16], value[64], text[256]; /* cut; "" none */
};

struct repeats {
    struct repeats_count lines[REPEATS_LINES];
    struct repeats_count levels[REPEATS_LEVELS];
};

/* Whether the line is to be written; else it is counted. */
bool repeats_take(struct repeats *repeats, const struct repeats_line *line, int64_t now_ns);

/* A count whose minute is over and that left something out, which begins anew; false: none. text is ""
 * where it is a whole level's. now_ns INT64_MAX: also of minutes that are not over. */
bool repeats_settle(struct repeats *repeats, int64_t now_ns, struct repeats_count *ret_count);

#endif
