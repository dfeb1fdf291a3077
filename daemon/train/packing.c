#include "daemon/train/packing.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct target {
    int32_t row;
    uint32_t label;
    float weight;
};

struct packing {
    struct packing_sizes sizes;
    const struct example **lines; /* of the batch, in the order of their tokens */
    size_t line_count, next_line;

    uint32_t *tokens; /* [max_tokens], and the four below */
    int32_t *parent, *depth, *run, *end;
    size_t token_count;

    int32_t *path;  /* [longest] rows of the line added last */
    int32_t *edges; /* [longest] its targets by depth, -1 where it trains nothing */

    struct target *targets; /* [max targets] as they were found */
    size_t target_count;
    size_t *first_of_row; /* [max_tokens + 1] */
    int32_t *target_row;  /* [max targets] by row */
    uint32_t *target_label;
    float *target_weight;
};

/* The prompt is never empty (it holds BOS), so each target has a token before it. */
size_t packing_line_targets(const struct example *line)
{
    assert(line->prompt_count > 0);
    return line->id_count > line->prompt_count ? line->id_count - line->prompt_count : 0;
}

size_t packing_line_rows(const struct example *line)
{
    return packing_line_targets(line) > 0 ? line->id_count - 1 : 0;
}

/* A target is an edge of the tree of whole lines: to another row or to a line's last token. */
size_t packing_max_targets(const struct packing_sizes *sizes)
{
    return sizes->max_tokens + sizes->max_lines;
}

/* ---- order ----------------------------------------------------------------------------------- */

static size_t shared_tokens(const struct example *a, const struct example *b)
{
    const size_t shorter = a->id_count < b->id_count ? a->id_count : b->id_count;
    size_t shared = 0;

    while (shared < shorter && a->ids[shared] == b->ids[shared])
        shared++;
    return shared;
}

/* By their tokens, a line before its extensions: neighbours share the most. */
static bool comes_before(const struct example *a, const struct example *b)
{
    const size_t shared = shared_tokens(a, b);

    if (shared < a->id_count && shared < b->id_count)
        return a->ids[shared] < b->ids[shared];
    if (a->id_count != b->id_count)
        return a->id_count < b->id_count;
    return a->prompt_count < b->prompt_count;
}

static void sift_down(const struct example **lines, size_t root, size_t count)
{
    for (;;) {
        size_t child = 2 * root + 1;

        if (child >= count)
            return;
        if (child + 1 < count && comes_before(lines[child], lines[child + 1]))
            child++;
        if (!comes_before(lines[root], lines[child]))
            return;
        const struct example *kept = lines[root];
        lines[root] = lines[child];
        lines[child] = kept;
        root = child;
    }
}

/* A heap sort: in place, and lines that compare equal are equal. */
static void sort_lines(const struct example **lines, size_t count)
{
    for (size_t i = count / 2; i-- > 0;)
        sift_down(lines, i, count);
    for (size_t i = count; i-- > 1;) {
        const struct example *last = lines[0];
        lines[0] = lines[i];
        lines[i] = last;
        sift_down(lines, 0, i);
    }
}

/* Rows of `line` that the line before it has already; `before` NULL: none. */
static size_t shared_rows(const struct example *before, const struct example *line)
{
    if (!before)
        return 0;

    size_t shared = shared_tokens(before, line);
    if (shared > before->id_count - 1)
        shared = before->id_count - 1;
    return shared < line->id_count - 1 ? shared : line->id_count - 1;
}

/* Keeps the lines that train something, sorted. */
static size_t arrange_lines(const struct example **lines, size_t count)
{
    size_t kept = 0;

    for (size_t i = 0; i < count; i++)
        if (packing_line_targets(lines[i]) > 0)
            lines[kept++] = lines[i];
    sort_lines(lines, kept);
    return kept;
}

size_t packing_count_rows(const struct example **lines, size_t line_count)
{
    const size_t kept = arrange_lines(lines, line_count);
    size_t rows = 0;

    for (size_t i = 0; i < kept; i++)
        rows += packing_line_rows(lines[i]) - shared_rows(i > 0 ? lines[i - 1] : NULL, lines[i]);
    return rows;
}

/* ---- storage --------------------------------------------------------------------------------- */

bool packing_new(const struct packing_sizes *sizes, struct packing **ret_packing, struct error *err)
{
    const size_t tokens = sizes->max_tokens, targets = packing_max_targets(sizes);
    const size_t longest = sizes->longest > 0 ? sizes->longest : 1;
    struct packing *p = calloc(1, sizeof(*p));

    assert(sizes->max_lines > 0 && tokens >= sizes->longest && tokens <= INT32_MAX / 2);
    if (!p)
        return error_set(err, ERR_NO_MEMORY, "no memory to pack batches");
    p->sizes = *sizes;
    p->lines = calloc(sizes->max_lines, sizeof(const struct example *));
    p->tokens = calloc(tokens + 1, sizeof(*p->tokens));
    p->parent = calloc(tokens + 1, sizeof(*p->parent));
    p->depth = calloc(tokens + 1, sizeof(*p->depth));
    p->run = calloc(tokens + 1, sizeof(*p->run));
    p->end = calloc(tokens + 1, sizeof(*p->end));
    p->path = calloc(longest, sizeof(*p->path));
    p->edges = calloc(longest, sizeof(*p->edges));
    p->targets = calloc(targets, sizeof(*p->targets));
    p->first_of_row = calloc(tokens + 1, sizeof(*p->first_of_row));
    p->target_row = calloc(targets, sizeof(*p->target_row));
    p->target_label = calloc(targets, sizeof(*p->target_label));
    p->target_weight = calloc(targets, sizeof(*p->target_weight));
    if (!p->lines || !p->tokens || !p->parent || !p->depth || !p->run || !p->end || !p->path ||
        !p->edges || !p->targets || !p->first_of_row || !p->target_row || !p->target_label ||
        !p->target_weight) {
        packing_free(p);
        return error_set(err, ERR_NO_MEMORY, "no memory to pack batches of %zu tokens", tokens);
    }
    *ret_packing = p;
    return true;
}

