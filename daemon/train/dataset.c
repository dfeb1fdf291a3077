#include "daemon/train/dataset.h"

#include "daemon/base/file.h"
#include "daemon/base/pulse.h"
#include "daemon/model/tokenizer.h"
#include "daemon/train/line.h"
#include "daemon/train/lines.h"
#include "daemon/train/render.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES 65536

/* What dataset_read hands over, with what it needs to grow and to end. */
struct whole {
    struct dataset dataset; /* first: dataset_free finds the rest from it */
    struct arena ids;
    size_t capacity;
};

struct reading {
    struct dataset_report *report;
    struct arena *ids; /* where the tokens of a line go */
    struct line line;
    const struct tokenizer *tokenizer;
    const struct dataset_options *options;
    struct whole *whole;               /* NULL: examples are looked at, */
    const struct dataset_watch *watch; /* by this one */
    bool refused;                      /* the line being read is not taken by the rules */
};

/* The tokens of one line before any cut. */
struct tokens {
    uint32_t *prompt, *target;
    size_t prompt_count, target_count;
};

static size_t whole_length(const struct tokens *tokens)
{
    return tokens->prompt_count + tokens->target_count + 2; /* BOS and EOS */
}

static bool tokenize(struct reading *reading, struct tokens *tokens, struct error *err)
{
    const struct line *line = &reading->line;

    if (tokenizer_encode(reading->tokenizer, line->prompt.data, line->prompt.size, &tokens->prompt,
                         &tokens->prompt_count, err) &&
        tokenizer_encode(reading->tokenizer, line->target.data, line->target.size, &tokens->target,
                         &tokens->target_count, err))
        return true;
    error_wrap(err, "line %zu", line->findings.line);
    return false;
}

/* Text that the model file's own rules turn into a marker, although it is not spelled like one. */
static void check_marker_ids(struct reading *reading, const struct tokens *tokens)
{
    struct line *line = &reading->line;

    if (reading->options->rules == DATA_RULES_AS_REFERENCE)
        return;
    if (render_count_marker_ids(tokens->prompt, tokens->prompt_count) !=
            render_prompt_markers(&line->record) ||
        render_count_marker_ids(tokens->target, tokens->target_count) !=
            render_target_markers(&line->record))
        findings_add(&line->findings, PROBLEM_STRICT, 0, "", "marker",
                     "the tokenizer reads part of the text as a control marker");
}

/* True when the line stays, with *ret_kept the tokens that are left of it. */
static bool judge_length(struct reading *reading, const struct tokens *tokens, size_t *ret_kept)
{
    const struct dataset_options *options = reading->options;
    struct dataset_report *report = reading->report;
    struct findings *findings = &reading->line.findings;
    size_t length = whole_length(tokens), prompt = tokens->prompt_count + 1;
    enum overlong overlong = options->overlong;

    if (options->rules == DATA_RULES_AS_REFERENCE)
        overlong = OVERLONG_TRUNCATE;
    if (length > report->longest)
        report->longest = length;
    *ret_kept = length;
    if (length <= options->max_len)
        return true;
    report->overlong_count++;
    switch (overlong) {
    case OVERLONG_REFUSE:
        findings_add(findings, PROBLEM_STRICT, 0, "", "overlong",
                     "%zu tokens, longer than max_len %zu", length, options->max_len);
        return false;
    case OVERLONG_DROP:
        findings_add(findings, PROBLEM_WARNING, 0, "", "overlong",
                     "%zu tokens, longer than max_len %zu: left out", length, options->max_len);
        return false;
    case OVERLONG_TRUNCATE:
        *ret_kept = options->max_len;
        if (prompt >= options->max_len)
            report->targetless_count++;
        findings_add(findings, PROBLEM_WARNING, 0, "", "overlong",
                     "%zu tokens, longer than max_len %zu: cut%s", length, options->max_len,
                     prompt >= options->max_len ? ", nothing of its target is left" : "");
        return true;
    }
    return false;
}

