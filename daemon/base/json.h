/*
 * json: request bodies, records and configuration.
 *
 * Purpose    Wraps cJSON: parses strictly (the whole text, one value, bounded depth, no duplicate
 *            keys, UTF-8) and reads fields with presence, type and range checked and the field
 *            named. Data lines of a training file are not read here: see strict.h.
 * Ownership  json_parse and json_new_* hand a tree over; json_free takes it back. Children die with
 *            their root. Strings returned by getters are borrowed from the tree.
 * Threads    One tree, one thread.
 * Failure    Getters set ERR_INVALID with param = the field's path. Builders that run out of memory
 *            mark the root; json_print then fails.
 */
#ifndef NEEDLED_JSON_H
#define NEEDLED_JSON_H

#include "daemon/base/buf.h"
#include "daemon/base/error.h"

#include <stddef.h>
#include <stdint.h>

struct json; /* any JSON value */

enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

/* At start: known bad and known good texts go through the reader; its first mistake is
 * ERR_INTERNAL, so that a library that was built or patched otherwise is found before it serves
 * anybody. */
MUST_CHECK bool json_self_test(struct error *err);
const char *json_library_version(void);

/* err->message gives the byte offset of the first fault. */
MUST_CHECK bool json_parse(const char *text, size_t size, struct json **ret_json,
                           struct error *err);
/* What the text holds; where it is NULL or no JSON, what json_new_* makes. NULL without memory. */
struct json *json_parse_or(const char *text, struct json *(*json_new)(void));
void json_free(struct json *json); /* NULL is fine */

enum json_kind json_kind_of(const struct json *json);
const struct json *json_member(const struct json *object, const char *name); /* or NULL */
size_t json_count(const struct json *array_or_object);
const struct json *json_at(const struct json *array_or_object, size_t index);
/* The cheap way through a long array or object: first, then next until NULL. */
const struct json *json_first(const struct json *array_or_object);
const struct json *json_next(const struct json *element);
const char *json_name(const struct json *member); /* key of an object's member */
const char *json_text(const struct json *string); /* NULL if not a string */
double json_number(const struct json *number);    /* 0 if not a number */
bool json_flag(const struct json *flag);          /* false if not a bool */

/* Fields of an object. *ret is written only when the field is there and not null; `required` makes
 * an absent or null field an error. Unrequired and absent: true, *ret untouched. */
MUST_CHECK bool json_get_string(const struct json *object, const char *field, bool required,
                                const char **ret_text, struct error *err);
MUST_CHECK bool json_get_int(const struct json *object, const char *field, bool required,
                             int64_t min, int64_t max, int64_t *ret_number, struct error *err);
MUST_CHECK bool json_get_double(const struct json *object, const char *field, bool required,
                                double min, double max, double *ret_number, struct error *err);
MUST_CHECK bool json_get_bool(const struct json *object, const char *field, bool required,
                              bool *ret_flag, struct error *err);
MUST_CHECK bool json_get_object(const struct json *object, const char *field, bool required,
                                const struct json **ret_object, struct error *err);
MUST_CHECK bool json_get_array(const struct json *object, const char *field, bool required,
                               const struct json **ret_array, struct error *err);
/* Fails naming the first member that is not in `known` (NULL-terminated list). */
MUST_CHECK bool json_only_fields(const struct json *object, const char *const *known,
                                 struct error *err);

struct json *json_new_object(void); /* NULL without memory; json_add_* accept NULL and do nothing */
struct json *json_new_array(void);
struct json *json_new_null(void);
void json_add_string(struct json *object, const char *name, const char *text); /* NULL: null */
void json_add_int(struct json *object, const char *name, int64_t number);
void json_add_double(struct json *object, const char *name, double number); /* not finite: null */
/* The same for what may not be finite: then `<name>_reason` beside it says why. */
void json_add_measured(struct json *object, const char *name, double number);
void json_add_bool(struct json *object, const char *name, bool flag);
void json_add_null(struct json *object, const char *name);
/* The child is taken over; NULL is one that there was no memory for: the root is marked. name is ignored for
 * arrays (append). */
void json_add(struct json *object_or_array, const char *name, struct json *child);
struct json *json_copy(const struct json *json); /* of NULL: null */
bool json_is_whole(const struct json *json);     /* false: NULL, or marked somewhere */

/* Compact text; integers up to 2^53 without a fraction, doubles so that they read back equal. */
MUST_CHECK bool json_print(const struct json *json, struct buf *out, struct error *err);
/* The same into a fresh string for the caller to free(). */
MUST_CHECK bool json_print_text(const struct json *json, char **ret_text, struct error *err);

#endif
