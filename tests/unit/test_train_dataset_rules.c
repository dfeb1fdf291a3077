/*
 * Proves what each rule set says of a line: the same bytes go through the upload's reader and the
 * trainer's, and both name line, column, field and rule.
 */
#include "daemon/base/buf.h"
#include "daemon/base/file.h"
#include "daemon/model/tokenizer.h"
#include "daemon/train/dataset.h"
#include "tests/support/test.h"

#include <unistd.h>

static struct tokenizer *tokenizer;

static int open_tokenizer(void **state)
{
    (void)state;
    struct error err = {0};

    return tokenizer_open(FIXTURES "needle3/tokenizer.model", &tokenizer, &err) ? 0 : -1;
}

static int close_tokenizer(void **state)
{
    (void)state;
    tokenizer_close(tokenizer);
    return 0;
}

/* Feeds the bytes in pieces of that size. */
static void scan(const char *bytes, size_t size, size_t piece, struct dataset_report *ret_report)
{
    struct dataset_scan *reader = NULL;
    struct error err = {0};

    if (!dataset_scan_new(&reader, &err))
        fail_msg("%s", err.message);
    for (size_t at = 0; at < size; at += piece) {
        size_t left = size - at < piece ? size - at : piece;

        if (!dataset_scan_feed(reader, bytes + at, left, &err))
            fail_msg("%s", err.message);
    }
    if (!dataset_scan_finish(reader, ret_report, &err))
        fail_msg("%s", err.message);
    dataset_scan_free(reader);
}

static struct dataset *train(const char *bytes, size_t size, const struct dataset_options *options)
{
    char path[] = "/tmp/needled-test-XXXXXX";
    struct dataset *dataset = NULL;
    struct error err = {0};
    int descriptor = mkstemp(path);

    assert_true(descriptor >= 0);
    assert_int_equal(close(descriptor), 0);
    if (!file_write(path, bytes, size, &err) ||
        !dataset_read(path, tokenizer, options, &dataset, &err))
        fail_msg("%s", err.message);
    assert_int_equal(unlink(path), 0);
    return dataset;
}

static const struct problem *find(const struct dataset_report *report, enum problem_level level,
                                  size_t line, const char *rule)
{
    for (size_t i = 0; i < report->problem_kept[level]; i++) {
        const struct problem *problem = &report->problems[level][i];

        if (problem->line == line && strcmp(problem->rule, rule) == 0)
            return problem;
    }
    return NULL;
}

static void show(const struct dataset_report *report)
{
    for (int level = 0; level < PROBLEM_LEVEL_COUNT; level++)
        for (size_t i = 0; i < report->problem_kept[level]; i++)
            print_message("  level %d, line %zu, column %zu, '%s', %s: %s\n", level,
                          report->problems[level][i].line, report->problems[level][i].column,
                          report->problems[level][i].field, report->problems[level][i].rule,
                          report->problems[level][i].reason);
}

/* ---- one line, one finding ------------------------------------------------------------------ */

#define TOOL "{\"name\":\"f\",\"parameters\":{}}"
#define CALL "{\"name\":\"f\",\"arguments\":{\"x\":1}}"
#define USER "{\"role\":\"user\",\"content\":\"hi\"}"
#define ASSISTANT(rest) "{\"role\":\"assistant\",\"content\":null" rest "}"
#define CHAT(messages) "{\"messages\":[" messages "],\"tools\":[" TOOL "]}"

