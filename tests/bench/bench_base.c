/*
 * bench_base: a base model of the real geometry with random weights, and a tokenizer for it.
 *
 *     bench_base LINES FOLDER
 *
 * LINES is a data set, from whose texts the tokenizer is trained. Weights are of the sizes that a
 * trained model has: unit gains, orthogonal Monarch factors, small kernels; float16 as in its file.
 * The same LINES give the same files.
 */
#include "daemon/base/buf.h"
#include "daemon/base/file.h"
#include "daemon/model/safetensors.h"
#include "daemon/train/dataset.h"
#include "tests/bench/train_tokenizer.h"
#include "tests/support/lines/draw.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define SEED 20260101
#define SITES 5
#define CORPUS_BYTES_MAX ((size_t)64 << 20)
#define LINE_BYTES_MAX ((size_t)1 << 20)

#define LAYERS 20
#define D 768
#define P 1024
#define LANES 4
#define RANK 8

static const char config[] =
    "{\"vocab_size\": 16384, \"d_model\": 768, \"num_heads\": 12, \"num_kv_heads\": 2, "
    "\"num_layers\": 20, \"qk_head_dim\": 48, \"v_head_dim\": 64, \"max_seq_len\": 4096, "
    "\"pad_token_id\": 0, \"rope_theta\": 100000.0, \"dtype\": \"float32\", \"flash\": true, "
    "\"engram_orders\": [2, 3], \"engram_heads\": 0, \"engram_slots\": 18432, "
    "\"engram_seed_heads\": 0, \"engram_layers\": [3, 7, 11, 15, 19], "
    "\"global_layers\": [4, 9, 14, 19], \"sliding_window\": 1024, \"ladder_depths\": [], "
    "\"ladder_sample\": false, \"ladder_widths\": [], \"ladder_order\": [], \"mhc_lanes\": 4, "
    "\"qkv_conv_taps\": 3, \"out_vocab\": 0, \"kv_window\": 0, \"kv_bits\": 8, \"act_bits\": 8, "
    "\"weight_bits\": \"\", \"remat\": true, \"scan_unroll\": 1}";

/* ---- what is in the file ------------------------------------------------------------------------- */

enum content {
    SMALL, /* normal, deviation 0.02 */
    ZEROS, /* gains are stored less one */
    ONES,
    FAINT,     /* 0.02: a branch that starts near nothing */
    HUNDREDTH, /* 0.01 */
    FIRST,     /* taps: the token itself alone */
    HADAMARD,  /* orthogonal */
    DIAGONAL,  /* 4 on the diagonal: lanes mostly stay where they are */
};

struct part {
    const char *name; /* with %d: one a site */
    enum content content;
    size_t shape[LIMIT_TENSOR_RANK]; /* up to a zero */
};

#define BLOCK "stack/layers/block/"
#define MLP BLOCK "hadamard_mlp/"
#define ATTENTION BLOCK "self_attn/"

