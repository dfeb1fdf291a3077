#include "daemon/sched/request.h"

#include "daemon/base/json.h"
#include "daemon/base/utf8.h"
#include "daemon/sched/order.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define METADATA_PAIRS 16
#define METADATA_KEY_CHARACTERS 64
#define METADATA_VALUE_CHARACTERS 512
#define SUFFIX_CHARACTERS 64
#define SEED_MAX 2147483647
#define RANK_MAX 1024
#define MAX_LEN_DEFAULT 1024
#define RATE_MAX 1e30 /* fits a float32 with room */
#define SAFE_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

static const char *const numerics_names[] = {"w4a8", "float32", NULL};
static const char *const overlong_names[] = {"refuse", "drop", "truncate", NULL};
static const char *const rules_names[] = {"strict", "as_reference", NULL};

const char *request_numerics_name(enum numerics numerics)
{
    return numerics_names[numerics];
}

/* ---- values ------------------------------------------------------------------------------------- */

/* NULL: the default holds, since the field is absent, null or "auto". */
static const struct json *given(const struct json *object, const char *field)
{
    const struct json *member = object ? json_member(object, field) : NULL;

    if (!member || json_kind_of(member) == JSON_NULL ||
        (json_kind_of(member) == JSON_STRING && strcmp(json_text(member), "auto") == 0))
        return NULL;
    return member;
}

static bool read_count(const struct json *object, const char *field, int64_t max, size_t *ret_count,
                       struct error *err)
{
    int64_t number = 0;

    if (!given(object, field))
        return true;
    if (!json_get_int(object, field, true, 1, max, &number, err))
        return false;
    *ret_count = (size_t)number;
    return true;
}

static bool read_positive(const struct json *object, const char *field, double max,
                          double *ret_number, struct error *err)
{
    double number = 0;

    if (!given(object, field))
        return true;
    if (!json_get_double(object, field, true, 0, max, &number, err))
        return false;
    if (number <= 0)
        return error_set_param(err, ERR_INVALID, field,
                               "field '%s' is %g, a number above 0 is needed", field, number);
    *ret_number = number;
    return true;
}

static bool read_choice(const struct json *object, const char *field, const char *const *names,
                        size_t *ret_choice, struct error *err)
{
    const char *text = NULL;
    size_t choice = 0;

    if (!given(object, field))
        return true;
    if (!json_get_string(object, field, true, &text, err))
        return false;
    while (names[choice] && strcmp(names[choice], text) != 0)
        choice++;
    if (!names[choice])
        return error_set_param(err, ERR_INVALID, field,
                               "field '%s' is '%.32s', one of '%s', '%s'%s%s%s is needed", field,
                               text, names[0], names[1], names[2] ? ", '" : "",
                               names[2] ? names[2] : "", names[2] ? "'" : "");
    *ret_choice = choice;
    return true;
}

/* ---- hyper-parameters --------------------------------------------------------------------------- */

static bool read_rate(const struct json *object, double *ret_rate, struct error *err)
{
    double multiplier = 0;

    if (given(object, "learning_rate") && given(object, "learning_rate_multiplier"))
        return error_set_param(err, ERR_INVALID, "learning_rate_multiplier",
                               "learning_rate and learning_rate_multiplier are both given: give "
                               "one of them");
    if (!read_positive(object, "learning_rate", RATE_MAX, ret_rate, err) ||
        !read_positive(object, "learning_rate_multiplier", RATE_MAX / REQUEST_BASE_RATE,
                       &multiplier, err))
        return false;
    if (multiplier > 0)
        *ret_rate = multiplier * REQUEST_BASE_RATE;
    return true;
}

static bool read_split(const struct json *object, double *ret_split, struct error *err)
{
    double split = 0;

    if (!given(object, "val_split"))
        return true;
    if (!json_get_double(object, "val_split", true, 0, 1, &split, err))
        return false;
    if (split >= 1)
        return error_set_param(err, ERR_INVALID, "val_split",
                               "field 'val_split' is %g, at least 0 and below 1 is needed", split);
    *ret_split = split;
    return true;
}

