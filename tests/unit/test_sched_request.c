/* Proves: the body of a create call is taken in both shapes, "auto" and null mean the default, and
 * whatever is wrong or not known is refused by the name of its field. */
#include "daemon/base/json.h"
#include "daemon/sched/request.h"
#include "tests/support/test.h"

#include <math.h>

/* ' stands for " in all bodies here. */
static struct json *parse(const char *text)
{
    struct json *json = NULL;
    struct error err = {0};
    char *body = strdup(text);

    assert_non_null(body);
    for (char *at = body; *at; at++) {
        if (*at == '\'')
            *at = '"';
    }
    if (!json_parse(body, strlen(body), &json, &err))
        fail_msg("%s: %s", text, err.message);
    free(body);
    return json;
}

static void an_empty_request_has_the_references_defaults(void **state)
{
    struct json *body = parse("{'model':'m','training_file':'f','validation_file':null,"
                              "'suffix':null,'seed':null,'method':null,'hyperparameters':null,"
                              "'integrations':null,'metadata':null,'device':null}");
    struct request request;
    struct error err = {0};

    (void)state;
    if (!request_read(body, &request, &err))
        fail_msg("%s", err.message);
    assert_string_equal(request.model, "m");
    assert_null(request.validation_file);
    assert_string_equal(request.suffix, "");
    assert_string_equal(request.device, "auto");
    assert_int_equal(request.seed, 0);
    assert_int_equal(request.hyper.n_epochs, 3);
    assert_int_equal(request.hyper.batch_size, 16);
    assert_true(request.hyper.learning_rate == 1e-4);
    assert_int_equal(request.hyper.lora_rank, 16);
    assert_true(request.hyper.lora_alpha == 32);
    assert_true(request.hyper.val_split == 0.1);
    assert_int_equal(request.hyper.numerics, NUMERICS_W4A8);
    assert_int_equal(request.hyper.precision, BACKEND_FLOAT32);
    assert_int_equal(request.hyper.overlong, OVERLONG_REFUSE);
    assert_int_equal(request.hyper.data_rules, DATA_RULES_STRICT);
    assert_true(request_fit_base(&request, 4096, &err));
    assert_int_equal(request.hyper.max_len, 1024);
    assert_true(request_fit_base(&request, 512, &err));
    assert_int_equal(request.hyper.max_len, 512);
    json_free(body);
}

static void both_shapes_and_auto_are_taken(void **state)
{
    static const char *const bodies[] = {
        "{'method':{'type':'supervised','supervised':{'hyperparameters':%s}}}",
        "{'hyperparameters':%s}",
        "{'method':{'type':'supervised'},'hyperparameters':%s}",
        "{'method':{'type':'supervised','supervised':{'hyperparameters':%s}},"
        "'hyperparameters':{}}",
    };
    static const char hyper[] =
        "{'n_epochs':50,'batch_size':'auto','learning_rate_multiplier':0.5,'lora_rank':4,"
        "'lora_alpha':8.5,'max_len':64,'val_split':0,'numerics':'float32','overlong':'drop',"
        "'data_rules':'auto','precision':'bf16'}";

    (void)state;
    for (size_t i = 0; i < COUNT_OF(bodies); i++) {
        const char *place = strstr(bodies[i], "%s");
        struct request request;
        struct error err = {0};
        char text[1024];
        struct json *body;

        (void)snprintf(text, sizeof(text), "%.*s%s%s", (int)(place - bodies[i]), bodies[i], hyper,
                       place + 2);
        body = parse(text);
        if (!request_read(body, &request, &err))
            fail_msg("%s: %s", text, err.message);
        assert_int_equal(request.hyper.n_epochs, 50);
        assert_int_equal(request.hyper.batch_size, 16);
        assert_true(request.hyper.learning_rate == 0.5e-4);
        assert_int_equal(request.hyper.lora_rank, 4);
        assert_true(request.hyper.lora_alpha == 8.5);
        assert_true(request.hyper.val_split == 0);
        assert_int_equal(request.hyper.numerics, NUMERICS_FLOAT32);
        assert_int_equal(request.hyper.precision, BACKEND_BF16);
        assert_int_equal(request.hyper.overlong, OVERLONG_DROP);
        assert_true(request_fit_base(&request, 64, &err));
        assert_int_equal(request.hyper.max_len, 64);
        assert_false(request_fit_base(&request, 63, &err));
        assert_string_equal(err.param, "max_len");
        json_free(body);
    }
}