void packing_free(struct packing *packing)
{
    if (!packing)
        return;
    free(packing->lines);
    free(packing->tokens);
    free(packing->parent);
    free(packing->depth);
    free(packing->run);
    free(packing->end);
    free(packing->path);
    free(packing->edges);
    free(packing->targets);
    free(packing->first_of_row);
    free(packing->target_row);
    free(packing->target_label);
    free(packing->target_weight);
    free(packing);
}

/* ---- packing --------------------------------------------------------------------------------- */

void packing_begin(struct packing *packing, const struct example *const *lines, size_t line_count,
                   struct packing_totals *ret_totals)
{
    struct packing_totals totals = {0};

    assert(line_count <= packing->sizes.max_lines);
    for (size_t i = 0; i < line_count; i++) {
        totals.token_count += lines[i]->id_count;
        totals.target_count += packing_line_targets(lines[i]);
        packing->lines[i] = lines[i];
    }
    packing->line_count = arrange_lines(packing->lines, line_count);
    packing->next_line = 0;
    *ret_totals = totals;
}

static void add_rows(struct packing *p, const struct example *line, size_t shared)
{
    for (size_t t = shared; t < packing_line_rows(line); t++) {
        const int32_t row = (int32_t)p->token_count++;

        p->tokens[row] = line->ids[t];
        p->parent[row] = t > 0 ? p->path[t - 1] : -1;
        p->depth[row] = (int32_t)t;
        p->run[row] = row > 0 && p->parent[row] == row - 1 ? p->run[row - 1] : row;
        p->path[t] = row;
    }
}

/* shared: tokens in common with the line before, whose edges still stand. */
static void add_targets(struct packing *p, const struct example *line, size_t shared)
{
    for (size_t t = 0; t + 1 < line->id_count; t++) {
        const bool known = t + 1 < shared && p->edges[t] >= 0;

        if (t + 1 < line->prompt_count) {
            if (t + 1 >= shared)
                p->edges[t] = -1;
        } else if (known) {
            p->targets[p->edges[t]].weight += 1.0f;
        } else {
            assert(p->target_count < packing_max_targets(&p->sizes));
            p->edges[t] = (int32_t)p->target_count;
            p->targets[p->target_count++] =
                (struct target){.row = p->path[t], .label = line->ids[t + 1], .weight = 1.0f};
        }
    }
}

static void close_subtrees(struct packing *p)
{
    for (size_t i = 0; i < p->token_count; i++)
        p->end[i] = (int32_t)i + 1;
    for (size_t i = p->token_count; i-- > 0;)
        if (p->parent[i] >= 0 && p->end[p->parent[i]] < p->end[i])
            p->end[p->parent[i]] = p->end[i];
}

/* By row, and within a row as they were found. */
static void order_targets(struct packing *p)
{
    size_t *const next = p->first_of_row;

    memset(next, 0, (p->token_count + 1) * sizeof(*next));
    for (size_t i = 0; i < p->target_count; i++)
        next[p->targets[i].row + 1]++;
    for (size_t row = 1; row <= p->token_count; row++)
        next[row] += next[row - 1];
    for (size_t i = 0; i < p->target_count; i++) {
        const size_t place = next[p->targets[i].row]++;

        p->target_row[place] = p->targets[i].row;
        p->target_label[place] = p->targets[i].label;
        p->target_weight[place] = p->targets[i].weight;
    }
}

bool packing_next(struct packing *packing, struct batch *ret_batch)
{
    const struct example *before = NULL;

    if (packing->next_line == packing->line_count)
        return false;
    packing->token_count = packing->target_count = 0;
    for (; packing->next_line < packing->line_count; packing->next_line++) {
        const struct example *line = packing->lines[packing->next_line];
        const size_t shared = shared_rows(before, line);
        const size_t added = packing_line_rows(line) - shared;

        assert(packing_line_rows(line) <= packing->sizes.longest);
        if (before && packing->token_count + added > packing->sizes.max_tokens)
            break;
        add_rows(packing, line, shared);
        add_targets(packing, line, before ? shared_tokens(before, line) : 0);
        before = line;
    }
    close_subtrees(packing);
    order_targets(packing);
    *ret_batch = (struct batch){
        .token_count = packing->token_count,
        .tokens = packing->tokens,
        .parent = packing->parent,
        .depth = packing->depth,
        .run = packing->run,
        .end = packing->end,
        .target_count = packing->target_count,
        .target_row = packing->target_row,
        .target_label = packing->target_label,
        .target_weight = packing->target_weight,
    };
    return true;
}
