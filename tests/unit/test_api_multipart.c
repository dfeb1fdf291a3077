/* Proves that a form's parts come out byte for byte, however the body was cut on its way, and that a
 * body which breaks the format is refused with its reason. */
#include "tests/support/test.h"

#include "api/multipart.h"

#define TYPE "multipart/form-data; boundary=bnd"

struct seen {
    char text[4096]; /* "<name|filename>content;" for each part */
    size_t size;
    bool refuses; /* the begin callback */
};

static void see(struct seen *seen, const char *bytes, size_t size)
{
    assert_true(seen->size + size < sizeof(seen->text));
    memcpy(seen->text + seen->size, bytes, size);
    seen->size += size;
    seen->text[seen->size] = '\0';
}

static bool see_begin(void *context, const char *name, const char *filename, struct error *err)
{
    struct seen *seen = context;
    char text[2100];

    if (seen->refuses)
        return error_set_param(err, ERR_CONFLICT, name, "not this one");
    snprintf(text, sizeof(text), "<%s|%s>", name, filename ? filename : "-");
    see(seen, text, strlen(text));
    return true;
}

static bool see_data(void *context, const char *bytes, size_t size, struct error *err)
{
    (void)err;
    assert_true(size > 0);
    see(context, bytes, size);
    return true;
}

static bool see_end(void *context, struct error *err)
{
    (void)err;
    see(context, ";", 1);
    return true;
}

/* Reads a body in pieces of piece_size bytes. */
static bool read_body(const char *type, const char *body, size_t size, size_t piece_size,
                      struct seen *seen, struct error *err)
{
    struct multipart_events events = {see_begin, see_data, see_end, seen};
    struct multipart *reader = NULL;
    bool ok;

    seen->size = 0;
    seen->text[0] = '\0';
    ok = multipart_new(type, &events, &reader, err);
    for (size_t at = 0; ok && at < size; at += piece_size)
        ok =
            multipart_feed(reader, body + at, size - at < piece_size ? size - at : piece_size, err);
    ok = ok && multipart_finish(reader, err);
    multipart_free(reader);
    return ok;
}

static void parts_come_out_byte_for_byte_at_every_cut(void **state)
{
    (void)state;
    static const char body[] =
        "preamble, ignored\r\n--bnd\r\n"
        "Content-Disposition: form-data; name=\"purpose\"\r\n\r\n"
        "fine-tune\r\n--bnd\r\n"
        "Content-Type: application/octet-stream\r\n"
        "content-disposition: form-data; filename=\"a \\\"b\\\".jsonl\"; name=file\r\n\r\n"
        "one\n--bnd\r\n--bn\r\r\n\r\n--\r\n\r\n"
        "\r\n--bnd  \r\n"
        "Content-Disposition: form-data; name=\"empty\"\r\n\r\n"
        "\r\n--bnd--\r\nepilogue --bnd";
    struct seen seen = {0};
    struct error err = {0};
    size_t size = strlen(body);

    for (size_t piece = 1; piece <= size; piece++) {
        if (!read_body(TYPE, body, size, piece, &seen, &err))
            fail_msg("pieces of %zu: %s", piece, err.message);
        assert_string_equal(seen.text, "<purpose|->fine-tune;"
                                       "<file|a \"b\".jsonl>one\n--bnd\r\n--bn\r\r\n\r\n--\r\n\r\n;"
                                       "<empty|->;");
    }
}

static void line_ends_at_the_end_of_a_file_stay(void **state)
{
    (void)state;
    static const char body[] = "--bnd\r\nContent-Disposition: form-data; name=\"file\"; "
                               "filename=\"a\"\r\n\r\nx\n\r\n\r\n\r\n--bnd--\r\n";
    struct seen seen = {0};
    struct error err = {0};

    assert_true(read_body(TYPE, body, strlen(body), 7, &seen, &err));
    assert_string_equal(seen.text, "<file|a>x\n\r\n\r\n;");
}

