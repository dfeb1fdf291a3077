/*
 * Proves that arenas and buffers keep their bounds and their promises, and that errors are cut, not
 * spilled.
 */
#include "daemon/base/arena.h"
#include "daemon/base/buf.h"
#include "daemon/base/error.h"
#include "daemon/base/size.h"
#include "daemon/base/utf8.h"
#include "tests/support/test.h"

static void an_arena_hands_out_zeroed_aligned_memory_up_to_its_bound(void **state)
{
    (void)state;
    struct arena arena;
    size_t sum = 0;

    arena_init(&arena, 1 << 20);
    for (int round = 0; round < 3; round++) {
        sum = 0;
        for (size_t size = 0; size < 900; size += 7) {
            unsigned char *bytes = arena_alloc(&arena, size);

            assert_non_null(bytes);
            assert_int_equal((uintptr_t)bytes % 16, 0);
            for (size_t i = 0; i < size; i++)
                assert_int_equal(bytes[i], 0);
            memset(bytes, 0xa5, size);
            sum += size;
        }
        assert_true(arena.size_bytes >= sum);
        arena_clear(&arena);
        assert_int_equal(arena.size_bytes, 0);
    }
    assert_null(arena_alloc(&arena, (1 << 20) + 1));
    assert_null(arena_alloc(&arena, SIZE_MAX));
    assert_non_null(arena_alloc(&arena, 1 << 20));
    assert_null(arena_alloc(&arena, 1));
    arena_clear(&arena);
    assert_string_equal(arena_copy(&arena, "abc\0def", 7), "abc");
    arena_release(&arena);
    arena_release(NULL);
}

static void a_buffer_grows_to_its_bound_and_then_stays_failed(void **state)
{
    (void)state;
    struct buf buf;
    size_t size = 0;
    char *text;

    buf_init(&buf, 100);
    buf_append_text(&buf, "ab");
    buf_append_char(&buf, 'c');
    buf_format(&buf, "%d-%s", 42, "x");
    assert_string_equal(buf.data, "abc42-x");
    assert_int_equal(buf.size, 7);
    for (int i = 0; i < 93; i++)
        buf_append_char(&buf, '.');
    assert_false(buf.failed);
    buf_append_char(&buf, '.');
    assert_true(buf.failed);
    assert_int_equal(buf.size, 100);
    buf_append(&buf, "", 0);
    assert_true(buf.failed);
    assert_null(buf_take(&buf, &size));
    assert_false(buf.failed);
    text = buf_take(&buf, &size);
    assert_string_equal(text, "");
    assert_int_equal(size, 0);
    free(text);
    buf_release(&buf);
    buf_release(NULL);
}

static void an_error_is_cut_at_its_end_and_wrapped_in_front(void **state)
{
    (void)state;
    struct error err = {0};
    char long_text[1000];

    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    assert_false(error_set_param(&err, ERR_LIMIT, "field", "%d of %d", 3, 2));
    error_wrap(&err, "read '%s'", "f");
    assert_string_equal(err.message, "read 'f': 3 of 2");
    assert_string_equal(err.param, "field");
    assert_int_equal(err.code, ERR_LIMIT);
    assert_false(error_set(&err, ERR_IO, "again: %s", err.message));
    assert_string_equal(err.message, "again: read 'f': 3 of 2");
    assert_string_equal(err.param, "");
    assert_false(error_set(&err, ERR_IO, "%s", long_text));
    assert_int_equal(strlen(err.message), sizeof(err.message) - 1);
    error_wrap(&err, "%s", long_text);
    assert_int_equal(strlen(err.message), sizeof(err.message) - 1);
    assert_false(error_set_word(&err, ERR_CONFLICT, "in_use", "file", "it is %s", "used"));
    error_wrap(&err, "remove it");
    assert_string_equal(err.word, "in_use");
    assert_string_equal(err.param, "file");
    assert_string_equal(err.message, "remove it: it is used");
    assert_false(error_set(&err, ERR_IO, "the next one has no word"));
    assert_string_equal(err.word, "");
    assert_false(error_set_word(NULL, ERR_IO, "word", "", "nobody listens"));
    assert_false(error_set(NULL, ERR_IO, "nobody listens"));
    error_wrap(NULL, "nobody listens");
    assert_string_equal(error_code_name(ERR_NO_MEMORY), "no_memory");
}

static void sizes_that_overflow_are_told(void **state)
{
    (void)state;
    size_t size = 7;

    assert_true(size_add(2, 3, &size));
    assert_int_equal(size, 5);
    assert_false(size_add(SIZE_MAX, 1, &size));
    assert_false(size_mul(SIZE_MAX / 2, 3, &size));
    assert_int_equal(size, 5);
}

