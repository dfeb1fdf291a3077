/*
 * Proves that request bodies are read strictly, that fields are named when they are wrong, and that
 * what is printed reads back equal.
 */
#include "daemon/base/json.h"
#include "tests/support/test.h"

#include <math.h>

static struct json *parse(const char *text)
{
    struct json *json = NULL;
    struct error err = {0};

    if (!json_parse(text, strlen(text), &json, &err))
        fail_msg("%s: %s", text, err.message);
    return json;
}

static void a_bad_body_is_refused_with_the_byte_where_it_goes_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *text, *word;
    } cases[] = {
        {"", "at byte 0"},
        {"{\"a\":1} x", "at byte 8"},
        {"{\"a\":1,}", "at byte 6"},
        {"{\"a\":01}", "at byte 5"},
        {"{\"a\":1,\"a\":2}", "'a' stands twice"},
        {"{\"a\":NaN}", "NaN"},
        {"{\"a\":1e999}", "Infinity"},
        {"{\"a\":\"\\ud800\"}", "at byte 6"},
        {"{\"a\":\"\xff\"}", "UTF-8"},
        {"{\"a\":\"\\u0000\"}", "\\u0000"},
        {"\xef\xbb\xbf{}", "at byte 0"},
        {"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "64 levels"},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct json *json = NULL;
        struct error err = {0};

        if (json_parse(cases[i].text, strlen(cases[i].text), &json, &err))
            fail_msg("%s was read", cases[i].text);
        if (err.code != ERR_INVALID || !strstr(err.message, cases[i].word))
            fail_msg("%s: %s", cases[i].text, err.message);
    }
}

/* As an empty file is mapped. */
static void no_text_at_all_is_refused(void **state)
{
    (void)state;
    struct json *json = NULL;
    struct error err = {0};

    assert_false(json_parse(NULL, 0, &json, &err));
    assert_non_null(strstr(err.message, "at byte 0"));
}

static void a_number_of_no_machine_is_refused_by_its_field(void **state)
{
    (void)state;
    static const struct {
        const char *text, *param;
        bool ok;
    } cases[] = {
        {"{\"a\":1e-400}", "a", false},
        {"{\"a\":{\"b\":[0,-1e-999]}}", "b", false},
        {"[1e-400]", "", false},
        {"{\"a\":0e-999}", "", true},
        {"{\"a\":1e-300}", "", true},
        {"{\"a\":0.00000000000000000001}", "", true},
        {"{\"a\":{\"b\":1e999}}", "a.b", false},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct json *json = NULL;
        struct error err = {0};
        const bool ok = json_parse(cases[i].text, strlen(cases[i].text), &json, &err);

        if (ok != cases[i].ok || strcmp(err.param, cases[i].param) != 0)
            fail_msg("%s: ok=%d, '%s' %s", cases[i].text, ok, err.param, err.message);
        json_free(json);
    }
}

static void getters_check_presence_type_and_range_and_name_the_field(void **state)
{
    (void)state;
    struct json *json =
        parse("{\"n\":3,\"f\":1.5,\"s\":\"x\",\"b\":true,\"z\":null,\"o\":{},\"l\":[1]}");
    struct error err = {0};
    int64_t number = 7;
    double real = 7;
    bool flag = false;
    const char *text = NULL;
    const struct json *child = NULL;

    assert_true(json_get_int(json, "n", true, 1, 3, &number, &err));
    assert_int_equal(number, 3);
    assert_false(json_get_int(json, "n", true, 4, 9, &number, &err));
    assert_string_equal(err.param, "n");
    assert_string_equal(err.message, "field 'n' is 3, a whole number from 4 to 9 is needed");
    assert_false(json_get_int(json, "f", true, 0, 9, &number, &err));
    assert_false(json_get_int(json, "b", true, 0, 9, &number, &err));
    assert_string_equal(err.message, "field 'b' is true or false, a number is needed");
    assert_false(json_get_int(json, "z", true, 0, 9, &number, &err));
    assert_string_equal(err.message, "field 'z' is missing");
    assert_true(json_get_int(json, "z", false, 0, 9, &number, &err));
    assert_true(json_get_int(json, "nowhere", false, 0, 9, &number, &err));
    assert_int_equal(number, 3);
    assert_true(json_get_double(json, "f", true, 0, 2, &real, &err));
    assert_float_equal(real, 1.5, 0);
    assert_false(json_get_double(json, "f", true, 2, 3, &real, &err));
    assert_true(json_get_bool(json, "b", true, &flag, &err));
    assert_true(flag);
    assert_true(json_get_string(json, "s", true, &text, &err));
    assert_string_equal(text, "x");
    assert_false(json_get_string(json, "n", true, &text, &err));
    assert_true(json_get_object(json, "o", true, &child, &err));
    assert_true(json_get_array(json, "l", true, &child, &err));
    assert_int_equal(json_count(child), 1);
    assert_false(json_only_fields(json, (const char *const[]){"n", "f", NULL}, &err));
    assert_string_equal(err.param, "s");
    json_free(json);
}

