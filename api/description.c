#include "api/handlers.h"
#include "api/openapi.h"
#include "api/request.h"
#include "daemon/base/buf.h"

bool description_handle_get(struct request *request, struct error *err)
{
    struct buf text;

    buf_init(&text, openapi_json_size + 1);
    buf_append(&text, openapi_json, openapi_json_size);
    return response_set_text(&request->response, "application/json", &text, err);
}
