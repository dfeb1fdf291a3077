/* An adapter's file, from its header, for the small base: refused with a reason, or it can be written and
 * read back. */
#include "tests/fuzz/fuzz.h"

#include "daemon/model/lora.h"

static const struct weights *base(void)
{
    static struct weights *weights;
    const struct backend_options options = {.thread_count = 1};
    struct backend *be = NULL;
    struct error err = {0};
    char reason[256] = "";

    if (weights)
        return weights;
    fuzz_promise(backend_open(BACKEND_REF, &options, &be, reason, sizeof(reason)) == BACKEND_OK,
                 "there is a backend");
    fuzz_promise(
        weights_load(be, FUZZ_MINI "base.safetensors", NUMERICS_FLOAT32, NULL, &weights, &err),
        "the small base can be read");
    return weights;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const char *path = fuzz_tensors("adapter.safetensors", bytes, size);
    struct lora *lora = NULL;
    struct error err = {0};
    size_t rank = 0;
    double alpha = 0;
    bool ok = lora_inspect(path, &rank, &alpha, &err);

    fuzz_promise_reason(ok, &err);
    err = (struct error){0};
    if (ok)
        fuzz_promise(rank >= 1 && rank <= LORA_RANK_MAX && alpha > 0, "rank and alpha are some");
    ok = lora_read(base(), path, &lora, &err);
    fuzz_promise_reason(ok, &err);
    if (ok)
        fuzz_promise(lora->rank >= 1 && lora->value_count > 0, "an adapter has values");
    lora_free(lora);
    return 0;
}