static void what_is_printed_reads_back_equal(void **state)
{
    (void)state;
    struct json *json = json_new_object(), *list = json_new_array();
    struct error err = {0};
    char *text = NULL;

    json_add_string(json, "s", "a\"b\n\x7f\xc3\xa9\x80");
    json_add_int(json, "i", 9007199254740992);
    json_add_double(json, "d", 0.1);
    json_add_double(json, "e", 1e-7);
    json_add_double(json, "n", 0.0 / 0.0);
    json_add_bool(json, "t", true);
    json_add_string(json, "z", NULL);
    json_add_int(list, NULL, -1);
    json_add(list, NULL, json_new_null());
    json_add(json, "l", list);
    assert_true(json_print_text(json, &text, &err));
    assert_string_equal(text, "{\"s\":\"a\\\"b\\n\x7f\xc3\xa9\xef\xbf\xbd\",\"i\":9007199254740992,"
                              "\"d\":0.1,\"e\":1e-07,\"n\":null,\"t\":true,\"z\":null,"
                              "\"l\":[-1,null]}");
    json_free(json);
    json = parse(text);
    assert_float_equal(json_number(json_member(json, "e")), 1e-7, 0);
    assert_true(json_flag(json_member(json, "t")));
    free(text);
    json_free(json);
}

static void a_tree_that_does_not_fit_its_bound_fails_to_print(void **state)
{
    (void)state;
    struct json *json = parse("[\"0123456789\",\"0123456789\"]");
    struct error err = {0};
    struct buf out;

    buf_init(&out, 20);
    assert_false(json_print(json, &out, &err));
    assert_int_equal(err.code, ERR_LIMIT);
    buf_release(&out);
    assert_false(json_print(NULL, &out, &err));
    assert_int_equal(err.code, ERR_NO_MEMORY);
    json_free(json);
}

static void a_tree_with_a_child_that_found_no_memory_is_not_printed(void **state)
{
    (void)state;
    struct json *json = parse("{\"a\":[{}]}"), *copy;
    struct error err = {0};
    char *text = NULL;

    assert_true(json_is_whole(json));
    json_add((struct json *)(uintptr_t)json_at(json_member(json, "a"), 0), "b", NULL);
    assert_false(json_is_whole(json));
    assert_false(json_print_text(json, &text, &err));
    assert_int_equal(err.code, ERR_NO_MEMORY);
    copy = json_copy(json); /* nor is a copy of it */
    assert_false(json_is_whole(copy));
    assert_false(json_is_whole(NULL));
    json_free(copy);
    json_free(json);
}

static void what_is_no_json_is_read_as_what_stands_for_it(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum json_kind kind;
        size_t count;
    } cases[] = {{NULL, JSON_ARRAY, 0},
                 {"", JSON_ARRAY, 0},
                 {"[1,", JSON_ARRAY, 0},
                 {"[1,2]", JSON_ARRAY, 2},
                 {"{\"a\":1}", JSON_OBJECT, 1}};

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct json *json = json_parse_or(cases[i].text, json_new_array);

        assert_int_equal(json_kind_of(json), cases[i].kind);
        assert_int_equal(json_count(json), cases[i].count);
        json_free(json);
    }
}

static void what_is_no_number_is_null_with_its_reason(void **state)
{
    (void)state;
    struct json *json = json_new_object();
    struct error err = {0};
    char *text = NULL;

    json_add_measured(json, "a", 0.5);
    json_add_measured(json, "b", (double)NAN);
    json_add_measured(json, "c", -(double)INFINITY);
    assert_true(json_print_text(json, &text, &err));
    assert_string_equal(text, "{\"a\":0.5,\"b\":null,\"b_reason\":\"not a number\",\"c\":null,"
                              "\"c_reason\":\"too large for a number\"}");
    free(text);
    json_free(json);
}

static void the_library_passes_its_test_at_start(void **state)
{
    (void)state;
    struct error err = {0};

    if (!json_self_test(&err))
        fail_msg("%s", err.message);
    assert_true(json_library_version()[0] != '\0');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bad_body_is_refused_with_the_byte_where_it_goes_wrong),
        cmocka_unit_test(no_text_at_all_is_refused),
        cmocka_unit_test(a_number_of_no_machine_is_refused_by_its_field),
        cmocka_unit_test(getters_check_presence_type_and_range_and_name_the_field),
        cmocka_unit_test(what_is_printed_reads_back_equal),
        cmocka_unit_test(a_tree_that_does_not_fit_its_bound_fails_to_print),
        cmocka_unit_test(a_tree_with_a_child_that_found_no_memory_is_not_printed),
        cmocka_unit_test(what_is_no_json_is_read_as_what_stands_for_it),
        cmocka_unit_test(what_is_no_number_is_null_with_its_reason),
        cmocka_unit_test(the_library_passes_its_test_at_start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
