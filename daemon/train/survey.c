#include "daemon/train/survey.h"

#include "daemon/base/buf.h"

#include <assert.h>
#include <stdlib.h>

struct walk {
    const struct survey_options *options;
    struct survey *survey;
    struct twins own, others; /* lines of this file and of the other one */
    size_t longest;
};

static void take_problem(void *context, const struct problem *problem)
{
    struct walk *walk = context;
    struct survey *survey = walk->survey;
    size_t index = survey->problem_total++;

    if (index >= walk->options->problems_after &&
        survey->problem_count < walk->options->problems_limit)
        survey->problems[survey->problem_count++] = *problem;
}

static void add_pair(struct survey_pairs *pairs, size_t line, size_t other)
{
    if (pairs->count < SURVEY_PAIRS_MAX) {
        pairs->shown[pairs->count].line = line;
        pairs->shown[pairs->count].other = other;
    }
    pairs->count++;
}

static uint64_t hash_of(const struct dataset_view *view)
{
    return twins_hash(view->prompt->data, view->prompt->size, view->target->data,
                      view->target->size);
}

static void measure(void *context, size_t line, size_t length)
{
    struct walk *walk = context;
    struct survey *survey = walk->survey;

    if (length > walk->longest) {
        walk->longest = length;
        survey->longest_line = line;
    }
    survey->measured_count++;
    survey->length_total += length;
    survey->lengths[length < SURVEY_LENGTH_MAX ? length : SURVEY_LENGTH_MAX]++;
}

static bool look(void *context, const struct dataset_view *view, struct error *err)
{
    struct walk *walk = context;
    uint64_t hash = hash_of(view);
    size_t line = view->example->line, other = twins_add(&walk->own, hash, line);

    (void)err; /* nothing here can fail */
    if (other)
        add_pair(&walk->survey->inside, line, other);
    other = twins_find(&walk->others, hash);
    if (other)
        add_pair(&walk->survey->between, line, other);
    return true;
}

static bool look_at_other(void *context, const struct dataset_view *view, struct error *err)
{
    struct walk *walk = context;

    (void)err;                                                          /* nothing here can fail */
    (void)twins_add(&walk->others, hash_of(view), view->example->line); /* repeated or not */
    return true;
}

static bool goes_on(void *context)
{
    const struct walk *walk = context;

    return walk->options->goes_on(walk->options->context);
}

/* True also where the walk was ended before its time, which survey->complete tells. */
static bool walk_file(struct walk *walk, const char *path, const struct tokenizer *tokenizer,
                      const struct dataset_watch *watch, struct dataset_report *report,
                      struct error *err)
{
    struct error fault = {0};

    if (dataset_walk(path, tokenizer, &walk->options->reading, watch, report, &fault))
        return true;
    walk->survey->complete = false;
    if (fault.code != ERR_CANCELLED && err)
        *err = fault;
    return fault.code == ERR_CANCELLED;
}

bool survey_read(const struct survey_options *options, struct survey *ret_survey, struct error *err)
{
    struct survey *survey = ret_survey;
    struct walk walk = {.options = options, .survey = survey};
    const struct problem_sink sink = {take_problem, &walk};
    const struct dataset_watch other = {
        .look = look_at_other, .goes_on = goes_on, .context = &walk};
    const struct dataset_watch own = {
        .look = look, .measure = measure, .goes_on = goes_on, .context = &walk};
    struct dataset_report *unread = calloc(1, sizeof(*unread)); /* of the other file */
    bool ok = false;

    assert(options->problems_limit <= SURVEY_PAGE_MAX);
    *survey = (struct survey){.complete = true};
    twins_init(&walk.own);
    twins_init(&walk.others);
    survey->problems = calloc(options->problems_limit + 1, sizeof(*survey->problems));
    if (options->tokenizer)
        survey->lengths = calloc(SURVEY_LENGTH_MAX + 1, sizeof(*survey->lengths));
    if (!unread || !survey->problems || (options->tokenizer && !survey->lengths)) {
        error_set(err, ERR_NO_MEMORY, "no memory to look at a data set");
        goto out;
    }
    if (options->other_path && !walk_file(&walk, options->other_path, NULL, &other, unread, err))
        goto out;
    survey->report.sink = &sink;
    ok = walk_file(&walk, options->path, options->tokenizer, &own, &survey->report, err);
    survey->report.sink = NULL;
    survey->pairs_limited = walk.own.full || walk.others.full;
out:
    if (!ok)
        survey_release(survey);
    twins_release(&walk.own);
    twins_release(&walk.others);
    free(unread);
    return ok;
}

void survey_release(struct survey *survey)
{
    free(survey->problems);
    free(survey->lengths);
    survey->problems = NULL;
    survey->lengths = NULL;
}

size_t survey_percentile(const struct survey *survey, size_t percent)
{
    uint64_t wanted = ((uint64_t)survey->measured_count * percent + 99) / 100, seen = 0;

    for (size_t length = 0; survey->lengths && wanted && length <= SURVEY_LENGTH_MAX; length++) {
        seen += survey->lengths[length];
        if (seen >= wanted)
            return length;
    }
    return 0;
}
