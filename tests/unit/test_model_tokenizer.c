/*
 * Proves that text becomes the ids the reference implementation gives (both model files, so both
 * settings of their flags), that ids become text again, and that a model file that is damaged or
 * disagrees with the template is refused by name.
 */
#include "daemon/base/arena.h"
#include "daemon/base/file.h"
#include "daemon/base/strict.h"
#include "daemon/model/tokenizer.h"
#include "tests/support/test.h"

#include <unistd.h>

static const char *const models[] = {FIXTURES "needle3/tokenizer.model",
                                     FIXTURES "needle3/tokenizer_b.model"};
static const char *const case_files[] = {FIXTURES "needle3/tokenizer_cases.jsonl",
                                         FIXTURES "needle3/tokenizer_b_cases.jsonl"};

static struct tokenizer *open_model(const char *path)
{
    struct tokenizer *tokenizer = NULL;
    struct error err = {0};

    if (!tokenizer_open(path, &tokenizer, &err))
        fail_msg("%s", err.message);
    return tokenizer;
}

static size_t ids_of(const struct strict_value *list, uint32_t *ids, size_t capacity)
{
    size_t count = 0;

    for (const struct strict_value *next = list->child; next; next = next->next) {
        char digits[16];

        assert_true(count < capacity);
        snprintf(digits, sizeof(digits), "%.*s", (int)next->size, next->text);
        ids[count++] = (uint32_t)strtoul(digits, NULL, 10);
    }
    return count;
}

static void must_decode(const struct tokenizer *tokenizer, const uint32_t *ids, size_t count,
                        const struct strict_value *wanted, const char *where)
{
    struct error err = {0};
    char *text = NULL;
    size_t size = 0;

    if (!tokenizer_decode(tokenizer, ids, count, &text, &size, &err))
        fail_msg("%s: %s", where, err.message);
    if (size != wanted->size || memcmp(text, wanted->text, size) != 0)
        fail_msg("%s: decoded '%s', wanted '%.*s'", where, text, (int)wanted->size, wanted->text);
    free(text);
}

static size_t unhex(const struct strict_value *hex, char *bytes)
{
    for (size_t i = 0; i + 1 < hex->size; i += 2) {
        char pair[3] = {hex->text[i], hex->text[i + 1], 0};

        bytes[i / 2] = (char)strtoul(pair, NULL, 16);
    }
    return hex->size / 2;
}

static void check_case(const struct tokenizer *tokenizer, const struct strict_value *fixture,
                       const char *where, size_t tally[4])
{
    const struct strict_value *kind = strict_member(fixture, "kind");
    const struct strict_value *text = strict_member(fixture, "text");
    const struct strict_value *ids = strict_member(fixture, "ids");
    uint32_t wanted[8192], *got = NULL;
    size_t wanted_count = ids ? ids_of(ids, wanted, COUNT_OF(wanted)) : 0, count = 0;
    struct error err = {0};
    char bytes[64];
    bool ok;

    if (strict_is(kind, "decode")) {
        tally[3]++;
        must_decode(tokenizer, wanted, wanted_count, strict_member(fixture, "decoded"), where);
        return;
    }
    if (strict_is(kind, "encode_bytes")) {
        size_t size = unhex(strict_member(fixture, "hex"), bytes);

        tally[2]++;
        assert_false(tokenizer_encode(tokenizer, bytes, size, &got, &count, &err));
        ok = tokenizer_encode_bytes(tokenizer, bytes, size, &got, &count, &err);
    } else {
        ok = tokenizer_encode(tokenizer, text->text, text->size, &got, &count, &err);
    }
    if (strict_is(kind, "encode_error")) {
        tally[1]++;
        assert_false(ok);
        assert_int_equal(err.code, ERR_INVALID);
        return;
    }
    tally[0]++;
    if (!ok)
        fail_msg("%s: %s", where, err.message);
    if (count != wanted_count || memcmp(got, wanted, count * sizeof(*got)) != 0)
        fail_msg("%s: %zu ids, the reference has %zu, or they differ", where, count, wanted_count);
    must_decode(tokenizer, got, count, strict_member(fixture, "decoded"), where);
    free(got);
}

