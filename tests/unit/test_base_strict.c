/*
 * Proves that data lines are read and written as the reference reads and writes them, that what
 * only the reference takes is noted by name, and that no bytes at all make the reader misbehave.
 */
#include "daemon/base/arena.h"
#include "daemon/base/buf.h"
#include "daemon/base/file.h"
#include "daemon/base/jsontext.h"
#include "daemon/base/strict.h"
#include "tests/support/test.h"

#define SCRATCH ((size_t)64 << 20)

static const struct strict_value *need(const struct strict_value *object, const char *name)
{
    const struct strict_value *member = strict_member(object, name);

    if (!member)
        fail_msg("the fixture lacks '%s'", name);
    return member;
}

static void must_equal(const struct buf *got, const struct strict_value *wanted,
                       const struct strict_value *in)
{
    if (got->failed || got->size != wanted->size ||
        memcmp(got->data, wanted->text, wanted->size) != 0)
        fail_msg("%.*s gives %.*s, the reference %.*s", (int)in->size, in->text, (int)got->size,
                 got->data, (int)wanted->size, wanted->text);
}

struct tally {
    size_t cases, noted, refused;
};

static void check_case(const struct strict_value *fixture, struct tally *tally)
{
    const struct strict_value *in = need(fixture, "in"), *error = strict_member(fixture, "error");
    struct arena arena;
    struct strict_report report;
    struct strict_value *value = NULL;
    struct buf text;
    bool ok;

    arena_init(&arena, SCRATCH);
    buf_init(&text, SCRATCH);
    ok = strict_read(in->text, in->size, &arena, &report, &value);
    tally->cases++;
    if (ok == (error != NULL))
        fail_msg("%.*s: read %d, %s", (int)in->size, in->text, ok, report.fault.reason);
    if (!ok) {
        tally->refused++;
        assert_non_null(report.fault.rule);
        assert_true(report.fault.column >= 1 && report.fault.column <= in->size + 1);
        assert_true(report.fault.reason[0] != '\0');
        goto out;
    }
    jsontext_write(value, &text);
    must_equal(&text, need(fixture, "out"), in);
    if (strict_member(fixture, "out_sorted_ascii")) {
        buf_clear(&text);
        jsontext_write_sorted(value, &text);
        must_equal(&text, need(fixture, "out_sorted_ascii"), in);
    }
    if (report.note_count) {
        const char *rule = report.notes[0].rule;

        tally->noted++;
        if (strcmp(rule, "not_a_number") && strcmp(rule, "lone_surrogate") &&
            strcmp(rule, "duplicate_key"))
            fail_msg("%.*s: noted as %s", (int)in->size, in->text, rule);
    }
out:
    buf_release(&text);
    arena_release(&arena);
}

static void every_case_of_the_reference_comes_out_byte_for_byte(void **state)
{
    (void)state;
    struct error err = {0};
    struct mapping map = MAPPING_NONE;
    struct tally tally = {0};
    size_t at = 0;

    if (!mapping_open(&map, FIXTURES "needle3/json_render.jsonl", &err))
        fail_msg("%s", err.message);
    while (at < map.size) {
        const char *line = (const char *)map.data + at;
        const char *end = memchr(line, '\n', map.size - at);
        size_t size = end ? (size_t)(end - line) : map.size - at;
        struct arena arena;
        struct strict_report report;
        struct strict_value *fixture = NULL;

        arena_init(&arena, SCRATCH);
        if (!strict_read(line, size, &arena, &report, &fixture))
            fail_msg("fixture: %s", report.fault.reason);
        check_case(fixture, &tally);
        arena_release(&arena);
        at += size + 1;
    }
    mapping_close(&map);
    assert_int_equal(tally.cases, 120);
    assert_int_equal(tally.noted, 12); /* what strict reading refuses */
    assert_int_equal(tally.refused, 29);
}

