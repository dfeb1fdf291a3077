/* A resume checkpoint whose digest is right, from its header and data: passed over with a reason, or taken
 * whole and an order can be drawn from it. */
#include "tests/fuzz/fuzz.h"

#include "daemon/train/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "resume-0000000001-000000.safetensors"

static void warn(void *context, const char *text)
{
    int *count = context;

    fuzz_promise(text[0] != '\0', "a checkpoint is passed over with a reason");
    ++*count;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char digest[SHA256_HEX_SIZE];
    struct checkpoint checkpoint = {0};
    struct error err = {0};
    bool found = false;
    int warned = 0;

    fuzz_promise(file_sha256(fuzz_tensors(NAME, bytes, size), digest, &err), "a digest is made");
    (void)fuzz_file(NAME ".sha256", digest, SHA256_HEX_SIZE - 1); /* its path is known */
    fuzz_promise(
        checkpoint_read_newest(fuzz_folder(), "job", warn, &warned, &checkpoint, &found, &err),
        "the folder can be read");
    fuzz_promise(found == (warned == 0), "what is not taken is told");
    if (found && checkpoint.value_count > 0)
        fuzz_promise(checkpoint.values != NULL && checkpoint.moment2 != NULL, "it has its values");
    checkpoint_release(&checkpoint);
    return 0;
}
