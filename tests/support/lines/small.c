#include "tests/support/lines/lines.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define TOOL_COUNT 6

enum slot { SLOT_CITY, SLOT_MINUTES, SLOT_ROOM, SLOT_SONG, SLOT_PERSON, SLOT_TIME };

struct tool {
    const char *name, *parameter;
    enum slot slot;
    const char *queries[2]; /* %s stands for the value */
};

static const struct tool tools[TOOL_COUNT] = {
    {"get_weather", "city", SLOT_CITY, {"weather in %s", "is it cold in %s"}},
    {"set_timer", "minutes", SLOT_MINUTES, {"timer for %s min", "%s minute timer"}},
    {"light_on", "room", SLOT_ROOM, {"lights on in the %s", "light the %s"}},
    {"play_song", "title", SLOT_SONG, {"play %s", "put on %s"}},
    {"call_person", "name", SLOT_PERSON, {"call %s", "ring %s now"}},
    {"set_alarm", "time", SLOT_TIME, {"wake me at %s", "alarm at %s"}},
};

static const char *const cities[] = {"Oslo", "Rome", "Lima", "Paris", "Kyoto", "Lagos", "Bern"};
static const char *const rooms[] = {"kitchen", "bedroom", "hall", "office", "garage"};
static const char *const songs[] = {"Yesterday", "Hey Jude", "Imagine", "Africa", "Jolene"};
static const char *const people[] = {"Ana", "Ben", "Zoe", "Max", "Ivo", "Lea"};
static const char *const refused[] = {"tell me a joke", "who are you", "thanks a lot",
                                      "never mind"};

static void fill_slot(struct random *random, enum slot slot, char *value, size_t capacity)
{
    switch (slot) {
    case SLOT_CITY:
        snprintf(value, capacity, "%s", cities[draw_below(random, COUNT_OF(cities))]);
        return;
    case SLOT_MINUTES:
        snprintf(value, capacity, "%zu", 1 + draw_below(random, 59));
        return;
    case SLOT_ROOM:
        snprintf(value, capacity, "%s", rooms[draw_below(random, COUNT_OF(rooms))]);
        return;
    case SLOT_SONG:
        snprintf(value, capacity, "%s", songs[draw_below(random, COUNT_OF(songs))]);
        return;
    case SLOT_PERSON:
        snprintf(value, capacity, "%s", people[draw_below(random, COUNT_OF(people))]);
        return;
    case SLOT_TIME:
        snprintf(value, capacity, "%02zu:%02zu", draw_below(random, 24),
                 5 * draw_below(random, 12));
        return;
    }
}

/* The one place where the pattern of a query is used as a format. */
static void print_query(const char *pattern, const char *value)
{
    const char *hole = strstr(pattern, "%s");

    printf("%.*s%s%s", (int)(hole - pattern), pattern, value, hole + 2);
}

void lines_print_small(struct random *random)
{
    size_t chosen[TOOL_COUNT];

    for (size_t i = 0; i < TOOL_COUNT; i++)
        chosen[i] = i;
    draw_order(random, chosen, TOOL_COUNT);
    const size_t count = 1 + draw_below(random, 2);
    const struct tool *tool = &tools[chosen[draw_below(random, count)]];
    const bool refusal = draw_below(random, 10) == 0, reasoned = draw_below(random, 3) == 0;
    char value[32];

    fill_slot(random, tool->slot, value, sizeof(value));
    printf("{\"query\":\"");
    if (refusal)
        printf("%s", refused[draw_below(random, COUNT_OF(refused))]);
    else
        print_query(tool->queries[draw_below(random, 2)], value);
    printf("\",\"tools\":[");
    for (size_t i = 0; i < count; i++)
        printf("%s{\"name\":\"%s\",\"parameters\":{\"%s\":\"%s\"}}", i ? "," : "",
               tools[chosen[i]].name, tools[chosen[i]].parameter,
               tools[chosen[i]].slot == SLOT_MINUTES ? "integer" : "string");
    printf("],\"answers\":[");
    if (!refusal) {
        const char *quote = tool->slot == SLOT_MINUTES ? "" : "\"";

        printf("{\"name\":\"%s\",\"arguments\":{\"%s\":%s%s%s}}", tool->name, tool->parameter,
               quote, value, quote);
    }
    printf("]");
    if (reasoned && !refusal)
        printf(",\"reasoning\":\"%s %s\"", tool->parameter, value);
    printf("}\n");
}
