/*
 * handlers: what stands behind the routes: read, check, one call, answer.
 *
 * Purpose    One function per route, in files.c, uploads.c, reports.c, jobs.c, events.c, models.c,
 *            devices.c and health.c.
 * Ownership  A handler fills request->response; the request owns it.
 * Threads    A pool thread, with request->store lent for the call.
 * Failure    False: err is answered, with request->lines where a handler set them.
 */
#ifndef NEEDLED_API_HANDLERS_H
#define NEEDLED_API_HANDLERS_H

#include "daemon/base/error.h"

struct request;

MUST_CHECK bool health_handle_get(struct request *request, struct error *err);
MUST_CHECK bool description_handle_get(struct request *request, struct error *err);
MUST_CHECK bool devices_handle_list(struct request *request, struct error *err);

MUST_CHECK bool dashboard_handle_get(struct request *request, struct error *err);
MUST_CHECK bool dashboard_handle_file(struct request *request, struct error *err);

MUST_CHECK bool metrics_handle_get(struct request *request, struct error *err);

MUST_CHECK bool backups_handle_get(struct request *request, struct error *err);

MUST_CHECK bool session_handle_create(struct request *request, struct error *err);
MUST_CHECK bool session_handle_get(struct request *request, struct error *err);
MUST_CHECK bool session_handle_delete(struct request *request, struct error *err);

MUST_CHECK bool keys_handle_create(struct request *request, struct error *err);
MUST_CHECK bool keys_handle_list(struct request *request, struct error *err);
MUST_CHECK bool keys_handle_get(struct request *request, struct error *err);
MUST_CHECK bool keys_handle_revoke(struct request *request, struct error *err);
MUST_CHECK bool keys_handle_help(struct request *request, struct error *err);

MUST_CHECK bool webhooks_handle_create(struct request *request, struct error *err);
MUST_CHECK bool webhooks_handle_list(struct request *request, struct error *err);
MUST_CHECK bool webhooks_handle_get(struct request *request, struct error *err);
MUST_CHECK bool webhooks_handle_update(struct request *request, struct error *err);
MUST_CHECK bool webhooks_handle_delete(struct request *request, struct error *err);
MUST_CHECK bool webhooks_handle_rotate(struct request *request, struct error *err);
MUST_CHECK bool webhooks_handle_test(struct request *request, struct error *err);
MUST_CHECK bool webhooks_handle_deliveries(struct request *request, struct error *err);
MUST_CHECK bool webhooks_handle_types(struct request *request, struct error *err);

MUST_CHECK bool files_handle_create(struct request *request, struct error *err);
MUST_CHECK bool files_handle_complete(struct request *request, struct error *err);
MUST_CHECK bool files_handle_put(struct request *request, struct error *err);
MUST_CHECK bool uploads_handle_delete(struct request *request, struct error *err);
MUST_CHECK bool files_handle_report(struct request *request, struct error *err);
MUST_CHECK bool files_handle_example(struct request *request, struct error *err);
MUST_CHECK bool files_handle_list(struct request *request, struct error *err);
MUST_CHECK bool files_handle_get(struct request *request, struct error *err);
MUST_CHECK bool files_handle_delete(struct request *request, struct error *err);
MUST_CHECK bool files_handle_content(struct request *request, struct error *err);
MUST_CHECK bool files_handle_bytes(struct request *request, struct error *err);

MUST_CHECK bool estimates_handle_create(struct request *request, struct error *err);
MUST_CHECK bool jobs_handle_create(struct request *request, struct error *err);
MUST_CHECK bool jobs_handle_list(struct request *request, struct error *err);
MUST_CHECK bool jobs_handle_get(struct request *request, struct error *err);
MUST_CHECK bool jobs_handle_move(struct request *request, struct error *err);
MUST_CHECK bool jobs_handle_cancel(struct request *request, struct error *err);
MUST_CHECK bool jobs_handle_pause(struct request *request, struct error *err);
MUST_CHECK bool jobs_handle_resume(struct request *request, struct error *err);
MUST_CHECK bool sweeps_handle_create(struct request *request, struct error *err);
MUST_CHECK bool sweeps_handle_list(struct request *request, struct error *err);
MUST_CHECK bool sweeps_handle_get(struct request *request, struct error *err);
MUST_CHECK bool sweeps_handle_cancel(struct request *request, struct error *err);
MUST_CHECK bool checkpoints_handle_list(struct request *request, struct error *err);

MUST_CHECK bool series_handle_get(struct request *request, struct error *err);
MUST_CHECK bool events_handle_list(struct request *request, struct error *err);
MUST_CHECK bool events_handle_list_all(struct request *request, struct error *err);

MUST_CHECK bool models_handle_list(struct request *request, struct error *err);
MUST_CHECK bool models_handle_get(struct request *request, struct error *err);
MUST_CHECK bool models_handle_delete(struct request *request, struct error *err);
MUST_CHECK bool models_handle_adapter(struct request *request, struct error *err);
MUST_CHECK bool models_handle_content(struct request *request, struct error *err);
MUST_CHECK bool models_handle_bytes(struct request *request, struct error *err);

MUST_CHECK bool plans_handle_list(struct request *request, struct error *err);
MUST_CHECK bool plans_handle_billing(struct request *request, struct error *err);
MUST_CHECK bool generations_handle_any(struct request *request, struct error *err);
MUST_CHECK bool generations_handle_get(struct request *request, struct error *err);

#endif
