#include "daemon/train/checkpoint.h"

#include "daemon/base/file.h"
#include "daemon/base/size.h"
#include "daemon/model/safetensors.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT "needled resume 1"
#define LISTED_MAX 64 /* newest names looked at; the folder holds CHECKPOINT_KEPT and a few */

enum { STATE_STEP, STATE_EPOCHS, STATE_TOKENS, STATE_BATCH, STATE_SHUFFLE };
#define STATE_WORDS (STATE_SHUFFLE + SHUFFLE_WORDS)
#define SCORE_COUNT 3

bool checkpoint_alloc(struct checkpoint *checkpoint, size_t value_count, struct error *err)
{
    size_t size;
    float *block = NULL;

    if (size_mul(value_count, 3 * sizeof(float), &size))
        block = calloc(1, size > 0 ? size : 1);
    if (!block)
        return error_set(err, ERR_NO_MEMORY, "no memory for %zu values and their moments",
                         value_count);
    checkpoint->value_count = value_count;
    checkpoint->values = block;
    checkpoint->moment1 = block + value_count;
    checkpoint->moment2 = block + 2 * value_count;
    return true;
}

void checkpoint_release(struct checkpoint *checkpoint)
{
    free(checkpoint->values);
    *checkpoint = (struct checkpoint){0};
}

struct place { /* names are made of these alone */
    uint64_t step, epochs_told;
};

/* ---- names ----------------------------------------------------------------------------------- */

#define NAME_PREFIX "resume-"
#define NAME_SUFFIX ".safetensors"
#define DIGEST_SUFFIX ".sha256"

static bool make_path(const char *folder, struct place place, const char *suffix,
                      char ret_path[LIMIT_PATH_BYTES], struct error *err)
{
    char name[96];

    (void)snprintf(name, sizeof(name), NAME_PREFIX "%010" PRIu64 "-%06" PRIu64 NAME_SUFFIX "%s",
                   place.step, place.epochs_told, suffix);
    return file_join(ret_path, LIMIT_PATH_BYTES, folder, name, err);
}

static bool take_number(const char **text, uint64_t *ret_number)
{
    const char *at = *text;
    uint64_t number = 0;

    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*at - '0'), &number))
            return false;
    if (at == *text)
        return false;
    *text = at;
    *ret_number = number;
    return true;
}

static bool parse_name(const char *name, struct place *ret_place)
{
    const size_t length = strlen(NAME_PREFIX);

    if (strncmp(name, NAME_PREFIX, length) != 0)
        return false;
    name += length;
    return take_number(&name, &ret_place->step) && *name++ == '-' &&
           take_number(&name, &ret_place->epochs_told) && strcmp(name, NAME_SUFFIX) == 0;
}

static bool is_newer(struct place a, struct place b)
{
    return a.step != b.step ? a.step > b.step : a.epochs_told > b.epochs_told;
}

/* The newest first. */
static bool list(const char *folder, struct place places[LISTED_MAX], size_t *ret_count,
                 struct error *err)
{
    DIR *directory;
    size_t count = 0;
    struct error why = {0};

    /* The job made it: its absence is the disk's fault. */
    if (!file_open_folder(folder, &directory, &why))
        return error_set(err, why.code == ERR_NOT_FOUND ? ERR_IO : why.code, "checkpoints: %s",
                         why.message);
    for (const struct dirent *entry; (entry = readdir(directory));) {
        struct place place;
        size_t at;

        if (!parse_name(entry->d_name, &place))
            continue;
        for (at = count; at > 0 && is_newer(place, places[at - 1]); at--)
            if (at < LISTED_MAX)
                places[at] = places[at - 1];
        if (at < LISTED_MAX)
            places[at] = place;
        if (count < LISTED_MAX)
            count++;
    }
    (void)closedir(directory); /* nothing was written */
    *ret_count = count;
    return true;
}

/* Best effort: one that stays is looked at and passed over again. The digest goes first, so that
 * half a removal leaves nothing that looks whole. */
