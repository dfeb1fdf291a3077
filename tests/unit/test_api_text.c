/* Proves that the small texts of HTTP are read as their rules say: escapes, parameters, labels, keys. */
#include "tests/support/test.h"

#include "api/text.h"

static void escapes_are_decoded_and_broken_ones_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected; /* NULL: refused */
    } cases[] = {
        {"plain", "plain"},     {"", ""},      {"ft:a%3Ab", "ft:a:b"}, {"s%2Fx", "s/x"},
        {"%C3%A9", "\xc3\xa9"}, {"%", NULL},   {"%4", NULL},           {"%zz", NULL},
        {"a%00b", NULL},        {"%ff", NULL}, {"%ED%A0%80", NULL},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[64];
        bool ok;

        snprintf(text, sizeof(text), "%s", cases[i].text);
        ok = text_decode(text);
        if (ok != (cases[i].expected != NULL) || (ok && strcmp(text, cases[i].expected) != 0))
            fail_msg("%s: ok=%d, '%s'", cases[i].text, ok, text);
    }
}

static void a_label_has_no_folder_part_and_no_control_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *filename, *expected;
    } cases[] = {
        {"a.jsonl", "a.jsonl"},
        {"../../../../var/needled-escape.jsonl", "needled-escape.jsonl"},
        {"C:\\data\\b.jsonl", "b.jsonl"},
        {"", "upload"},
        {"/", "upload"},
        {"..", "upload"},
        {"x/..", "upload"},
        {"a\r\nb", "a__b"},
        {"a\xff"
         "b",
         "a_b"},
        {"<img src=x>.jsonl", "<img src=x>.jsonl"},
        {"\xc3\xa9t\xc3\xa9.jsonl", "\xc3\xa9t\xc3\xa9.jsonl"},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char label[256];

        text_label(label, sizeof(label), cases[i].filename);
        assert_string_equal(label, cases[i].expected);
    }
}

static void a_long_label_is_cut_at_a_characters_end(void **state)
{
    (void)state;
    char label[8];

    text_label(label, sizeof(label), "abcdef\xc3\xa9");
    assert_string_equal(label, "abcdef");
    text_label(label, sizeof(label), "abcdefghij");
    assert_string_equal(label, "abcdefg");
}

static void numbers_are_digits_alone_within_their_bound(void **state)
{
    (void)state;
    static const char *const refused[] = {
        "", "-1", "+1", " 1", "1 ", "1e3", "0x1", "101", "99999999999999999999"};
    int64_t number = 7;

    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        if (text_read_number(refused[i], 100, &number) || number != 7)
            fail_msg("'%s' was taken", refused[i]);
    }
    assert_true(text_read_number("100", 100, &number));
    assert_int_equal(number, 100);
    assert_true(text_read_number("0", 100, &number));
    assert_int_equal(number, 0);
    assert_true(text_read_number("9223372036854775807", INT64_MAX, &number));
    assert_true(number == INT64_MAX);
}

static void media_types_are_compared_without_parameters_and_case(void **state)
{
    (void)state;
    assert_true(text_is_media_type("application/json", "application/json"));
    assert_true(text_is_media_type("Application/JSON; charset=utf-8", "application/json"));
    assert_false(text_is_media_type("application/jsonl", "application/json"));
    assert_false(text_is_media_type("text/plain", "application/json"));
    assert_true(text_accepts("text/html, text/event-stream;q=0.9", "text/event-stream"));
    assert_true(text_accepts("text/event-stream,*/*", "text/event-stream"));
    assert_false(text_accepts("*/*", "text/event-stream"));
    assert_false(text_accepts(NULL, "text/event-stream"));
}

static void an_extended_file_name_is_utf8_or_nothing(void **state)
{
    (void)state;
    char good[] = "UTF-8''na%C3%AFve.jsonl", other[] = "ISO-8859-1''na%EFve", bare[] = "x";

    assert_true(text_decode_extended(good));
    assert_string_equal(good, "na\xc3\xafve.jsonl");
    assert_false(text_decode_extended(other));
    assert_false(text_decode_extended(bare));
}

static void only_the_very_key_is_equal(void **state)
{
    (void)state;
    assert_true(text_equal_secret("sk-123", "sk-123"));
    assert_false(text_equal_secret("sk-124", "sk-123"));
    assert_false(text_equal_secret("sk-12", "sk-123"));
    assert_false(text_equal_secret("sk-1234", "sk-123"));
    assert_false(text_equal_secret("sk-123sk-123", "sk-123"));
    assert_false(text_equal_secret("", "sk-123"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(escapes_are_decoded_and_broken_ones_refused),
        cmocka_unit_test(a_label_has_no_folder_part_and_no_control_bytes),
        cmocka_unit_test(a_long_label_is_cut_at_a_characters_end),
        cmocka_unit_test(numbers_are_digits_alone_within_their_bound),
        cmocka_unit_test(media_types_are_compared_without_parameters_and_case),
        cmocka_unit_test(an_extended_file_name_is_utf8_or_nothing),
        cmocka_unit_test(only_the_very_key_is_equal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
