#include "daemon/base/json.h"

#include "daemon/base/jsontext.h"
#include "daemon/base/limits.h"
#include "daemon/base/strict.h"
#include "daemon/base/utf8.h"

#include <assert.h>
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCRATCH_BYTES_MAX                                                                          \
    ((size_t)1 << 30)                /* what reading a text of LIMIT_HEADER_BYTES may take         \
                                      */
#define EXACT_MAX 9007199254740992.0 /* 2^53: whole numbers up to here are exact */
#define RANGE_DIGITS_MIN 5           /* 1e999: shorter numbers are in range */
#define LOST (1 << 20) /* our mark in cJSON's type: a child was lost for want of memory */

/* struct json is cJSON under another name: only this file knows. */
static cJSON *inside(const struct json *json)
{
    return (cJSON *)(uintptr_t)json;
}

static struct json *outside(cJSON *item)
{
    return (struct json *)item;
}

/* ---- reading -------------------------------------------------------------------------------- */

static bool refuse(struct error *err, const struct strict_finding *finding)
{
    return error_set_param(err, ERR_INVALID, finding->field, "%s, at byte %zu%s%s%s",
                           finding->reason, finding->column - 1,
                           finding->field[0] ? " (field '" : "", finding->field,
                           finding->field[0] ? "')" : "");
}

/* cJSON's strings end at a NUL, so an escaped one would cut the text. */
static const struct strict_value *find_nul(const struct strict_value *value)
{
    const struct strict_value *found = NULL;

    if ((value->kind == STRICT_STRING && value->size && memchr(value->text, 0, value->size)) ||
        (value->key && memchr(value->key, 0, value->key_size)))
        return value;
    for (const struct strict_value *child = value->child; child && !found; child = child->next)
        found = find_nul(child);
    return found;
}

/* A number that is not one of the machine's: beyond the largest, or not 0 and below the smallest. */
static bool is_out_of_range(const struct strict_value *number)
{
    char *text;
    double read;
    bool is_zero = true;

    if ((number->kind != STRICT_INT && number->kind != STRICT_FLOAT) ||
        number->size < RANGE_DIGITS_MIN)
        return false;
    text = strndup(number->text, number->size);
    if (!text)
        return false; /* cJSON will say so */
    read = strtod(text, NULL);
    for (const char *at = text; *at && *at != 'e' && *at != 'E'; at++)
        is_zero = is_zero && !(*at >= '1' && *at <= '9');
    free(text);
    return !isfinite(read) || (read == 0 && !is_zero);
}

/* *ret_member: the innermost member that it stands in, or untouched. */
static const struct strict_value *find_out_of_range(const struct strict_value *value,
                                                    const struct strict_value **ret_member)
{
    const struct strict_value *found = is_out_of_range(value) ? value : NULL;

    for (const struct strict_value *child = value->child; child && !found; child = child->next) {
        found = find_out_of_range(child, ret_member);
        if (found && !*ret_member && child->key)
            *ret_member = child;
    }
    return found;
}

static bool check_ranges(const struct strict_value *value, struct error *err)
{
    const struct strict_value *member = NULL, *number = find_out_of_range(value, &member);
    char name[64] = "";

    if (!number)
        return true;
    if (member)
        (void)snprintf(name, sizeof(name), "%.*s",
                       (int)utf8_cut(member->key, member->key_size, sizeof(name) - 1), member->key);
    return error_set_param(err, ERR_INVALID, name,
                           "%s%s%s'%.*s%s' is a number that no machine number comes near, at byte "
                           "%zu",
                           name[0] ? "field '" : "", name, name[0] ? "': " : "",
                           number->size > 24 ? 20 : (int)number->size, number->text,
                           number->size > 24 ? "..." : "", number->column - 1);
}

static bool check(const char *text, size_t size, struct error *err)
{
    struct arena scratch;
    struct strict_report report;
    struct strict_value *value = NULL;
    const struct strict_value *nul;
    bool ok = false;

    arena_init(&scratch, SCRATCH_BYTES_MAX);
    if (!strict_read(text, size, &scratch, &report, &value) && scratch.starved)
        error_set(err, ERR_NO_MEMORY, "no memory to read JSON of %zu bytes", size);
    else if (!value)
        refuse(err, &report.fault);
    else if (report.note_count)
        refuse(err, &report.notes[0]);
    else if ((nul = find_nul(value)) != NULL)
        error_set(err, ERR_INVALID, "a string holds a NUL (\\u0000), at byte %zu", nul->column - 1);
    else
        ok = check_ranges(value, err);
    arena_release(&scratch);
    return ok;
}