/* As the reference reads its data, it also cuts long lines: nothing else goes with it. */
static bool read_rules(const struct json *object, struct hyperparameters *hyper, struct error *err)
{
    size_t numerics = hyper->numerics, overlong = hyper->overlong, rules = hyper->data_rules;
    size_t precision = hyper->precision;

    if (!read_choice(object, "numerics", numerics_names, &numerics, err) ||
        !read_choice(object, "precision", backend_precision_names, &precision, err) ||
        !read_choice(object, "overlong", overlong_names, &overlong, err) ||
        !read_choice(object, "data_rules", rules_names, &rules, err))
        return false;
    if (rules == DATA_RULES_AS_REFERENCE) {
        if (given(object, "overlong") && overlong != OVERLONG_TRUNCATE)
            return error_set_param(err, ERR_INVALID, "overlong",
                                   "field 'overlong' is '%s': data_rules 'as_reference' implies "
                                   "'truncate'",
                                   overlong_names[overlong]);
        overlong = OVERLONG_TRUNCATE;
    }
    hyper->numerics = (enum numerics)numerics;
    hyper->precision = (enum backend_precision)precision;
    hyper->overlong = (enum overlong)overlong;
    hyper->data_rules = (enum data_rules)rules;
    return true;
}

static bool read_hyper(const struct json *object, struct hyperparameters *hyper, struct error *err)
{
    static const char *const known[] = {
        "n_epochs",  "batch_size", "learning_rate", "learning_rate_multiplier",
        "lora_rank", "lora_alpha", "max_len",       "val_split",
        "numerics",  "precision",  "overlong",      "data_rules",
        NULL,
    };

    return json_only_fields(object, known, err) &&
           read_count(object, "n_epochs", 50, &hyper->n_epochs, err) &&
           read_count(object, "batch_size", 256, &hyper->batch_size, err) &&
           read_rate(object, &hyper->learning_rate, err) &&
           read_count(object, "lora_rank", RANK_MAX, &hyper->lora_rank, err) &&
           read_positive(object, "lora_alpha", RATE_MAX, &hyper->lora_alpha, err) &&
           read_count(object, "max_len", INT32_MAX, &hyper->max_len, err) &&
           read_split(object, &hyper->val_split, err) && read_rules(object, hyper, err);
}

/* method.supervised.hyperparameters; *ret_object stays NULL when it is not there. */
static bool find_in_method(const struct json *method, const struct json **ret_object,
                           struct error *err)
{
    static const char *const known[] = {"type", "supervised", "dpo", "reinforcement", NULL};
    static const char *const inside[] = {"hyperparameters", NULL};
    static const char *const others[] = {"method.dpo", "method.reinforcement"};
    const struct json *supervised = NULL;
    const char *type = NULL;

    if (!json_only_fields(method, known, err))
        return false;
    type = json_text(json_member(method, "type"));
    if (!type || strcmp(type, "supervised") != 0)
        return error_set_param(err, ERR_INVALID, "method.type",
                               "field 'method.type' is %s%.32s%s, only 'supervised' is served",
                               type ? "'" : "", type ? type : "no text", type ? "'" : "");
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        const struct json *other = json_member(method, others[i] + strlen("method."));

        if (other && json_kind_of(other) != JSON_NULL)
            return error_set_param(err, ERR_INVALID, others[i],
                                   "field '%s' is not served, only 'method.supervised' is",
                                   others[i]);
    }
    if (!json_get_object(method, "supervised", false, &supervised, err))
        return false;
    if (!supervised)
        return true;
    return json_only_fields(supervised, inside, err) &&
           json_get_object(supervised, "hyperparameters", false, ret_object, err);
}

static bool find_hyper(const struct json *body, const struct json **ret_object, struct error *err)
{
    const struct json *method = NULL, *inner = NULL, *twin = NULL;

    if (!json_get_object(body, "method", false, &method, err) ||
        (method && !find_in_method(method, &inner, err)) ||
        !json_get_object(body, "hyperparameters", false, &twin, err))
        return false;
    if (inner && twin && json_count(twin) > 0 && json_count(inner) > 0)
        return error_set_param(err, ERR_INVALID, "hyperparameters",
                               "hyperparameters are given twice: in method.supervised and at the "
                               "top");
    *ret_object = inner && json_count(inner) > 0 ? inner : twin;
    return true;
}

