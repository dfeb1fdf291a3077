#include "daemon/base/strict.h"

#include "daemon/base/strict_scan.h"
#include "daemon/base/utf8.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define FEW_KEYS 16 /* up to here repeated keys are looked for pair by pair */

/* ---- containers ------------------------------------------------------------------------------ */

static bool read_value(struct strict_reader *reader, struct strict_value *value);

static bool open_container(struct strict_reader *reader)
{
    if (reader->depth >= LIMIT_JSON_DEPTH)
        return strict_scan_refuse(reader, reader->at, "nesting", "nested deeper than %d levels",
                                  LIMIT_JSON_DEPTH);
    reader->depth++;
    reader->at++;
    strict_scan_skip_space(reader);
    return true;
}

/* After an element: true if another follows, with *ret_done otherwise; false is a fault. */
static bool next_element(struct strict_reader *reader, char closing, bool *ret_done)
{
    size_t comma;

    strict_scan_skip_space(reader);
    if (strict_scan_take_char(reader, closing)) {
        *ret_done = true;
        return true;
    }
    comma = reader->at;
    if (!strict_scan_take_char(reader, ','))
        return strict_scan_refuse_here(reader, closing == ']' ? "',' or ']'" : "',' or '}'");
    strict_scan_skip_space(reader);
    if (reader->at < reader->size && reader->text[reader->at] == closing)
        return strict_scan_refuse(reader, comma, "not_json",
                                  "not JSON: a trailing comma before '%c'", closing);
    *ret_done = false;
    return true;
}

static struct strict_value *add_child(struct strict_reader *reader, struct strict_value *parent,
                                      struct strict_value **last)
{
    struct strict_value *child = arena_alloc(reader->arena, sizeof(*child));

    if (!child) {
        (void)strict_scan_refuse_memory(reader); /* the caller sees the NULL */
        return NULL;
    }
    if (*last)
        (*last)->next = child;
    else
        parent->child = child;
    *last = child;
    parent->count++;
    return child;
}

static bool read_array(struct strict_reader *reader, struct strict_value *array)
{
    struct strict_value *last = NULL;
    bool done;

    array->kind = STRICT_ARRAY;
    if (!open_container(reader))
        return false;
    done = strict_scan_take_char(reader, ']');
    while (!done) {
        struct strict_value *element = add_child(reader, array, &last);

        strict_scan_enter(reader, NULL, 0, array->count - 1);
        if (!element || !read_value(reader, element))
            return false;
        reader->place_count--;
        if (!next_element(reader, ']', &done))
            return false;
    }
    reader->depth--;
    return true;
}

static bool same_key(const struct strict_value *a, const struct strict_value *b)
{
    return a->key_size == b->key_size &&
           (a->key_size == 0 || memcmp(a->key, b->key, a->key_size) == 0);
}

/* Orders members by key, then by place in the text: a node's address says nothing, its column
 * does. */
static int compare_members(const void *left, const void *right)
{
    const struct strict_value *a = *(struct strict_value *const *)left;
    const struct strict_value *b = *(struct strict_value *const *)right;
    size_t shorter = a->key_size < b->key_size ? a->key_size : b->key_size;
    int order = shorter ? memcmp(a->key, b->key, shorter) : 0;

    if (order)
        return order;
    if (a->key_size != b->key_size)
        return a->key_size < b->key_size ? -1 : 1;
    return a->key_column < b->key_column ? -1 : a->key_column > b->key_column;
}

static void note_duplicate(struct strict_reader *reader, const struct strict_value *member)
{
    size_t shown = utf8_cut(member->key, member->key_size, 60);

    strict_scan_enter(reader, member->key, member->key_size, 0);
    strict_scan_note(reader, member->key_column - 1, "duplicate_key",
                     "the key '%.*s' stands twice in one object", (int)shown, member->key);
    reader->place_count--;
}

/* The later value takes the earlier one's place, the key stays where it was first. */
static void replace_value(struct strict_value *first, const struct strict_value *later)
{
    struct strict_value kept = *first;

    *first = *later;
    first->key = kept.key;
    first->key_size = kept.key_size;
    first->key_column = kept.key_column;
    first->next = kept.next;
}

/* Marks a member for removal by taking its key away. */
static void merge_member(struct strict_reader *reader, struct strict_value *first,
                         struct strict_value *later)
{
    note_duplicate(reader, later);
    replace_value(first, later);
    later->key = NULL;
}

static bool merge_duplicates(struct strict_reader *reader, struct strict_value *object)
{
    struct strict_value **members, **link, *first;
    size_t i = 0;

    members = arena_alloc(reader->arena, object->count * sizeof(struct strict_value *));
    if (!members)
        return strict_scan_refuse_memory(reader);
    for (struct strict_value *member = object->child; member; member = member->next)
        members[i++] = member;
    qsort(members, object->count, sizeof(struct strict_value *), compare_members);
    first = members[0];
    for (i = 1; i < object->count; i++) {
        if (same_key(first, members[i]))
            merge_member(reader, first, members[i]);
        else
            first = members[i];
    }
    object->count = 0;
    for (link = &object->child; *link;) {
        if ((*link)->key) {
            object->count++;
            link = &(*link)->next;
        } else {
            *link = (*link)->next;
        }
    }
    return true;
}