static const struct {
    const char *line;
    enum problem_level level;
    const char *field, *rule, *word;
    size_t column; /* 0: not looked at */
} faults[] = {
    /* what no rule set takes */
    {"[1]", PROBLEM_FATAL, "", "json_array", "array", 1},
    {"\"query\"", PROBLEM_FATAL, "", "not_an_object", "a string", 1},
    {"7", PROBLEM_FATAL, "", "not_an_object", "a number", 1},
    {"{\"query\":5,\"tools\":[],\"answers\":[]}", PROBLEM_FATAL, "query", "wrong_type",
     "a number, a string is needed", 10},
    {"{\"query\":null,\"tools\":[],\"answers\":[]}", PROBLEM_FATAL, "query", "wrong_type", "null",
     10},
    {"{\"query\":\"a\",\"tools\":[],\"answers\":[],\"system\":[1]}", PROBLEM_FATAL, "system",
     "wrong_type", "an array", 47},
    {"  {\"query\":\"a\",}", PROBLEM_FATAL, "", "not_json", "trailing comma", 15},
    {"{\"query\":\"\\ud800\",\"tools\":[],\"answers\":[]}", PROBLEM_FATAL, "query",
     "lone_surrogate", "half of a character", 11},
    {CHAT("5"), PROBLEM_FATAL, "messages[0]", "wrong_type", "a number", 14},
    {CHAT(USER "," ASSISTANT(",\"tool_calls\":[7]")), PROBLEM_FATAL, "messages[1].tool_calls[0]",
     "wrong_type", "a number", 0},
    {CHAT(USER "," ASSISTANT(",\"tool_calls\":\"f()\"")), PROBLEM_FATAL, "messages[1].tool_calls",
     "wrong_type", "a string", 0},
    {CHAT(USER "," ASSISTANT(",\"tool_calls\":[{\"name\":\"f\",\"arguments\":\"{x\"}]")),
     PROBLEM_FATAL, "messages[1].tool_calls[0].arguments", "not_json_text", "byte 1", 0},
    {CHAT("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]}," ASSISTANT("")),
     PROBLEM_FATAL, "messages[0].content", "wrong_type", "an array", 0},
    {"{\"messages\":[" USER "," ASSISTANT("") "],\"tools\":7}", PROBLEM_FATAL, "tools",
     "wrong_type", "a number", 0},
    /* what only strict reading refuses */
    {"{\"prompt\":\"a\"}", PROBLEM_STRICT, "query", "missing_field", "messages", 0},
    {"{\"query\":\"a\",\"tools\":[]}", PROBLEM_STRICT, "answers", "missing_field", "answers", 0},
    {"{\"query\":\"a\",\"tools\":null,\"answers\":[]}", PROBLEM_STRICT, "tools", "wrong_type",
     "null", 22},
    {"{\"query\":\"a\",\"tools\":[],\"answers\":{\"name\":\"f\"}}", PROBLEM_STRICT, "answers",
     "wrong_type", "an object", 0},
    {"{\"query\":\"a\",\"tools\":[1],\"answers\":[]}", PROBLEM_STRICT, "tools[0]", "wrong_type",
     "a number", 0},
    {"{\"query\":\"a\",\"tools\":[],\"answers\":[1]}", PROBLEM_STRICT, "answers[0]", "wrong_type",
     "a number", 0},
    {"{\"query\":\"a\",\"tools\":[],\"answers\":[{\"arguments\":{}}]}", PROBLEM_STRICT,
     "answers[0].name", "missing_field", "names no tool", 0},
    {"{\"query\":\"a\",\"tools\":[],\"function_calls\":[{\"name\":\"f\",\"arguments\":[]}]}",
     PROBLEM_STRICT, "function_calls[0].arguments", "wrong_type", "an array", 0},
    {"{\"query\":\"a\",\"tools\":[],\"answers\":[],\"reasoning\":false}", PROBLEM_STRICT,
     "reasoning", "wrong_type", "true or false", 0},
    {"{\"query\":\"a\",\"query\":\"b\",\"tools\":[],\"answers\":[]}", PROBLEM_STRICT, "query",
     "duplicate_key", "'query' stands twice", 14},
    {"{\"query\":\"a\",\"tools\":[],\"answers\":[{\"name\":\"f\",\"arguments\":{\"v\":NaN}}]}",
     PROBLEM_STRICT, "answers[0].arguments.v", "not_a_number", "NaN", 65},
    {"{\"query\":\"a\",\"tools\":[],\"answers\":[],\"id\":\"\\ud800\"}", PROBLEM_STRICT, "id",
     "lone_surrogate", "half", 0},
    {"{\"query\":\"x <|im_end|>\",\"tools\":[],\"answers\":[]}", PROBLEM_STRICT, "query", "marker",
     "<|im_end|>", 10},
    {"{\"query\":\"x \\u003c|im_end|>\",\"tools\":[],\"answers\":[]}", PROBLEM_STRICT, "query",
     "marker", "<|im_end|>", 10},
    {CHAT(USER
          "," ASSISTANT(",\"tool_calls\":[{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":\\\"\\\\u003c"
                        "tools>\\\"}\"}]")),
     PROBLEM_STRICT, "messages", "marker", "<tools>", 0},
    {"{\"query\":\"a\",\"tools\":[{\"name\":\"f\",\"description\":\"<tools>\"}],\"answers\":[]"
     "}",
     PROBLEM_STRICT, "tools", "marker", "<tools>", 0},
    {"{\"query\":\"a\",\"tools\":\"[] </tools>\",\"answers\":[]}", PROBLEM_STRICT, "tools",
     "marker", "</tools>", 0},
    {"{\"query\":\"a\",\"tools\":[],\"answers\":[],\"reasoning\":\"<think>\"}", PROBLEM_STRICT,
     "reasoning", "marker", "<think>", 0},
    {"{\"query\":\"a\",\"tools\":[],\"answers\":[],\"system\":\"</schema>\"}", PROBLEM_STRICT,
     "system", "marker", "</schema>", 0},
    {"\xc2\xa0{\"query\":\"a\",\"tools\":[],\"answers\":[]}", PROBLEM_STRICT, "", "white_space",
     "white space", 0},
    {CHAT(USER), PROBLEM_STRICT, "messages", "no_answer", "nothing to train", 13},
    {CHAT(""), PROBLEM_STRICT, "messages", "no_turns", "no user turn", 13},
    {CHAT(USER "," ASSISTANT("") "," USER "," ASSISTANT("")), PROBLEM_STRICT, "messages",
     "multi_turn", "4 turns", 13},
    {CHAT(ASSISTANT("") "," USER), PROBLEM_STRICT, "messages", "no_answer", "nothing", 13},
    {CHAT(USER ",{\"role\":\"robot\",\"content\":\"x\"}"), PROBLEM_STRICT, "messages[1].role",
     "unknown_role", "'robot'", 0},
    {CHAT("{\"role\":\"developer\",\"content\":\"x\"}," USER "," ASSISTANT("")), PROBLEM_STRICT,
     "messages[0].role", "unread_role", "'developer'", 0},
    {CHAT("{\"content\":\"x\"}," ASSISTANT("")), PROBLEM_STRICT, "messages[0].role",
     "missing_field", "no role", 0},
    {CHAT(USER ",{\"role\":\"system\",\"content\":\"s\"}," ASSISTANT("")), PROBLEM_STRICT,
     "messages[1].role", "system_turn", "before the user turn", 0},
    {CHAT("{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"system\",\"content\":\"t\"}," USER
          "," ASSISTANT("")),
     PROBLEM_STRICT, "messages[1].role", "system_turn", "once", 0},
    {CHAT(USER "," ASSISTANT(",\"weight\":0")), PROBLEM_STRICT, "messages[1].weight", "weight_zero",
     "weight 0", 0},
    {CHAT(USER "," ASSISTANT(",\"weight\":2")), PROBLEM_STRICT, "messages[1].weight", "wrong_type",
     "0 or 1", 0},
    {CHAT(USER "," ASSISTANT(",\"function_call\":{\"name\":\"f\"}")), PROBLEM_STRICT,
     "messages[1].function_call", "old_form", "tool_calls", 0},
    {"{\"messages\":[" USER "," ASSISTANT("") "],\"functions\":[]}", PROBLEM_STRICT, "functions",
     "old_form", "write tools", 0},
    {"{\"messages\":[" USER "," ASSISTANT("") "],\"tools\":\"[]\"}", PROBLEM_STRICT, "tools",
     "wrong_type", "array", 0},
    {"{\"messages\":{},\"tools\":[]}", PROBLEM_STRICT, "messages", "wrong_type", "an object", 13},
    {CHAT(USER "," ASSISTANT(",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{"
                             "\\\"a\\\":1,\\\"a\\\":2}\"}}]")),
     PROBLEM_STRICT, "messages[1].tool_calls[0].function.arguments", "duplicate_key",
     "in the JSON text", 0},
    {CHAT(USER "," ASSISTANT(",\"tool_calls\":[{\"name\":\"f\",\"arguments\":\"[]\"}]")),
     PROBLEM_STRICT, "messages[1].tool_calls[0].arguments", "wrong_type", "an array", 0},
    {CHAT(USER "," ASSISTANT(",\"tool_calls\":[{\"arguments\":{}}]")), PROBLEM_STRICT,
     "messages[1].tool_calls[0]", "missing_field", "names no tool", 0},
    /* what is taken and shown */
    {"{\"query\":\"\",\"tools\":[],\"answers\":[]}", PROBLEM_WARNING, "query", "empty_query",
     "empty", 10},
    {"{\"query\":\" \\u3000 \",\"tools\":[],\"answers\":[]}", PROBLEM_WARNING, "query",
     "empty_query", "empty", 0},
    {"{\"query\":\"a\",\"tools\":[],\"answers\":[" CALL "]}", PROBLEM_WARNING, "answers[0].name",
     "undeclared_tool", "'f'", 0},
    {"{\"query\":\"a\",\"tools\":\"["
     "{\\\"name\\\":\\\"g\\\"}"
     "]\",\"answers\":\"["
     "{\\\"name\\\":\\\"f\\\",\\\"arguments\\\":{}}"
     "]\"}",
     PROBLEM_WARNING, "answers[0].name", "undeclared_tool", "'f'", 0},
    {"{\"query\":\"a\",\"tools\":\"f(x)\",\"answers\":[]}", PROBLEM_WARNING, "tools",
     "not_json_text", "not JSON", 0},
    {"{\"query\":\"a\",\"tools\":[],\"answers\":\"f(x)\"}", PROBLEM_WARNING, "answers",
     "not_json_text", "not JSON", 0},
    {"{\"query\":\"a\",\"tools\":[],\"answers\":[],\"function_calls\":[]}", PROBLEM_WARNING,
     "function_calls", "ignored", "answers", 0},
    {CHAT(USER ",{\"role\":\"assistant\",\"content\":\"Sorry.\"}"), PROBLEM_WARNING,
     "messages[1].content", "untrained_text", "not trained", 0},
    {CHAT("{\"role\":\"user\",\"content\":\"\"}," ASSISTANT("")), PROBLEM_WARNING,
     "messages[0].content", "empty_query", "empty", 0},
    {CHAT(USER "," ASSISTANT(",\"tool_calls\":[{\"name\":\"g\",\"arguments\":\"\"}]")),
     PROBLEM_WARNING, "messages[1].tool_calls[0].name", "undeclared_tool", "'g'", 0},
};

