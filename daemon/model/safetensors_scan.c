#include "daemon/model/safetensors.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SCAN_COUNT 4096 /* values looked at together */

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Without their sign the bits of a format have the order of its values. */
static uint32_t largest_word(const unsigned char *bytes, size_t count)
{
    uint32_t words[SCAN_COUNT], largest = 0;

    for (size_t start = 0; start < count; start += SCAN_COUNT) {
        const size_t length = count - start < SCAN_COUNT ? count - start : SCAN_COUNT;

        memcpy(words, bytes + start * sizeof(words[0]), length * sizeof(words[0]));
        for (size_t i = 0; i < length; i++) {
            const uint32_t size = words[i] & 0x7FFFFFFF;

            largest = size > largest ? size : largest;
        }
    }
    return largest;
}

static uint16_t largest_half(const unsigned char *bytes, size_t count)
{
    int16_t halves[SCAN_COUNT], largest = 0; /* signed: every processor compares these at once */

    for (size_t start = 0; start < count; start += SCAN_COUNT) {
        const size_t length = count - start < SCAN_COUNT ? count - start : SCAN_COUNT;

        memcpy(halves, bytes + start * sizeof(halves[0]), length * sizeof(halves[0]));
        for (size_t i = 0; i < length; i++) {
            const int16_t size = (int16_t)(halves[i] & 0x7FFF);

            largest = size > largest ? size : largest;
        }
    }
    return (uint16_t)largest;
}

float tensor_largest(const struct tensor *tensor)
{
    const unsigned char *bytes = tensor->data;

    switch (tensor->type) {
    case TENSOR_F32:
        return float_of(largest_word(bytes, tensor->element_count));
    case TENSOR_F16:
        return f16_to_f32(largest_half(bytes, tensor->element_count));
    case TENSOR_BF16:
        return float_of((uint32_t)largest_half(bytes, tensor->element_count) << 16);
    case TENSOR_F64:
    case TENSOR_I64:
    case TENSOR_I32:
    case TENSOR_I16:
    case TENSOR_I8:
    case TENSOR_U8:
    case TENSOR_BOOL:
    case TENSOR_U16:
    case TENSOR_U32:
    case TENSOR_U64:
    case TENSOR_TYPE_COUNT:
        break;
    }
    assert(!"a tensor of numbers that training can use");
    return 0;
}

void tensor_drop_pages(const struct tensor *tensor)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)tensor->data;
    const uintptr_t first = at - at % page;

    if (tensor->size_bytes) /* advice about a mapping of ours that is only read: cannot hurt */
        (void)madvise((void *)first, at - first + tensor->size_bytes, MADV_DONTNEED);
}
