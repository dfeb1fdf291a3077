/*
 * Proves that the kernels of kernels/gpu, as OpenCL C 1.2, give what ref gives: every op of the
 * table on every shape, launched by the host side of kernels/cuda; and that no kernel is left out.
 *
 *   ONLY=heads test_opencl    the cases whose names begin so
 *   SIZES=2 test_opencl       the first two shapes alone: Oclgrind takes its time
 */
#include "kernels/plugin.h"
#include "tests/kernels/opencl/opencl.h"
#include "tests/support/op_cases.h"

plugin_entry needled_plugin; /* linked in, where the program loads it */

static struct backend *open_device(void)
{
    const struct backend_options options = {.thread_count = 1};
    struct backend *be = NULL;
    char reason[200] = "";

    if (needled_plugin()->open(&options, &be, reason, sizeof(reason)) != BACKEND_OK)
        fail_msg("%s", reason);
    return be;
}

/* On a backend of its own, whose scratch nobody wrote before. */
static void compare_with_ref(struct backend *ref, const struct op_case *op,
                             const struct op_size *size)
{
    const char *only = getenv("ONLY");
    char reason[300] = "";
    struct op_run run, oracle;

    if (only && strncmp(op->name, only, strlen(only)) != 0)
        return;
    struct backend *be = open_device();
    op_run_init(&run, be, op, size);
    op_run_init(&oracle, ref, op, size);
    op_run_forward(&run);
    op_run_forward(&oracle);
    op_run_backward(&run);
    op_run_backward(&oracle);
    if (!op_agrees(&run, &oracle, reason, sizeof(reason)))
        fail_msg("%s", reason);
    op_run_release(&run);
    op_run_release(&oracle);
    assert_int_equal(backend_allocated_bytes(be), 0);
    backend_close(be);
    assert_int_equal(opencl_allocation_count(), 0);
}

static void kernels_agree_with_ref(void **state)
{
    const char *sizes = getenv("SIZES");
    struct backend *ref = backend_for_test(BACKEND_REF);

    (void)state;
    each_op_case(ref, sizes ? strtoul(sizes, NULL, 10) : op_size_count, compare_with_ref);
    backend_close(ref);
}

static void every_kernel_was_launched(void **state)
{
    size_t launch_count = 0, left_out = 0;
    const char *name;

    (void)state;
    if (getenv("ONLY"))
        skip();
    for (size_t i = 0; (name = opencl_kernel(i, &launch_count)); i++) {
        if (launch_count == 0) {
            print_error("%s was not launched\n", name);
            left_out++;
        }
    }
    assert_int_equal(left_out, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_agree_with_ref),
        cmocka_unit_test(every_kernel_was_launched),
    };
    char reason[300];
    const char *device = opencl_open(reason, sizeof(reason));

    if (!device) {
        print_error("%s\n", reason);
        return 1;
    }
    print_message("%s\n", device);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
