/* The settings file: refused with a reason, or each setting is in its range. */
#include "tests/fuzz/fuzz.h"

#include "daemon/config.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct config config; /* large */
    char program[] = "needled", option[] = "--config", folder[] = "--state-dir", at[] = "/nowhere";
    char *arguments[] = {program, option, NULL, folder, at, NULL};
    struct error err = {0};
    bool ok;

    (void)unsetenv("NEEDLED_JOBS_PER_DEVICE"); /* the file alone decides */
    arguments[2] = (char *)(uintptr_t)fuzz_file("needled.json", bytes, size);
    ok = config_read(COUNT_OF(arguments) - 1, arguments, &config, &err);
    fuzz_promise_reason(ok, &err);
    if (ok)
        fuzz_promise(config.jobs_per_device >= 1 &&
                         config.jobs_per_device <= LIMIT_JOBS_PER_DEVICE &&
                         config.upload_limit_bytes >= 1 && config.state_dir[0] == '/',
                     "settings are in their ranges");
    return 0;
}