static void each_fault_has_its_level_its_field_and_its_rule(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(faults); i++) {
        struct dataset_options options = {.max_len = 1000, .vocab_size = 1024};
        size_t size = strlen(faults[i].line);
        struct dataset_report report;
        const struct problem *problem;

        scan(faults[i].line, size, 7, &report);
        problem = find(&report, faults[i].level, 1, faults[i].rule);
        if (!problem || strcmp(problem->field, faults[i].field) ||
            !strstr(problem->reason, faults[i].word) ||
            (faults[i].column && problem->column != faults[i].column)) {
            show(&report);
            fail_msg("case %zu: %s", i, faults[i].line);
        }
        for (int rules = DATA_RULES_STRICT; rules <= DATA_RULES_AS_REFERENCE; rules++) {
            struct dataset *dataset;
            struct error err = {0};
            bool ok, wanted = faults[i].level == PROBLEM_WARNING;

            options.rules = (enum data_rules)rules;
            dataset = train(faults[i].line, size, &options);
            if (rules == DATA_RULES_AS_REFERENCE && faults[i].level == PROBLEM_STRICT)
                wanted = dataset->report.skipped_count == 0;
            ok = dataset_report_accept(&dataset->report, false, options.rules, &err);
            if (ok != wanted || !find(&dataset->report, faults[i].level, 1, faults[i].rule)) {
                show(&dataset->report);
                fail_msg("case %zu, rules %d: %s: %s", i, rules, faults[i].line, err.message);
            }
            assert_int_equal(dataset->example_count, ok);
            dataset_free(dataset);
        }
    }
}