static void discard(const char *folder, struct place place)
{
    static const char *const suffixes[] = {DIGEST_SUFFIX, ""};

    for (size_t i = 0; i < COUNT_OF(suffixes); i++) {
        char path[LIMIT_PATH_BYTES];
        struct error ignored;

        if (!make_path(folder, place, suffixes[i], path, &ignored) ||
            !file_remove_inside(path, &ignored))
            return;
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

static void discard_old(const char *folder, struct place written)
{
    struct place places[LISTED_MAX];
    size_t count;
    struct error ignored;

    if (!list(folder, places, &count, &ignored))
        return; /* it was written: too many files are no failure */
    for (size_t i = CHECKPOINT_KEPT; i < count; i++)
        if (is_newer(written, places[i]))
            discard(folder, places[i]);
}

bool checkpoint_write(const char *folder, const char *identity, const struct checkpoint *checkpoint,
                      struct checkpoint_file *ret_file, struct error *err)
{
    const struct place place = {checkpoint->step, checkpoint->epochs_told};
    const double scores[SCORE_COUNT] = {checkpoint->train_loss, checkpoint->train_accuracy,
                                        checkpoint->valid_loss};
    const size_t count = checkpoint->value_count;
    uint64_t state[STATE_WORDS] = {place.step, place.epochs_told, checkpoint->trained_tokens,
                                   checkpoint->batch_tokens};
    const struct tensor_out tensors[] = {
        {"moment1", TENSOR_F32, 1, {count}, checkpoint->moment1},
        {"moment2", TENSOR_F32, 1, {count}, checkpoint->moment2},
        {"scores", TENSOR_F64, 1, {SCORE_COUNT}, scores},
        {"state", TENSOR_U64, 1, {STATE_WORDS}, state},
        {"values", TENSOR_F32, 1, {count}, checkpoint->values},
    };
    const struct metadata_out metadata[] = {{"format", FORMAT}, {"job", identity}};
    struct checkpoint_file file;
    char digest_path[LIMIT_PATH_BYTES];

    shuffle_save(&checkpoint->shuffle, state + STATE_SHUFFLE);
    if (!make_path(folder, place, "", file.path, err) ||
        !make_path(folder, place, DIGEST_SUFFIX, digest_path, err) ||
        !safetensors_write(file.path, tensors, COUNT_OF(tensors), metadata, COUNT_OF(metadata),
                           &file.size_bytes, file.sha256, err) ||
        !file_write(digest_path, file.sha256, strlen(file.sha256), err)) {
        error_wrap(err, "resume checkpoint of step %" PRIu64, place.step);
        return false;
    }
    discard_old(folder, place);
    *ret_file = file;
    return true;
}

/* ---- what a job is made of ------------------------------------------------------------------- */

/* The names in an identity whose values are digests of what the job reads. */
static const struct input {
    const char *name, *param, *text;
} inputs[] = {
    {"base", "model", "the base model"},
    {"tokenizer", "model", "the base model's tokenizer"},
    {"start", "model", "the adapter to go on from"},
    {"training", "training_file", "the training file"},
    {"validation", "validation_file", "the validation file"},
};

struct word {
    const char *text;
    size_t length; /* 0: there was none left */
};

static struct word take_word(const char **text)
{
    const char *start = *text + strspn(*text, " ");
    const struct word word = {start, strcspn(start, " ")};

    *text = start + word.length;
    return word;
}

static bool same_word(struct word a, struct word b)
{
    return a.length == b.length && memcmp(a.text, b.text, a.length) == 0;
}

/* The input whose digest is all that is another now; NULL: none, or it is a checkpoint of another job. */
static const struct input *find_changed(const char *before, const char *now)
{
    const struct input *changed = NULL;

    for (;;) {
        const struct word name = take_word(&now), named = take_word(&before);
        const struct input *input = NULL;

        if (!same_word(name, named))
            return NULL;
        if (name.length == 0)
            return changed;
        if (same_word(take_word(&now), take_word(&before)))
            continue;
        for (size_t i = 0; i < COUNT_OF(inputs) && !input; i++)
            if (same_word(name, (struct word){inputs[i].name, strlen(inputs[i].name)}))
                input = &inputs[i];
        if (!input)
            return NULL;
        changed = changed ? changed : input;
    }
}

static bool check_identity(const char *before, const char *now, struct error *err)
{
    const struct input *changed;

    if (before && strcmp(before, now) == 0)
        return true;
    changed = before ? find_changed(before, now) : NULL;
    if (changed)
        return error_set_word(err, ERR_CONFLICT, CHECKPOINT_INPUT_CHANGED, changed->param,
                              "%s has changed since the job began; a new job trains on what is "
                              "there now",
                              changed->text);
    return error_set(err, ERR_INVALID,
                     "it was made with other data, another base or other hyper-parameters");
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool check_digest(const char *path, const char *digest_path, struct error *err)
{
    struct mapping map = MAPPING_NONE;
    char found[SHA256_HEX_SIZE];

    if (!mapping_open(&map, digest_path, err))
        return error_set(err, ERR_CORRUPT, "its digest is missing");
    const bool has_digest = map.size == SHA256_HEX_SIZE - 1;
    bool equal = false;
    struct error why = {0};
    const bool ok = file_sha256(path, found, &why);
    if (ok && has_digest)
        equal = memcmp(map.data, found, SHA256_HEX_SIZE - 1) == 0;
    mapping_close(&map);
    if (!ok) /* what is no file is none of ours: it is told, and stays */
        return error_set(err, why.code == ERR_INVALID ? ERR_IO : why.code, "%s", why.message);
    return equal || error_set(err, ERR_CORRUPT, "its bytes do not have the digest beside it");
}

static bool take_tensor(const struct safetensors *file, const char *name, enum tensor_type type,
                        size_t count, void *ret_data, struct error *err)
{
    const struct tensor *tensor = safetensors_find(file, name);

    if (!tensor || tensor->type != type || tensor->element_count != count)
        return error_set(err, ERR_CORRUPT, "tensor '%s' is not the %zu numbers that are needed",
                         name, count);
    if (count > 0)
        memcpy(ret_data, tensor->data, tensor->size_bytes);
    return true;
}

static bool take_content(const struct safetensors *file, struct checkpoint *ret_checkpoint,
                         struct error *err)
{
    const struct tensor *values = safetensors_find(file, "values");
    const size_t count = values ? values->element_count : 0;
    struct checkpoint taken = {0};
    uint64_t state[STATE_WORDS];
    double scores[SCORE_COUNT];

    if (!take_tensor(file, "state", TENSOR_U64, STATE_WORDS, state, err) ||
        !take_tensor(file, "scores", TENSOR_F64, SCORE_COUNT, scores, err) ||
        !checkpoint_alloc(&taken, count, err))
        return false;
    if (!take_tensor(file, "values", TENSOR_F32, count, taken.values, err) ||
        !take_tensor(file, "moment1", TENSOR_F32, count, taken.moment1, err) ||
        !take_tensor(file, "moment2", TENSOR_F32, count, taken.moment2, err)) {
        checkpoint_release(&taken);
        return false;
    }
    taken.step = state[STATE_STEP];
    taken.epochs_told = state[STATE_EPOCHS];
    taken.trained_tokens = state[STATE_TOKENS];
    taken.batch_tokens = state[STATE_BATCH];
    shuffle_restore(&taken.shuffle, state + STATE_SHUFFLE);
    taken.train_loss = scores[0];
    taken.train_accuracy = scores[1];
    taken.valid_loss = scores[2];
    checkpoint_release(ret_checkpoint);
    *ret_checkpoint = taken;
    return true;
}

static bool read_one(const char *folder, struct place place, const char *identity,
                     struct checkpoint *checkpoint, struct error *err)
{
    char path[LIMIT_PATH_BYTES], digest_path[LIMIT_PATH_BYTES];
    struct safetensors *file;

    if (!make_path(folder, place, "", path, err) ||
        !make_path(folder, place, DIGEST_SUFFIX, digest_path, err) ||
        !check_digest(path, digest_path, err) || !safetensors_open(path, &file, err))
        return false;

    const char *format = safetensors_metadata(file, "format");
    bool ok;
    if (!format || strcmp(format, FORMAT) != 0)
        ok = error_set(err, ERR_INVALID, "its format is '%s', not '%s'", format ? format : "",
                       FORMAT);
    else
        ok = check_identity(safetensors_metadata(file, "job"), identity, err) &&
             take_content(file, checkpoint, err);
    safetensors_close(file);
    return ok;
}

bool checkpoint_read_newest(const char *folder, const char *identity, checkpoint_warn_fn *warn,
                            void *context, struct checkpoint *checkpoint, bool *ret_found,
                            struct error *err)
{
    struct place places[LISTED_MAX];
    size_t count;

    if (!list(folder, places, &count, err))
        return false;
    for (size_t i = 0; i < count; i++) {
        struct error why = {0};
        char text[sizeof(why.message) + 128];

        if (read_one(folder, places[i], identity, checkpoint, &why)) {
            *ret_found = true;
            return true;
        }
        if (strcmp(why.word, CHECKPOINT_INPUT_CHANGED) == 0) {
            if (err)
                *err = why;
            return false;
        }
        (void)snprintf(text, sizeof(text),
                       "the resume checkpoint of step %" PRIu64
                       " cannot be used and is passed over: %s",
                       places[i].step, why.message);
        warn(context, text);
        if (why.code != ERR_IO && why.code != ERR_NO_MEMORY)
            discard(folder, places[i]);
    }
    *ret_found = false;
    return true;
}