/* Whether the place lies in a number of more digits than the library takes: its buffer has 64 bytes. */
static bool is_long_number(const char *text, size_t size, size_t at)
{
    static const char digits[] = "+-.0123456789eE";
    size_t start = at, end = at;

    while (start > 0 && memchr(digits, text[start - 1], sizeof(digits) - 1))
        start--;
    while (end < size && memchr(digits, text[end], sizeof(digits) - 1))
        end++;
    return end - start >= 63;
}

bool json_parse(const char *text, size_t size, struct json **ret_json, struct error *err)
{
    cJSON *root;
    const char *end = NULL;

    if (!check(text, size, err))
        return false;
    root = cJSON_ParseWithLengthOpts(text, size, &end, false);
    if (!root && end && is_long_number(text, size, (size_t)(end - text)))
        return error_set(err, ERR_INVALID, "a number is longer than the library takes, at byte %zu",
                         (size_t)(end - text));
    if (!root)
        return error_set(err, ERR_NO_MEMORY, "no memory to read JSON of %zu bytes", size);
    *ret_json = outside(root);
    return true;
}

struct json *json_parse_or(const char *text, struct json *(*json_new)(void))
{
    struct json *json = NULL;
    struct error err = {0};

    if (text && json_parse(text, strlen(text), &json, &err))
        return json;
    return err.code == ERR_NO_MEMORY ? NULL : json_new();
}

const char *json_library_version(void)
{
    return cJSON_Version();
}

bool json_self_test(struct error *err)
{
    static const char *const bad[] = {"",
                                      "{\"a\":1}x",
                                      "[1,]",
                                      "01",
                                      "NaN",
                                      "[1 2]",
                                      "\"\t\"",
                                      "\"\\ud800\"",
                                      "\"\xff\"",
                                      "1e999",
                                      "[\"\\u12",
                                      "{a:1}",
                                      "{\"a\":1,\"a\":2}"};
    static const char good[] = "{\"a\":[9007199254740991,0.1,\"\\u00e9\\n\",true,null]}";
    static const char wanted[] = "{\"a\":[9007199254740991,0.1,\"\xc3\xa9\\n\",true,null]}";
    struct json *json = NULL;
    char *text = NULL;
    bool ok;

    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        if (!json_parse(bad[i], strlen(bad[i]), &json, NULL))
            continue;
        json_free(json);
        return error_set(err, ERR_INTERNAL, "the JSON library (%s) takes '%s'",
                         json_library_version(), bad[i]);
    }
    ok = json_parse(good, sizeof(good) - 1, &json, err) && json_print_text(json, &text, err);
    if (ok && strcmp(text, wanted) != 0)
        ok = error_set(err, ERR_INTERNAL, "the JSON library (%s) reads '%s' as '%s'",
                       json_library_version(), good, text);
    free(text);
    json_free(json);
    return ok;
}

void json_free(struct json *json)
{
    cJSON_Delete(inside(json)); /* NULL is fine */
}

enum json_kind json_kind_of(const struct json *json)
{
    const cJSON *item = inside(json);

    if (cJSON_IsObject(item))
        return JSON_OBJECT;
    if (cJSON_IsArray(item))
        return JSON_ARRAY;
    if (cJSON_IsString(item))
        return JSON_STRING;
    if (cJSON_IsNumber(item))
        return JSON_NUMBER;
    return cJSON_IsBool(item) ? JSON_BOOL : JSON_NULL;
}

const struct json *json_member(const struct json *object, const char *name)
{
    if (!cJSON_IsObject(inside(object)))
        return NULL;
    return outside(cJSON_GetObjectItemCaseSensitive(inside(object), name));
}

const struct json *json_first(const struct json *array_or_object)
{
    return array_or_object ? outside(inside(array_or_object)->child) : NULL;
}

const struct json *json_next(const struct json *element)
{
    return outside(inside(element)->next);
}

size_t json_count(const struct json *array_or_object)
{
    size_t count = 0;

    for (const struct json *next = json_first(array_or_object); next; next = json_next(next))
        count++;
    return count;
}

const struct json *json_at(const struct json *array_or_object, size_t index)
{
    const struct json *next = json_first(array_or_object);

    while (next && index--)
        next = json_next(next);
    return next;
}

const char *json_name(const struct json *member)
{
    return inside(member)->string;
}

const char *json_text(const struct json *string)
{
    return cJSON_GetStringValue(inside(string));
}

double json_number(const struct json *number)
{
    return cJSON_IsNumber(inside(number)) ? inside(number)->valuedouble : 0;
}

