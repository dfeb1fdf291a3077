/* Proves that the event-stream reader takes every legal form, cut at any byte. */
#include "client/sse.h"
#include "tests/support/test.h"

struct record {
    char text[4096];
    size_t size;
};

static bool keep(void *context, const struct sse_event *event)
{
    struct record *record = context;

    record->size +=
        (size_t)snprintf(record->text + record->size, sizeof(record->text) - record->size,
                         "[%s|%s|%s]", event->id, event->type, event->data);
    return strcmp(event->type, "done") != 0;
}

static void feed_in_pieces(const char *stream, size_t piece, struct record *record)
{
    struct sse sse;
    size_t size = strlen(stream);

    sse_init(&sse, keep, record);
    for (size_t i = 0; i < size; i += piece)
        if (!sse_feed(&sse, stream + i, size - i < piece ? size - i : piece))
            break;
    sse_release(&sse);
}

static void every_legal_form_reads_the_same_however_it_is_cut(void **state)
{
    (void)state;
    static const struct {
        const char *stream, *expected;
    } cases[] = {
        {"id: 1\nevent: metrics\ndata: {\"a\":1}\n\n", "[1|metrics|{\"a\":1}]"},
        {"data: a\ndata: b\n\n", "[|message|a\nb]"},
        {"id: 7\r\ndata: x\r\n\r\n:\nid: 8\rdata: y\r\r", "[7|message|x][8|message|y]"},
        {": keep-alive\n:\ndata:no space\n\n", "[|message|no space]"},
        {"id: 3\n\ndata: later\n\n", "[3|message|later]"},
        {"event: lost\n\ndata: q\n\n", "[|message|q]"},
        {"data: never finished\n", ""},
        {"data: u\xE2\x80\xA8v\n\n", "[|message|u\xE2\x80\xA8v]"},
        {"data: 1\nevent: done\n\ndata: after\n\n", "[|done|1]"},
        {"\xEF\xBB\xBF"
         "data: a\n\n\xEF\xBB\xBF"
         "data: b\n\n",
         "[|message|a]"},
        {"unknown: z\nretry: 10\ndata\n\n", "[|message|]"},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        for (size_t piece = 1; piece <= strlen(cases[i].stream); piece++) {
            struct record record = {0};

            feed_in_pieces(cases[i].stream, piece, &record);
            if (strcmp(record.text, cases[i].expected) != 0)
                fail_msg("case %zu in pieces of %zu: '%s'", i, piece, record.text);
        }
    }
}

static void an_id_with_a_nul_is_passed_over(void **state)
{
    (void)state;
    static const char stream[] = "id: 4\ndata: a\n\nid: 5\0x\ndata: b\n\n";
    struct record record = {0};
    struct sse sse;

    sse_init(&sse, keep, &record);
    assert_true(sse_feed(&sse, stream, sizeof(stream) - 1));
    assert_string_equal(record.text, "[4|message|a][4|message|b]");
    sse_release(&sse);
}

static void a_new_connection_drops_half_a_block(void **state)
{
    (void)state;
    struct record record = {0};
    struct sse sse;

    sse_init(&sse, keep, &record);
    assert_true(sse_feed(&sse, "id: 4\ndata: a\n\nid: 5\nevent: x\ndata: ha", 35));
    assert_string_equal(sse.id, "4"); /* 5 is not whole: it is asked for again */
    sse_restart(&sse);
    assert_true(sse_feed(&sse,
                         "\xEF\xBB\xBF"
                         "data: b\n\n",
                         12));
    assert_string_equal(record.text, "[4|message|a][4|message|b]");
    sse_release(&sse);
}

static void a_line_without_end_is_refused_at_its_bound(void **state)
{
    (void)state;
    struct record record = {0};
    struct sse sse;
    static char piece[65536];
    size_t fed = 0;

    memset(piece, 'a', sizeof(piece));
    sse_init(&sse, keep, &record);
    while (fed <= SSE_LINE_MAX && sse_feed(&sse, piece, sizeof(piece)))
        fed += sizeof(piece);
    assert_true(fed <= SSE_LINE_MAX);
    sse_release(&sse);
}

static void a_block_cut_in_half_is_asked_for_again(void **state)
{
    (void)state;
    static const char stream[] = "id: 4\ndata: a\n\nid: 5\nevent: metrics\ndata: b\n\n";

    for (size_t cut = 0; cut <= strlen(stream); cut++) {
        struct record record = {0};
        struct sse sse;
        const bool has_four = cut >= strlen("id: 4\ndata: a\n\n"), has_five = cut == strlen(stream);

        sse_init(&sse, keep, &record);
        assert_true(sse_feed(&sse, stream, cut));
        sse_restart(&sse); /* the connection breaks */
        assert_string_equal(sse.id, has_five ? "5" : has_four ? "4" : "");
        record = (struct record){0};
        assert_true(sse_feed(&sse, "data: c\n\n", 9));
        assert_string_equal(record.text, has_five   ? "[5|message|c]"
                                         : has_four ? "[4|message|c]"
                                                    : "[|message|c]");
        sse_release(&sse);
    }
}

static void the_delay_is_kept_when_it_is_a_number(void **state)
{
    (void)state;
    struct record record = {0};
    struct sse sse;

    sse_init(&sse, keep, &record);
    assert_true(sse_feed(&sse, "retry: 2500\nretry: soon\nretry: -1\nretry:\n", 42));
    assert_int_equal(sse.retry_ms, 2500);
    sse_release(&sse);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_legal_form_reads_the_same_however_it_is_cut),
        cmocka_unit_test(an_id_with_a_nul_is_passed_over),
        cmocka_unit_test(a_new_connection_drops_half_a_block),
        cmocka_unit_test(a_line_without_end_is_refused_at_its_bound),
        cmocka_unit_test(a_block_cut_in_half_is_asked_for_again),
        cmocka_unit_test(the_delay_is_kept_when_it_is_a_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