static bool check_ids(struct reading *reading, const uint32_t *ids, size_t count)
{
    const struct dataset_options *options = reading->options;
    size_t label_limit = options->label_limit ? options->label_limit : options->vocab_size;

    for (size_t i = 0; i < count; i++) {
        size_t limit = i ? label_limit : options->vocab_size;

        if (ids[i] < limit && ids[i] < options->vocab_size)
            continue;
        findings_add(&reading->line.findings, PROBLEM_FATAL, 0, "", "vocabulary",
                     "token %zu has id %u, the model can %s ids below %zu", i, ids[i],
                     ids[i] < options->vocab_size ? "predict" : "read",
                     ids[i] < options->vocab_size ? limit : options->vocab_size);
        return false;
    }
    return true;
}

static bool append_example(struct whole *whole, const struct example *example, struct error *err)
{
    struct dataset *dataset = &whole->dataset;

    if (dataset->example_count == whole->capacity) {
        size_t capacity = whole->capacity ? 2 * whole->capacity : 256;
        struct example *grown =
            reallocarray(dataset->examples, capacity, sizeof(*dataset->examples));

        if (!grown)
            return error_set(err, ERR_NO_MEMORY, "read a data set: out of memory");
        dataset->examples = grown;
        whole->capacity = capacity;
    }
    dataset->examples[dataset->example_count++] = *example;
    return true;
}

/* To the data set, or to who looks on. */
static bool hand_over(struct reading *reading, const struct example *example, size_t length,
                      struct error *err)
{
    const struct dataset_view view = {example, length, !reading->refused, &reading->line.prompt,
                                      &reading->line.target};

    return reading->whole ? append_example(reading->whole, example, err)
                          : reading->watch->look(reading->watch->context, &view, err);
}

/* Without a tokenizer: what the line says is known, how long it is not. */
static bool show_text(struct reading *reading, struct error *err)
{
    const struct example example = {.line = reading->line.findings.line};

    reading->report->example_count++;
    return hand_over(reading, &example, 0, err);
}

static bool keep(struct reading *reading, const struct tokens *tokens, size_t kept,
                 struct error *err)
{
    struct dataset_report *report = reading->report;
    size_t length = whole_length(tokens);
    uint32_t *ids = arena_alloc(reading->ids, length * sizeof(*ids));
    struct example example = {.line = reading->line.findings.line, .ids = ids, .id_count = kept};

    if (!ids)
        return error_set(err, ERR_NO_MEMORY,
                         "line %zu: the data set's tokens need more than %zu bytes, or memory is "
                         "short",
                         example.line, reading->ids->max_bytes);
    ids[0] = TOKEN_BOS;
    memcpy(ids + 1, tokens->prompt, tokens->prompt_count * sizeof(*ids));
    memcpy(ids + 1 + tokens->prompt_count, tokens->target, tokens->target_count * sizeof(*ids));
    ids[length - 1] = TOKEN_EOS;
    example.prompt_count = tokens->prompt_count + 1 < kept ? tokens->prompt_count + 1 : kept;
    if (!check_ids(reading, ids, kept))
        return true;
    report->example_count++;
    report->token_count += kept;
    report->target_count += kept - example.prompt_count;
    return hand_over(reading, &example, length, err);
}

static bool shows_refused(const struct reading *reading)
{
    return reading->watch && reading->watch->shows_refused;
}

static bool take_usable(struct reading *reading, struct error *err)
{
    struct tokens tokens = {0};
    size_t kept;
    bool ok = false;

    if (!tokenize(reading, &tokens, err))
        goto out;
    check_marker_ids(reading, &tokens);
    if (reading->watch && reading->watch->measure)
        reading->watch->measure(reading->watch->context, reading->line.findings.line,
                                whole_length(&tokens));
    ok = true;
    reading->refused = !judge_length(reading, &tokens, &kept) || reading->refused;
    if (!reading->refused || shows_refused(reading))
        ok = keep(reading, &tokens, kept, err);
out:
    free(tokens.prompt);
    free(tokens.target);
    return ok;
}

