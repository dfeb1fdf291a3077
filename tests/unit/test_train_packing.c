/*
 * Proves that micro-batches say exactly what the lines of a batch say: every (tokens so far, next
 * token) pair of every line, as often as it occurs, in trees that keep the rules of kernels/ops.h.
 */
#include "daemon/train/packing.h"
#include "tests/support/test.h"

#define LINES_MAX 40
#define LINE_MAX 12

struct lines {
    uint32_t ids[LINES_MAX][LINE_MAX];
    struct example examples[LINES_MAX];
    const struct example *pointers[LINES_MAX];
    size_t count;
};

/* One target with the tokens that lead to it: ids[0..count) of which the last is the label. */
struct pair {
    uint32_t ids[LINE_MAX];
    size_t count;
};

static void add_line(struct lines *lines, const uint32_t *ids, size_t count, size_t prompt_count)
{
    const size_t i = lines->count++;

    memcpy(lines->ids[i], ids, count * sizeof(*ids));
    lines->examples[i] = (struct example){
        .line = i + 1, .ids = lines->ids[i], .id_count = count, .prompt_count = prompt_count};
    lines->pointers[i] = &lines->examples[i];
}

static struct packing *new_packing(size_t max_tokens)
{
    const struct packing_sizes sizes = {
        .max_lines = LINES_MAX, .max_tokens = max_tokens, .longest = LINE_MAX};
    struct packing *packing = NULL;
    struct error err = {0};

    assert_true(packing_new(&sizes, &packing, &err));
    return packing;
}

/* ---- what the lines say, counted plainly ------------------------------------------------------
 */

static int compare_pairs(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;

    for (size_t i = 0; i < x->count && i < y->count; i++)
        if (x->ids[i] != y->ids[i])
            return x->ids[i] < y->ids[i] ? -1 : 1;
    return x->count < y->count ? -1 : x->count > y->count;
}

static size_t pairs_of_lines(const struct lines *lines, struct pair *pairs)
{
    size_t count = 0;

    for (size_t i = 0; i < lines->count; i++) {
        const struct example *line = &lines->examples[i];
        for (size_t t = line->prompt_count; t < line->id_count; t++) {
            struct pair *pair = &pairs[count++];
            *pair = (struct pair){.count = t + 1};
            memcpy(pair->ids, line->ids, (t + 1) * sizeof(uint32_t));
        }
    }
    return count;
}

static size_t pairs_of_batch(const struct batch *batch, struct pair *pairs)
{
    size_t count = 0;

    for (size_t m = 0; m < batch->target_count; m++) {
        struct pair pair = {0};
        int32_t row = batch->target_row[m];

        pair.count = (size_t)batch->depth[row] + 2;
        pair.ids[pair.count - 1] = batch->target_label[m];
        for (size_t t = pair.count - 1; t-- > 0; row = batch->parent[row])
            pair.ids[t] = batch->tokens[row];
        assert_int_equal(row, -1);
        for (float w = 0; w < batch->target_weight[m]; w += 1)
            pairs[count++] = pair;
    }
    return count;
}

static size_t distinct_rows(const struct lines *lines)
{
    static struct pair rows[LINES_MAX * LINE_MAX];
    size_t count = 0, distinct = 0;

    for (size_t i = 0; i < lines->count; i++)
        for (size_t t = 0; t < packing_line_rows(&lines->examples[i]); t++) {
            rows[count] = (struct pair){.count = t + 1};
            memcpy(rows[count++].ids, lines->ids[i], (t + 1) * sizeof(uint32_t));
        }
    qsort(rows, count, sizeof(rows[0]), compare_pairs);
    for (size_t i = 0; i < count; i++)
        distinct += i == 0 || compare_pairs(&rows[i - 1], &rows[i]) != 0;
    return distinct;
}

/* ---- the rules of a tree -----------------------------------------------------------------------
 */

static void check_tree(const struct batch *batch)
{
    for (size_t i = 0; i < batch->token_count; i++) {
        const int32_t parent = batch->parent[i], row = (int32_t)i;

        assert_true(parent >= -1 && parent < row);
        assert_int_equal(batch->depth[i], parent < 0 ? 0 : batch->depth[parent] + 1);
        assert_int_equal(batch->run[i], row > 0 && parent == row - 1 ? batch->run[row - 1] : row);
        /* j is i or an ancestor of i <=> j <= i && i < end[j] */
        for (size_t j = 0; j < batch->token_count; j++) {
            int32_t up = row;
            while (up > (int32_t)j)
                up = batch->parent[up];
            assert_int_equal(up == (int32_t)j, j <= i && row < batch->end[j]);
        }
        for (size_t j = 0; j < i; j++) /* what can be shared is */
            assert_false(batch->parent[j] == parent && batch->tokens[j] == batch->tokens[i]);
    }
    for (size_t m = 1; m < batch->target_count; m++) {
        assert_true(batch->target_row[m - 1] <= batch->target_row[m]);
        for (size_t k = 0; k < m; k++)
            assert_false(batch->target_row[k] == batch->target_row[m] &&
                         batch->target_label[k] == batch->target_label[m]);
    }
}

