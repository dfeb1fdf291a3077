/*
 * Proves that every op does the same on every backend as on ref (forward and backward), that every
 * backward is the gradient of its forward, and that outputs may stand where inputs stood when the
 * op says so. ref's forward is held to recorded numbers in test_kernels_golden.c.
 */
#include "kernels/cpu/level.h"
#include "kernels/table.h"
#include "tests/support/op_cases.h"

#include <math.h>

/* ---- against ref ------------------------------------------------------------------------------
 */

static void compare_with_ref(struct backend *be, const struct op_case *op,
                             const struct op_size *size)
{
    struct backend *ref = backend_for_test(BACKEND_REF);
    struct op_run run, oracle;
    char reason[200];

    op_run_init(&run, be, op, size);
    op_run_init(&oracle, ref, op, size);
    op_run_forward(&run);
    op_run_forward(&oracle);
    if (op->backward) {
        op_run_backward(&run);
        op_run_backward(&oracle);
    }
    if (!op_agrees(&run, &oracle, reason, sizeof(reason)))
        fail_msg("%s", reason);
    op_run_release(&run);
    op_run_release(&oracle);
    backend_close(ref);
}

static void compare_all(struct backend *be)
{
    each_op_case(be, op_size_count, compare_with_ref);
}

static void every_op_agrees_with_ref_on_every_shape(void **state)
{
    (void)state;
    each_backend(compare_all);
}

static void every_level_of_simd_agrees_with_ref(void **state)
{
    (void)state;
    for (size_t i = 0; i < level_count; i++) {
        const struct backend_options options = {.thread_count = 2, .simd_level = levels[i].name};
        struct backend *be;
        char reason[256];

        if (!levels[i].is_supported())
            continue;
        assert_int_equal(backend_open(BACKEND_CPU, &options, &be, reason, sizeof(reason)),
                         BACKEND_OK);
        compare_all(be);
        backend_close(be);
    }
}

/* ---- backward against central differences ------------------------------------------------------
 */

/* The fifth-derivative term of the double step is (h^4 / 30) of the fifth derivative: 3e-10 at
 * 0.01. What is left is the rounding of f32 outputs, counted apart (noise_of), and that of f32
 * gradients: sums of some thousand terms. A wrong factor, sign or index is far past 3e-4. */
#define DIFFERENCE_TOLERANCE 3e-4
#define STEP 0.01

/* Loss with input + amount direction. */
static double loss_at(struct op_run *run, struct op_array *input, const double *direction,
                      double amount)
{
    float *kept = malloc((input->count + 1) * sizeof(*kept));
    double loss;

    assert_non_null(kept);
    memcpy(kept, input->start, input->count * sizeof(*kept));
    for (size_t i = 0; i < input->count; i++)
        input->start[i] = (float)(kept[i] + amount * direction[i]);
    op_run_forward(run);
    loss = op_run_loss(run);
    memcpy(input->start, kept, input->count * sizeof(*kept));
    free(kept);
    return loss;
}

/* Derivative along direction, from steps of one and two h: the third derivative cancels. */
static double difference(struct op_run *run, struct op_array *input, const double *direction)
{
    const double h = STEP * input->spread;
    const double one = loss_at(run, input, direction, h) - loss_at(run, input, direction, -h);
    const double two =
        loss_at(run, input, direction, 2 * h) - loss_at(run, input, direction, -2 * h);

    return (8 * one - two) / (12 * h);
}

/* What f32 outputs, each off by up to 6e-8 of itself, make of a difference along h; 4 standard
 * deviations of such a sum. */
static double noise_of(const struct op_run *run, const struct op_array *input)
{
    double sum = 0;

    for (size_t i = 0; i < run->array_count; i++) {
        const struct op_array *weight = &run->arrays[i];

        for (size_t k = 0; weight->upstream_of && k < weight->count; k++)
            sum += pow((double)weight->start[k] * weight->upstream_of->result[k], 2);
    }
    return 4 * 6e-8 * run->loss_scale * sqrt(sum) / (STEP * input->spread);
}

static void check_direction(struct op_run *run, struct op_array *input, const double *gradient,
                            const double *direction, const char *what, double size)
{
    double expected = 0;
    const double measured = difference(run, input, direction);
    const double allowed = DIFFERENCE_TOLERANCE * size + noise_of(run, input);

    for (size_t i = 0; i < input->count; i++)
        expected += gradient[i] * direction[i];
    if (!(fabs(measured - expected) <= allowed))
        fail_msg("%s, %s, %s, d %s along %s: backward says %.9g, differences %.9g, %.3g allowed",
                 backend_name(run->be->kind), run->op->name, run->size->name, input->name, what,
                 expected, measured, allowed);
}

