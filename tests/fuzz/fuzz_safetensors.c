/* A safetensors file of any bytes: refused with a reason, or every tensor lies inside it. */
#include "tests/fuzz/fuzz.h"

#include "daemon/model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const char *path = fuzz_file("a.safetensors", bytes, size);
    struct safetensors *file = NULL;
    struct error err = {0};
    volatile uint8_t sum = 0; /* each byte is read */
    size_t total = 0;

    if (!safetensors_open(path, &file, &err)) {
        fuzz_promise_reason(false, &err);
        return 0;
    }
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct tensor *tensor = safetensors_at(file, i);

        fuzz_promise(tensor->rank <= LIMIT_TENSOR_RANK, "a tensor has few dimensions");
        fuzz_promise(tensor->size_bytes == tensor->element_count * tensor_type_size(tensor->type),
                     "a tensor's bytes are its elements'");
        fuzz_promise(safetensors_find(file, tensor->name) == tensor, "a tensor has its name alone");
        for (size_t at = 0; at < tensor->size_bytes; at++)
            sum = (uint8_t)(sum + ((const uint8_t *)tensor->data)[at]);
        total += tensor->size_bytes;
    }
    fuzz_promise(total <= size, "tensors do not overlap");
    (void)safetensors_metadata(file, "format"); /* or NULL */
    safetensors_close(file);
    return 0;
}
