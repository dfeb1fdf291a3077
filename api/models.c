#include "api/handlers.h"
#include "api/request.h"
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/base/limits.h"
#include "daemon/sched/datasets.h"
#include "daemon/sched/scheduler.h"
#include "store/models.h"

#include <stdlib.h>
#include <string.h>

static struct json *model_json(const struct model_record *model)
{
    struct json *object = json_new_object();

    json_add_string(object, "id", model->id);
    json_add_string(object, "object", "model");
    json_add_int(object, "created", model->created_unix_s);
    json_add_string(object, "owned_by", "user");
    json_add_string(object, "base_model", model->base_model);
    json_add_string(object, "fine_tuning_job_id", model->job_id);
    json_add_int(object, "bytes", model->size_bytes);
    json_add_string(object, "sha256", model->sha256);
    json_add_string(object, "device", model->device);
    json_add_string(object, "numerics", model->numerics);
    if (model->step > 0)
        json_add_int(object, "step_number", model->step);
    json_add_double(object, "valid_loss", model->valid_loss); /* NAN: null */
    return object;
}

bool models_handle_list(struct request *request, struct error *err)
{
    struct scheduler *scheduler = request->services->scheduler;
    struct model_record *models = NULL;
    char **bases = NULL;
    size_t count = 0, base_count = 0;
    struct json *data, *answer;

    if (!scheduler_list_bases(scheduler, &bases, &base_count, err))
        return false;
    if (!models_list(request->store, &models, &count, err)) {
        free(bases);
        return false;
    }
    data = json_new_array();
    for (size_t i = 0; i < base_count; i++)
        json_add(data, NULL, scheduler_base_json(scheduler, bases[i]));
    for (size_t i = 0; i < count; i++)
        json_add(data, NULL, model_json(&models[i]));
    free(bases);
    free(models);
    answer = json_new_object();
    json_add_string(answer, "object", "list");
    json_add(answer, "data", data);
    json_add_bool(answer, "has_more", false);
    return response_set_json(&request->response, 200, answer, err);
}

static bool is_base(struct request *request, const char *id, bool *ret_is_base, struct error *err)
{
    char **bases = NULL;
    size_t count = 0;

    if (!scheduler_list_bases(request->services->scheduler, &bases, &count, err))
        return false;
    *ret_is_base = false;
    for (size_t i = 0; i < count; i++)
        *ret_is_base = *ret_is_base || strcmp(bases[i], id) == 0;
    free(bases);
    return true;
}

/* The record of a fine-tuned model; an unknown id is ERR_NOT_FOUND with param "model". */
static bool get_model(struct request *request, struct model_record *ret_model, struct error *err)
{
    if (models_get(request->store, request->params[0], ret_model, err))
        return true;
    if (err->code == ERR_NOT_FOUND)
        return error_set_param(err, ERR_NOT_FOUND, "model", "there is no model '%.200s'",
                               request->params[0]);
    return false;
}

bool models_handle_get(struct request *request, struct error *err)
{
    struct model_record model = {0};
    bool base = false;

    if (!is_base(request, request->params[0], &base, err))
        return false;
    if (base)
        return response_set_json(
            &request->response, 200,
            scheduler_base_json(request->services->scheduler, request->params[0]), err);
    if (!get_model(request, &model, err))
        return false;
    return response_set_json(&request->response, 200, model_json(&model), err);
}

bool models_handle_adapter(struct request *request, struct error *err)
{
    char path[LIMIT_PATH_BYTES];
    struct model_record model = {0};

    if (!get_model(request, &model, err) ||
        !artifact_path(path, sizeof(path), request->services->state_folder, model.artifact, err))
        return false;
    return response_set_file(&request->response, path, "application/octet-stream",
                             "adapter.safetensors", err);
}

bool models_handle_delete(struct request *request, struct error *err)
{
    char path[LIMIT_PATH_BYTES];
    struct model_record model = {0};
    struct json *answer;
    bool base = false, used = false;

    if (!is_base(request, request->params[0], &base, err))
        return false;
    if (base)
        return error_set_param(err, ERR_INVALID, "model",
                               "'%.200s' is a base model; only fine-tuned ones are deleted here",
                               request->params[0]);
    if (!get_model(request, &model, err) ||
        !artifact_path(path, sizeof(path), request->services->state_folder, model.artifact, err))
        return false;
    if (!models_delete(request->store, model.id, err) || /* the row first: others see that */
        !models_has_artifact(request->store, model.artifact, &used, err) ||
        (!used && !file_remove(path, err)))
        return false;
    answer = json_new_object();
    json_add_string(answer, "id", model.id);
    json_add_string(answer, "object", "model");
    json_add_bool(answer, "deleted", true);
    return response_set_json(&request->response, 200, answer, err);
}