static void faults_name_their_place_and_their_kind(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t size; /* 0: strlen */
        size_t column;
        const char *rule, *field, *word;
    } cases[] = {
        {"{\"a\":\"x\0y\"}", 11, 8, "nul_byte", "a", "NUL"},
        {"\0", 1, 1, "nul_byte", "", "NUL"},
        {"{\"a\":\"x\ty\"}", 0, 8, "control_character", "a", "\\u0009"},
        {"{\"a\":1,}", 0, 7, "not_json", "", "trailing comma"},
        {"[1,]", 0, 3, "not_json", "", "trailing comma"},
        {"{\"a\":1}{\"b\":2}", 0, 8, "trailing_text", "", "after the object"},
        {"{\"a\":1} x", 0, 9, "trailing_text", "", "after the object"},
        {"{\"a\":{\"b\":[1,\"xy", 0, 14, "cut_off", "a.b[1]", "never ends"},
        {"{\"a\":", 0, 6, "cut_off", "a", "cut off"},
        {"{\"a\":\"caf\xe9\"}", 0, 10, "not_utf8", "", "UTF-8"},
        {"\"\xed\xa0\x80\"", 0, 2, "not_utf8", "", "0xed"},
        {"\"\xc0\xaf\"", 0, 2, "not_utf8", "", "0xc0"},
        {"\"\xf4\x90\x80\x80\"", 0, 2, "not_utf8", "", "0xf4"},
        {"{\"a\":01}", 0, 6, "not_json", "a", "needless 0"},
        {"", 0, 1, "cut_off", "", "a value"},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        size_t size = cases[i].size ? cases[i].size : strlen(cases[i].text);
        struct arena arena;
        struct strict_report report;
        struct strict_value *value = NULL;

        arena_init(&arena, SCRATCH);
        if (strict_read(cases[i].text, size, &arena, &report, &value))
            fail_msg("case %zu: %s was read", i, cases[i].text);
        if (strcmp(report.fault.rule, cases[i].rule) || report.fault.column != cases[i].column ||
            strcmp(report.fault.field, cases[i].field) ||
            !strstr(report.fault.reason, cases[i].word))
            fail_msg("case %zu: %s, column %zu, field '%s': %s", i, report.fault.rule,
                     report.fault.column, report.fault.field, report.fault.reason);
        arena_release(&arena);
    }
}

static void what_only_the_reference_takes_is_noted_with_its_field(void **state)
{
    (void)state;
    static const struct {
        const char *text, *rule, *field, *out;
        size_t column;
    } cases[] = {
        {"{\"query\":1,\"tools\":2,\"query\":3}", "duplicate_key", "query",
         "{\"query\":3,\"tools\":2}", 22},
        {"{\"a\":{\"b\":1,\"\\u0062\":2}}", "duplicate_key", "a.b", "{\"a\":{\"b\":2}}", 13},
        {"[{\"v\":NaN}]", "not_a_number", "[0].v", "[{\"v\":NaN}]", 7},
        {"{\"v\":-Infinity}", "not_a_number", "v", "{\"v\":-Infinity}", 6},
        {"{\"v\":1e400}", "not_a_number", "v", "{\"v\":Infinity}", 6},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct arena arena;
        struct buf out;
        struct strict_report report;
        struct strict_value *value = NULL;

        arena_init(&arena, SCRATCH);
        buf_init(&out, SCRATCH);
        if (!strict_read(cases[i].text, strlen(cases[i].text), &arena, &report, &value))
            fail_msg("case %zu: %s", i, report.fault.reason);
        jsontext_write(value, &out);
        if (report.note_count != 1 || strcmp(report.notes[0].rule, cases[i].rule) ||
            strcmp(report.notes[0].field, cases[i].field) ||
            report.notes[0].column != cases[i].column || strcmp(out.data, cases[i].out))
            fail_msg("case %zu: %zu notes, %s, column %zu, field '%s', %s", i, report.note_count,
                     report.notes[0].rule ? report.notes[0].rule : "", report.notes[0].column,
                     report.notes[0].field, out.data);
        buf_release(&out);
        arena_release(&arena);
    }
}

static void many_keys_are_merged_in_the_order_they_came(void **state)
{
    (void)state;
    struct arena arena;
    struct buf in, out, wanted;
    struct strict_report report;
    struct strict_value *value = NULL;

    arena_init(&arena, SCRATCH);
    buf_init(&in, SCRATCH);
    buf_init(&out, SCRATCH);
    buf_init(&wanted, SCRATCH);
    for (int i = 0; i < 300; i++)
        buf_format(&in, "%s\"k%d\":%d", i ? "," : "{", (i * 7) % 100, i);
    buf_append_char(&in, '}');
    for (int i = 0; i < 100; i++) /* the last value of a key is that of the third round */
        buf_format(&wanted, "%s\"k%d\":%d", i ? "," : "{", (i * 7) % 100, i + 200);
    buf_append_char(&wanted, '}');
    assert_true(strict_read(in.data, in.size, &arena, &report, &value));
    jsontext_write(value, &out);
    assert_string_equal(out.data, wanted.data);
    assert_int_equal(report.note_count, 200);
    assert_int_equal(value->count, 100);
    buf_release(&in);
    buf_release(&out);
    buf_release(&wanted);
    arena_release(&arena);
}

static void nesting_has_a_limit_that_is_named(void **state)
{
    (void)state;
    char text[2 * 4096 + 1];

    for (size_t depth = 63; depth <= 4096; depth = depth < 66 ? depth + 1 : depth * 8) {
        struct arena arena;
        struct strict_report report;
        struct strict_value *value = NULL;
        bool ok;

        depth = depth > 4096 ? 4096 : depth;
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        arena_init(&arena, SCRATCH);
        ok = strict_read(text, 2 * depth, &arena, &report, &value);
        assert_int_equal(ok, depth <= 64);
        if (!ok) {
            assert_string_equal(report.fault.rule, "nesting");
            assert_int_equal(report.fault.column, 65);
        }
        arena_release(&arena);
    }
}

