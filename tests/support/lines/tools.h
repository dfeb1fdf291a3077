/*
 * tools: what the longer lines are made of.
 *
 * Purpose    Tools as products describe them, with values for their parameters and ways to ask.
 * Ownership  Constant tables.
 * Threads    Any.
 * Failure    None.
 */
#ifndef NEEDLED_LINES_TOOLS_H
#define NEEDLED_LINES_TOOLS_H

#include <stddef.h>

#define RICH_TOOL_COUNT 24
#define RICH_PARAMETERS_MAX 5
#define PASTED_SENTENCE_COUNT 16

/* Words from a list, then what is drawn as a number. */
enum value_kind {
    VALUE_CITY,
    VALUE_UNIT,
    VALUE_CHORE,
    VALUE_ROOM,
    VALUE_PERSON,
    VALUE_MESSAGE,
    VALUE_TITLE,
    VALUE_SONG,
    VALUE_PLACE,
    VALUE_MODE,
    VALUE_LIST,
    VALUE_ITEM,
    VALUE_CURRENCY,
    VALUE_RESTAURANT,
    VALUE_LANGUAGE,
    VALUE_DOOR,
    VALUE_POWER,
    VALUE_SPORT,
    VALUE_TOPIC,
    VALUE_MINUTES,
    VALUE_PERCENT,
    VALUE_COUNT,
    VALUE_AMOUNT,
    VALUE_CELSIUS,
    VALUE_DATE,
    VALUE_TIME,
    VALUE_ON,
    VALUE_KIND_COUNT
};

struct rich_parameter {
    const char *name, *type, *description;
    enum value_kind kind;
};

struct rich_tool {
    const char *name, *description;
    struct rich_parameter parameters[RICH_PARAMETERS_MAX];
    size_t parameter_count;
    const char *queries[2]; /* $1 stands for the first parameter's value, and so on */
};

struct word_list {
    const char *const *words; /* NULL: not a list */
    size_t count;
};

extern const struct rich_tool rich_tools[RICH_TOOL_COUNT]; /* the first six are one app's */
extern const struct word_list word_lists[VALUE_KIND_COUNT];
extern const char *const pasted_sentences[PASTED_SENTENCE_COUNT];

#endif