static void every_code_point_goes_through_and_back_and_surrogates_do_not(void **state)
{
    (void)state;
    for (uint32_t code = 0; code <= 0x10ffff; code++) {
        char bytes[UTF8_BYTES_MAX];
        size_t length = utf8_encode(code, bytes);
        bool surrogate = code >= 0xd800 && code <= 0xdfff;
        uint32_t back = 0;

        if (utf8_decode(bytes, length, &back) != (surrogate ? 0 : length) ||
            (!surrogate && back != code) ||
            utf8_find_surrogate(bytes, length) != (surrogate ? 0 : length))
            fail_msg("U+%04X", code);
        if (length > 1 && utf8_decode(bytes, length - 1, &back) != 0)
            fail_msg("U+%04X is read from fewer bytes", code);
    }
}

static void stripping_takes_what_python_takes(void **state)
{
    (void)state;
    static const char text[] = " \t\xe3\x80\x80\xc2\x85"
                               "a b\xe2\x80\x8b\xe2\x80\xa8\n\x1c";
    const char *start = text;
    size_t size = sizeof(text) - 1, spaces = 0;

    utf8_strip(&start, &size);
    assert_int_equal(size, 6); /* the zero-width space is no white space */
    assert_memory_equal(start, "a b\xe2\x80\x8b", 6);
    start = " \xc2\xa0";
    size = 3;
    utf8_strip(&start, &size);
    assert_int_equal(size, 0);
    for (uint32_t code = 0; code <= 0x10ffff; code++)
        spaces += utf8_is_space(code);
    assert_int_equal(spaces, 29);
    assert_int_equal(utf8_cut("a\xc3\xa9", 3, 2), 1);
    assert_int_equal(utf8_cut("a\xc3\xa9", 3, 3), 3);
}

static void of_a_path_in_a_librarys_text_the_name_alone_is_shown(void **state)
{
    (void)state;
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"it does not load: /opt/x/a.so: no symbol b", "it does not load: a.so: no symbol b"},
        {"/opt/needled/a.so: bad", "a.so: bad"},
        {"make '/tmp/some folder/b': No space left", "make 'b': No space left"},
        {"(/a/b), \"/c/d\"; x=/e/f", "(b), \"d\"; x=f"},
        {"'/dev/nvidiactl' cannot be opened", "'/dev/nvidiactl' cannot be opened"},
        {"and/or 1 / 2 http://a/b 3 MB/s", "and/or 1 / 2 http://a/b 3 MB/s"},
        {"/a/b/", "b/"},
        {"/", "/"},
        {"", ""},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[128];

        (void)snprintf(text, sizeof(text), "%s", cases[i].text);
        error_hide_paths(text);
        assert_string_equal(text, cases[i].shown);
    }
}

static void a_folder_is_hidden_where_it_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *message, *folder, *shown, *expected;
    } cases[] = {
        {"open '/var/lib/n/uploads/a': gone", "/var/lib/n", "", "open 'uploads/a': gone"},
        {"'/s/a' and '/s/b'", "/s/", "", "'a' and 'b'"},
        {"'/m/needle/base'", "/m", "models/", "'models/needle/base'"},
        {"'/m/needle/base'", "/m/needle", "models/", "'models/base'"},
        {"'/states/a' '/s'", "/s", "", "'/states/a' '/s'"},
        {"/s//s/a", "/s", "", "a"},
        {"nothing", "", "", "nothing"},
        {"a/b", "/", "", "a/b"},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct error err = {0};

        error_set(&err, ERR_IO, "%s", cases[i].message);
        error_hide_folder(&err, cases[i].folder, cases[i].shown);
        if (strcmp(err.message, cases[i].expected) != 0)
            fail_msg("case %zu: '%s'", i, err.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_a_path_in_a_librarys_text_the_name_alone_is_shown),
        cmocka_unit_test(a_folder_is_hidden_where_it_is_named),
        cmocka_unit_test(an_arena_hands_out_zeroed_aligned_memory_up_to_its_bound),
        cmocka_unit_test(a_buffer_grows_to_its_bound_and_then_stays_failed),
        cmocka_unit_test(an_error_is_cut_at_its_end_and_wrapped_in_front),
        cmocka_unit_test(sizes_that_overflow_are_told),
        cmocka_unit_test(every_code_point_goes_through_and_back_and_surrogates_do_not),
        cmocka_unit_test(stripping_takes_what_python_takes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
