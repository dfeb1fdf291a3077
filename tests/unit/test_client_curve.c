/* Proves that the curve shows a falling loss falling, and draws nothing it does not have. */
#include "client/curve.h"
#include "tests/support/test.h"

#include <math.h>

static void draw(const double *values, size_t count, char *ret_text, size_t capacity)
{
    FILE *out;

    memset(ret_text, 0, capacity);
    out = fmemopen(ret_text, capacity, "w");
    assert_non_null(out);
    curve_print(out, values, count);
    assert_int_equal(fclose(out), 0);
}

static void a_falling_loss_goes_from_the_upper_left_to_the_lower_right(void **state)
{
    (void)state;
    double values[600];
    char text[4096];
    const char *line, *bar;

    for (size_t i = 0; i < 600; i++)
        values[i] = 10 - (double)i / 100;
    draw(values, 600, text, sizeof(text));
    bar = strchr(text, '|');
    assert_non_null(bar);
    assert_int_equal(bar[1], '*'); /* first row, first column */
    assert_null(memchr(bar + 8, '*', 50));
    line = strstr(text, " +--");
    assert_non_null(line);
    while (line > text && *line != '*')
        line--;
    assert_int_equal(line[1], '\n'); /* last row, last column */
    assert_non_null(strstr(text, "600"));
}

static void too_few_or_not_finite_values_draw_nothing(void **state)
{
    (void)state;
    const double bad[] = {1, NAN, 2};
    char text[4096];

    draw(bad, 1, text, sizeof(text));
    assert_string_equal(text, "");
    draw(bad, 3, text, sizeof(text));
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_falling_loss_goes_from_the_upper_left_to_the_lower_right),
        cmocka_unit_test(too_few_or_not_finite_values_draw_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
