#include "daemon/model/safetensors.h"

#include "daemon/base/arena.h"
#include "daemon/base/file.h"
#include "daemon/base/size.h"
#include "daemon/base/strict.h"
#include "daemon/base/utf8.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PREFIX_BYTES 8
#define SHOWN_NAME_BYTES 100                  /* of a name in a message */
#define HEADER_MEMORY_BYTES ((size_t)1 << 30) /* for a header of the largest size */
#define METADATA_NAME "__metadata__"

struct entry {
    const char *key, *value;
};

struct safetensors {
    struct mapping map;
    struct timespec changed; /* the file's date when it was mapped */
    struct arena arena;      /* names, metadata and the parsed header */
    const unsigned char *data;
    size_t data_bytes;
    struct tensor *tensors; /* by name */
    size_t tensor_count;
    struct entry *metadata;
    size_t metadata_count;
};

static const struct {
    const char *name;
    size_t size_bytes;
} types[] = {
    [TENSOR_F32] = {"F32", 4},   [TENSOR_F16] = {"F16", 2}, [TENSOR_BF16] = {"BF16", 2},
    [TENSOR_F64] = {"F64", 8},   [TENSOR_I64] = {"I64", 8}, [TENSOR_I32] = {"I32", 4},
    [TENSOR_I16] = {"I16", 2},   [TENSOR_I8] = {"I8", 1},   [TENSOR_U8] = {"U8", 1},
    [TENSOR_BOOL] = {"BOOL", 1}, [TENSOR_U16] = {"U16", 2}, [TENSOR_U32] = {"U32", 4},
    [TENSOR_U64] = {"U64", 8},
};
static_assert(COUNT_OF(types) == TENSOR_TYPE_COUNT, "every element type has a name and a size");

const char *tensor_type_name(enum tensor_type type)
{
    assert(type < TENSOR_TYPE_COUNT);
    return types[type].name;
}

size_t tensor_type_size(enum tensor_type type)
{
    assert(type < TENSOR_TYPE_COUNT);
    return types[type].size_bytes;
}

/* ---- reading: the header's values ------------------------------------------------------------ */

/* A tensor as the header declares it, before its range is believed. */
struct claim {
    struct tensor tensor;
    const char *type_name;
    size_t begin, end;
};

/* How much of a name fits a message, in whole characters. */
static int shown(const char *name)
{
    size_t size = strlen(name), used = 0, step;
    uint32_t code;

    while (used < size && (step = utf8_decode(name + used, size - used, &code)) != 0 &&
           used + step <= SHOWN_NAME_BYTES)
        used += step;
    return (int)used;
}

static bool whole_number(const struct strict_value *value, size_t *ret_number)
{
    size_t number = 0;

    if (!value || value->kind != STRICT_INT || value->text[0] == '-')
        return false;
    for (size_t i = 0; i < value->size; i++)
        if (!size_mul(number, 10, &number) ||
            !size_add(number, (size_t)(value->text[i] - '0'), &number))
            return false;
    *ret_number = number;
    return true;
}

/* A terminated copy; NULs inside would cut it and are refused. */
static bool copy_text(struct safetensors *file, const char *text, size_t size,
                      const char **ret_text, struct error *err)
{
    char *copy;

    if (size && memchr(text, 0, size))
        return error_set(err, ERR_CORRUPT, "a name or metadata text in the header holds \\u0000");
    copy = arena_copy(&file->arena, text, size);
    if (!copy)
        return error_set(err, ERR_NO_MEMORY, "no memory for the header's names");
    *ret_text = copy;
    return true;
}

static bool read_metadata(struct safetensors *file, const struct strict_value *object,
                          struct error *err)
{
    if (object->kind != STRICT_OBJECT)
        return error_set(err, ERR_CORRUPT, "'" METADATA_NAME "' is %s, an object was needed",
                         strict_kind_name(object->kind));
    if (!object->count)
        return true;
    file->metadata = arena_alloc(&file->arena, object->count * sizeof(*file->metadata));
    if (!file->metadata)
        return error_set(err, ERR_NO_MEMORY, "no memory for %zu metadata entries", object->count);
    for (const struct strict_value *member = object->child; member; member = member->next) {
        struct entry *entry = &file->metadata[file->metadata_count];

        if (!copy_text(file, member->key, member->key_size, &entry->key, err))
            return false;
        if (member->kind != STRICT_STRING)
            return error_set(err, ERR_CORRUPT, "metadata '%.*s' is %s, a string was needed",
                             shown(entry->key), entry->key, strict_kind_name(member->kind));
        if (!copy_text(file, member->text, member->size, &entry->value, err))
            return false;
        file->metadata_count++;
    }
    return true;
}

