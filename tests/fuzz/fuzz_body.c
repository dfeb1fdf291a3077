/* A JSON body: what is read prints and reads back equal; as the create of a job or of a sweep it is taken
 * or refused with a reason, and what is taken can be kept and read again. */
#include "tests/fuzz/fuzz.h"

#include "daemon/base/json.h"
#include "daemon/sched/request.h"
#include "daemon/sched/sweep.h"

#include <stdlib.h>
#include <string.h>

static void print_and_read_back(const struct json *body)
{
    char *first = NULL, *second = NULL;
    struct json *again = NULL;
    struct error err = {0};

    fuzz_promise(json_print_text(body, &first, &err), "what was read can be printed");
    fuzz_promise(json_parse(first, strlen(first), &again, &err), "what is printed can be read");
    fuzz_promise(json_print_text(again, &second, &err), "and printed again");
    fuzz_promise(strcmp(first, second) == 0, "it reads back equal");
    json_free(again);
    free(first);
    free(second);
}

static void create_a_job(const struct json *body)
{
    struct request request;
    struct hyperparameters kept;
    struct json *hyper, *inputs;
    struct error err = {0};
    char *text = NULL;
    const bool ok = request_read(body, &request, &err);

    fuzz_promise_reason(ok, &err);
    if (!ok)
        return;
    hyper = request_hyper_json(&request.hyper);
    inputs = request_inputs_json(&request);
    fuzz_promise(json_print_text(hyper, &text, &err), "hyper-parameters can be printed");
    fuzz_promise(request_hyper_parse(text, &kept, &err), "and read back");
    fuzz_promise(kept.batch_size == request.hyper.batch_size &&
                     kept.n_epochs == request.hyper.n_epochs &&
                     kept.learning_rate == request.hyper.learning_rate,
                 "they are the same");
    free(text);
    json_free(hyper);
    json_free(inputs);
}

static void create_a_sweep(const struct json *body)
{
    struct sweep_bodies bodies = {0};
    struct error err = {0};
    const bool ok = sweep_expand(body, &bodies, &err);

    fuzz_promise_reason(ok, &err);
    for (size_t i = 0; ok && i < bodies.count; i++)
        create_a_job(bodies.items[i]);
    if (ok)
        sweep_bodies_release(&bodies);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct json *body = NULL;
    struct error err = {0};
    char *text = fuzz_text(bytes, size);
    const bool ok = json_parse(text, size, &body, &err);

    fuzz_promise_reason(ok, &err);
    if (ok) {
        print_and_read_back(body);
        if (json_kind_of(body) == JSON_OBJECT) {
            create_a_job(body);
            if (sweep_is_meant(body))
                create_a_sweep(body);
        }
    }
    json_free(body);
    free(text);
    return 0;
}