static void clean_lines_of_both_formats_are_taken_without_a_word(void **state)
{
    (void)state;
    static const char text[] =
        "{\"query\":\"a\",\"tools\":[" TOOL "],\"answers\":[" CALL "]}\n"
        "{\"query\":\"a\",\"tools\":[{\"type\":\"function\",\"function\":" TOOL
        "}],\"answers\":[" CALL "],\"system\":null,\"reasoning\":\"r\"}\n"
        "{\"query\":\"a\",\"answers\":[]}\n" CHAT(USER "," ASSISTANT(
            ",\"weight\":1,\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{"
            "\"name\":"
            "\"f\",\"arguments\":\"{}\"}}]")) "\n" CHAT("{\"role\":\"system\",\"content\":\"s\"}"
                                                        "," USER "," ASSISTANT(""));
    struct dataset_options options = {.max_len = 1000, .vocab_size = 1024};
    struct dataset *dataset = train(text, sizeof(text) - 1, &options);

    show(&dataset->report);
    for (int level = 0; level < PROBLEM_LEVEL_COUNT; level++)
        assert_int_equal(dataset->report.problem_count[level], 0);
    assert_int_equal(dataset->example_count, 5);
    dataset_free(dataset);
}

/* ---- rendering ------------------------------------------------------------------------------ */