static bool has_duplicates(const struct strict_value *object)
{
    if (object->count > FEW_KEYS)
        return true; /* the sort finds out */
    for (const struct strict_value *a = object->child; a; a = a->next)
        for (const struct strict_value *b = a->next; b; b = b->next)
            if (same_key(a, b))
                return true;
    return false;
}

static bool read_object(struct strict_reader *reader, struct strict_value *object)
{
    struct strict_value *last = NULL;
    bool done;

    object->kind = STRICT_OBJECT;
    if (!open_container(reader))
        return false;
    done = strict_scan_take_char(reader, '}');
    while (!done) {
        struct strict_value *member;

        if (reader->at >= reader->size || reader->text[reader->at] != '"')
            return strict_scan_refuse_here(reader, "a key in double quotes");
        member = add_child(reader, object, &last);
        if (member)
            member->key_column = reader->at + 1;
        if (!member || !strict_scan_read_string(reader, &member->key, &member->key_size))
            return false;
        strict_scan_enter(reader, member->key, member->key_size, 0);
        strict_scan_skip_space(reader);
        if (!strict_scan_take_char(reader, ':'))
            return strict_scan_refuse_here(reader, "':'");
        strict_scan_skip_space(reader);
        if (!read_value(reader, member))
            return false;
        reader->place_count--;
        if (!next_element(reader, '}', &done))
            return false;
    }
    if (has_duplicates(object) && !merge_duplicates(reader, object))
        return false;
    reader->depth--;
    return true;
}

/* True when the text ends inside one of the words that stand for a value. */
static bool ends_in_word(const struct strict_reader *reader)
{
    static const char *const words[] = {"true", "false", "null", "NaN", "Infinity"};
    size_t left = reader->size - reader->at;

    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (left < strlen(words[i]) && memcmp(reader->text + reader->at, words[i], left) == 0)
            return true;
    return false;
}

static bool read_word(struct strict_reader *reader, struct strict_value *value)
{
    size_t start = reader->at;

    if (strict_scan_take_word(reader, "null"))
        return true; /* STRICT_NULL is 0 */
    if (strict_scan_take_word(reader, "NaN")) {
        value->kind = STRICT_FLOAT;
        value->text = reader->text + start;
        value->size = reader->at - start;
        strict_scan_note(reader, start, "not_a_number", "NaN is not JSON");
        return true;
    }
    value->kind = STRICT_BOOL;
    value->flag = strict_scan_take_word(reader, "true");
    if (value->flag || strict_scan_take_word(reader, "false"))
        return true;
    if (ends_in_word(reader))
        reader->at = reader->size;
    return strict_scan_refuse_here(reader, "a value");
}

static bool read_value(struct strict_reader *reader, struct strict_value *value)
{
    char byte = reader->at < reader->size ? reader->text[reader->at] : '\0';

    value->column = reader->at + 1;
    if (byte == '{')
        return read_object(reader, value);
    if (byte == '[')
        return read_array(reader, value);
    if (byte == '"') {
        value->kind = STRICT_STRING;
        return strict_scan_read_string(reader, &value->text, &value->size);
    }
    if (byte == '-' || (byte >= '0' && byte <= '9'))
        return strict_scan_read_number(reader, value);
    if (strict_scan_take_word(reader, "Infinity"))
        return strict_scan_read_infinity(reader, value);
    return read_word(reader, value);
}

/* ---- the module's face ----------------------------------------------------------------------- */

bool strict_read(const char *text, size_t size, struct arena *arena,
                 struct strict_report *ret_report, struct strict_value **ret_value)
{
    struct strict_reader reader = {
        .text = size > 0 ? text : "", .size = size, .arena = arena, .report = ret_report};
    struct strict_value *value = arena_alloc(arena, sizeof(*value));
    size_t fault = utf8_find_fault(text, size);

    *ret_report = (struct strict_report){0};
    if (!value)
        return strict_scan_refuse_memory(&reader);
    if (fault < size)
        return strict_scan_refuse(&reader, fault, "not_utf8", "not UTF-8: byte 0x%02x",
                                  (unsigned char)text[fault]);
    strict_scan_skip_space(&reader);
    if (!read_value(&reader, value))
        return false;
    strict_scan_skip_space(&reader);
    if (reader.at < size)
        return strict_scan_refuse(&reader, reader.at, "trailing_text", "more text after the %s",
                                  value->kind == STRICT_OBJECT ? "object" : "value");
    assert(reader.depth == 0);
    *ret_value = value;
    return true;
}

const struct strict_value *strict_member(const struct strict_value *object, const char *name)
{
    size_t size = strlen(name);

    if (object->kind != STRICT_OBJECT)
        return NULL;
    for (const struct strict_value *member = object->child; member; member = member->next)
        if (member->key_size == size && memcmp(member->key, name, size) == 0)
            return member;
    return NULL;
}

bool strict_is(const struct strict_value *value, const char *text)
{
    return value->kind == STRICT_STRING && value->size == strlen(text) &&
           memcmp(value->text, text, value->size) == 0;
}

const char *strict_kind_name(enum strict_kind kind)
{
    switch (kind) {
    case STRICT_NULL:
        return "null";
    case STRICT_BOOL:
        return "true or false";
    case STRICT_INT:
    case STRICT_FLOAT:
        return "a number";
    case STRICT_STRING:
        return "a string";
    case STRICT_ARRAY:
        return "an array";
    case STRICT_OBJECT:
        return "an object";
    }
    return "a value";
}
