#include "daemon/sched/warnings.h"

#include "daemon/base/json.h"

#include <string.h>

struct json *warnings_read(const char *warnings_json)
{
    return json_parse_or(warnings_json, json_new_array);
}

static bool has(const struct json *warnings, const char *reason)
{
    for (const struct json *next = json_first(warnings); next; next = json_next(next)) {
        const struct json *other = json_member(next, "reason");

        if (other && json_text(other) && strcmp(json_text(other), reason) == 0)
            return true;
    }
    return false;
}

bool warnings_add(struct json *warnings, const char *rule, const char *reason)
{
    struct json *object;

    if (warnings && has(warnings, reason))
        return false;
    object = json_new_object();
    json_add_string(object, "rule", rule);
    json_add_string(object, "reason", reason);
    json_add(warnings, NULL, object);
    return true;
}