static void check_input(struct op_run *run, struct op_array *input, const double *gradient)
{
    double *direction = calloc(input->count + 1, sizeof(*direction));
    double largest = 0, norm = 0;
    size_t at_largest = 0;

    assert_non_null(direction);
    for (size_t i = 0; i < input->count; i++) {
        norm += gradient[i] * gradient[i];
        if (fabs(gradient[i]) > largest) {
            largest = fabs(gradient[i]);
            at_largest = i;
        }
    }
    for (int round = 0; round < 2; round++) { /* random directions: every element at once */
        for (size_t i = 0; i < input->count; i++)
            direction[i] = op_normal(&run->random);
        check_direction(run, input, gradient, direction, "a random direction", sqrt(norm));
    }
    for (int round = 0; round < 4; round++) { /* single elements, the steepest first */
        const size_t i = round ? op_random(&run->random) % input->count : at_largest;

        memset(direction, 0, input->count * sizeof(*direction));
        direction[i] = 1;
        check_direction(run, input, gradient, direction, "one element", largest);
    }
    free(direction);
}

static void check_backward(struct backend *be, const struct op_case *op, const struct op_size *size)
{
    struct op_run run;

    if (!op->backward)
        return;
    op_run_init(&run, be, op, size);
    op_run_forward(&run);
    op_run_backward(&run);
    for (size_t i = 0; i < run.array_count; i++) {
        const struct op_array *of = run.arrays[i].gradient_of;
        double *gradient;

        if (!of || !of->differentiable)
            continue;
        gradient = calloc(of->count + 1, sizeof(*gradient));
        assert_non_null(gradient);
        for (size_t k = 0; k < of->count; k++) { /* what accumulates started from something */
            const double before = run.arrays[i].read ? run.arrays[i].start[k] : 0;

            gradient[k] = run.arrays[i].result[k] - before;
        }
        check_input(&run, op_array(&run, of->name), gradient);
        free(gradient);
    }
    op_run_release(&run);
}

static void check_all_backward(struct backend *be)
{
    each_op_case(be, op_size_count - 1, check_backward);
}

static void every_backward_agrees_with_central_differences(void **state)
{
    (void)state;
    each_backend(check_all_backward);
}

/* ---- in place ---------------------------------------------------------------------------------
 */

static void check_in_place(struct backend *be, const struct op_case *op, const struct op_size *size)
{
    for (size_t pair = 0; pair < COUNT_OF(op->in_place) && op->in_place[pair][0]; pair++) {
        const char *output = op->in_place[pair][0], *input = op->in_place[pair][1];
        struct op_run apart, together;
        struct op_array *of_output, *of_input;
        void *own;

        op_run_init(&apart, be, op, size);
        op_run_init(&together, be, op, size);
        op_run_forward(&apart);
        of_output = op_array(&together, output);
        of_input = op_array(&together, input);
        if (of_output->gradient_of) {
            op_run_backward(&apart);
            op_run_forward(&together);
        }
        own = of_output->device;
        of_output->device = of_input->device;
        memcpy(of_output->start, of_input->start, of_input->count * sizeof(float));
        if (of_output->gradient_of)
            op_run_backward(&together);
        else
            op_run_forward(&together);
        if (memcmp(of_output->result, op_array(&apart, output)->result,
                   of_output->count * sizeof(float)) != 0)
            fail_msg("%s, %s: %s in place of %s differs", op->name, size->name, output, input);
        of_output->device = own;
        op_run_release(&apart);
        op_run_release(&together);
    }
}

static void check_all_in_place(struct backend *be)
{
    each_op_case(be, op_size_count, check_in_place);
}

static void outputs_may_replace_the_inputs_that_the_op_names(void **state)
{
    (void)state;
    each_backend(check_all_in_place);
}

/* ---- the same bits ----------------------------------------------------------------------------
 */

static void check_repeats(struct backend *be, const struct op_case *op, const struct op_size *size)
{
    struct op_run first, second;

    op_run_init(&first, be, op, size);
    op_run_init(&second, be, op, size);
    op_run_forward(&first);
    op_run_forward(&second);
    if (op->backward) {
        op_run_backward(&first);
        op_run_backward(&second);
    }
    for (size_t i = 0; i < first.array_count; i++)
        if (first.arrays[i].written &&
            memcmp(first.arrays[i].result, second.arrays[i].result,
                   first.arrays[i].count * (first.arrays[i].bytes ? 1 : sizeof(float))) != 0)
            fail_msg("%s, %s: %s differs between two runs", op->name, size->name,
                     first.arrays[i].name);
    op_run_release(&first);
    op_run_release(&second);
}

static void check_all_repeats(struct backend *be)
{
    each_op_case(be, op_size_count, check_repeats);
}

static void two_runs_give_the_same_bits(void **state)
{
    (void)state;
    each_backend(check_all_repeats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_agrees_with_ref_on_every_shape),
        cmocka_unit_test(every_level_of_simd_agrees_with_ref),
        cmocka_unit_test(every_backward_agrees_with_central_differences),
        cmocka_unit_test(outputs_may_replace_the_inputs_that_the_op_names),
        cmocka_unit_test(two_runs_give_the_same_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
