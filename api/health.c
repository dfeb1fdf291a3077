#include "api/handlers.h"
#include "api/request.h"
#include "daemon/base/json.h"
#include "daemon/sched/scheduler.h"
#include "store/store.h"

bool health_handle_get(struct request *request, struct error *err)
{
    struct error fault = {0};
    bool healthy = true;
    struct json *health = scheduler_health_json(request->services->scheduler, &healthy);

    /* Without a store the state folder is gone, which the health tells. */
    if (request->store && !store_ping(request->store, &fault)) {
        healthy = false;
        json_add_string(health, "database", fault.message);
    }
    return response_set_json(&request->response, healthy ? 200 : 503, health, err);
}