static bool read_shape(const struct strict_value *shape, struct tensor *tensor, struct error *err)
{
    const char *name = tensor->name;
    size_t axis = 0;

    if (!shape || shape->kind != STRICT_ARRAY)
        return error_set(err, ERR_CORRUPT, "tensor '%.*s' has no array 'shape'", shown(name), name);
    if (shape->count > LIMIT_TENSOR_RANK)
        return error_set(err, ERR_LIMIT, "tensor '%.*s' has %zu dimensions, at most %d are read",
                         shown(name), name, shape->count, LIMIT_TENSOR_RANK);
    tensor->rank = shape->count;
    tensor->element_count = 1;
    for (const struct strict_value *child = shape->child; child; child = child->next) {
        if (!whole_number(child, &tensor->shape[axis]) ||
            !size_mul(tensor->element_count, tensor->shape[axis], &tensor->element_count))
            return error_set(err, ERR_CORRUPT,
                             "tensor '%.*s' has an impossible shape: dimension %zu is '%.*s'",
                             shown(name), name, axis, child->size < 40 ? (int)child->size : 40,
                             child->text ? child->text : "");
        axis++;
    }
    return true;
}

static bool read_range(const struct strict_value *offsets, struct claim *claim, struct error *err)
{
    const char *name = claim->tensor.name;

    if (!offsets || offsets->kind != STRICT_ARRAY || offsets->count != 2 ||
        !whole_number(offsets->child, &claim->begin) ||
        !whole_number(offsets->child->next, &claim->end))
        return error_set(err, ERR_CORRUPT,
                         "tensor '%.*s' needs 'data_offsets' of two whole numbers", shown(name),
                         name);
    if (claim->begin > claim->end)
        return error_set(err, ERR_CORRUPT, "tensor '%.*s' has a reversed range: %zu to %zu",
                         shown(name), name, claim->begin, claim->end);
    return true;
}

static bool read_claim(struct safetensors *file, const struct strict_value *member,
                       struct claim *ret_claim, struct error *err)
{
    struct claim claim = {.tensor = {.name = "", .type = TENSOR_TYPE_COUNT}, .type_name = ""};
    struct tensor *tensor = &claim.tensor;
    const struct strict_value *type;
    size_t wanted;

    if (!copy_text(file, member->key, member->key_size, &tensor->name, err))
        return false;
    if (member->kind != STRICT_OBJECT)
        return error_set(err, ERR_CORRUPT, "tensor '%.*s' is described by %s, not an object",
                         shown(tensor->name), tensor->name, strict_kind_name(member->kind));
    type = strict_member(member, "dtype");
    if (!type || type->kind != STRICT_STRING)
        return error_set(err, ERR_CORRUPT, "tensor '%.*s' has no text 'dtype'", shown(tensor->name),
                         tensor->name);
    if (!copy_text(file, type->text, type->size, &claim.type_name, err))
        return false;
    for (size_t i = 0; i < COUNT_OF(types); i++)
        if (strcmp(types[i].name, claim.type_name) == 0)
            tensor->type = (enum tensor_type)i;
    if (!read_shape(strict_member(member, "shape"), tensor, err) ||
        !read_range(strict_member(member, "data_offsets"), &claim, err))
        return false;
    tensor->size_bytes = claim.end - claim.begin;
    if (tensor->type != TENSOR_TYPE_COUNT) {
        if (!size_mul(tensor->element_count, types[tensor->type].size_bytes, &wanted))
            return error_set(err, ERR_CORRUPT, "tensor '%.*s' has an impossible shape",
                             shown(tensor->name), tensor->name);
        if (wanted != tensor->size_bytes)
            return error_set(err, ERR_CORRUPT,
                             "tensor '%.*s': its shape wants %zu bytes, its range has %zu",
                             shown(tensor->name), tensor->name, wanted, tensor->size_bytes);
    }
    *ret_claim = claim;
    return true;
}