bool json_flag(const struct json *flag)
{
    return cJSON_IsTrue(inside(flag));
}

/* ---- fields --------------------------------------------------------------------------------- */

static const char *kind_name(enum json_kind kind)
{
    static const char *const names[] = {"null",     "true or false", "a number",
                                        "a string", "an array",      "an object"};

    return names[kind];
}

/* Finds a field of the wanted kind. True with *ret_member as it was: absent and not required. */
static bool get(const struct json *object, const char *field, bool required, enum json_kind kind,
                const struct json **ret_member, struct error *err)
{
    const struct json *member = json_member(object, field);

    if (!member || json_kind_of(member) == JSON_NULL) {
        if (required)
            return error_set_param(err, ERR_INVALID, field, "field '%s' is missing", field);
        return true;
    }
    if (json_kind_of(member) != kind)
        return error_set_param(err, ERR_INVALID, field, "field '%s' is %s, %s is needed", field,
                               kind_name(json_kind_of(member)), kind_name(kind));
    *ret_member = member;
    return true;
}

bool json_get_string(const struct json *object, const char *field, bool required,
                     const char **ret_text, struct error *err)
{
    const struct json *member = NULL;

    if (!get(object, field, required, JSON_STRING, &member, err))
        return false;
    if (member)
        *ret_text = json_text(member);
    return true;
}

bool json_get_int(const struct json *object, const char *field, bool required, int64_t min,
                  int64_t max, int64_t *ret_number, struct error *err)
{
    const struct json *member = NULL;
    double number;

    if (!get(object, field, required, JSON_NUMBER, &member, err))
        return false;
    if (!member)
        return true;
    number = json_number(member);
    if (number != floor(number) || fabs(number) > EXACT_MAX || (int64_t)number < min ||
        (int64_t)number > max)
        return error_set_param(err, ERR_INVALID, field,
                               "field '%s' is %.17g, a whole number from %lld to %lld is needed",
                               field, number, (long long)min, (long long)max);
    *ret_number = (int64_t)number;
    return true;
}

bool json_get_double(const struct json *object, const char *field, bool required, double min,
                     double max, double *ret_number, struct error *err)
{
    const struct json *member = NULL;
    double number;

    if (!get(object, field, required, JSON_NUMBER, &member, err))
        return false;
    if (!member)
        return true;
    number = json_number(member);
    if (!(number >= min && number <= max))
        return error_set_param(err, ERR_INVALID, field,
                               "field '%s' is %.17g, a number from %g to %g is needed", field,
                               number, min, max);
    *ret_number = number;
    return true;
}

bool json_get_bool(const struct json *object, const char *field, bool required, bool *ret_flag,
                   struct error *err)
{
    const struct json *member = NULL;

    if (!get(object, field, required, JSON_BOOL, &member, err))
        return false;
    if (member)
        *ret_flag = cJSON_IsTrue(inside(member));
    return true;
}

bool json_get_object(const struct json *object, const char *field, bool required,
                     const struct json **ret_object, struct error *err)
{
    return get(object, field, required, JSON_OBJECT, ret_object, err);
}

bool json_get_array(const struct json *object, const char *field, bool required,
                    const struct json **ret_array, struct error *err)
{
    return get(object, field, required, JSON_ARRAY, ret_array, err);
}

bool json_only_fields(const struct json *object, const char *const *known, struct error *err)
{
    for (const struct json *next = json_first(object); next; next = json_next(next)) {
        const char *name = json_name(next);
        const char *const *field = known;

        while (*field && strcmp(*field, name) != 0)
            field++;
        if (!*field)
            return error_set_param(err, ERR_INVALID, name, "field '%s' is not known here", name);
    }
    return true;
}

/* ---- building ------------------------------------------------------------------------------- */

struct json *json_new_object(void)
{
    return outside(cJSON_CreateObject());
}

struct json *json_new_array(void)
{
    return outside(cJSON_CreateArray());
}

struct json *json_new_null(void)
{
    return outside(cJSON_CreateNull());
}

static void add(struct json *parent, const char *name, cJSON *child)
{
    cJSON *item = inside(parent);
    bool added;

    if (!parent) {
        cJSON_Delete(child);
        return;
    }
    assert(cJSON_IsArray(item) || (cJSON_IsObject(item) && name));
    if (!child)
        added = false;
    else if (cJSON_IsArray(item))
        added = cJSON_AddItemToArray(item, child);
    else
        added = cJSON_AddItemToObject(item, name, child);
    if (!added) {
        cJSON_Delete(child);
        item->type |= LOST;
    }
}