static bool take_line(void *context, const char *text, size_t size, size_t number,
                      struct error *err)
{
    struct reading *reading = context;
    struct dataset_report *report = reading->report;

    pulse_beat();
    if (reading->options->only_line && number != reading->options->only_line)
        return true;
    /* A flag to end earlier; nothing else is read on its account. */
    if (reading->options->stop &&
        atomic_load_explicit(reading->options->stop, memory_order_relaxed))
        return error_set(err, ERR_CANCELLED, "reading was stopped at line %zu", number);
    if (reading->watch && !reading->watch->goes_on(reading->watch->context))
        return error_set(err, ERR_CANCELLED, "reading ended at line %zu", number);
    if (!line_read(&reading->line, text, size, number, report, err))
        return false;
    switch (reading->line.outcome) {
    case LINE_BLANK:
        report->blank_count++;
        return true;
    case LINE_SKIPPED:
        report->skipped_count++;
        return true;
    case LINE_FATAL:
        return true;
    case LINE_USABLE:
        break;
    }
    reading->refused = reading->options->rules == DATA_RULES_STRICT &&
                       reading->line.findings.counts[PROBLEM_STRICT] > 0;
    if (reading->refused && !shows_refused(reading))
        return true; /* named in the report; the job fails */
    if (!reading->whole)
        arena_clear(reading->ids);
    return reading->tokenizer ? take_usable(reading, err) : show_text(reading, err);
}

static bool read_all(struct reading *reading, const struct mapping *map, struct error *err)
{
    struct lines lines;
    bool ok;

    lines_init(&lines, reading->report, reading->options->rules == DATA_RULES_AS_REFERENCE,
               take_line, reading);
    ok = lines_feed(&lines, (const char *)map->data, map->size, err) && lines_finish(&lines, err);
    lines_release(&lines);
    return ok;
}

/* Before any line is read: what is damaged is not to be told as somebody's bad line. */
static bool check_digest(const char *path, const char *wanted, const char *found, struct error *err)
{
    if (!wanted || !wanted[0] || strcmp(wanted, found) == 0)
        return true;
    return error_set(
        err, ERR_CORRUPT,
        "'%s' is not what was uploaded: its SHA-256 is %.12s..., its record's %.12s...", path,
        found, wanted);
}

/* One file's lines after those that are there. */
static bool read_file(struct reading *reading, const char *path, const char *wanted,
                      char ret_sha256[SHA256_HEX_SIZE], struct error *err)
{
    struct mapping map = MAPPING_NONE;
    bool ok = mapping_open(&map, path, err) && file_sha256(path, ret_sha256, err) &&
              check_digest(path, wanted, ret_sha256, err) && read_all(reading, &map, err);

    mapping_close(&map);
    return ok;
}

/* The digest of one file is its own; of several, that of their digests. */
static bool read_files(struct reading *reading, const char *const *paths, size_t path_count,
                       struct error *err)
{
    const char *const *wanted = reading->options->sha256s;
    char *sha256 = reading->whole->dataset.sha256;
    char one[SHA256_HEX_SIZE];
    struct buf digests;
    bool ok = true;

    buf_init(&digests, path_count * SHA256_HEX_SIZE);
    for (size_t i = 0; i < path_count && ok; i++) {
        reading->report->file = i;
        reading->report->file_count = path_count;
        ok = read_file(reading, paths[i], wanted ? wanted[i] : NULL, one, err);
        if (!ok && path_count > 1)
            error_wrap(err, "file %zu", i + 1);
        if (ok)
            buf_append_text(&digests, one);
    }
    if (ok && digests.failed)
        ok = error_set(err, ERR_NO_MEMORY, "read a data set: out of memory");
    if (ok && path_count == 1)
        memcpy(sha256, one, sizeof(one));
    else if (ok)
        file_sha256_of(digests.data, digests.size, sha256);
    buf_release(&digests);
    return ok;
}

