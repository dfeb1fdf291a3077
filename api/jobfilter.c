#include "api/jobfilter.h"

#include "api/request.h"
#include "daemon/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define METADATA_PAIRS_MAX 16

/* A name twice would ask for two values of it, which no job has. */
static bool check_new_name(const struct json *pairs, const char *name, struct error *err)
{
    for (const struct json *pair = json_first(pairs); pair; pair = json_next(pair)) {
        if (strcmp(json_text(json_at(pair, 0)), name) == 0)
            return error_set_param(err, ERR_INVALID, "metadata",
                                   "'metadata[%.64s]' is asked for twice", name);
    }
    return true;
}

/* "metadata[name]=value" as a pair. */
static bool add_pair(struct json *pairs, const struct query_field *field, struct error *err)
{
    const char *name = field->name + strlen("metadata[");
    const size_t length = strlen(name);
    struct json *pair;
    char *key;
    bool ok;

    if (length < 2 || name[length - 1] != ']' || strstr(name, "][")) /* things in things */
        return error_set_param(err, ERR_INVALID, "metadata",
                               "'%.80s' is no filter: 'metadata[name]=value' is needed",
                               field->name);
    key = strndup(name, length - 1);
    if (!key)
        return error_set(err, ERR_NO_MEMORY, "no memory for a filter");
    ok = check_new_name(pairs, key, err);
    if (ok) {
        pair = json_new_array();
        json_add_string(pair, NULL, key);
        json_add_string(pair, NULL, field->value);
        json_add(pairs, NULL, pair);
        ok = json_is_whole(pairs) || error_set(err, ERR_NO_MEMORY, "no memory for a filter");
    }
    free(key);
    return ok;
}

static bool read_metadata(const struct request *request, struct jobs_filter *filter,
                          struct json *pairs, struct error *err)
{
    for (const struct query_field *field = request->query; field; field = field->next) {
        if (strncmp(field->name, "metadata[", strlen("metadata[")) == 0) {
            if (!add_pair(pairs, field, err))
                return false;
        } else if (strcmp(field->name, "metadata") == 0) {
            if (strcmp(field->value, "null") != 0)
                return error_set_param(err, ERR_INVALID, "metadata",
                                       "metadata is '%.40s': 'metadata=null' (jobs without any) or "
                                       "'metadata[name]=value' is needed",
                                       field->value);
            filter->without_metadata = true;
        }
    }
    if (json_count(pairs) > METADATA_PAIRS_MAX)
        return error_set_param(err, ERR_INVALID, "metadata",
                               "%zu pairs of metadata are asked for, a job has at most %d",
                               json_count(pairs), METADATA_PAIRS_MAX);
    if (filter->without_metadata && json_count(pairs) > 0)
        return error_set_param(err, ERR_INVALID, "metadata",
                               "'metadata=null' and 'metadata[name]=value' do not go together");
    return true;
}

/* "queued,paused" as the filter has them, ",queued,paused,"; "" where none is asked for. */
static bool read_states(const struct request *request, char ret_states[JOBFILTER_STATES_BYTES],
                        struct error *err)
{
    const char *at = request_query(request, "status");
    size_t used = 0;

    ret_states[0] = '\0';
    while (at) {
        char name[24];
        const size_t length = strcspn(at, ",");
        enum job_state state;

        (void)snprintf(name, sizeof(name), "%.*s", length < sizeof(name) ? (int)length : 0, at);
        if (!job_state_from_name(name, &state))
            return error_set_param(err, ERR_INVALID, "status",
                                   "status is '%.40s', some of validating_files, queued, running, "
                                   "paused, succeeded, failed, cancelled are needed, with commas",
                                   at);
        if (!strstr(ret_states, name)) /* none is a part of another */
            used += (size_t)snprintf(ret_states + used, JOBFILTER_STATES_BYTES - used, "%s%s,",
                                     used ? "" : ",", name);
        at = at[length] ? at + length + 1 : NULL;
    }
    return true;
}

bool jobfilter_read(const struct request *request, struct jobfilter *ret_filter, struct error *err)
{
    struct jobfilter *filter = ret_filter;
    struct json *pairs = json_new_array();
    bool ok;

    *filter = (struct jobfilter){.wanted.search = request_query(request, "search")};
    if (!pairs)
        return error_set(err, ERR_NO_MEMORY, "no memory for a filter");
    ok = read_states(request, filter->states, err) &&
         read_metadata(request, &filter->wanted, pairs, err);
    if (filter->states[0])
        filter->wanted.states = filter->states;
    if (ok && json_count(pairs) > 0)
        ok = json_print_text(pairs, &filter->pairs, err);
    filter->wanted.metadata_json = filter->pairs;
    json_free(pairs);
    return ok;
}

void jobfilter_release(struct jobfilter *filter)
{
    free(filter->pairs);
    filter->pairs = NULL;
}