void json_add_string(struct json *object, const char *name, const char *text)
{
    add(object, name, text ? cJSON_CreateString(text) : cJSON_CreateNull());
}

void json_add_int(struct json *object, const char *name, int64_t number)
{
    add(object, name, cJSON_CreateNumber((double)number));
}

void json_add_double(struct json *object, const char *name, double number)
{
    add(object, name, isfinite(number) ? cJSON_CreateNumber(number) : cJSON_CreateNull());
}

void json_add_measured(struct json *object, const char *name, double number)
{
    char reason_name[64];

    json_add_double(object, name, number);
    if (isfinite(number))
        return;
    (void)snprintf(reason_name, sizeof(reason_name), "%s_reason", name);
    json_add_string(object, reason_name, isnan(number) ? "not a number" : "too large for a number");
}

void json_add_bool(struct json *object, const char *name, bool flag)
{
    add(object, name, cJSON_CreateBool(flag));
}

void json_add_null(struct json *object, const char *name)
{
    add(object, name, cJSON_CreateNull());
}

void json_add(struct json *object_or_array, const char *name, struct json *child)
{
    add(object_or_array, name, child ? inside(child) : NULL);
}

struct json *json_copy(const struct json *json)
{
    return json ? outside(cJSON_Duplicate(inside(json), true)) : json_new_null();
}

bool json_is_whole(const struct json *json)
{
    bool whole = json && !(inside(json)->type & LOST);

    for (const struct json *child = json_first(json); whole && child; child = json_next(child))
        whole = json_is_whole(child);
    return whole;
}

/* ---- printing ------------------------------------------------------------------------------- */

/* Names come from users and from disk: bytes that are not UTF-8 become U+FFFD. */
static void print_string(const char *text, struct buf *out)
{
    size_t size = strlen(text), fault = utf8_find_fault(text, size);
    struct buf mended;

    if (fault == size) {
        jsontext_write_string(text, size, out);
        return;
    }
    buf_init(&mended, size * 3);
    while (fault < size) {
        buf_append(&mended, text, fault);
        buf_append_text(&mended, "\xef\xbf\xbd");
        text += fault + 1;
        size -= fault + 1;
        fault = utf8_find_fault(text, size);
    }
    buf_append(&mended, text, size);
    if (mended.failed)
        out->failed = true;
    else
        jsontext_write_string(mended.data, mended.size, out);
    buf_release(&mended);
}

static void print_number(double number, struct buf *out)
{
    char text[JSONTEXT_NUMBER_MAX];

    if (number == floor(number) && fabs(number) <= EXACT_MAX) {
        buf_format(out, "%lld", (long long)number);
        return;
    }
    jsontext_format_double(number, text);
    buf_append_text(out, text);
}

static bool print_value(const cJSON *item, struct buf *out)
{
    bool is_object = cJSON_IsObject(item);

    if (item->type & LOST)
        return false;
    if (!is_object && !cJSON_IsArray(item)) {
        if (cJSON_IsString(item))
            print_string(item->valuestring, out);
        else if (cJSON_IsNumber(item))
            print_number(item->valuedouble, out);
        else
            buf_append_text(out, cJSON_IsTrue(item)    ? "true"
                                 : cJSON_IsFalse(item) ? "false"
                                                       : "null");
        return true;
    }
    buf_append_char(out, is_object ? '{' : '[');
    for (const cJSON *child = item->child; child; child = child->next) {
        if (child != item->child)
            buf_append_char(out, ',');
        if (is_object) {
            print_string(child->string, out);
            buf_append_char(out, ':');
        }
        if (!print_value(child, out))
            return false;
    }
    buf_append_char(out, is_object ? '}' : ']');
    return true;
}

bool json_print(const struct json *json, struct buf *out, struct error *err)
{
    if (!json || !print_value(inside(json), out))
        return error_set(err, ERR_NO_MEMORY, "build JSON: out of memory");
    if (out->failed)
        return error_set(err, out->size < out->max_size / 2 ? ERR_NO_MEMORY : ERR_LIMIT,
                         "print JSON: more than %zu bytes, or out of memory", out->max_size);
    return true;
}

bool json_print_text(const struct json *json, char **ret_text, struct error *err)
{
    struct buf text;
    char *taken;

    buf_init(&text, SIZE_MAX / 4);
    if (!json_print(json, &text, err)) {
        buf_release(&text);
        return false;
    }
    taken = buf_take(&text, NULL);
    if (!taken)
        return error_set(err, ERR_NO_MEMORY, "print JSON: out of memory");
    *ret_text = taken;
    return true;
}