/* ---- reading: the ranges --------------------------------------------------------------------- */

static int by_begin(const void *left, const void *right)
{
    const struct claim *a = left, *b = right;

    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return strcmp(a->tensor.name, b->tensor.name);
}

static int by_name(const void *left, const void *right)
{
    const struct tensor *a = left, *b = right;

    return strcmp(a->name, b->name);
}

/* The ranges must tile the data: inside the file, without overlaps and without holes. */
static bool check_ranges(const struct safetensors *file, struct claim *claims, size_t count,
                         struct error *err)
{
    size_t covered = 0;

    qsort(claims, count, sizeof(*claims), by_begin);
    for (size_t i = 0; i < count; i++) {
        const char *name = claims[i].tensor.name;

        if (claims[i].begin < covered) {
            const char *before = claims[i - 1].tensor.name;

            return error_set(err, ERR_CORRUPT,
                             "tensors '%.*s' and '%.*s' overlap: bytes %zu to %zu and %zu to %zu",
                             shown(before), before, shown(name), name, claims[i - 1].begin,
                             claims[i - 1].end, claims[i].begin, claims[i].end);
        }
        if (claims[i].end > file->data_bytes)
            return error_set(err, ERR_CORRUPT,
                             "tensor '%.*s' ends at byte %zu of the data, the file has %zu: it "
                             "looks cut off",
                             shown(name), name, claims[i].end, file->data_bytes);
        if (claims[i].begin > covered)
            return error_set(err, ERR_CORRUPT,
                             "bytes %zu to %zu of the data, before tensor '%.*s', belong to no "
                             "tensor",
                             covered, claims[i].begin, shown(name), name);
        covered = claims[i].end;
    }
    if (covered != file->data_bytes)
        return error_set(err, ERR_CORRUPT,
                         "the tensors end at byte %zu of the data, the file has %zu", covered,
                         file->data_bytes);
    return true;
}

static bool check_types(const struct claim *claims, size_t count, struct error *err)
{
    for (size_t i = 0; i < count; i++)
        if (claims[i].tensor.type == TENSOR_TYPE_COUNT)
            return error_set(err, ERR_INVALID,
                             "the container is fine, but the element type %.*s of tensor '%.*s' is "
                             "not supported",
                             shown(claims[i].type_name), claims[i].type_name,
                             shown(claims[i].tensor.name), claims[i].tensor.name);
    return true;
}

/* ---- reading: the file ----------------------------------------------------------------------- */

static bool looks_pickled(const struct mapping *map)
{
    const unsigned char *bytes = map->data;

    if (map->size < 2 || bytes[map->size - 1] != '.')
        return false;
    return (bytes[0] == 0x80 && bytes[1] >= 1 && bytes[1] <= 8) || strchr("c(}]", bytes[0]);
}

/* Finds the header; nothing is allocated by a number from the file. */
static bool find_header(struct safetensors *file, size_t *ret_size, struct error *err)
{
    const struct mapping *map = &file->map;
    size_t size = 0, swapped = 0;

    if (map->size < PREFIX_BYTES)
        return error_set(err, ERR_CORRUPT,
                         "%zu bytes, too short: the header's length alone takes %d bytes",
                         map->size, PREFIX_BYTES);
    for (size_t i = 0; i < PREFIX_BYTES; i++) {
        size |= (size_t)map->data[i] << (8 * i);
        swapped = swapped << 8 | map->data[i];
    }
    if (size > map->size - PREFIX_BYTES) {
        bool fits = swapped <= map->size - PREFIX_BYTES;

        if (looks_pickled(map))
            return error_set(err, ERR_INVALID,
                             "this is a Python pickle, not a safetensors file; it is not run");
        return error_set(err, ERR_CORRUPT,
                         "the header length says %zu bytes, past the end: the file has %zu%s", size,
                         map->size - PREFIX_BYTES,
                         fits ? " (the length is written in big-endian order)" : "");
    }
    if (size > LIMIT_HEADER_BYTES)
        return error_set(err, ERR_LIMIT, "the header has %zu bytes, at most %zu are read", size,
                         LIMIT_HEADER_BYTES);
    file->data = map->data + PREFIX_BYTES + size;
    file->data_bytes = map->size - PREFIX_BYTES - size;
    *ret_size = size;
    return true;
}

