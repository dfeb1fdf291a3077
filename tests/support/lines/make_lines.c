/*
 * make_lines: clean tool-calling lines for the demo, for tests and for benches.
 *
 *     make_lines COUNT SEED [mixed|long|one-app|shuffled|demo]
 *
 * mixed     2 to 8 of 24 tools in every line; one line in 64 has a long text pasted into its query
 * long      the same, but every line has such a text
 * one-app   the same 6 tools in every line, in the same order
 * shuffled  the lines of one-app with the tools in another order per line
 * demo      1 or 2 small tools and short queries (the default)
 *
 * The same COUNT, SEED and kind give the same bytes everywhere.
 */
#include "tests/support/lines/lines.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const struct {
    const char *name;
    enum rich_kind rich;
} kinds[] = {{"mixed", RICH_MIXED},
             {"long", RICH_LONG},
             {"one-app", RICH_ONE_APP},
             {"shuffled", RICH_SHUFFLED},
             {"demo", 0}};
#define KIND_DEMO (COUNT_OF(kinds) - 1)

static bool parse_count(const char *text, uint64_t *ret_count)
{
    char *end;

    *ret_count = strtoumax(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0';
}

int main(int argc, char **argv)
{
    uint64_t count, seed;
    size_t kind = KIND_DEMO;

    if (argc == 4)
        for (kind = 0; kind < COUNT_OF(kinds) && strcmp(kinds[kind].name, argv[3]) != 0;)
            kind++;
    if (argc < 3 || argc > 4 || kind == COUNT_OF(kinds) || !parse_count(argv[1], &count) ||
        !parse_count(argv[2], &seed)) {
        fprintf(stderr, "usage: make_lines COUNT SEED [mixed|long|one-app|shuffled|demo]\n");
        return 2;
    }
    struct random random = draw_start(seed), order = draw_start(~seed);
    for (uint64_t i = 0; i < count; i++) {
        if (kind == KIND_DEMO) {
            lines_print_small(&random);
        } else if (!lines_print_rich(kinds[kind].rich, &random, &order)) {
            fprintf(stderr, "make_lines: no memory\n");
            return 1;
        }
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
