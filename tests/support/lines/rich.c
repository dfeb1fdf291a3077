#include "tests/support/lines/lines.h"
#include "tests/support/lines/tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define APP_TOOL_COUNT 6
#define VALUE_BYTES 48
#define CALLS_MAX 2
#define LONG_IN 64 /* one line in so many has a text pasted into its query */
#define LONG_MIN_TOKENS 660
#define LONG_MAX_TOKENS 950
/* Of a tokenizer trained on such lines; measured, and near enough to stay below 1,024 tokens. */
#define BYTES_A_TOKEN_JSON 4.2
#define BYTES_A_TOKEN_TEXT 4.5

static const char *const refused[] = {"tell me a joke", "who won the cup in 1998",
                                      "write a poem about the rain", "what do you think of me"};

struct call {
    const struct rich_tool *tool;
    const char *query;
    char values[RICH_PARAMETERS_MAX][VALUE_BYTES];
};

struct line {
    size_t tools[RICH_TOOL_COUNT], tool_count;
    struct call calls[CALLS_MAX];
    size_t call_count;    /* 0: nothing offered can do it */
    const char *refusal;  /* then: what was asked */
    size_t wanted_tokens; /* the query is lengthened until the line has about so many; 0: not */
    size_t first_pasted;  /* sentence */
    bool reasoned;
};

/* ---- drawing ----------------------------------------------------------------------------------- */

static void draw_number(struct random *random, enum value_kind kind, char value[VALUE_BYTES])
{
    const size_t number = draw_below(random, 1000000);

    if (kind == VALUE_MINUTES)
        (void)snprintf(value, VALUE_BYTES, "%zu", 1 + number % 90);
    else if (kind == VALUE_PERCENT)
        (void)snprintf(value, VALUE_BYTES, "%zu", 5 + 5 * (number % 20));
    else if (kind == VALUE_COUNT)
        (void)snprintf(value, VALUE_BYTES, "%zu", 2 + number % 10);
    else if (kind == VALUE_AMOUNT)
        (void)snprintf(value, VALUE_BYTES, "%zu", 1 + number % 5000);
    else if (kind == VALUE_CELSIUS)
        (void)snprintf(value, VALUE_BYTES, "%zu.%d", 15 + number % 10, number % 20 < 10 ? 0 : 5);
    else if (kind == VALUE_DATE)
        (void)snprintf(value, VALUE_BYTES, "2026-%02zu-%02zu", 1 + number % 12,
                       1 + number / 12 % 28);
    else if (kind == VALUE_TIME)
        (void)snprintf(value, VALUE_BYTES, "%02zu:%02zu", 7 + number % 15, 15 * (number / 15 % 4));
    else
        (void)snprintf(value, VALUE_BYTES, "%s", number % 2 ? "true" : "false");
}

static void draw_value(struct random *random, enum value_kind kind, char value[VALUE_BYTES])
{
    const struct word_list *list = &word_lists[kind];

    if (list->words)
        (void)snprintf(value, VALUE_BYTES, "%s", list->words[draw_below(random, list->count)]);
    else
        draw_number(random, kind, value);
}

static void draw_call(struct random *random, const struct rich_tool *tool, struct call *ret_call)
{
    ret_call->tool = tool;
    ret_call->query = tool->queries[draw_below(random, COUNT_OF(tool->queries))];
    for (size_t i = 0; i < tool->parameter_count; i++)
        draw_value(random, tool->parameters[i].kind, ret_call->values[i]);
}

static void draw_tools(enum rich_kind kind, struct random *random, struct random *order,
                       struct line *line)
{
    for (size_t i = 0; i < RICH_TOOL_COUNT; i++)
        line->tools[i] = i;
    line->tool_count = APP_TOOL_COUNT;
    if (kind == RICH_SHUFFLED) {
        draw_order(order, line->tools, APP_TOOL_COUNT);
    } else if (kind != RICH_ONE_APP) {
        draw_order(random, line->tools, RICH_TOOL_COUNT);
        line->tool_count = 2 + draw_below(random, 7);
    }
}

static void draw_line(enum rich_kind kind, struct random *random, struct random *order,
                      struct line *line)
{
    const bool app = kind == RICH_ONE_APP || kind == RICH_SHUFFLED;
    size_t asked[APP_TOOL_COUNT] = {0, 1, 2, 3, 4, 5};