static const struct {
    const char *line, *prompt, *target;
} oddities[] = {
    /* the last of two keys; answers wins although it is null */
    {"{\"query\":\"a\",\"query\":\"b\",\"answers\":null,\"function_calls\":[1]}",
     "<|im_start|>user\n<tools>[]</tools>\nb<|im_end|>\n<|im_start|>assistant\n",
     "<tool_call>null</tool_call><|im_end|>"},
    /* Python's white space is stripped from system and reasoning, not from the query */
    {"{\"query\":\" a \",\"tools\":{\"x\":1.0},\"answers\":[1e3,-0],"
     "\"system\":\"\\u3000\\u0085s t\\u2028\\n\",\"reasoning\":\"\\u001c\\t\"}",
     "<|im_start|>system\ns t<|im_end|>\n<|im_start|>user\n<tools>{\"x\":1.0}</tools>\n a "
     "<|im_end|>\n<|im_start|>assistant\n",
     "<tool_call>[1000.0,0]</tool_call><|im_end|>"},
    /* a chat's tools given as a string are gone through letter by letter, as keys if an object
     */
    {"{\"messages\":[" USER "," ASSISTANT("") "],\"tools\":\"[\\u00e9\"}",
     "<|im_start|>user\n<tools>[\"[\",\"\xc3\xa9\"]</tools>\nhi<|im_end|>\n<|im_start|>"
     "assistant\n",
     "<tool_call>[]</tool_call><|im_end|>"},
    {"{\"messages\":[" USER "," ASSISTANT("") "],\"tools\":{\"a\":1,\"b\":2}}",
     "<|im_start|>user\n<tools>[\"a\",\"b\"]</tools>\nhi<|im_end|>\n<|im_start|>assistant\n",
     "<tool_call>[]</tool_call><|im_end|>"},
    /* no name, no arguments, arguments of white space, arguments that are null */
    {CHAT(USER "," ASSISTANT(",\"tool_calls\":[{},{\"function\":{\"name\":\"f\",\"arguments\":"
                             "\" \\n\"}},{\"name\":\"g\",\"arguments\":null}]")),
     "<|im_start|>user\n<tools>[" TOOL "]</tools>\nhi<|im_end|>\n<|im_start|>assistant\n",
     "<tool_call>[{\"name\":null,\"arguments\":{}},{\"name\":\"f\",\"arguments\":{}},{\"name\":"
     "\"g\",\"arguments\":null}]</tool_call><|im_end|>"},
    /* only the first of two system turns, wherever it stands */
    {CHAT(USER ",{\"role\":\"system\",\"content\":\" s \"}," ASSISTANT(
         "") ",{\"role\":\"system\",\"content\":\"t\"}"),
     "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\n<tools>[" TOOL
     "]</tools>\nhi<|im_end|>\n<|im_start|>assistant\n",
     "<tool_call>[]</tool_call><|im_end|>"},
    {"{\"query\":\"a\",\"tools\":[],\"answers\":\"[ 1 ]\",\"reasoning\":\" r\\n\"}",
     "<|im_start|>user\n<tools>[]</tools>\na<|im_end|>\n<|im_start|>assistant\n",
     "<think>\nr\n</think>\n<tool_call>[ 1 ]</tool_call><|im_end|>"},
};

static void what_the_reference_makes_of_odd_lines_is_made_of_them(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(oddities); i++) {
        struct buf prompt, target;
        struct dataset_report report = {0};
        struct error err = {0};

        buf_init(&prompt, 4096);
        buf_init(&target, 4096);
        if (!dataset_render_line(oddities[i].line, strlen(oddities[i].line),
                                 DATA_RULES_AS_REFERENCE, &prompt, &target, &report, &err) ||
            !prompt.data || !target.data) {
            show(&report);
            fail_msg("case %zu: %s", i, err.message);
        }
        assert_string_equal(prompt.data, oddities[i].prompt);
        assert_string_equal(target.data, oddities[i].target);
        buf_release(&prompt);
        buf_release(&target);
    }
}

/* ---- files ---------------------------------------------------------------------------------- */

