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
    assert_true(request_fit_base(&request, &(struct model_info){.max_seq_len = 4096}, &err));
    assert_int_equal(request.hyper.max_len, 1024);
    assert_true(request_fit_base(&request, &(struct model_info){.max_seq_len = 512}, &err));
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
        assert_true(request_fit_base(&request, &(struct model_info){.max_seq_len = 64}, &err));
        assert_int_equal(request.hyper.max_len, 64);
        assert_false(request_fit_base(&request, &(struct model_info){.max_seq_len = 63}, &err));
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
        {"{'method':{'type':'supervised','dpo':{}}}", "method.dpo"},
        {"{'method':{'type':'supervised','reinforcement':{}}}", "method.reinforcement"},
        {"{'training_files':'f'}", "training_files"},
        {"{'training_files':['f',7]}", "training_files"},
        {"{'training_files':['f','']}", "training_files"},
        {"{'training_files':['f','g','f']}", "training_files"},
        {"{'training_files':['f'],'validation_files':[null]}", "validation_files"},
        {"{'training_files':['f'],'test_files':{}}", "test_files"},
        {"{'training_files':['f'],'max_depth':1}", "max_depth"},
        {"{'training_files':['f'],'max_depth':2.5}", "max_depth"},
        {"{'training_files':['f'],'training_file':'f'}", "training_file"},
        {"{'training_file':'f','max_depth':4}", "training_file"},
        {"{'test_files':[],'validation_file':'f'}", "validation_file"},
        {"{'training_files':['f'],'method':{'type':'supervised'}}", "method"},
        {"{'training_files':['f'],'integrations':[]}", "integrations"},
        {"{'training_files':['f'],'test_file':'f'}", "test_file"},
        {"{'method':{}}", "method.type"},
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

static void the_platforms_shape_is_taken_with_all_its_files(void **state)
{
    struct json *body =
        parse("{'model':'needle-3','training_files':['a','b'],'validation_files':[],"
              "'test_files':['c'],'max_depth':4,'suffix':'x',"
              "'hyperparameters':{'n_epochs':2},'metadata':{'k':'v'},'seed':3}");
    struct json *inputs;
    struct request request;
    struct error err = {0};
    char *text = NULL;

    (void)state;
    if (!request_read(body, &request, &err))
        fail_msg("%s", err.message);
    assert_true(request.is_platform);
    assert_string_equal(request.training_file, "a");
    assert_null(request.validation_file);
    assert_int_equal(request.training.count, 2);
    assert_int_equal(request.validation.count, 0);
    assert_string_equal(request.test.ids[0], "c");
    assert_int_equal(request.max_depth, 4);
    assert_int_equal(request.hyper.n_epochs, 2);
    inputs = request_inputs_json(&request);
    assert_true(json_print_text(inputs, &text, &err));
    assert_string_equal(
        text, "{\"training_files\":[\"a\",\"b\"],\"validation_files\":[],\"test_files\":[\"c\"]}");
    free(text);
    json_free(inputs);
    assert_true(request_fit_base(&request,
                                 &(struct model_info){.max_seq_len = 64, .layer_count = 4}, &err));
    assert_false(request_fit_base(&request,
                                  &(struct model_info){.max_seq_len = 64, .layer_count = 3}, &err));
    assert_string_equal(err.param, "max_depth");
    json_free(body);
}

static void as_many_files_are_taken_as_a_job_may_have(void **state)
{
    char text[2048];

    (void)state;
    for (size_t count = LIMIT_JOB_FILES; count <= LIMIT_JOB_FILES + 1; count++) {
        struct request request;
        struct error err = {0};
        struct json *body;
        bool ok;

        (void)snprintf(text, sizeof(text), "{'training_files':[");
        for (size_t i = 0; i < count; i++)
            (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s'f%zu'",
                           i ? "," : "", i);
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "]}");
        body = parse(text);
        ok = request_read(body, &request, &err);
        assert_int_equal(ok, count == LIMIT_JOB_FILES);
        if (!ok)
            assert_string_equal(err.param, "training_files");
        json_free(body);
    }
}

static void an_earlier_adapter_keeps_its_rank_and_alpha(void **state)
{
    static const struct {
        const char *hyper, *param; /* NULL: taken */
    } cases[] = {
        {"{}", NULL},
        {"{'lora_rank':'auto','lora_alpha':null}", NULL},
        {"{'lora_rank':8,'lora_alpha':6.1}", NULL},
        {"{'lora_rank':16}", "lora_rank"},
        {"{'lora_alpha':32}", "lora_alpha"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct request request;
        struct error err = {0};
        struct json *body;
        char text[256];
        bool ok;

        (void)snprintf(text, sizeof(text), "{'model':'ft:x','hyperparameters':%s}", cases[i].hyper);
        body = parse(text);
        assert_true(request_read(body, &request, &err));
        ok = request_fit_adapter(&request, 8, 6.1, &err);
        if (ok != (cases[i].param == NULL))
            fail_msg("%s: %d", text, ok);
        if (ok) {
            assert_int_equal(request.hyper.lora_rank, 8);
            assert_true(request.hyper.lora_alpha == 6.1);
        } else {
            assert_string_equal(err.param, cases[i].param);
            assert_non_null(strstr(err.message, "ft:x"));
        }
        json_free(body);
    }
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
        cmocka_unit_test(the_platforms_shape_is_taken_with_all_its_files),
        cmocka_unit_test(as_many_files_are_taken_as_a_job_may_have),
        cmocka_unit_test(an_earlier_adapter_keeps_its_rank_and_alpha),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