/* ---- the other fields --------------------------------------------------------------------------- */

static size_t character_count(const char *text)
{
    size_t count = 0;

    for (; *text; text++)
        count += ((unsigned char)*text & 0xc0) != 0x80;
    return count;
}

static bool has_control(const char *text, const char *taken)
{
    return utf8_find_control(text, strlen(text), taken) < strlen(text);
}

static bool check_metadata(const struct json *metadata, struct error *err)
{
    if (json_count(metadata) > METADATA_PAIRS)
        return error_set_param(err, ERR_INVALID, "metadata",
                               "field 'metadata' has %zu pairs, at most %d are taken",
                               json_count(metadata), METADATA_PAIRS);
    for (const struct json *pair = json_first(metadata); pair; pair = json_next(pair)) {
        if (character_count(json_name(pair)) > METADATA_KEY_CHARACTERS)
            return error_set_param(err, ERR_INVALID, "metadata",
                                   "a key of 'metadata' is longer than %d characters: '%.32s...'",
                                   METADATA_KEY_CHARACTERS, json_name(pair));
        if (has_control(json_name(pair), ""))
            return error_set_param(err, ERR_INVALID, "metadata",
                                   "a key of 'metadata' has a control character");
        if (json_kind_of(pair) != JSON_STRING ||
            character_count(json_text(pair)) > METADATA_VALUE_CHARACTERS)
            return error_set_param(err, ERR_INVALID, "metadata",
                                   "'metadata.%.64s' is not a text of at most %d characters",
                                   json_name(pair), METADATA_VALUE_CHARACTERS);
        if (has_control(json_text(pair), "\t\n\r"))
            return error_set_param(err, ERR_INVALID, "metadata",
                                   "'metadata.%.64s' has a control character that is neither a "
                                   "tab nor a line end",
                                   json_name(pair));
    }
    return true;
}

static bool check_suffix(const char *suffix, struct error *err)
{
    size_t length = strlen(suffix);

    if (length >= 1 && length <= SUFFIX_CHARACTERS && strspn(suffix, SAFE_CHARACTERS) == length)
        return true;
    return error_set_param(err, ERR_INVALID, "suffix",
                           "field 'suffix' is '%.80s': 1 to %d letters, digits, '-', '_' and '.' "
                           "are needed",
                           suffix, SUFFIX_CHARACTERS);
}

static bool check_integrations(const struct json *body, struct error *err)
{
    const struct json *integrations = NULL;

    if (!json_get_array(body, "integrations", false, &integrations, err))
        return false;
    if (integrations && json_count(integrations) > 0)
        return error_set_param(err, ERR_INVALID, "integrations",
                               "field 'integrations' is not served: this daemon calls nobody");
    return true;
}

/* ---- two shapes --------------------------------------------------------------------------------- */

#define COMMON_FIELDS "model", "hyperparameters", "suffix", "seed", "device", "metadata", "priority"

static const char *const openai_only[] = {"training_file", "validation_file", "method",
                                          "integrations"};
static const char *const platform_only[] = {"training_files", "validation_files", "test_files",
                                            "max_depth"};

/* A field of the one shape in a body of the other is refused by its name. */
static bool tell_shape(const struct json *body, bool *ret_is_platform, struct error *err)
{
    const char *sign = NULL;

    for (size_t i = 0; i < COUNT_OF(platform_only) && !sign; i++)
        sign = json_member(body, platform_only[i]) ? platform_only[i] : NULL;
    for (size_t i = 0; sign && i < COUNT_OF(openai_only); i++) {
        if (json_member(body, openai_only[i]))
            return error_set_param(err, ERR_INVALID, openai_only[i],
                                   "field '%s' does not go with '%s': either 'training_file', "
                                   "'validation_file' and 'method', or 'training_files', "
                                   "'validation_files', 'test_files' and 'max_depth'",
                                   openai_only[i], sign);
    }
    *ret_is_platform = sign != NULL;
    return true;
}

