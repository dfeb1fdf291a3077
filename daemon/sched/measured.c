#include "daemon/sched/measured.h"

struct json *measured_step_json(const struct train_step *step)
{
    struct json *data = json_new_object();

    json_add_int(data, "step", (int64_t)step->step);
    json_add_int(data, "total_steps", (int64_t)step->total_steps);
    json_add_int(data, "epoch", (int64_t)step->epoch);
    json_add_measured(data, "train_loss", step->train_loss);
    json_add_measured(data, "train_mean_token_accuracy", step->train_mean_token_accuracy);
    json_add_measured(data, "learning_rate", step->learning_rate);
    json_add_measured(data, "grad_norm", step->grad_norm);
    json_add_int(data, "tokens", (int64_t)step->tokens);
    json_add_int(data, "trained_tokens", (int64_t)step->trained_tokens);
    json_add_measured(data, "tokens_per_second", step->tokens_per_second);
    return data;
}

struct json *measured_epoch_json(const struct train_epoch *epoch)
{
    struct json *data = json_new_object();

    json_add_int(data, "step", (int64_t)epoch->step);
    json_add_int(data, "epoch", (int64_t)epoch->epoch);
    json_add_measured(data, "train_loss", epoch->train_loss);
    json_add_measured(data, "train_mean_token_accuracy", epoch->train_mean_token_accuracy);
    if (epoch->has_validation) {
        json_add_measured(data, "full_valid_loss", epoch->full_valid_loss);
        json_add_measured(data, "full_valid_mean_token_accuracy",
                          epoch->full_valid_mean_token_accuracy);
    }
    return data;
}
