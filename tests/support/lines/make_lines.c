/*
 * make_lines: clean tool-calling lines for the demo and for tests.
 *
 *     make_lines COUNT SEED [mixed|one-app|shuffled|demo]
 *
 * mixed     2 to 8 of 24 tools in every line
 * one-app   the same 6 tools in every line, in the same order
 * shuffled  the same 6 tools in another order per line
 * demo      1 or 2 small tools and short queries (the default)
 *
 * The same COUNT, SEED and kind give the same bytes everywhere.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define TOOL_COUNT 24
#define APP_TOOL_COUNT 6

enum kind { KIND_MIXED, KIND_ONE_APP, KIND_SHUFFLED, KIND_DEMO };

enum slot { SLOT_NONE, SLOT_CITY, SLOT_MINUTES, SLOT_ROOM, SLOT_SONG, SLOT_PERSON, SLOT_TIME };

struct tool {
    const char *name, *description, *parameter;
    enum slot slot;
    const char *queries[2]; /* %s stands for the value */
};

static const struct tool tools[TOOL_COUNT] = {
    {"get_weather", "Weather in a city", "city", SLOT_CITY, {"weather in %s", "is it cold in %s"}},
    {"set_timer",
     "Start a timer",
     "minutes",
     SLOT_MINUTES,
     {"timer for %s min", "%s minute timer"}},
    {"light_on", "Turn a lamp on", "room", SLOT_ROOM, {"lights on in the %s", "light the %s"}},
    {"play_song", "Play a song", "title", SLOT_SONG, {"play %s", "put on %s"}},
    {"call_person", "Call someone", "name", SLOT_PERSON, {"call %s", "ring %s now"}},
    {"set_alarm", "Set an alarm", "time", SLOT_TIME, {"wake me at %s", "alarm at %s"}},
    {"light_off", "Turn a lamp off", "room", SLOT_ROOM, {"lights off in the %s", "dark in the %s"}},
    {"get_time", "Time in a city", "city", SLOT_CITY, {"time in %s", "what time is it in %s"}},
    {"send_note", "Send a note", "to", SLOT_PERSON, {"note to %s", "write to %s"}},
    {"stop_music", "Stop the music", NULL, SLOT_NONE, {"stop the music", "be quiet"}},
    {"heat_room", "Heat a room", "room", SLOT_ROOM, {"heat the %s", "warm up the %s"}},
    {"find_train", "Trains to a city", "city", SLOT_CITY, {"train to %s", "how do I get to %s"}},
    {"add_song", "Like a song", "title", SLOT_SONG, {"I like %s", "save %s"}},
    {"snooze",
     "Snooze for minutes",
     "minutes",
     SLOT_MINUTES,
     {"snooze %s", "wait %s more minutes"}},
    {"lock_door", "Lock the door", NULL, SLOT_NONE, {"lock the door", "close up"}},
    {"open_door", "Open the door", NULL, SLOT_NONE, {"open the door", "let them in"}},
    {"where_is", "Find someone", "name", SLOT_PERSON, {"where is %s", "find %s"}},
    {"get_news", "News from a city", "city", SLOT_CITY, {"news from %s", "what is new in %s"}},
    {"clean_room", "Clean a room", "room", SLOT_ROOM, {"clean the %s", "vacuum the %s"}},
    {"book_taxi", "Taxi at a time", "time", SLOT_TIME, {"taxi at %s", "I need a cab at %s"}},
    {"read_mail", "Read new mail", NULL, SLOT_NONE, {"read my mail", "any new mail"}},
    {"invite", "Invite someone", "name", SLOT_PERSON, {"invite %s", "ask %s to come"}},
    {"remind_at", "Remind at a time", "time", SLOT_TIME, {"remind me at %s", "ping me at %s"}},
    {"boil_eggs",
     "Boil eggs for minutes",
     "minutes",
     SLOT_MINUTES,
     {"eggs, %s minutes", "boil %s min"}},
};

static const char *const cities[] = {"Oslo", "Rome", "Lima", "Paris", "Kyoto", "Lagos", "Bern"};
static const char *const rooms[] = {"kitchen", "bedroom", "hall", "office", "garage"};
static const char *const songs[] = {"Yesterday", "Hey Jude", "Imagine", "Africa", "Jolene"};
static const char *const people[] = {"Ana", "Ben", "Zoe", "Max", "Ivo", "Lea"};
static const char *const refused[] = {"tell me a joke", "who are you", "thanks a lot",
                                      "never mind"};

/* PCG32 (O'Neill 2014): small, and the same everywhere. */
struct random {
    uint64_t state;
};

static uint32_t draw(struct random *random)
{
    uint64_t old = random->state;
    uint32_t mixed = (uint32_t)(((old >> 18) ^ old) >> 27), turn = (uint32_t)(old >> 59);

    random->state = old * 6364136223846793005u + 1442695040888963407u;
    return mixed >> turn | mixed << (-turn & 31);
}

static size_t pick(struct random *random, size_t count)
{
    return draw(random) % count;
}

