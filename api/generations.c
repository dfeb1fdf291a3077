#include "api/handlers.h"
#include "api/request.h"

bool generations_handle_any(struct request *request, struct error *err)
{
    (void)request; /* the same for all of these calls */
    return error_set_word(
        err, ERR_INVALID, "not_available", "",
        "this server makes no examples and no tool schemas: upload a data set with "
        "POST /v1/files");
}

/* What was never made is not there: a client that looks for an id among jobs and then here tells its
 * user that it is in neither. */
bool generations_handle_get(struct request *request, struct error *err)
{
    return error_set(err, ERR_NOT_FOUND, "there is no job and no generation '%.64s'",
                     request->params[0]);
}