static void nul_bytes_in_a_part_are_data(void **state)
{
    (void)state;
    static const char body[] =
        "--bnd\r\nContent-Disposition: form-data; name=\"f\"\r\n\r\na\0b\r\n--bnd--";
    struct seen seen = {0};
    struct error err = {0};

    assert_true(read_body(TYPE, body, sizeof(body) - 1, 3, &seen, &err));
    assert_int_equal(seen.size, strlen("<f|->") + 3 + 1);
    assert_memory_equal(seen.text + 5, "a\0b;", 4);
}

static void a_broken_form_is_refused_with_its_reason(void **state)
{
    (void)state;
    static const struct {
        const char *name, *type, *body, *mentions;
        enum error_code code;
    } cases[] = {
        {"no boundary", "multipart/form-data", "", "boundary", ERR_INVALID},
        {"empty boundary", "multipart/form-data; boundary=\"\"", "", "boundary", ERR_INVALID},
        {"long boundary",
         "multipart/form-data; boundary="
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
         "", "boundary", ERR_INVALID},
        {"nothing", TYPE, "", "closing boundary", ERR_INVALID},
        {"cut in a part", TYPE,
         "--bnd\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nabc\r\n--bn",
         "closing boundary", ERR_INVALID},
        {"a boundary that runs on", TYPE,
         "--bnd\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nabc\r\n--bndless\r\n--bnd--",
         "runs on", ERR_INVALID},
        {"a part without a name", TYPE, "--bnd\r\nContent-Disposition: form-data\r\n\r\nx",
         "part 1", ERR_INVALID},
        {"a part without a header", TYPE, "--bnd\r\n\r\nx\r\n--bnd--", "part 1", ERR_INVALID},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct seen seen = {0};
        struct error err = {0};
        bool ok = read_body(cases[i].type, cases[i].body, strlen(cases[i].body), 5, &seen, &err);

        if (ok || err.code != cases[i].code || !strstr(err.message, cases[i].mentions))
            fail_msg("%s: ok=%d, %s", cases[i].name, ok, err.message);
    }
}

static void headers_and_parts_are_bounded(void **state)
{
    (void)state;
    static const char part[] = "--bnd\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx\r\n";
    static char body[MULTIPART_HEADER_MAX + 4096];
    struct seen seen = {0};
    struct error err = {0};

    memset(body, 'x', sizeof(body) - 1);
    memcpy(body, "--bnd\r\n", 7);
    assert_false(read_body(TYPE, body, strlen(body), 1000, &seen, &err));
    assert_int_equal(err.code, ERR_LIMIT);

    body[0] = '\0';
    for (int i = 0; i <= MULTIPART_PART_MAX; i++)
        memcpy(body + (size_t)i * (sizeof(part) - 1), part, sizeof(part));
    assert_false(read_body(TYPE, body, strlen(body), 1000, &seen, &err));
    assert_int_equal(err.code, ERR_LIMIT);
}

static void a_refusal_of_the_owner_ends_the_reading(void **state)
{
    (void)state;
    static const char body[] = "--bnd\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx";
    struct seen seen = {.refuses = true};
    struct multipart_events events = {see_begin, see_data, see_end, &seen};
    struct multipart *reader = NULL;
    struct error err = {0};

    assert_true(multipart_new(TYPE, &events, &reader, &err));
    assert_false(multipart_feed(reader, body, strlen(body), &err));
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_string_equal(err.param, "a");
    assert_false(multipart_feed(reader, "more", 4, &err)); /* stays refused */
    assert_false(multipart_finish(reader, &err));
    multipart_free(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_come_out_byte_for_byte_at_every_cut),
        cmocka_unit_test(line_ends_at_the_end_of_a_file_stay),
        cmocka_unit_test(nul_bytes_in_a_part_are_data),
        cmocka_unit_test(a_broken_form_is_refused_with_its_reason),
        cmocka_unit_test(headers_and_parts_are_bounded),
        cmocka_unit_test(a_refusal_of_the_owner_ends_the_reading),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