static void every_case_gives_the_ids_and_the_text_of_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(models); i++) {
        struct tokenizer *tokenizer = open_model(models[i]);
        struct mapping map = MAPPING_NONE;
        struct error err = {0};
        size_t at = 0, line = 0, tally[4] = {0};

        if (!mapping_open(&map, case_files[i], &err))
            fail_msg("%s", err.message);
        while (at < map.size) {
            const char *text = (const char *)map.data + at;
            const char *end = memchr(text, '\n', map.size - at);
            size_t size = end ? (size_t)(end - text) : map.size - at;
            struct arena arena;
            struct strict_report report;
            struct strict_value *fixture = NULL;
            char where[128];

            snprintf(where, sizeof(where), "%s, line %zu", case_files[i], ++line);
            arena_init(&arena, (size_t)64 << 20);
            if (!strict_read(text, size, &arena, &report, &fixture))
                fail_msg("%s: %s", where, report.fault.reason);
            check_case(tokenizer, fixture, where, tally);
            arena_release(&arena);
            at += size + 1;
        }
        assert_int_equal(tally[0], 184); /* encoded, six of them bytes that are not UTF-8 */
        assert_int_equal(tally[1], 2);
        assert_int_equal(tally[2], 6);
        assert_int_equal(tally[3], 38);
        mapping_close(&map);
        tokenizer_close(tokenizer);
    }
}

static void markers_stand_where_the_template_wants_them(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = open_model(models[1]);
    size_t count = 0;

    for (; tokenizer_markers[count]; count++) {
        uint32_t *ids = NULL;
        size_t id_count = 0;
        struct error err = {0};

        assert_true(tokenizer_encode(tokenizer, tokenizer_markers[count],
                                     strlen(tokenizer_markers[count]), &ids, &id_count, &err));
        assert_int_equal(id_count, 1);
        assert_int_equal(ids[0], 4 + count);
        free(ids);
    }
    assert_int_equal(count, 16);
    assert_int_equal(tokenizer_piece_count(tokenizer), 800);
    tokenizer_close(tokenizer);
}

static void an_id_past_the_last_piece_is_refused(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = open_model(models[0]);
    uint32_t id = (uint32_t)tokenizer_piece_count(tokenizer);
    struct error err = {0};
    char *text = NULL;
    size_t size;

    assert_false(tokenizer_decode(tokenizer, &id, 1, &text, &size, &err));
    assert_int_equal(err.code, ERR_INVALID);
    tokenizer_close(tokenizer);
}

static bool open_bytes(const char *path, const void *bytes, size_t size, struct error *err)
{
    struct tokenizer *tokenizer = NULL;
    bool ok;

    assert_true(file_write(path, bytes, size, err));
    *err = (struct error){0};
    ok = tokenizer_open(path, &tokenizer, err);
    tokenizer_close(tokenizer);
    assert_true(ok || err->code != ERR_NONE);
    return ok;
}

static void a_missing_damaged_or_foreign_model_is_refused_by_name(void **state)
{
    (void)state;
    char folder[] = "/tmp/needled-test-XXXXXX", path[64];
    struct mapping map = MAPPING_NONE;
    struct error err = {0};
    char *copy, *marker;

    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/t.model", folder);
    assert_false(tokenizer_open(path, &(struct tokenizer *){NULL}, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, path));

    assert_true(mapping_open(&map, models[0], &err));
    assert_false(open_bytes(path, "", 0, &err));
    assert_false(open_bytes(path, "not a model at all", 18, &err));
    for (size_t size = 1; size < map.size; size += 97)
        assert_false(open_bytes(path, map.data, size, &err));

    copy = malloc(map.size);
    assert_non_null(copy);
    memcpy(copy, map.data, map.size);
    marker = memmem(copy, map.size, "<tool_call>", 11);
    assert_non_null(marker);
    marker[1] = 'T';
    assert_false(open_bytes(path, copy, map.size, &err));
    assert_non_null(strstr(err.message, "'<tool_call>' is missing"));

    memcpy(copy, map.data, map.size); /* two markers change places: each has the other's id */
    memcpy(memmem(copy, map.size, "<think>", 7), "<-----", 6);
    memcpy(memmem(copy, map.size, "<tools>", 7), "<think>", 7);
    memcpy(memmem(copy, map.size, "<----->", 7), "<tools>", 7);
    assert_false(open_bytes(path, copy, map.size, &err));
    assert_non_null(strstr(err.message, "'<think>' has id 8, the model family wants 6"));
    free(copy);
    mapping_close(&map);
    assert_true(file_remove(path, &err));
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_gives_the_ids_and_the_text_of_the_reference),
        cmocka_unit_test(markers_stand_where_the_template_wants_them),
        cmocka_unit_test(an_id_past_the_last_piece_is_refused),
        cmocka_unit_test(a_missing_damaged_or_foreign_model_is_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