static bool parse_header(struct safetensors *file, size_t size, struct strict_value **ret_header,
                         struct error *err)
{
    const char *text = (const char *)file->map.data + PREFIX_BYTES;
    struct strict_report report = {0};
    const struct strict_finding *finding = &report.fault;
    bool taken = strict_read(text, size, &file->arena, &report, ret_header);

    if (file->arena.starved)
        return error_set(err, ERR_NO_MEMORY, "no memory to read a header of %zu bytes", size);
    if (taken && !report.note_count) {
        if ((*ret_header)->kind == STRICT_OBJECT)
            return true;
        return error_set(err, ERR_CORRUPT, "the header is %s, a JSON object was needed",
                         strict_kind_name((*ret_header)->kind));
    }
    if (looks_pickled(&file->map))
        return error_set(err, ERR_INVALID,
                         "this is a Python pickle, not a safetensors file; it is not run");
    if (taken)
        finding = &report.notes[0];
    if (strcmp(finding->rule, "duplicate_key") == 0 && !finding->field[0])
        return error_set(err, ERR_CORRUPT, "a tensor is declared twice, at byte %zu: %s",
                         finding->column - 1, finding->reason);
    return error_set(err, ERR_CORRUPT, "the header is not valid JSON, at byte %zu: %s%s%s",
                     finding->column - 1, finding->field[0] ? finding->field : "",
                     finding->field[0] ? ": " : "", finding->reason);
}

static bool read_header(struct safetensors *file, struct error *err)
{
    struct strict_value *header = NULL;
    struct claim *claims;
    size_t size = 0, count = 0;

    if (!find_header(file, &size, err) || !parse_header(file, size, &header, err))
        return false;
    claims = arena_alloc(&file->arena, (header->count + 1) * sizeof(*claims));
    file->tensors = arena_alloc(&file->arena, (header->count + 1) * sizeof(*file->tensors));
    if (!claims || !file->tensors)
        return error_set(err, ERR_NO_MEMORY, "no memory for %zu tensors", header->count);
    for (const struct strict_value *member = header->child; member; member = member->next) {
        bool is_metadata = member->key_size == strlen(METADATA_NAME) &&
                           memcmp(member->key, METADATA_NAME, member->key_size) == 0;

        if (is_metadata ? !read_metadata(file, member, err)
                        : !read_claim(file, member, &claims[count], err))
            return false;
        if (!is_metadata)
            count++;
    }
    if (!check_ranges(file, claims, count, err) || !check_types(claims, count, err))
        return false;
    for (size_t i = 0; i < count; i++) {
        file->tensors[i] = claims[i].tensor;
        file->tensors[i].data = file->data ? file->data + claims[i].begin : NULL;
    }
    file->tensor_count = count;
    qsort(file->tensors, count, sizeof(*file->tensors), by_name);
    return true;
}

bool safetensors_open(const char *path, struct safetensors **ret_file, struct error *err)
{
    struct safetensors *file = calloc(1, sizeof(*file));
    struct stat info;

    if (!file)
        return error_set(err, ERR_NO_MEMORY, "no memory to read '%s'", path);
    file->map = MAPPING_NONE;
    arena_init(&file->arena, HEADER_MEMORY_BYTES);
    if (!mapping_open(&file->map, path, err))
        goto out;
    if (fstat(file->map.descriptor, &info) == 0) /* an open file: cannot fail */
        file->changed = info.st_mtim;
    if (!read_header(file, err)) {
        error_wrap(err, "read '%s'", path);
        goto out;
    }
    *ret_file = file;
    return true;
out:
    safetensors_close(file);
    return false;
}

void safetensors_close(struct safetensors *file)
{
    if (!file)
        return;
    arena_release(&file->arena);
    mapping_close(&file->map);
    free(file);
}

size_t safetensors_size_bytes(const struct safetensors *file)
{
    return file->map.size;
}