    draw_tools(kind, random, order, line);
    if (app)
        draw_order(random, asked, APP_TOOL_COUNT);
    line->call_count = 1 + (draw_below(random, 5) == 0);
    if (draw_below(random, 8) == 0) {
        line->call_count = 0;
        line->refusal = refused[draw_below(random, COUNT_OF(refused))];
        if (line->tool_count == 2) /* the shortest would be shorter than what products send */
            line->tool_count = 3;
    }
    for (size_t i = 0; i < line->call_count; i++)
        draw_call(random, &rich_tools[app ? asked[i] : line->tools[i]], &line->calls[i]);
    line->reasoned = line->call_count > 0 && draw_below(random, 10) < 7;
    line->first_pasted = draw_below(random, PASTED_SENTENCE_COUNT);
    if (kind == RICH_LONG || (kind == RICH_MIXED && draw_below(random, LONG_IN) == 0))
        line->wanted_tokens =
            LONG_MIN_TOKENS + draw_below(random, LONG_MAX_TOKENS - LONG_MIN_TOKENS);
    if (kind == RICH_MIXED || kind == RICH_LONG) /* what is called may stand anywhere */
        draw_order(random, line->tools, line->tool_count);
}

/* ---- printing ---------------------------------------------------------------------------------- */

static void print_query(FILE *out, const struct call *call)
{
    for (const char *c = call->query; *c; c++) {
        if (c[0] == '$')
            fputs(call->values[*++c - '1'], out);
        else
            fputc(*c, out);
    }
}

static void print_queries(FILE *out, const struct line *line)
{
    for (size_t i = 0; i < line->call_count; i++) {
        fputs(i ? " and " : "", out);
        print_query(out, &line->calls[i]);
    }
    if (line->call_count == 0)
        fputs(line->refusal, out);
}

static void print_tool(FILE *out, const struct rich_tool *tool)
{
    fprintf(out, "{\"name\":\"%s\",\"description\":\"%s\",\"parameters\":{", tool->name,
            tool->description);
    for (size_t i = 0; i < tool->parameter_count; i++)
        fprintf(out, "%s\"%s\":{\"type\":\"%s\",\"description\":\"%s\"}", i ? "," : "",
                tool->parameters[i].name, tool->parameters[i].type,
                tool->parameters[i].description);
    fputs("}}", out);
}

static void print_call(FILE *out, const struct call *call)
{
    fprintf(out, "{\"name\":\"%s\",\"arguments\":{", call->tool->name);
    for (size_t i = 0; i < call->tool->parameter_count; i++) {
        const struct rich_parameter *parameter = &call->tool->parameters[i];
        const char *quote = strcmp(parameter->type, "string") == 0 ? "\"" : "";

        fprintf(out, "%s\"%s\":%s%s%s", i ? "," : "", parameter->name, quote, call->values[i],
                quote);
    }
    fputs("}}", out);
}

static void print_reasoning(FILE *out, const struct line *line)
{
    fputs(",\"reasoning\":\"", out);
    for (size_t i = 0; i < line->call_count; i++) {
        const struct call *call = &line->calls[i];

        fprintf(out, "%s%s:", i ? "; " : "", call->tool->name);
        for (size_t k = 0; k < call->tool->parameter_count; k++)
            fprintf(out, "%s %s=%s", k ? "," : "", call->tool->parameters[k].name, call->values[k]);
    }
    fputs("\"", out);
}

/* All but the query. */
static void print_rest(FILE *out, const struct line *line)
{
    fputs("\",\"tools\":[", out);
    for (size_t i = 0; i < line->tool_count; i++) {
        fputs(i ? "," : "", out);
        print_tool(out, &rich_tools[line->tools[i]]);
    }
    fputs("],\"answers\":[", out);
    for (size_t i = 0; i < line->call_count; i++) {
        fputs(i ? "," : "", out);
        print_call(out, &line->calls[i]);
    }
    fputs("]", out);
    if (line->reasoned)
        print_reasoning(out, line);
    fputs("}\n", out);
}

static void print_pasted(const struct line *line, size_t rest_bytes)
{
    double tokens = (double)rest_bytes / BYTES_A_TOKEN_JSON;

    for (size_t i = line->first_pasted;; i++) {
        const char *sentence = pasted_sentences[i % PASTED_SENTENCE_COUNT];

        tokens += (double)(1 + strlen(sentence)) / BYTES_A_TOKEN_TEXT;
        if (tokens > (double)line->wanted_tokens)
            return;
        printf(" %s", sentence);
    }
}

bool lines_print_rich(enum rich_kind kind, struct random *random, struct random *order)
{
    struct line line = {0};
    char *rest = NULL;
    size_t rest_bytes = 0;
    FILE *memory = open_memstream(&rest, &rest_bytes);

    if (!memory)
        return false;
    draw_line(kind, random, order, &line);
    print_rest(memory, &line);
    if (fclose(memory) != 0) {
        free(rest);
        return false;
    }
    fputs("{\"query\":\"", stdout);
    print_queries(stdout, &line);
    if (line.wanted_tokens > 0)
        print_pasted(&line, rest_bytes);
    fputs(rest, stdout);
    free(rest);
    return true;
}
