#include "api/handlers.h"
#include "api/links.h"
#include "api/objects.h"
#include "api/request.h"
#include "api/text.h"
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/base/limits.h"
#include "daemon/sched/datasets.h"
#include "daemon/sched/scheduler.h"
#include "store/models.h"

#include <stdlib.h>
#include <string.h>

#define LIST_MAX 10000 /* asked for at once; without a limit all are answered */

/* A list being made: of those whose id or name has the searched text, at most so many. */
struct listing {
    const char *search; /* NULL: all */
    size_t limit, count;
    bool has_more;
    struct json *data;
};

/* Takes the object over. */
static void add_found(struct listing *listing, struct json *object)
{
    const char *id = json_text(json_member(object, "id"));
    const char *name = json_text(json_member(object, "name"));
    const bool found = !listing->search || (id && strcasestr(id, listing->search)) ||
                       (name && strcasestr(name, listing->search));

    if (!found || listing->count == listing->limit) {
        listing->has_more = listing->has_more || found;
        json_free(object);
        return;
    }
    json_add(listing->data, NULL, object);
    listing->count++;
}

/* Models of one base stand together more often than not: its depth is read once for them. */
static void add_tuned(struct scheduler *scheduler, const struct model_record *models, size_t count,
                      struct listing *listing)
{
    int64_t depth = 0;

    for (size_t i = 0; i < count; i++) {
        if (i == 0 || strcmp(models[i].base_model, models[i - 1].base_model) != 0)
            depth = scheduler_base_depth(scheduler, models[i].base_model);
        add_found(listing, objects_model(&models[i], depth));
    }
}

static bool read_listing(const struct request *request, struct listing *listing, struct error *err)
{
    const char *limit = request_query(request, "limit");
    int64_t count = INT64_MAX;

    if (limit && (!text_read_number(limit, LIST_MAX, &count) || count == 0))
        return error_set_param(err, ERR_INVALID, "limit",
                               "limit is '%.40s', a number from 1 to %d is needed", limit,
                               LIST_MAX);
    *listing = (struct listing){.search = request_query(request, "search"), .limit = (size_t)count};
    return true;
}

bool models_handle_list(struct request *request, struct error *err)
{
    struct scheduler *scheduler = request->services->scheduler;
    struct model_record *models = NULL;
    char **bases = NULL;
    size_t count = 0, base_count = 0;
    struct listing listing;
    struct json *answer;

    if (!read_listing(request, &listing, err) ||
        !scheduler_list_bases(scheduler, &bases, &base_count, err))
        return false;
    if (!models_list(request->store, &models, &count, err)) {
        free(bases);
        return false;
    }
    listing.data = json_new_array();
    for (size_t i = 0; i < base_count; i++)
        add_found(&listing, scheduler_base_json(scheduler, bases[i]));
    add_tuned(scheduler, models, count, &listing);
    free(bases);
    free(models);
    answer = json_new_object();
    json_add_string(answer, "object", "list");
    json_add(answer, "data", listing.data);
    json_add_bool(answer, "has_more", listing.has_more);
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
    return response_set_json(
        &request->response, 200,
        objects_model(&model, scheduler_base_depth(request->services->scheduler, model.base_model)),
        err);
}

bool models_handle_adapter(struct request *request, struct error *err)
{
    char path[LIMIT_PATH_BYTES];
    struct model_record model = {0};

    if (!get_model(request, &model, err) ||
        !artifact_path(path, sizeof(path), request->services->state_folder, model.artifact, err))
        return false;
    return response_set_file(&request->response, path, "application/octet-stream",
                             "adapter.safetensors", err) &&
           response_hold_to(&request->response, model.size_bytes, model.sha256, err);
}

/* As a file's content: a link that one client follows and the other hands on. */
bool models_handle_content(struct request *request, struct error *err)
{
    const char *format = request_query(request, "format");
    struct model_record model = {0};
    bool base = false;

    if (format && strcmp(format, "cact") == 0)
        return error_set_word(err, ERR_INVALID, "not_available", "format",
                              "models have no '.cact' files yet: their content is the adapter");
    if (format && strcmp(format, "safetensors") != 0)
        return error_set_param(err, ERR_INVALID, "format",
                               "format is '%.40s', 'safetensors' is needed", format);
    if (!is_base(request, request->params[0], &base, err))
        return false;
    if (base)
        return error_set_param(err, ERR_INVALID, "model",
                               "'%.200s' is a base model: only what was made of one is downloaded",
                               request->params[0]);
    return get_model(request, &model, err) &&
           links_redirect(request->services->links, request, "models", model.id, err);
}

bool models_handle_bytes(struct request *request, struct error *err)
{
    struct response *response = &request->response;
    char path[LIMIT_PATH_BYTES];
    struct model_record model = {0};

    if (!get_model(request, &model, err) ||
        !artifact_path(path, sizeof(path), request->services->state_folder, model.artifact, err) ||
        !response_set_file(response, path, "application/octet-stream", "adapter.safetensors",
                           err) ||
        !response_hold_to(response, model.size_bytes, model.sha256, err))
        return false;
    response_cut(response, request->range, request->if_range);
    return true;
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
        (!used && !file_remove_inside(path, err)))
        return false;
    answer = json_new_object();
    json_add_string(answer, "id", model.id);
    json_add_string(answer, "object", "model");
    json_add_bool(answer, "deleted", true);
    return response_set_json(&request->response, 200, answer, err);
}
