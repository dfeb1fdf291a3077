#include "daemon/train/trial.h"

#include "daemon/base/file.h"
#include "daemon/base/limits.h"
#include "daemon/model/sample.h"
#include "daemon/train/loop.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEED 7
#define VOCAB 64
#define LINES 8
#define LINES_A_STEP 2
#define LINE_MAX 24
#define SHARED 9 /* tokens that the lines of a pair begin with */
#define TOKENS_MAX 40
static_assert(LINES == LINES_A_STEP * TRIAL_STEPS, "one epoch");

static const char config[] =
    "{\"vocab_size\": 64, \"d_model\": 24, \"num_heads\": 4, \"num_kv_heads\": 2, "
    "\"num_layers\": 2, \"qk_head_dim\": 6, \"v_head_dim\": 4, \"max_seq_len\": 32, "
    "\"rope_theta\": 10000.0, \"engram_orders\": [2, 3], \"engram_heads\": 2, "
    "\"engram_slots\": 61, \"engram_seed_heads\": 0, \"engram_layers\": [1], "
    "\"global_layers\": [1], \"sliding_window\": 5, \"ladder_widths\": [], \"mhc_lanes\": 3, "
    "\"qkv_conv_taps\": 3, \"out_vocab\": 0, \"kv_bits\": 8, \"act_bits\": 8}";

bool trial_write_base(const char *folder, struct error *err)
{
    char path[LIMIT_PATH_BYTES];

    return file_join(path, sizeof(path), folder, "base.safetensors", err) &&
           sample_write(path, config, SEED, err);
}

/* ---- the lines ------------------------------------------------------------------------------- */

struct lines {
    uint32_t ids[LINES][LINE_MAX];
    struct example examples[LINES];
    const struct example *order[LINES];
};

/* A linear congruential generator (Knuth's constants), its upper bits. */
static uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % below;
}

static void fill_lines(struct lines *lines)
{
    uint64_t state = SEED;

    for (size_t i = 0; i < LINES; i++) {
        struct example *example = &lines->examples[i];
        const size_t count = SHARED + 4 + draw(&state, LINE_MAX - SHARED - 4 + 1);

        for (size_t n = 0; n < LINE_MAX; n++)
            lines->ids[i][n] = n < SHARED ? (uint32_t)(3 + 5 * n) : draw(&state, VOCAB);
        *example = (struct example){.line = i + 1, .ids = lines->ids[i], .id_count = count};
        example->prompt_count = SHARED + draw(&state, 3);
        lines->order[i] = example;
    }
}

/* ---- the run --------------------------------------------------------------------------------- */

struct run {
    struct train_job job;
    struct train_hooks hooks;
    struct inputs inputs;
    struct loop loop;
    struct lines lines;
    double losses[TRIAL_STEPS];
};

static void note_step(void *context, const struct train_step *step)
{
    struct run *run = context;

    run->losses[step->step - 1] = step->train_loss;
}

static bool set_up(struct run *run, struct backend *be, const char *folder, const atomic_bool *stop,
                   struct error *err)
{
    struct loop *loop = &run->loop;
    const struct packing_sizes sizes = {
        .max_lines = LINES_A_STEP, .max_tokens = TOKENS_MAX, .longest = LINE_MAX};
    const struct hyperparameters *hyper = &run->job.hyper;
    const struct model_spec spec = {
        .numerics = hyper->numerics,
        .lora_rank = hyper->lora_rank,
        .lora_alpha = (float)hyper->lora_alpha,
        .seed = hyper->seed,
        .limits = {.max_tokens = TOKENS_MAX, .max_targets = packing_max_targets(&sizes)},
    };

    fill_lines(&run->lines);
    run->inputs.train = run->lines.order;
    run->inputs.train_count = LINES;
    run->inputs.longest_rows = LINE_MAX;
    run->hooks = (struct train_hooks){.context = run, .stop = stop, .on_step = note_step};
    *loop = (struct loop){.job = &run->job,
                          .hooks = &run->hooks,
                          .inputs = &run->inputs,
                          .identity = "trial",
                          .backend = be,
                          .steps_per_epoch = TRIAL_STEPS,
                          .schedule = schedule_make(TRIAL_STEPS, hyper->learning_rate),
                          .done = {.train_loss = NAN, .valid_loss = NAN}};
    shuffle_init(&loop->done.shuffle, hyper->seed);
    if (!model_open(be, folder, &spec, stop, &loop->model, err) ||
        !packing_new(&sizes, &loop->packing, err))
        return false;
    loop->values = model_values(loop->model);
    return checkpoint_alloc(&loop->done, loop->values.count, err) && loop_init(loop, err);
}

bool trial_run(struct backend *be, const char *folder, enum numerics numerics,
               const atomic_bool *stop, double ret_losses[TRIAL_STEPS], struct error *err)
{
    struct run *run = calloc(1, sizeof(*run));
    enum loop_end end = LOOP_STOPPED;
    bool ok;

    if (!run)
        return error_set(err, ERR_NO_MEMORY, "no memory for a trial");
    run->job = (struct train_job){
        .base_folder = folder, .checkpoint_folder = folder, .hyper = hyperparameters_default()};
    run->job.checkpoint_interval_ns = INT64_MAX; /* never */
    run->job.hyper.n_epochs = 1;
    run->job.hyper.batch_size = LINES_A_STEP;
    run->job.hyper.learning_rate = 1e-2;
    run->job.hyper.lora_rank = 4;
    run->job.hyper.lora_alpha = 8;
    run->job.hyper.numerics = numerics;
    ok = set_up(run, be, folder, stop, err) && loop_run(&run->loop, &end, err);
    if (ok && end != LOOP_FINISHED)
        ok = error_set(err, ERR_CANCELLED, "the trial was stopped");
    if (ok)
        memcpy(ret_losses, run->losses, sizeof(run->losses));
    loop_release(&run->loop);
    packing_free(run->loop.packing);
    model_close(run->loop.model);
    free(run);
    return ok;
}

double trial_difference(const double losses[TRIAL_STEPS], const double reference[TRIAL_STEPS])
{
    double worst = 0;

    for (size_t i = 0; i < TRIAL_STEPS; i++) {
        const double difference = fabs(losses[i] - reference[i]) / fabs(reference[i]);

        if (!isfinite(difference))
            return INFINITY;
        worst = fmax(worst, difference);
    }
    return worst;
}