static bool read_files(const struct json *body, const char *field, struct request_files *files,
                       struct error *err)
{
    const struct json *list = NULL;

    if (!json_get_array(body, field, false, &list, err))
        return false;
    if (list && json_count(list) > LIMIT_JOB_FILES)
        return error_set_param(err, ERR_INVALID, field,
                               "field '%s' has %zu files, at most %d are taken", field,
                               json_count(list), LIMIT_JOB_FILES);
    for (const struct json *id = list ? json_first(list) : NULL; id; id = json_next(id)) {
        if (!json_text(id) || !json_text(id)[0])
            return error_set_param(err, ERR_INVALID, field,
                                   "field '%s[%zu]' is not the id of a file", field, files->count);
        for (size_t i = 0; i < files->count; i++) {
            if (strcmp(files->ids[i], json_text(id)) == 0)
                return error_set_param(err, ERR_INVALID, field,
                                       "field '%s' names file '%.64s' twice", field, json_text(id));
        }
        files->ids[files->count++] = json_text(id);
    }
    return true;
}

static bool read_platform(const struct json *body, struct request *request, struct error *err)
{
    static const char *const known[] = {COMMON_FIELDS, "training_files", "validation_files",
                                        "test_files",  "max_depth",      NULL};

    if (!json_only_fields(body, known, err) ||
        !read_files(body, "training_files", &request->training, err) ||
        !read_files(body, "validation_files", &request->validation, err) ||
        !read_files(body, "test_files", &request->test, err) ||
        !json_get_int(body, "max_depth", false, 2, INT32_MAX, &request->max_depth, err))
        return false;
    request->training_file = request->training.ids[0]; /* NULL where there is none */
    request->validation_file = request->validation.ids[0];
    return true;
}

static bool read_openai(const struct json *body, struct request *request, struct error *err)
{
    static const char *const known[] = {COMMON_FIELDS, "training_file", "validation_file",
                                        "method",      "integrations",  NULL};

    return json_only_fields(body, known, err) && check_integrations(body, err) &&
           json_get_string(body, "training_file", false, &request->training_file, err) &&
           json_get_string(body, "validation_file", false, &request->validation_file, err);
}

struct json *request_inputs_json(const struct request *request)
{
    const struct request_files *const kinds[] = {&request->training, &request->validation,
                                                 &request->test};
    struct json *object;

    if (!request->is_platform)
        return NULL;
    object = json_new_object();
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        struct json *list = json_new_array();

        for (size_t n = 0; n < kinds[i]->count; n++)
            json_add_string(list, NULL, kinds[i]->ids[n]);
        json_add(object, platform_only[i], list);
    }
    return object;
}

/* ---- the whole ---------------------------------------------------------------------------------- */

bool request_read(const struct json *body, struct request *ret_request, struct error *err)
{
    struct request request = {.suffix = "", .device = "auto", .hyper = hyperparameters_default()};
    const struct json *hyper = NULL;

    if (json_kind_of(body) != JSON_OBJECT)
        return error_set(err, ERR_INVALID, "the body is not an object");
    if (!tell_shape(body, &request.is_platform, err) ||
        !(request.is_platform ? read_platform : read_openai)(body, &request, err) ||
        !find_hyper(body, &hyper, err) || (hyper && !read_hyper(hyper, &request.hyper, err)))
        return false;
    request.max_len_given = given(hyper, "max_len") != NULL;
    request.rank_given = given(hyper, "lora_rank") != NULL;
    request.alpha_given = given(hyper, "lora_alpha") != NULL;
    if (!json_get_int(body, "seed", false, 0, SEED_MAX, &request.seed, err) ||
        !json_get_int(body, "priority", false, -ORDER_PRIORITY_MAX, ORDER_PRIORITY_MAX,
                      &request.priority, err) ||
        !json_get_string(body, "suffix", false, &request.suffix, err) ||
        (given(body, "suffix") && !check_suffix(request.suffix, err)) ||
        !json_get_object(body, "metadata", false, &request.metadata, err) ||
        (request.metadata && !check_metadata(request.metadata, err)) ||
        !json_get_string(body, "device", false, &request.device, err) ||
        !json_get_string(body, "model", false, &request.model, err))
        return false;
    request.hyper.seed = (uint64_t)request.seed;
    *ret_request = request;
    return true;
}