static void a_full_arena_is_a_fault_not_a_crash(void **state)
{
    (void)state;
    static const char text[] = "{\"a\":[1,2,3,\"\\u0041\"],\"b\":{\"c\":null}}";
    size_t refused = 0;

    for (size_t max = 0; max < 4096; max += 16) {
        struct arena arena;
        struct strict_report report;
        struct strict_value *value = NULL;

        arena_init(&arena, max);
        if (!strict_read(text, sizeof(text) - 1, &arena, &report, &value)) {
            assert_string_equal(report.fault.rule, "too_large");
            refused++;
        }
        arena_release(&arena);
    }
    assert_true(refused > 10 && refused < 200);
}

static const char sample[] = "{\"query\":\"w\xc3\xa9\xf0\x9f\x91\x8b "
                             "\\ud83d\\ude00\\n\",\"tools\":[{\"name\":\"f\",\"n\":-1.5e-3,"
                             "\"m\":[true,false,null,{}]}],\"answers\":[{\"name\":\"f\","
                             "\"arguments\":{\"x\":12345678901234567890}}]}";

/* Reads a copy of exactly that size, so that a sanitizer sees a step past the end. */
static bool read_copy(const char *text, size_t size, struct strict_report *report)
{
    char *copy = malloc(size ? size : 1);
    struct arena arena;
    struct buf out;
    struct strict_value *value = NULL;
    bool ok;

    assert_non_null(copy);
    memcpy(copy, text, size);
    arena_init(&arena, SCRATCH);
    buf_init(&out, SCRATCH);
    ok = strict_read(copy, size, &arena, report, &value);
    if (ok) {
        jsontext_write(value, &out);
        jsontext_write_sorted(value, &out);
        assert_false(out.failed);
    } else {
        assert_true(report->fault.column >= 1 && report->fault.column <= size + 1);
    }
    buf_release(&out);
    arena_release(&arena);
    free(copy);
    return ok;
}

static void every_prefix_of_a_line_is_refused_as_cut_off(void **state)
{
    (void)state;
    struct strict_report report;

    for (size_t size = 0; size < sizeof(sample) - 1; size++) {
        if (read_copy(sample, size, &report))
            fail_msg("a prefix of %zu bytes was read", size);
        if (strcmp(report.fault.rule, "cut_off") && strcmp(report.fault.rule, "not_utf8"))
            fail_msg("a prefix of %zu bytes: %s, %s", size, report.fault.rule, report.fault.reason);
    }
    assert_true(read_copy(sample, sizeof(sample) - 1, &report));
}

static void flipped_bytes_never_make_it_misbehave(void **state)
{
    (void)state;
    static const char alphabet[] = "\"\\{}[]:,u0d8eE+-.9 \t\n\x80\xff\xed\xf0";
    uint64_t seed = 20240607;
    size_t taken = 0, refused = 0;

    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 20000; round++) {
        char text[sizeof(sample)];
        struct strict_report report;

        memcpy(text, sample, sizeof(sample));
        for (int flip = 0; flip < 1 + round % 4; flip++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            text[(seed >> 33) % (sizeof(sample) - 1)] =
                flip % 2 ? (char)(seed >> 24) : alphabet[(seed >> 20) % (sizeof(alphabet) - 1)];
        }
        if (read_copy(text, sizeof(sample) - 1, &report))
            taken++;
        else
            refused++;
    }
    assert_true(taken > 0 && refused > 0);
}

static void floats_print_as_the_reference_prints_them(void **state)
{
    (void)state;
    static const struct {
        double number;
        const char *text;
    } cases[] = {
        {9007199254740993.0, "9007199254740992.0"},
        {5e-324, "5e-324"},
        {1e22, "1e+22"},
        {1e16, "1e+16"},
        {0.0001, "0.0001"},
        {0.00001, "1e-05"},
        {123456.75, "123456.75"},
        {-0.0, "-0.0"},
        {1e308 * 10, "Infinity"},
        {0x1p-44, "5.684341886080802e-14"},
        {0x1p-1074 * 3, "1.5e-323"},
        {0x1p1023, "8.98846567431158e+307"},
        {0x1p-1022, "2.2250738585072014e-308"},
        {0x1p90, "1.2379400392853803e+27"},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[JSONTEXT_NUMBER_MAX];

        jsontext_format_double(cases[i].number, text);
        assert_string_equal(text, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_of_the_reference_comes_out_byte_for_byte),
        cmocka_unit_test(faults_name_their_place_and_their_kind),
        cmocka_unit_test(what_only_the_reference_takes_is_noted_with_its_field),
        cmocka_unit_test(many_keys_are_merged_in_the_order_they_came),
        cmocka_unit_test(nesting_has_a_limit_that_is_named),
        cmocka_unit_test(a_full_arena_is_a_fault_not_a_crash),
        cmocka_unit_test(every_prefix_of_a_line_is_refused_as_cut_off),
        cmocka_unit_test(flipped_bytes_never_make_it_misbehave),
        cmocka_unit_test(floats_print_as_the_reference_prints_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
