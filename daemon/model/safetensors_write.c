#include "daemon/model/safetensors.h"

#include "daemon/base/buf.h"
#include "daemon/base/file.h"
#include "daemon/base/jsontext.h"
#include "daemon/base/size.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX_BYTES 8
#define ALIGNMENT 8

static int tensors_by_name(const void *left, const void *right)
{
    const struct tensor_out *a = left, *b = right;

    return strcmp(a->name, b->name);
}

static int metadata_by_key(const void *left, const void *right)
{
    const struct metadata_out *a = left, *b = right;

    return strcmp(a->key, b->key);
}

static bool size_of(const struct tensor_out *tensor, size_t *ret_size, struct error *err)
{
    size_t size = tensor_type_size(tensor->type);

    assert(tensor->rank <= LIMIT_TENSOR_RANK);
    for (size_t axis = 0; axis < tensor->rank; axis++)
        if (!size_mul(size, tensor->shape[axis], &size))
            return error_set(err, ERR_LIMIT, "tensor '%s' is too large for a file", tensor->name);
    *ret_size = size;
    return true;
}

static void append_string(struct buf *header, const char *text)
{
    jsontext_write_string(text, strlen(text), header);
}

static bool append_tensor(struct buf *header, const struct tensor_out *tensor, size_t *offset,
                          struct error *err)
{
    size_t size = 0, end;

    if (!size_of(tensor, &size, err))
        return false;
    if (!size_add(*offset, size, &end))
        return error_set(err, ERR_LIMIT, "tensor '%s' is too large for a file", tensor->name);
    append_string(header, tensor->name);
    buf_format(header, ":{\"dtype\":\"%s\",\"shape\":[", tensor_type_name(tensor->type));
    for (size_t axis = 0; axis < tensor->rank; axis++)
        buf_format(header, axis ? ",%zu" : "%zu", tensor->shape[axis]);
    buf_format(header, "],\"data_offsets\":[%zu,%zu]}", *offset, end);
    *offset = end;
    return true;
}

/* The prefix and the header, padded so that the data start on a multiple of ALIGNMENT. */
static bool make_header(struct buf *header, const struct tensor_out *tensors, size_t tensor_count,
                        const struct metadata_out *metadata, size_t metadata_count,
                        struct error *err)
{
    size_t offset = 0, size;

    buf_append(header, "\0\0\0\0\0\0\0\0{", PREFIX_BYTES + 1);
    for (size_t i = 0; i < metadata_count; i++) {
        buf_append_text(header, i ? "," : "\"__metadata__\":{");
        append_string(header, metadata[i].key);
        buf_append_char(header, ':');
        append_string(header, metadata[i].value);
    }
    if (metadata_count)
        buf_append_text(header, tensor_count ? "}," : "}");
    for (size_t i = 0; i < tensor_count; i++) {
        if (i)
            buf_append_char(header, ',');
        if (!append_tensor(header, &tensors[i], &offset, err))
            return false;
    }
    buf_append_char(header, '}');
    while (!header->failed && header->size % ALIGNMENT)
        buf_append_char(header, ' ');
    if (header->failed)
        return error_set(err, ERR_NO_MEMORY, "no memory for a header of %zu tensors", tensor_count);
    size = header->size - PREFIX_BYTES;
    for (size_t i = 0; i < PREFIX_BYTES; i++)
        header->data[i] = (char)(size >> (8 * i) & 0xFF);
    return true;
}

static bool write_file(const char *path, const struct buf *header, const struct tensor_out *tensors,
                       size_t tensor_count, struct file_writer **ret_writer, struct error *err)
{
    size_t size = 0;

    if (!file_writer_open(path, ret_writer, err) ||
        !file_writer_append(*ret_writer, header->data, header->size, err))
        return false;
    for (size_t i = 0; i < tensor_count; i++)
        if (!size_of(&tensors[i], &size, err) ||
            (size && !file_writer_append(*ret_writer, tensors[i].data, size, err)))
            return false;
    return true;
}

bool safetensors_write(const char *path, const struct tensor_out *tensors, size_t tensor_count,
                       const struct metadata_out *metadata, size_t metadata_count,
                       uint64_t *ret_size_bytes, char ret_sha256[65], struct error *err)
{
    struct tensor_out *tensor_order = calloc(tensor_count + 1, sizeof(*tensor_order));
    struct metadata_out *metadata_order = calloc(metadata_count + 1, sizeof(*metadata_order));
    struct file_writer *writer = NULL;
    struct buf header;
    bool ok = false;

    buf_init(&header, PREFIX_BYTES + LIMIT_HEADER_BYTES);
    if (!tensor_order || !metadata_order) {
        error_set(err, ERR_NO_MEMORY, "no memory to write '%s'", path);
        goto out;
    }
    for (size_t i = 0; i < tensor_count; i++)
        tensor_order[i] = tensors[i];
    for (size_t i = 0; i < metadata_count; i++)
        metadata_order[i] = metadata[i];
    qsort(tensor_order, tensor_count, sizeof(tensor_order[0]), tensors_by_name);
    qsort(metadata_order, metadata_count, sizeof(metadata_order[0]), metadata_by_key);
    for (size_t i = 1; i < tensor_count; i++)
        assert(strcmp(tensor_order[i - 1].name, tensor_order[i].name) != 0);
    for (size_t i = 1; i < metadata_count; i++)
        assert(strcmp(metadata_order[i - 1].key, metadata_order[i].key) != 0);
    if (!make_header(&header, tensor_order, tensor_count, metadata_order, metadata_count, err) ||
        !write_file(path, &header, tensor_order, tensor_count, &writer, err))
        goto out;
    ok = file_writer_commit(writer, ret_size_bytes, ret_sha256, err);
    writer = NULL;
out:
    file_writer_discard(writer);
    buf_release(&header);
    free(metadata_order);
    free(tensor_order);
    return ok;
}