static void fill_slot(struct random *random, enum slot slot, char *value, size_t capacity)
{
    switch (slot) {
    case SLOT_NONE:
        value[0] = '\0';
        return;
    case SLOT_CITY:
        snprintf(value, capacity, "%s", cities[pick(random, COUNT_OF(cities))]);
        return;
    case SLOT_MINUTES:
        snprintf(value, capacity, "%zu", 1 + pick(random, 59));
        return;
    case SLOT_ROOM:
        snprintf(value, capacity, "%s", rooms[pick(random, COUNT_OF(rooms))]);
        return;
    case SLOT_SONG:
        snprintf(value, capacity, "%s", songs[pick(random, COUNT_OF(songs))]);
        return;
    case SLOT_PERSON:
        snprintf(value, capacity, "%s", people[pick(random, COUNT_OF(people))]);
        return;
    case SLOT_TIME:
        snprintf(value, capacity, "%02zu:%02zu", pick(random, 24), 5 * pick(random, 12));
        return;
    }
}

static void shuffle(struct random *random, size_t *items, size_t count)
{
    for (size_t i = count; i > 1; i--) {
        size_t other = pick(random, i), kept = items[i - 1];

        items[i - 1] = items[other];
        items[other] = kept;
    }
}

/* Chooses the tools of a line; returns how many. */
static size_t choose_tools(struct random *random, enum kind kind, size_t chosen[TOOL_COUNT])
{
    for (size_t i = 0; i < TOOL_COUNT; i++)
        chosen[i] = i;
    switch (kind) {
    case KIND_ONE_APP:
        return APP_TOOL_COUNT;
    case KIND_SHUFFLED:
        shuffle(random, chosen, APP_TOOL_COUNT);
        return APP_TOOL_COUNT;
    case KIND_MIXED:
        shuffle(random, chosen, TOOL_COUNT);
        return 2 + pick(random, 7);
    case KIND_DEMO:
        shuffle(random, chosen, APP_TOOL_COUNT);
        return 1 + pick(random, 2);
    }
    return 0;
}

static void print_tool(const struct tool *tool, bool brief)
{
    printf("{\"name\":\"%s\"", tool->name);
    if (!brief)
        printf(",\"description\":\"%s\"", tool->description);
    printf(",\"parameters\":{");
    if (tool->parameter)
        printf("\"%s\":%s", tool->parameter,
               tool->slot == SLOT_MINUTES ? "\"integer\"" : "\"string\"");
    printf("}}");
}

/* The one place where the pattern of a query is used as a format. */
static void print_query(const char *pattern, const char *value)
{
    const char *hole = strstr(pattern, "%s");

    if (hole)
        printf("%.*s%s%s", (int)(hole - pattern), pattern, value, hole + 2);
    else
        printf("%s", pattern);
}

static void print_line(struct random *random, enum kind kind)
{
    size_t chosen[TOOL_COUNT], count = choose_tools(random, kind, chosen);
    const struct tool *tool = &tools[chosen[pick(random, count)]];
    bool refusal = pick(random, 10) == 0, reasoned = pick(random, 3) == 0;
    char value[32];

    fill_slot(random, tool->slot, value, sizeof(value));
    printf("{\"query\":\"");
    if (refusal)
        printf("%s", refused[pick(random, COUNT_OF(refused))]);
    else
        print_query(tool->queries[pick(random, 2)], value);
    printf("\",\"tools\":[");
    for (size_t i = 0; i < count; i++) {
        printf("%s", i ? "," : "");
        print_tool(&tools[chosen[i]], kind == KIND_DEMO);
    }
    printf("],\"answers\":[");
    if (!refusal) {
        const char *quote = tool->slot == SLOT_MINUTES ? "" : "\"";

        printf("{\"name\":\"%s\",\"arguments\":{", tool->name);
        if (tool->parameter)
            printf("\"%s\":%s%s%s", tool->parameter, quote, value, quote);
        printf("}}");
    }
    printf("]");
    if (reasoned && !refusal && tool->parameter)
        printf(",\"reasoning\":\"%s %s\"", tool->parameter, value);
    printf("}\n");
}

static bool parse_count(const char *text, uint64_t *ret_count)
{
    char *end;

    *ret_count = strtoumax(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0';
}

int main(int argc, char **argv)
{
    static const char *const kinds[] = {"mixed", "one-app", "shuffled", "demo"};
    uint64_t count, seed;
    size_t kind = KIND_DEMO;

    if (argc == 4)
        for (kind = 0; kind < COUNT_OF(kinds) && strcmp(kinds[kind], argv[3]) != 0;)
            kind++;
    if (argc < 3 || argc > 4 || kind == COUNT_OF(kinds) || !parse_count(argv[1], &count) ||
        !parse_count(argv[2], &seed)) {
        fprintf(stderr, "usage: make_lines COUNT SEED [mixed|one-app|shuffled|demo]\n");
        return 2;
    }
    struct random random = {.state = seed * 2 + 1442695040888963407u};
    for (int i = 0; i < 4; i++)
        (void)draw(&random); /* seeds next to each other part ways first */
    for (uint64_t i = 0; i < count; i++)
        print_line(&random, (enum kind)kind);
    return fflush(stdout) == 0 ? 0 : 1;
}
