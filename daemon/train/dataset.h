/*
 * dataset: a training file, read as the trainer reads it.
 *
 * Purpose    One reader for upload, validation, reports and training, so that no file passes the
 *            one and fails the other. Two rule sets: strict names and refuses, as_reference takes,
 *            skips and cuts exactly as the reference implementation does, and counts all of it.
 * Ownership  dataset_scan_new / _free; dataset_read hands a data set over, dataset_free takes it
 *            back. Example pointers live as long as the data set.
 * Threads    One object, one thread.
 * Failure    False with err for what stops reading at all (I/O, memory, limits). What is wrong with
 *            the lines is in the report; dataset_report_error turns it into one error.
 */
#ifndef NEEDLED_DATASET_H
#define NEEDLED_DATASET_H

#include "daemon/base/error.h"
#include "daemon/base/limits.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;
struct buf;

enum data_rules { DATA_RULES_STRICT, DATA_RULES_AS_REFERENCE };
enum overlong { OVERLONG_REFUSE, OVERLONG_DROP, OVERLONG_TRUNCATE };

/* How bad a finding is: FATAL no rule set accepts (refused at upload), STRICT strict reading
 * refuses (as_reference takes it and counts it), WARNING is accepted and shown. */
enum problem_level { PROBLEM_FATAL, PROBLEM_STRICT, PROBLEM_WARNING, PROBLEM_LEVEL_COUNT };

struct problem {
    enum problem_level level;
    size_t file;    /* of several that are read as one: its place among them, from 0 */
    size_t line;    /* from 1, as an editor counts; 0: the file as a whole */
    size_t column;  /* from 1, in bytes; 0 when it has no place */
    char field[64]; /* "messages[1].role", "" when none */
    char rule[32];  /* stable word: "not_utf8", "duplicate_key", "overlong", ... */
    char reason[160];
};

/* Hears of every finding, in the order of lines; the problem is borrowed for the call. */
struct problem_sink {
    void (*take)(void *context, const struct problem *problem);
    void *context;
};

/* The first LIMIT_PROBLEM_COUNT findings of each level, and how many there were. */
struct dataset_report {
    const struct problem_sink *sink; /* NULL: none; the reader's, borrowed while it reads */
    size_t file, file_count; /* being read, from 0; read so far or in all. One file: 0 and 0 or 1 */
    struct problem problems[PROBLEM_LEVEL_COUNT][LIMIT_PROBLEM_COUNT];
    size_t problem_kept[PROBLEM_LEVEL_COUNT];
    size_t problem_count[PROBLEM_LEVEL_COUNT];
    size_t line_count; /* physical lines, blank ones too */
    size_t blank_count;
    size_t example_count;    /* usable under the rules it was read with */
    size_t skipped_count;    /* as_reference: lines the reference passes over */
    size_t overlong_count;   /* lines longer than max_len, refused, dropped or cut */
    size_t targetless_count; /* kept lines that train nothing (cut, or an empty target) */
    size_t token_count;      /* of the kept examples, after cutting */
    size_t target_count;     /* trained tokens of the kept examples, one epoch */
    size_t longest;          /* tokens of the longest line before cutting */
};

/* ---- upload: lines are checked as the bytes pass -------------------------------------------- */

struct dataset_scan;

MUST_CHECK bool dataset_scan_new(struct dataset_scan **ret_scan, struct error *err);
MUST_CHECK bool dataset_scan_feed(struct dataset_scan *scan, const void *bytes, size_t size,
                                  struct error *err);
/* After the last byte; ret_report is complete whatever it found. */
MUST_CHECK bool dataset_scan_finish(struct dataset_scan *scan, struct dataset_report *ret_report,
                                    struct error *err);
void dataset_scan_free(struct dataset_scan *scan); /* NULL is fine */

/* ---- training ------------------------------------------------------------------------------- */

struct dataset_options {
    enum data_rules rules;
    enum overlong overlong;  /* as_reference implies OVERLONG_TRUNCATE */
    size_t max_len;          /* tokens of a line, BOS and EOS included */
    size_t vocab_size;       /* an id at or past it is refused */
    size_t label_limit;      /* a label at or past it is refused (out_vocab); 0: vocab_size */
    size_t only_line;        /* dataset_walk: this one alone; 0: all */
    const atomic_bool *stop; /* set: reading ends with ERR_CANCELLED; or NULL */
    /* dataset_read_files: of each file as its record has it, "" unknown; else ERR_CORRUPT. NULL: none */
    const char *const *sha256s;
};

struct example {
    size_t line; /* in the file, from 1 */
    const uint32_t *ids;
    size_t id_count;
    size_t prompt_count; /* ids[0..prompt_count) carry mask 0 (BOS and prompt), the rest mask 1 */
};

struct dataset {
    struct example *examples; /* in file order */
    size_t example_count;
    struct dataset_report report;
    char sha256[65]; /* of the file; of several, of their digests one after the other */
};

/* Reads the whole file. True even when report holds refusals: ask dataset_report_error. */
MUST_CHECK bool dataset_read(const char *path, const struct tokenizer *tokenizer,
                             const struct dataset_options *options, struct dataset **ret_dataset,
                             struct error *err);
/* The lines of several files in their order, as one data set. */
MUST_CHECK bool dataset_read_files(const char *const *paths, size_t path_count,
                                   const struct tokenizer *tokenizer,
                                   const struct dataset_options *options,
                                   struct dataset **ret_dataset, struct error *err);
void dataset_free(struct dataset *dataset); /* NULL is fine */

/* ---- looking -------------------------------------------------------------------------------- */

/* A line, as a job would get it. Borrowed for the call. */
struct dataset_view {
    const struct example *example; /* ids NULL without a tokenizer */
    size_t length;                 /* tokens before any cut */
    bool taken;                    /* a job gets it */
    const struct buf *prompt, *target;
};
struct dataset_watch {
    bool (*look)(void *context, const struct dataset_view *view, struct error *err);
    /* Each line's tokens before any cut, also of one that is then refused for them; NULL: not told. */
    void (*measure)(void *context, size_t line, size_t length);
    bool (*goes_on)(void *context); /* asked at each line; false ends the reading */
    void *context;
    bool shows_refused; /* lines that can be rendered are looked at, whatever the rules say */
};
/* Reads a file as dataset_read does and keeps nothing of it: memory holds one line. tokenizer NULL: what
 * needs tokens is left out. ret_report (with its sink set by the caller) holds what was read so far also
 * on failure; ERR_CANCELLED: goes_on said no. */
MUST_CHECK bool dataset_walk(const char *path, const struct tokenizer *tokenizer,
                             const struct dataset_options *options,
                             const struct dataset_watch *watch, struct dataset_report *ret_report,
                             struct error *err);

/* True when the rules accept what was read (for upload: no FATAL; for training: no FATAL, under
 * strict no STRICT, at least one example, at least one target token). Otherwise err says it in
 * words: line, column, field and reason of the first findings and their number; err->param stays
 * "". */
MUST_CHECK bool dataset_report_accept(const struct dataset_report *report, bool upload,
                                      enum data_rules rules, struct error *err);

/* One line rendered, for showing: prompt and target text as the tokenizer gets them. */
MUST_CHECK bool dataset_render_line(const char *line, size_t size, enum data_rules rules,
                                    struct buf *ret_prompt, struct buf *ret_target,
                                    struct dataset_report *report, struct error *err);

#endif
