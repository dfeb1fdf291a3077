/* A base model's file, from its header: refused with a reason, or its geometry can be used. */
#include "tests/fuzz/fuzz.h"

#include "daemon/model/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const char *path = fuzz_tensors("base.safetensors", bytes, size);
    struct geometry geometry;
    struct error err = {0};
    size_t parameter_count = 0;
    const bool ok = weights_check(path, &geometry, &parameter_count, &err);

    fuzz_promise_reason(ok, &err);
    if (ok)
        fuzz_promise(weights_device_bytes(&geometry) > 0 && parameter_count > 0,
                     "a base has parameters");
    return 0;
}