static void check_packing(const struct lines *lines, size_t max_tokens)
{
    static struct pair wanted[LINES_MAX * LINE_MAX], found[LINES_MAX * LINE_MAX];
    struct packing *packing = new_packing(max_tokens);
    const struct packing_sizes sizes = {.max_lines = LINES_MAX, .max_tokens = max_tokens};
    struct packing_totals totals;
    struct batch batch;
    size_t found_count = 0, rows = 0, batches = 0;

    packing_begin(packing, lines->pointers, lines->count, &totals);
    for (; packing_next(packing, &batch); batches++) {
        assert_in_range(batch.token_count, 1, max_tokens);
        assert_in_range(batch.target_count, 1, packing_max_targets(&sizes));
        check_tree(&batch);
        found_count += pairs_of_batch(&batch, found + found_count);
        rows += batch.token_count;
    }
    const size_t wanted_count = pairs_of_lines(lines, wanted);
    assert_int_equal(totals.target_count, wanted_count);
    assert_int_equal(found_count, wanted_count);
    qsort(wanted, wanted_count, sizeof(wanted[0]), compare_pairs);
    qsort(found, found_count, sizeof(found[0]), compare_pairs);
    for (size_t i = 0; i < wanted_count; i++)
        assert_int_equal(compare_pairs(&wanted[i], &found[i]), 0);

    const struct example *order[LINES_MAX];
    memcpy(order, lines->pointers, sizeof(order));
    const size_t distinct = distinct_rows(lines);
    assert_int_equal(packing_count_rows(order, lines->count), distinct);
    if (batches <= 1)
        assert_int_equal(rows, distinct);
    else
        assert_true(distinct > max_tokens && rows >= distinct);
    packing_free(packing);
}

/* ---- tests -------------------------------------------------------------------------------------
 */

static uint32_t draw(uint64_t *random, uint32_t count)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*random >> 33) % count;
}

static void random_batches_keep_every_target_at_every_budget(void **state)
{
    (void)state;
    uint64_t random = 20240607;

    for (size_t round = 0; round < 400; round++) {
        struct lines lines = {0};
        const size_t count = draw(&random, LINES_MAX + 1);

        for (size_t i = 0; i < count; i++) {
            uint32_t ids[LINE_MAX] = {2};
            const size_t size = 1 + draw(&random, LINE_MAX);
            for (size_t t = 1; t < size; t++)
                ids[t] = 5 + draw(&random, t < 4 ? 2 : 3);
            add_line(&lines, ids, size, 1 + draw(&random, LINE_MAX));
        }
        check_packing(&lines, LINE_MAX);
        check_packing(&lines, 2 * LINE_MAX + 1);
        check_packing(&lines, LINES_MAX * LINE_MAX);
    }
}

static void the_last_token_of_a_line_has_no_row_unless_it_is_shared(void **state)
{
    (void)state;
    struct lines lines = {0};
    struct packing *packing = new_packing(LINE_MAX);
    struct packing_totals totals;
    struct batch batch;

    add_line(&lines, (const uint32_t[]){2, 5, 6, 7, 8}, 5, 2);
    packing_begin(packing, lines.pointers, lines.count, &totals);
    assert_true(packing_next(packing, &batch));
    assert_int_equal(batch.token_count, 4);
    assert_int_equal(batch.target_count, 3);
    assert_false(packing_next(packing, &batch));

    add_line(&lines, (const uint32_t[]){2, 5, 6}, 3, 2); /* its 6 is a row of the other line */
    packing_begin(packing, lines.pointers, lines.count, &totals);
    assert_int_equal(totals.token_count, 8);
    assert_int_equal(totals.target_count, 4);
    assert_true(packing_next(packing, &batch));
    assert_int_equal(batch.token_count, 4);
    assert_int_equal(batch.target_count, 3);
    assert_true(batch.target_weight[0] == 2.0f && batch.target_weight[1] == 1.0f);
    packing_free(packing);
}

static void lines_without_targets_take_no_rows(void **state)
{
    (void)state;
    struct lines lines = {0};
    struct packing *packing = new_packing(LINE_MAX);
    struct packing_totals totals;
    struct batch batch;

    add_line(&lines, (const uint32_t[]){2, 5, 6}, 3, 3); /* cut where its prompt ends */
    add_line(&lines, (const uint32_t[]){2, 5}, 2, 4);    /* cut inside its prompt */
    packing_begin(packing, lines.pointers, lines.count, &totals);
    assert_int_equal(totals.token_count, 5);
    assert_int_equal(totals.target_count, 0);
    assert_false(packing_next(packing, &batch));
    packing_free(packing);
}

static void the_order_of_the_lines_does_not_matter(void **state)
{
    (void)state;
    struct lines lines = {0};
    struct packing *a = new_packing(LINES_MAX), *b = new_packing(LINES_MAX);
    struct packing_totals totals;
    struct batch x, y;

    add_line(&lines, (const uint32_t[]){2, 9, 5, 6}, 4, 1);
    add_line(&lines, (const uint32_t[]){2, 5, 5, 6}, 4, 2);
    add_line(&lines, (const uint32_t[]){2, 5, 7}, 3, 2);
    const struct example *turned[] = {lines.pointers[2], lines.pointers[0], lines.pointers[1]};
    packing_begin(a, lines.pointers, 3, &totals);
    packing_begin(b, turned, 3, &totals);
    assert_true(packing_next(a, &x) && packing_next(b, &y));
    assert_int_equal(x.token_count, y.token_count);
    assert_int_equal(x.target_count, y.target_count);
    assert_memory_equal(x.tokens, y.tokens, x.token_count * sizeof(*x.tokens));
    assert_memory_equal(x.parent, y.parent, x.token_count * sizeof(*x.parent));
    assert_memory_equal(x.target_row, y.target_row, x.target_count * sizeof(*x.target_row));
    assert_memory_equal(x.target_label, y.target_label, x.target_count * sizeof(*x.target_label));
    packing_free(a);
    packing_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_batches_keep_every_target_at_every_budget),
        cmocka_unit_test(the_last_token_of_a_line_has_no_row_unless_it_is_shared),
        cmocka_unit_test(lines_without_targets_take_no_rows),
        cmocka_unit_test(the_order_of_the_lines_does_not_matter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