bool dataset_read_files(const char *const *paths, size_t path_count,
                        const struct tokenizer *tokenizer, const struct dataset_options *options,
                        struct dataset **ret_dataset, struct error *err)
{
    struct reading reading = {.tokenizer = tokenizer, .options = options};
    struct whole *whole = calloc(1, sizeof(*whole));
    bool ok;

    assert(path_count >= 1);
    assert(options->max_len >= 1);
    assert(options->vocab_size >= 1);
    if (!whole)
        return error_set(err, ERR_NO_MEMORY, "read a data set: out of memory");
    arena_init(&whole->ids, LIMIT_DATASET_BYTES);
    line_init(&reading.line);
    reading.whole = whole;
    reading.report = &whole->dataset.report;
    reading.ids = &whole->ids;
    ok = read_files(&reading, paths, path_count, err);
    line_release(&reading.line);
    if (ok)
        *ret_dataset = &whole->dataset;
    else
        dataset_free(&whole->dataset);
    return ok;
}

bool dataset_read(const char *path, const struct tokenizer *tokenizer,
                  const struct dataset_options *options, struct dataset **ret_dataset,
                  struct error *err)
{
    return dataset_read_files(&path, 1, tokenizer, options, ret_dataset, err);
}

/* In pieces, so that memory does not grow with the file. */
static bool walk_all(struct reading *reading, FILE *file, const char *path, struct error *err)
{
    char piece[PIECE_BYTES];
    struct lines lines;
    size_t size;
    bool ok = true;

    lines_init(&lines, reading->report, reading->options->rules == DATA_RULES_AS_REFERENCE,
               take_line, reading);
    while (ok && (size = fread(piece, 1, sizeof(piece), file)) > 0)
        ok = lines_feed(&lines, piece, size, err);
    if (ok && ferror(file))
        ok = error_set(err, ERR_IO, "read '%s': %s", path, strerrordesc_np(errno));
    ok = ok && lines_finish(&lines, err);
    lines_release(&lines);
    return ok;
}

bool dataset_walk(const char *path, const struct tokenizer *tokenizer,
                  const struct dataset_options *options, const struct dataset_watch *watch,
                  struct dataset_report *ret_report, struct error *err)
{
    struct arena ids;
    struct reading reading = {.report = ret_report,
                              .ids = &ids,
                              .tokenizer = tokenizer,
                              .options = options,
                              .watch = watch};
    int descriptor;
    FILE *file;
    bool ok;

    if (!file_open(path, O_RDONLY, &descriptor, err))
        return false;
    file = fdopen(descriptor, "r");
    if (!file) {
        (void)close(descriptor); /* nothing was read */
        return error_set(err, ERR_NO_MEMORY, "open '%s': out of memory", path);
    }
    arena_init(&ids, LIMIT_DATASET_BYTES);
    line_init(&reading.line);
    ok = walk_all(&reading, file, path, err);
    line_release(&reading.line);
    arena_release(&ids);
    (void)fclose(file); /* only read */
    return ok;
}

void dataset_free(struct dataset *dataset)
{
    struct whole *whole = (struct whole *)dataset;

    if (!dataset)
        return;
    arena_release(&whole->ids);
    free(dataset->examples);
    free(whole);
}

bool dataset_render_line(const char *line, size_t size, enum data_rules rules,
                         struct buf *ret_prompt, struct buf *ret_target,
                         struct dataset_report *report, struct error *err)
{
    struct line one;
    bool ok;

    line_init(&one);
    ok = line_read(&one, line, size, 1, report, err);
    if (ok && one.outcome == LINE_USABLE &&
        (rules == DATA_RULES_AS_REFERENCE || !one.findings.counts[PROBLEM_STRICT])) {
        buf_append(ret_prompt, one.prompt.data, one.prompt.size);
        buf_append(ret_target, one.target.data, one.target.size);
        report->example_count++;
        if (ret_prompt->failed || ret_target->failed)
            ok = error_set(err, ERR_LIMIT, "render a line: longer than its buffer");
    }
    line_release(&one);
    return ok;
}