static const struct part parts[] = {
    {"embedding/embedding", SMALL, {16384, D}},
    {"engrams_%d/embedding", SMALL, {6, 18432, D / 6}},
    {"engrams_%d/key_proj/kernel", SMALL, {D, D}},
    {"engrams_%d/taps", FIRST, {4, D}},
    {"engrams_%d/value_proj/kernel", SMALL, {D, D}},
    {"stack/final_norm/scale", ZEROS, {D}},
    {BLOCK "ZCRMSNorm_0/scale", ZEROS, {LAYERS, D}},
    {BLOCK "attn_gate", SMALL, {LAYERS}},
    {MLP "b2", SMALL, {LAYERS, P}},
    {MLP "cond_u", SMALL, {LAYERS, RANK, P}},
    {MLP "cond_v", SMALL, {LAYERS, D, RANK}},
    {MLP "d1", ONES, {LAYERS, P}},
    {MLP "d2", ONES, {LAYERS, P}},
    {MLP "d3", ONES, {LAYERS, P}},
    {MLP "d4", FAINT, {LAYERS, P}},
    {MLP "w1a", HADAMARD, {LAYERS, 32, 32}},
    {MLP "w1b", HADAMARD, {LAYERS, 32, 32}},
    {MLP "w2a", HADAMARD, {LAYERS, 32, 32}},
    {MLP "w2b", HADAMARD, {LAYERS, 32, 32}},
    {MLP "w3a", HADAMARD, {LAYERS, 32, 32}},
    {MLP "w3b", HADAMARD, {LAYERS, 32, 32}},
    {BLOCK "post_attn_norm/scale", ZEROS, {LAYERS, D}},
    {BLOCK "pre_hada_norm/scale", ZEROS, {LAYERS, D}},
    {ATTENTION "gate_proj/kernel", SMALL, {LAYERS, D, 768}},
    {ATTENTION "k_norm/scale", ZEROS, {LAYERS, 48}},
    {ATTENTION "k_proj/kernel", SMALL, {LAYERS, D, 96}},
    {ATTENTION "k_taps", FIRST, {LAYERS, 3, 96}},
    {ATTENTION "out_proj/kernel", SMALL, {LAYERS, 768, D}},
    {ATTENTION "q_norm/scale", ZEROS, {LAYERS, 48}},
    {ATTENTION "q_proj/kernel", SMALL, {LAYERS, D, 576}},
    {ATTENTION "q_taps", FIRST, {LAYERS, 3, 576}},
    {ATTENTION "v_proj/kernel", SMALL, {LAYERS, D, 128}},
    {ATTENTION "v_taps", FIRST, {LAYERS, 3, 128}},
    {"stack/mhc_a_post", HUNDREDTH, {LAYERS}},
    {"stack/mhc_a_pre", HUNDREDTH, {LAYERS}},
    {"stack/mhc_a_res", HUNDREDTH, {LAYERS}},
    {"stack/mhc_b_post", SMALL, {LAYERS, LANES}},
    {"stack/mhc_b_pre", SMALL, {LAYERS, LANES}},
    {"stack/mhc_b_res", DIAGONAL, {LAYERS, LANES, LANES}},
    {"stack/mhc_phi_post", SMALL, {LAYERS, LANES *D, LANES}},
    {"stack/mhc_phi_pre", SMALL, {LAYERS, LANES *D, LANES}},
    {"stack/mhc_phi_res", SMALL, {LAYERS, LANES *D, LANES *LANES}},
};

#define TENSORS_MAX (COUNT_OF(parts) + 4 * SITES)

/* ---- filling ------------------------------------------------------------------------------------- */

/* Two normal values of deviation 1 (Box and Muller 1958). */
static void draw_normals(struct random *random, float ret_values[2])
{
    const double u = (draw(random) + 1.0) / 4294967297.0, v = draw(random) / 4294967296.0;
    const double radius = sqrt(-2 * log(u)), angle = 6.283185307179586 * v;

    ret_values[0] = (float)(radius * cos(angle));
    ret_values[1] = (float)(radius * sin(angle));
}

static void fill_small(struct random *random, uint16_t *values, size_t count)
{
    float pair[2] = {0, 0};

    for (size_t i = 0; i < count; i++) {
        if (i % 2 == 0)
            draw_normals(random, pair);
        values[i] = f32_to_f16(0.02f * pair[i % 2]);
    }
}

/* Of the n-th value of an array whose last two axes are rows by cols. */
static float value_at(enum content content, size_t n, size_t rows, size_t cols)
{
    const size_t row = n / cols % rows, col = n % cols;

    switch (content) {
    case SMALL:
    case ZEROS:
        return 0;
    case ONES:
        return 1;
    case FAINT:
        return 0.02f;
    case HUNDREDTH:
        return 0.01f;
    case FIRST:
        return row == 0 ? 1 : 0;
    case HADAMARD: /* Sylvester's: the sign is the parity of the bits both have */
        return (__builtin_popcountll(row & col) % 2 ? -1.0f : 1.0f) / sqrtf((float)cols);
    case DIAGONAL:
        return row == col ? 4 : 0;
    }
    return 0;
}

static bool add_tensor(const struct part *part, int site, struct random *random,
                       struct tensor_out *ret_tensor, struct error *err)
{
    size_t count = 1, rank = 0;
    char *name = malloc(128);
    uint16_t *values;

    for (; rank < LIMIT_TENSOR_RANK && part->shape[rank] > 0; rank++)
        count *= part->shape[rank];
    values = malloc(count * sizeof(*values));
    if (!name || !values) {
        free(name);
        free(values);
        return error_set(err, ERR_NO_MEMORY, "no memory for '%s'", part->name);
    }
    if (strchr(part->name, '%'))
        (void)snprintf(name, 128, "engrams_%d%s", site, strchr(part->name, '/'));
    else
        (void)snprintf(name, 128, "%s", part->name);
    if (part->content == SMALL)
        fill_small(random, values, count);
    for (size_t n = 0; n < count && part->content != SMALL; n++)
        values[n] = f32_to_f16(value_at(part->content, n, rank > 1 ? part->shape[rank - 2] : 1,
                                        part->shape[rank - 1]));
    *ret_tensor =
        (struct tensor_out){.name = name, .type = TENSOR_F16, .rank = rank, .data = values};
    memcpy(ret_tensor->shape, part->shape, sizeof(part->shape));
    return true;
}