#define GOOD "{\"query\":\"a\",\"tools\":[],\"answers\":[]}"

static void lines_are_counted_as_an_editor_counts_them(void **state)
{
    (void)state;
    static const char text[] = "\xef\xbb\xbf" GOOD "\r\n\n \t\r\n" GOOD "\n{x}\r\n" GOOD;
    struct dataset_report report;

    for (size_t piece = 1; piece < sizeof(text); piece++) {
        scan(text, sizeof(text) - 1, piece, &report);
        assert_int_equal(report.line_count, 6);
        assert_int_equal(report.blank_count, 2);
        assert_int_equal(report.example_count, 3);
        assert_int_equal(report.problem_count[PROBLEM_FATAL], 1);
        assert_int_equal(report.problems[PROBLEM_FATAL][0].line, 5);
        assert_int_equal(report.problems[PROBLEM_FATAL][0].column, 2);
    }
}

static void a_carriage_return_alone_ends_a_record_for_the_reference_only(void **state)
{
    (void)state;
    static const char text[] = GOOD "\r" GOOD "\r\n" GOOD "\n";
    struct dataset_options options = {.max_len = 1000, .vocab_size = 1024};
    struct dataset_report report;
    struct dataset *dataset;
    struct error err = {0};

    scan(text, sizeof(text) - 1, 5, &report);
    assert_true(dataset_report_accept(&report, true, DATA_RULES_STRICT, &err));
    assert_non_null(find(&report, PROBLEM_STRICT, 1, "carriage_return"));
    dataset = train(text, sizeof(text) - 1, &options);
    assert_false(dataset_report_accept(&dataset->report, false, DATA_RULES_STRICT, &err));
    dataset_free(dataset);
    options.rules = DATA_RULES_AS_REFERENCE;
    dataset = train(text, sizeof(text) - 1, &options);
    assert_true(dataset_report_accept(&dataset->report, false, DATA_RULES_AS_REFERENCE, &err));
    assert_int_equal(dataset->example_count, 3);
    assert_int_equal(dataset->examples[2].line, 3);
    dataset_free(dataset);
}

static void several_bad_lines_are_named_at_once_and_counted(void **state)
{
    (void)state;
    struct buf text;
    struct dataset_report report;
    struct error err = {0};

    buf_init(&text, 1 << 20);
    for (int i = 0; i < 30; i++)
        buf_append_text(&text, i % 2 ? "{\"query\":}\n" : GOOD "\n");
    for (int i = 0; i < 30; i++)
        buf_append_text(&text, "nonsense\n");
    scan(text.data, text.size, 1000, &report);
    assert_int_equal(report.problem_count[PROBLEM_FATAL], 45);
    assert_int_equal(report.problem_kept[PROBLEM_FATAL], LIMIT_PROBLEM_COUNT);
    assert_false(dataset_report_accept(&report, true, DATA_RULES_STRICT, &err));
    assert_string_equal(err.message,
                        "line 2, column 10, field 'query': not JSON: '}' where a value was "
                        "expected; line 4, column 10, field 'query': not JSON: '}' where a value "
                        "was expected; line 6, column 10, field 'query': not JSON: '}' where a "
                        "value was expected (and 42 more)");
    assert_string_equal(err.param, "");
    buf_release(&text);
}

static void files_that_are_something_else_are_told_what_they_are(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        const char *rule, *word;
        size_t line;
    } cases[] = {
        {"", 0, "empty", "no examples", 0},
        {"\n \n", 3, "empty", "no examples", 0},
        {"\xef\xbb\xbf", 3, "empty", "no examples", 0},
        {"\x1f\x8b\x08\x00\n\x00\x00\n", 8, "gzip", "gzip", 1},
        {"PK\x03\x04 and more", 13, "zip", "zip", 1},
        {"\xff\xfe{\x00\n\x00", 6, "not_utf8", "UTF-16", 1},
        {"\n[\n{\"query\":\"a\"}\n]\n", 18, "json_array", "array", 2},
        {"[" GOOD "]", sizeof(GOOD) + 1, "json_array", "array", 1},
        {"query,answers\nweather,none\n", 27, "csv", "JSON", 1},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct dataset_report report;

        scan(cases[i].bytes, cases[i].size, 3, &report);
        if (report.problem_count[PROBLEM_FATAL] != 1 ||
            strcmp(report.problems[PROBLEM_FATAL][0].rule, cases[i].rule) ||
            report.problems[PROBLEM_FATAL][0].line != cases[i].line ||
            !strstr(report.problems[PROBLEM_FATAL][0].reason, cases[i].word)) {
            show(&report);
            fail_msg("case %zu", i);
        }
    }
}

