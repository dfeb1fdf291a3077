#include "api/page.h"

#include "api/request.h"
#include "api/text.h"
#include "daemon/base/json.h"
#include "store/store.h"

#include <string.h>

bool page_read(const struct request *request, size_t default_limit, size_t max_limit,
               struct store_page *ret_page, struct error *err)
{
    const char *limit = request_query(request, "limit");
    const char *after = request_query(request, "after");
    const char *order = request_query(request, "order");
    int64_t count = (int64_t)default_limit;

    if (limit && (!text_read_number(limit, (int64_t)max_limit, &count) || count == 0))
        return error_set_param(err, ERR_INVALID, "limit",
                               "limit is '%.40s', a number from 1 to %zu is needed", limit,
                               max_limit);
    if (order && strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0)
        return error_set_param(err, ERR_INVALID, "order",
                               "order is '%.40s', 'asc' or 'desc' is needed", order);
    *ret_page = (struct store_page){
        .after = after ? after : "",
        .limit = (size_t)count,
        .ascending = order && strcmp(order, "asc") == 0,
    };
    return true;
}

static const char *id_of(const struct json *element)
{
    return element ? json_text(json_member(element, "id")) : NULL;
}

struct json *page_answer(struct json *data, bool has_more)
{
    struct json *list = json_new_object();
    const struct json *first = data ? json_first(data) : NULL, *last = first;

    for (const struct json *element = first; element; element = json_next(element))
        last = element;
    json_add_string(list, "object", "list");
    json_add_string(list, "first_id", id_of(first));
    json_add_string(list, "last_id", id_of(last));
    json_add_bool(list, "has_more", has_more);
    json_add(list, "data", data);
    return list;
}