static bool write_weights(const char *path, struct error *err)
{
    static const struct metadata_out metadata[] = {
        {"config", config}, {"format_version", "2"}, {"run", "{}"}, {"step", "0"}};
    struct tensor_out tensors[TENSORS_MAX];
    struct random random = draw_start(SEED);
    char sha256[SHA256_HEX_SIZE];
    size_t count = 0;
    uint64_t size;
    bool ok = true;

    for (size_t i = 0; ok && i < COUNT_OF(parts); i++)
        for (int site = 0; ok && site < (strchr(parts[i].name, '%') ? SITES : 1); site++) {
            ok = add_tensor(&parts[i], site, &random, &tensors[count], err);
            count += ok;
        }
    ok = ok &&
         safetensors_write(path, tensors, count, metadata, COUNT_OF(metadata), &size, sha256, err);
    for (size_t i = 0; i < count; i++) {
        free((void *)tensors[i].name);
        free((void *)tensors[i].data);
    }
    return ok;
}

/* ---- the tokenizer ------------------------------------------------------------------------------- */

/* A line's prompt and target as one line of text. */
static bool append_text(const char *line, struct buf *corpus, struct error *err)
{
    struct dataset_report *report = calloc(1, sizeof(*report));
    struct buf prompt, target;
    bool ok;

    if (!report)
        return error_set(err, ERR_NO_MEMORY, "no memory for the report on the data");
    buf_init(&prompt, LINE_BYTES_MAX);
    buf_init(&target, LINE_BYTES_MAX);
    ok = dataset_render_line(line, strlen(line), DATA_RULES_STRICT, &prompt, &target, report, err);
    if (ok) {
        buf_append(&prompt, target.data, target.size);
        for (size_t i = 0; i < prompt.size; i++)
            if (prompt.data[i] == '\n')
                prompt.data[i] = ' ';
        buf_append(corpus, prompt.data, prompt.size);
        buf_append_text(corpus, "\n");
        if (prompt.failed || target.failed || corpus->failed)
            ok = error_set(err, ERR_NO_MEMORY, "no memory for the texts");
    }
    buf_release(&prompt);
    buf_release(&target);
    free(report);
    return ok;
}

static bool write_tokenizer(const char *lines_path, const char *corpus_path, const char *path,
                            struct error *err)
{
    FILE *lines = fopen(lines_path, "re");
    struct buf corpus;
    char *line = NULL;
    size_t capacity = 0;
    bool ok = true;

    if (!lines)
        return error_set(err, ERR_NOT_FOUND, "no file '%s'", lines_path);
    buf_init(&corpus, CORPUS_BYTES_MAX);
    for (ssize_t length; ok && (length = getline(&line, &capacity, lines)) > 0;) {
        if (line[length - 1] == '\n')
            line[length - 1] = '\0';
        ok = append_text(line, &corpus, err);
    }
    ok = ok && file_write(corpus_path, corpus.data, corpus.size, err) &&
         train_tokenizer(corpus_path, path, err);
    buf_release(&corpus);
    free(line);
    (void)fclose(lines);
    return ok;
}

int main(int argc, char **argv)
{
    char corpus[LIMIT_PATH_BYTES], tokenizer[LIMIT_PATH_BYTES], weights[LIMIT_PATH_BYTES];
    struct error err = {0};

    if (argc != 3) {
        (void)fputs("usage: bench_base LINES FOLDER\n", stderr);
        return 2;
    }
    if (!file_make_folder(argv[2], &err) ||
        !file_join(corpus, sizeof(corpus), argv[2], "corpus.txt", &err) ||
        !file_join(tokenizer, sizeof(tokenizer), argv[2], "tokenizer.model", &err) ||
        !file_join(weights, sizeof(weights), argv[2], "base.safetensors", &err) ||
        !write_tokenizer(argv[1], corpus, tokenizer, &err) || !file_remove(corpus, &err) ||
        !write_weights(weights, &err)) {
        (void)fprintf(stderr, "bench_base: %s\n", err.message);
        return 1;
    }
    return 0;
}
