#include "api/handlers.h"
#include "api/request.h"
#include "daemon/base/json.h"
#include "daemon/sched/scheduler.h"

bool devices_handle_list(struct request *request, struct error *err)
{
    return response_set_json(&request->response, 200,
                             scheduler_devices_json(request->services->scheduler), err);
}