bool safetensors_check_unchanged(const struct safetensors *file, struct error *err)
{
    struct stat info;

    if (fstat(file->map.descriptor, &info) != 0)
        return error_set(err, ERR_IO, "the open file cannot be looked at");
    if ((size_t)info.st_size != file->map.size)
        return error_set(err, ERR_CORRUPT,
                         "the file was written to while it was in use: it had %zu bytes and has "
                         "%lld; replace a file by renaming a new one over it",
                         file->map.size, (long long)info.st_size);
    if (info.st_mtim.tv_sec != file->changed.tv_sec ||
        info.st_mtim.tv_nsec != file->changed.tv_nsec)
        return error_set(
            err, ERR_CORRUPT,
            "the file was written to while it was in use; replace a file by renaming a "
            "new one over it");
    return true;
}

size_t safetensors_count(const struct safetensors *file)
{
    return file->tensor_count;
}

const struct tensor *safetensors_at(const struct safetensors *file, size_t index)
{
    assert(index < file->tensor_count);
    return &file->tensors[index];
}

const struct tensor *safetensors_find(const struct safetensors *file, const char *name)
{
    struct tensor wanted = {.name = name};

    return bsearch(&wanted, file->tensors, file->tensor_count, sizeof(wanted), by_name);
}

const char *safetensors_metadata(const struct safetensors *file, const char *key)
{
    for (size_t i = 0; i < file->metadata_count; i++)
        if (strcmp(file->metadata[i].key, key) == 0)
            return file->metadata[i].value;
    return NULL;
}

/* ---- values ---------------------------------------------------------------------------------- */

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

float f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 0x1F;
    uint32_t fraction = half & 0x3FF;

    if (exponent == 0x1F)
        return float_of(sign | 0x7F800000 | fraction << 13);
    if (exponent)
        return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    /* subnormal: fraction * 2^-24, exact in float32 */
    return float_of(sign | 0x3F800000) * ((float)fraction * 0x1p-24F);
}

uint16_t f32_to_f16(float value)
{
    uint32_t bits, sign, magnitude, shift, kept, rest, half;

    memcpy(&bits, &value, sizeof(bits));
    sign = bits >> 16 & 0x8000;
    magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) /* NaN: keep what fits of it, never make it infinite */
        return (uint16_t)(sign | 0x7E00 | (magnitude >> 13 & 0x3FF));
    if (magnitude >= 0x47800000) /* 2^16 and up */
        return (uint16_t)(sign | 0x7C00);
    if (magnitude < 0x33000000) /* below half of the smallest subnormal */
        return (uint16_t)sign;
    if (magnitude >= 0x38800000) { /* normal: move the exponent; a carry out may make it infinite */
        kept = (magnitude - 0x38000000) >> 13;
        rest = magnitude & 0x1FFF;
        half = 0x1000;
    } else {
        shift = 126 - (magnitude >> 23);
        magnitude = (magnitude & 0x7FFFFF) | 0x800000;
        kept = magnitude >> shift;
        rest = magnitude & ((1U << shift) - 1);
        half = 1U << (shift - 1);
    }
    if (rest > half || (rest == half && (kept & 1)))
        kept++;
    return (uint16_t)(sign | kept);
}

bool tensor_to_f32(const struct tensor *tensor, float *ret_values, struct error *err)
{
    const unsigned char *bytes = tensor->data;
    uint16_t half;

    if (tensor->type == TENSOR_F32) {
        if (tensor->size_bytes)
            memcpy(ret_values, bytes, tensor->size_bytes);
        return true;
    }
    if (tensor->type != TENSOR_F16 && tensor->type != TENSOR_BF16)
        return error_set(err, ERR_INVALID,
                         "tensor '%.*s' has element type %s, F32, F16 or BF16 was needed",
                         shown(tensor->name), tensor->name, types[tensor->type].name);
    for (size_t i = 0; i < tensor->element_count; i++) {
        memcpy(&half, bytes + 2 * i, sizeof(half));
        ret_values[i] =
            tensor->type == TENSOR_F16 ? f16_to_f32(half) : float_of((uint32_t)half << 16);
    }
    return true;
}