static void as_reference_cuts_and_allows_nothing_else(void **state)
{
    struct json *body = parse("{'hyperparameters':{'data_rules':'as_reference'}}");
    struct request request;
    struct error err = {0};

    (void)state;
    assert_true(request_read(body, &request, &err));
    assert_int_equal(request.hyper.overlong, OVERLONG_TRUNCATE);
    json_free(body);
    body = parse("{'hyperparameters':{'data_rules':'as_reference','overlong':'truncate'}}");
    assert_true(request_read(body, &request, &err));
    json_free(body);
}

static void what_is_wrong_is_refused_by_its_name(void **state)
{
    static const struct {
        const char *hyper, *param;
    } cases[] = {
        {"{'n_epochs':0}", "n_epochs"},
        {"{'n_epochs':51}", "n_epochs"},
        {"{'n_epochs':1.5}", "n_epochs"},
        {"{'n_epochs':'3'}", "n_epochs"},
        {"{'n_epochs':true}", "n_epochs"},
        {"{'batch_size':257}", "batch_size"},
        {"{'batch_size':-1}", "batch_size"},
        {"{'learning_rate':0}", "learning_rate"},
        {"{'learning_rate':-1}", "learning_rate"},
        {"{'learning_rate':1e40}", "learning_rate"},
        {"{'learning_rate_multiplier':-1}", "learning_rate_multiplier"},
        {"{'learning_rate':1,'learning_rate_multiplier':1}", "learning_rate_multiplier"},
        {"{'lora_rank':0}", "lora_rank"},
        {"{'lora_alpha':0}", "lora_alpha"},
        {"{'max_len':0}", "max_len"},
        {"{'val_split':1}", "val_split"},
        {"{'val_split':-0.1}", "val_split"},
        {"{'numerics':'fp16'}", "numerics"},
        {"{'precision':'fp16'}", "precision"},
        {"{'precision':32}", "precision"},
        {"{'overlong':'cut'}", "overlong"},
        {"{'data_rules':'loose'}", "data_rules"},
        {"{'data_rules':'as_reference','overlong':'drop'}", "overlong"},
        {"{'data_rules':'as_reference','overlong':'refuse'}", "overlong"},
        {"{'beta':0.1}", "beta"},
        {"{'epochs':null}", "epochs"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct request request;
        struct error err = {0};
        char text[512];
        struct json *body;

        (void)snprintf(text, sizeof(text), "{'hyperparameters':%s}", cases[i].hyper);
        body = parse(text);
        if (request_read(body, &request, &err))
            fail_msg("%s was taken", text);
        if (err.code != ERR_INVALID || strcmp(err.param, cases[i].param) != 0 ||
            !strstr(err.message, cases[i].param))
            fail_msg("%s: param '%s', %s", text, err.param, err.message);
        json_free(body);
    }
}

static void fields_of_the_body_are_checked_like_the_rest(void **state)
{
    static const struct {
        const char *body, *param;
    } cases[] = {
        {"{'seed':-1}", "seed"},
        {"{'seed':2147483648}", "seed"},
        {"{'seed':1.5}", "seed"},
        {"{'suffix':''}", "suffix"},
        {"{'suffix':'a/b'}", "suffix"},
        {"{'suffix':'a:b'}", "suffix"},
        {"{'suffix':'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'}",
         "suffix"},
        {"{'metadata':{'a':1}}", "metadata"},
        {"{'metadata':[]}", "metadata"},
        {"{'metadata':{'a':null}}", "metadata"},
        {"{'integrations':[{'type':'wandb'}]}", "integrations"},
        {"{'integrations':'wandb'}", "integrations"},
        {"{'method':{'type':'dpo'}}", "method.type"},
        {"{'method':{'type':'reinforcement'}}", "method.type"},
        {"{'method':{'type':'supervised','dpo':{}}}", "dpo"},
        {"{'method':{}}", "type"},
        {"{'method':{'type':'supervised','supervised':{'grader':{}}}}", "grader"},
        {"{'method':{'type':'supervised','supervised':{'hyperparameters':{'n_epochs':1}}},"
         "'hyperparameters':{'n_epochs':1}}",
         "hyperparameters"},
        {"{'hyperparameters':[]}", "hyperparameters"},
        {"{'modle':'x'}", "modle"},
        {"{'model':7}", "model"},
        {"{'training_file':['f']}", "training_file"},
        {"{'device':1}", "device"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct json *body = parse(cases[i].body);
        struct request request;
        struct error err = {0};

        if (request_read(body, &request, &err))
            fail_msg("%s was taken", cases[i].body);
        if (err.code != ERR_INVALID || strcmp(err.param, cases[i].param) != 0)
            fail_msg("%s: param '%s', %s", cases[i].body, err.param, err.message);
        json_free(body);
    }
}

static void metadata_is_bounded_in_pairs_keys_and_values(void **state)
{
    struct request request;
    struct error err = {0};
    char value[600], text[1024];
    struct json *body;

    (void)state;
    memset(value, 'v', sizeof(value));
    (void)snprintf(text, sizeof(text), "{'metadata':{'k':'%.512s'}}", value);
    body = parse(text);
    assert_true(request_read(body, &request, &err));
    json_free(body);
    (void)snprintf(text, sizeof(text), "{'metadata':{'k':'%.513s'}}", value);
    body = parse(text);
    assert_false(request_read(body, &request, &err));
    json_free(body);
    (void)snprintf(text, sizeof(text), "{'metadata':{'%.65s':'v'}}", value);
    body = parse(text);
    assert_false(request_read(body, &request, &err));
    json_free(body);
    (void)snprintf(text, sizeof(text), "{'metadata':{");
    for (int i = 0; i < 17; i++)
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s'k%d':''", i ? "," : "",
                       i);
    (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "}}");
    body = parse(text);
    assert_false(request_read(body, &request, &err));
    assert_string_equal(err.param, "metadata");
    json_free(body);
}

static void stored_hyper_parameters_read_back_as_they_were(void **state)
{
    struct hyperparameters hyper = hyperparameters_default(), back;
    struct json *object;
    struct error err = {0};
    char *text = NULL;

    (void)state;
    hyper.learning_rate = 0.1 + 0.2;
    hyper.lora_alpha = 1.0 / 3;
    hyper.val_split = 1e-7;
    hyper.overlong = OVERLONG_TRUNCATE;
    hyper.data_rules = DATA_RULES_AS_REFERENCE;
    hyper.numerics = NUMERICS_FLOAT32;
    hyper.precision = BACKEND_TF32;
    object = request_hyper_json(&hyper);
    assert_true(json_print_text(object, &text, &err));
    /* the multiplier stands beside the rate and does not count */
    assert_non_null(strstr(text, "learning_rate_multiplier"));
    if (!request_hyper_parse(text, &back, &err))
        fail_msg("%s", err.message);
    assert_true(back.learning_rate == hyper.learning_rate);
    assert_true(back.lora_alpha == hyper.lora_alpha && back.val_split == hyper.val_split);
    assert_int_equal(back.overlong, OVERLONG_TRUNCATE);
    assert_int_equal(back.data_rules, DATA_RULES_AS_REFERENCE);
    assert_int_equal(back.numerics, NUMERICS_FLOAT32);
    assert_int_equal(back.precision, BACKEND_TF32);
    free(text);
    json_free(object);
    assert_false(request_hyper_parse(NULL, &back, &err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_request_has_the_references_defaults),
        cmocka_unit_test(both_shapes_and_auto_are_taken),
        cmocka_unit_test(as_reference_cuts_and_allows_nothing_else),
        cmocka_unit_test(what_is_wrong_is_refused_by_its_name),
        cmocka_unit_test(fields_of_the_body_are_checked_like_the_rest),
        cmocka_unit_test(metadata_is_bounded_in_pairs_keys_and_values),
        cmocka_unit_test(stored_hyper_parameters_read_back_as_they_were),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
