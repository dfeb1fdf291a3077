#include "api/form.h"
#include "api/handlers.h"
#include "api/links.h"
#include "api/objects.h"
#include "api/page.h"
#include "api/request.h"
#include "api/uploads.h"
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/base/limits.h"
#include "daemon/sched/datasets.h"
#include "store/files.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_MAX 10000 /* the hosted API's figure, and its default */

bool files_handle_create(struct request *request, struct error *err)
{
    struct upload_terms terms = {.owner = request->owner, .bytes_max = request->bytes_max};
    struct file_record file = {0};

    if (!request->form)
        return uploads_reserve(request, err);
    if (!form_finish(request->form, request->store, &terms, &file, &request->lines, err))
        return false;
    return response_set_json(&request->response, 200, objects_file(&file), err);
}

bool files_handle_list(struct request *request, struct error *err)
{
    const struct files_filter filter = {request_query(request, "purpose"),
                                        request_query(request, "search")};
    struct file_record *files = NULL;
    struct store_page page;
    size_t count = 0;
    bool has_more = false;
    struct json *data;

    if (!page_read(request, PAGE_MAX, PAGE_MAX, &page, err))
        return false;
    if (!files_list(request->store, &filter, &page, &files, &count, &has_more, err))
        return false;
    data = json_new_array();
    for (size_t i = 0; i < count; i++)
        json_add(data, NULL, objects_file(&files[i]));
    free(files);
    return response_set_json(&request->response, 200, page_answer(data, has_more), err);
}

bool files_handle_get(struct request *request, struct error *err)
{
    struct file_record file = {0};

    if (!files_get(request->store, request->params[0], &file, err))
        return false;
    return response_set_json(&request->response, 200, objects_file(&file), err);
}

/* One client takes bytes or a redirect, the other a redirect alone. */
bool files_handle_content(struct request *request, struct error *err)
{
    struct file_record file = {0};

    return files_get(request->store, request->params[0], &file, err) &&
           links_redirect(request->services->links, request, "files", file.id, err);
}

bool files_handle_bytes(struct request *request, struct error *err)
{
    struct response *response = &request->response;
    char path[LIMIT_PATH_BYTES];
    struct file_record file = {0};

    if (!files_get(request->store, request->params[0], &file, err) ||
        !dataset_path(path, sizeof(path), request->services->state_folder, file.id, err) ||
        !response_set_file(response, path, "application/octet-stream", NULL, err) ||
        !response_hold_to(response, file.size_bytes, file.sha256, err))
        return false;
    response_cut(response, request->range, request->if_range);
    return true;
}

bool files_handle_delete(struct request *request, struct error *err)
{
    char path[LIMIT_PATH_BYTES];
    struct file_record file = {0};
    struct json *answer;

    if (!files_get(request->store, request->params[0], &file, err) ||
        !dataset_path(path, sizeof(path), request->services->state_folder, file.id, err))
        return false;
    if (!files_delete(request->store, file.id, err)) /* the row first: it is what others see */
        return false;
    if (!file_remove_inside(path, err))
        return false;
    answer = json_new_object();
    json_add_string(answer, "id", file.id);
    json_add_string(answer, "object", "file");
    json_add_bool(answer, "deleted", true);
    return response_set_json(&request->response, 200, answer, err);
}
