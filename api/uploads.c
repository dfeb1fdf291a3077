#include "api/uploads.h"

#include "api/form.h"
#include "api/handlers.h"
#include "api/links.h"
#include "api/objects.h"
#include "api/request.h"
#include "api/text.h"
#include "daemon/base/clock.h"
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/base/limits.h"
#include "daemon/sched/datasets.h"
#include "daemon/sched/scheduler.h"
#include "store/reservations.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ID_DIGITS 24

static struct json *reservation_json(const struct reservation_record *reservation)
{
    struct json *object = json_new_object();

    json_add_string(object, "id", reservation->id);
    json_add_string(object, "object", "upload");
    json_add_string(object, "filename", reservation->filename);
    json_add_int(object, "bytes", reservation->size_bytes);
    json_add_int(object, "created_at", reservation->created_unix_s);
    json_add_int(object, "expires_at", reservation->expires_unix_s);
    json_add_string(object, "status", reservation->state);
    return object;
}

/* expires_after {anchor, seconds}, read by the form's rules. */
static bool read_lifetime(const struct json *body, int64_t *ret_lifetime_s, struct error *err)
{
    static const char *const known[] = {"anchor", "seconds", NULL};
    const struct json *after = NULL;
    const char *anchor = NULL;
    int64_t number = -1;
    char seconds[24];

    if (!json_get_object(body, "expires_after", false, &after, err))
        return false;
    if (!after)
        return true;
    if (!json_only_fields(after, known, err) ||
        !json_get_string(after, "anchor", false, &anchor, err) ||
        !json_get_int(after, "seconds", false, INT32_MIN, INT32_MAX, &number, err))
        return false;
    (void)snprintf(seconds, sizeof(seconds), "%" PRId64, number);
    return form_read_lifetime(anchor ? anchor : "", json_member(after, "seconds") ? seconds : NULL,
                              ret_lifetime_s, err);
}

static bool read_reservation(const struct request *request, const struct json *body,
                             struct reservation_record *reservation, struct error *err)
{
    static const char *const known[] = {"name", "bytes", "purpose", "expires_after", NULL};
    size_t limit = request->services->upload_limit_bytes;
    const char *name = NULL, *purpose = "fine-tune";

    if (!json_only_fields(body, known, err) || !json_get_string(body, "name", true, &name, err) ||
        !json_get_int(body, "bytes", true, 1, ((int64_t)1 << 53) - 1, &reservation->size_bytes,
                      err) ||
        !json_get_string(body, "purpose", false, &purpose, err) ||
        !read_lifetime(body, &reservation->lifetime_s, err))
        return false;
    if (!name[0])
        return error_set_param(err, ERR_INVALID, "name",
                               "'name' is empty, a file's name is needed");
    if (strcmp(purpose, "fine-tune") != 0)
        return error_set_param(err, ERR_INVALID, "purpose",
                               "purpose is '%.40s', this server takes 'fine-tune'", purpose);
    if ((uint64_t)reservation->size_bytes > limit)
        return error_set_param(err, ERR_LIMIT, "bytes", "the file is larger than %zu bytes", limit);
    text_label(reservation->filename, sizeof(reservation->filename), name);
    return true;
}

static bool answer_reservation(struct request *request,
                               const struct reservation_record *reservation, struct error *err)
{
    const char *const segments[] = {"v1", "uploads", reservation->id};
    const struct link link = {"PUT", segments, COUNT_OF(segments), reservation->expires_unix_s,
                              reservation->size_bytes};
    char url[LINKS_URL_BYTES];
    struct json *object;

    if (!links_make(request->services->links, request, &link, url, err))
        return false;
    object = reservation_json(reservation);
    json_add_string(object, "url", url);
    return response_set_json(&request->response, 201, object, err);
}

bool uploads_reserve(struct request *request, struct error *err)
{
    struct reservation_record reservation = {.state = "open"};
    struct json *body = NULL;
    bool ok;

    if (!request_read_json(request, &body, err))
        return false;
    ok = read_reservation(request, body, &reservation, err);
    json_free(body);
    if (!ok)
        return false;
    (void)snprintf(reservation.owner, sizeof(reservation.owner), "%s", request->owner);
    if (!scheduler_check_disk(request->services->scheduler, (uint64_t)reservation.size_bytes, err))
        return false;
    reservation.created_unix_s = clock_unix_s();
    reservation.expires_unix_s = reservation.created_unix_s + LIMIT_RESERVATION_S;
    return file_random_id(reservation.id, sizeof(reservation.id), "upload-", ID_DIGITS, err) &&
           reservations_insert(request->store, &reservation, LIMIT_RESERVATIONS, request->bytes_max,
                               err) &&
           answer_reservation(request, &reservation, err);
}

bool files_handle_put(struct request *request, struct error *err)
{
    struct upload *upload = request->upload;
    struct reservation_record reservation;

    request->upload = NULL; /* freed by the call in every case */
    if (!upload_finish_reserved(upload, request->store, request->params[0], &reservation,
                                &request->lines, err))
        return false;
    return response_set_json(&request->response, 200, reservation_json(&reservation), err);
}

bool files_handle_complete(struct request *request, struct error *err)
{
    struct file_record file = {0};

    if (!reservations_complete(request->store, request->params[0], &file, err))
        return false;
    return response_set_json(&request->response, 201, objects_file(&file), err);
}

/* Its link goes with it: bytes on their way find no reservation. */
bool uploads_handle_delete(struct request *request, struct error *err)
{
    char path[LIMIT_PATH_BYTES];
    struct reservation_record reservation;
    struct json *answer;

    if (!reservations_delete(request->store, request->params[0], &reservation, err))
        return false;
    if (reservation.file_id[0] &&
        (!dataset_path(path, sizeof(path), request->services->state_folder, reservation.file_id,
                       err) ||
         !file_remove_inside(path, err)))
        return false;
    answer = json_new_object();
    json_add_string(answer, "id", reservation.id);
    json_add_string(answer, "object", "upload");
    json_add_bool(answer, "deleted", true);
    return response_set_json(&request->response, 200, answer, err);
}