bool request_fit_base(struct request *request, const struct model_info *info, struct error *err)
{
    const size_t max_seq_len = info->max_seq_len;

    if (request->max_depth > (int64_t)info->layer_count)
        return error_set_param(err, ERR_INVALID, "max_depth",
                               "field 'max_depth' is %" PRId64
                               ", the base of '%.64s' has %zu layers",
                               request->max_depth, request->model, info->layer_count);
    if (!request->max_len_given) {
        request->hyper.max_len = max_seq_len < MAX_LEN_DEFAULT ? max_seq_len : MAX_LEN_DEFAULT;
        return true;
    }
    if (request->hyper.max_len > max_seq_len)
        return error_set_param(err, ERR_INVALID, "max_len",
                               "field 'max_len' is %zu, the base '%.64s' reads at most %zu tokens",
                               request->hyper.max_len, request->model, max_seq_len);
    return true;
}

bool request_fit_adapter(struct request *request, size_t rank, double alpha, struct error *err)
{
    if (request->rank_given && request->hyper.lora_rank != rank)
        return error_set_param(
            err, ERR_INVALID, "lora_rank",
            "field 'lora_rank' is %zu, the model '%.128s' goes on with its own, %zu",
            request->hyper.lora_rank, request->model, rank);
    if (request->alpha_given && (float)request->hyper.lora_alpha != (float)alpha)
        return error_set_param(
            err, ERR_INVALID, "lora_alpha",
            "field 'lora_alpha' is %g, the model '%.128s' goes on with its own, %g",
            request->hyper.lora_alpha, request->model, alpha);
    request->hyper.lora_rank = rank;
    request->hyper.lora_alpha = alpha;
    return true;
}

/* ---- as stored ---------------------------------------------------------------------------------- */

struct json *request_hyper_json(const struct hyperparameters *hyper)
{
    struct json *object = json_new_object();

    json_add_int(object, "n_epochs", (int64_t)hyper->n_epochs);
    json_add_int(object, "batch_size", (int64_t)hyper->batch_size);
    json_add_double(object, "learning_rate_multiplier", hyper->learning_rate / REQUEST_BASE_RATE);
    json_add_double(object, "learning_rate", hyper->learning_rate);
    json_add_int(object, "lora_rank", (int64_t)hyper->lora_rank);
    json_add_double(object, "lora_alpha", hyper->lora_alpha);
    json_add_int(object, "max_len", (int64_t)hyper->max_len);
    json_add_double(object, "val_split", hyper->val_split);
    json_add_string(object, "numerics", numerics_names[hyper->numerics]);
    json_add_string(object, "precision", backend_precision_names[hyper->precision]);
    json_add_string(object, "overlong", overlong_names[hyper->overlong]);
    json_add_string(object, "data_rules", rules_names[hyper->data_rules]);
    return object;
}

bool request_hyper_parse(const char *text, struct hyperparameters *ret_hyper, struct error *err)
{
    struct hyperparameters hyper = hyperparameters_default();
    struct json *object = NULL;
    bool ok;

    if (!text)
        return error_set(err, ERR_CORRUPT, "the job has no hyper-parameters");
    if (!json_parse(text, strlen(text), &object, err))
        return false;
    ok = read_count(object, "n_epochs", 50, &hyper.n_epochs, err) &&
         read_count(object, "batch_size", 256, &hyper.batch_size, err) &&
         read_positive(object, "learning_rate", RATE_MAX, &hyper.learning_rate, err) &&
         read_count(object, "lora_rank", RANK_MAX, &hyper.lora_rank, err) &&
         read_positive(object, "lora_alpha", RATE_MAX, &hyper.lora_alpha, err) &&
         read_count(object, "max_len", INT32_MAX, &hyper.max_len, err) &&
         read_split(object, &hyper.val_split, err) && read_rules(object, &hyper, err);
    json_free(object);
    if (ok)
        *ret_hyper = hyper;
    return ok;
}
