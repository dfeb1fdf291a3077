/* A tokenizer's file: refused with a reason, or texts can be encoded, shown and decoded with it. */
#include "tests/fuzz/fuzz.h"

#include "daemon/model/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static void use(const struct tokenizer *tokenizer, const char *text, size_t size)
{
    uint32_t *ids = NULL;
    char *decoded = NULL, piece[64];
    size_t count = 0, decoded_size = 0;
    struct error err = {0};
    bool ok = tokenizer_encode_bytes(tokenizer, text, size, &ids, &count, &err);

    fuzz_promise_reason(ok, &err);
    for (size_t i = 0; ok && i < count; i++) {
        fuzz_promise(ids[i] < tokenizer_piece_count(tokenizer), "an id is a piece");
        tokenizer_piece(tokenizer, ids[i], piece, sizeof(piece));
    }
    ok = ok && tokenizer_decode(tokenizer, ids, count, &decoded, &decoded_size, &err);
    fuzz_promise_reason(ok, &err);
    free(decoded);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char text[] = "what is 2+2?\n  caf\xc3\xa9 <tool_call> \xf0\x9f\x98\x80 \xff";
    const char *path = fuzz_file("tokenizer.model", bytes, size);
    struct tokenizer *tokenizer = NULL;
    struct error err = {0};

    if (!tokenizer_open(path, &tokenizer, &err)) {
        fuzz_promise_reason(false, &err);
        return 0;
    }
    use(tokenizer, text, strlen(text));
    use(tokenizer, "", 0);
    tokenizer_close(tokenizer);
    return 0;
}