static void a_line_past_the_limit_is_named_and_the_next_one_read(void **state)
{
    (void)state;
    size_t size = LIMIT_LINE_BYTES + 2 + sizeof(GOOD);
    char *text = malloc(size);
    struct dataset_report report;

    assert_non_null(text);
    memset(text, 'x', LIMIT_LINE_BYTES + 1);
    text[0] = '{';
    text[LIMIT_LINE_BYTES + 1] = '\n';
    memcpy(text + LIMIT_LINE_BYTES + 2, GOOD "\n", sizeof(GOOD));
    scan(text, size, (size_t)1 << 20, &report);
    assert_int_equal(report.problem_count[PROBLEM_FATAL], 1);
    assert_non_null(find(&report, PROBLEM_FATAL, 1, "too_large"));
    assert_int_equal(report.line_count, 2);
    assert_int_equal(report.example_count, 1);
    free(text);
}

static void a_line_of_many_values_is_refused_before_memory_runs_out(void **state)
{
    (void)state;
    static const char start[] = "{\"query\":\"a\",\"answers\":[],\"tools\":[0";
    size_t size = (size_t)8 << 20;
    char *text = malloc(size);
    struct dataset_report report;

    assert_non_null(text);
    for (size_t i = 0; i < size; i++)
        text[i] = i % 2 ? '0' : ',';
    memcpy(text, start, sizeof(start) - 1);
    memcpy(text + size - 2, "]}", 2);
    scan(text, size, size, &report);
    assert_non_null(find(&report, PROBLEM_FATAL, 1, "too_large"));
    free(text);
}

/* ---- any bytes ------------------------------------------------------------------------------ */

static void no_bytes_make_the_readers_misbehave_or_disagree(void **state)
{
    (void)state;
    static const char seeds[] =
        "{\"query\":\"w\xc3\xa9 \\ud83d\\ude00\",\"tools\":[" TOOL "],\"answers\":[" CALL
        "],\"system\":\" s \",\"reasoning\":\"r\"}\n" CHAT(
            USER "," ASSISTANT(",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{"
                               "\\\"a\\\":1}\"}}]")) "\n";
    static const char alphabet[] = "\"\\{}[]:,u0n\n\r\xff\xc2 <";
    uint64_t seed = 20240611;

    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 3000; round++) {
        char text[sizeof(seeds)];
        struct dataset_options options = {.max_len = 60, .vocab_size = 1024};
        struct dataset_report report;
        struct dataset *dataset;

        memcpy(text, seeds, sizeof(seeds));
        for (int flip = 0; flip < 1 + round % 3; flip++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            text[(seed >> 33) % (sizeof(seeds) - 1)] =
                alphabet[(seed >> 20) % (sizeof(alphabet) - 1)];
        }
        scan(text, sizeof(seeds) - 1, 1 + (size_t)round % 90, &report);
        if (round % 10)
            continue;
        options.overlong = OVERLONG_TRUNCATE;
        dataset = train(text, sizeof(seeds) - 1, &options);
        for (int level = PROBLEM_FATAL; level <= PROBLEM_STRICT; level++)
            if (!memchr(text, '\r', sizeof(seeds) - 1))
                assert_int_equal(dataset->report.problem_count[level], report.problem_count[level]);
        dataset_free(dataset);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_fault_has_its_level_its_field_and_its_rule),
        cmocka_unit_test(clean_lines_of_both_formats_are_taken_without_a_word),
        cmocka_unit_test(what_the_reference_makes_of_odd_lines_is_made_of_them),
        cmocka_unit_test(lines_are_counted_as_an_editor_counts_them),
        cmocka_unit_test(a_carriage_return_alone_ends_a_record_for_the_reference_only),
        cmocka_unit_test(several_bad_lines_are_named_at_once_and_counted),
        cmocka_unit_test(files_that_are_something_else_are_told_what_they_are),
        cmocka_unit_test(a_line_past_the_limit_is_named_and_the_next_one_read),
        cmocka_unit_test(a_line_of_many_values_is_refused_before_memory_runs_out),
        cmocka_unit_test(no_bytes_make_the_readers_misbehave_or_disagree),
    };

    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
