#include "tests/support/op_fixture.h"

#include "daemon/base/file.h"
#include "daemon/base/json.h"

#include <math.h>

#define CONVERTED_MAX 256

struct fixture {
    struct mapping map;
    struct json *header, *config; /* config: NULL without one */
    const unsigned char *data;
    float *converted[CONVERTED_MAX];
    size_t converted_count;
};

static void open_config(struct fixture *fixture)
{
    const struct json *metadata = json_member(fixture->header, "__metadata__");
    const struct json *config = metadata ? json_member(metadata, "config") : NULL;
    struct error err = {0};

    if (config && !json_parse(json_text(config), strlen(json_text(config)), &fixture->config, &err))
        fail_msg("config: %s", err.message);
}

struct fixture *fixture_open(const char *path)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct error err = {0};
    uint64_t size;

    assert_non_null(fixture);
    fixture->map = MAPPING_NONE;
    if (!mapping_open(&fixture->map, path, &err))
        fail_msg("%s", err.message);
    memcpy(&size, fixture->map.data, sizeof(size));
    if (!json_parse((const char *)fixture->map.data + 8, (size_t)size, &fixture->header, &err))
        fail_msg("%s: %s", path, err.message);
    fixture->data = fixture->map.data + 8 + size;
    open_config(fixture);
    return fixture;
}

void fixture_close(struct fixture *fixture)
{
    for (size_t i = 0; i < fixture->converted_count; i++)
        free(fixture->converted[i]);
    json_free(fixture->header);
    json_free(fixture->config);
    mapping_close(&fixture->map);
    free(fixture);
}

bool fixture_has(const struct fixture *fixture, const char *name)
{
    return json_member(fixture->header, name) != NULL;
}

static const struct json *tensor_of(const struct fixture *fixture, const char *name)
{
    const struct json *tensor = json_member(fixture->header, name);

    if (!tensor)
        fail_msg("no tensor '%s'", name);
    return tensor;
}

size_t fixture_axis(const struct fixture *fixture, const char *name, size_t from_last)
{
    const struct json *shape = json_member(tensor_of(fixture, name), "shape");

    assert_true(from_last < json_count(shape));
    return (size_t)json_number(json_at(shape, json_count(shape) - 1 - from_last));
}

static float half(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float magnitude = exponent == 31  ? (fraction ? NAN : INFINITY)
                            : exponent == 0 ? ldexpf((float)fraction, -24)
                                            : ldexpf((float)(1024 + fraction), exponent - 25);

    return bits & 0x8000 ? -magnitude : magnitude;
}

const float *fixture_values(struct fixture *fixture, const char *name, size_t *ret_count)
{
    const struct json *tensor = tensor_of(fixture, name), *shape = json_member(tensor, "shape");
    const char *type = json_text(json_member(tensor, "dtype"));
    const unsigned char *bytes =
        fixture->data + (size_t)json_number(json_at(json_member(tensor, "data_offsets"), 0));
    size_t count = 1;
    float *values;

    for (size_t i = 0; i < json_count(shape); i++)
        count *= (size_t)json_number(json_at(shape, i));
    values = calloc(count + 1, sizeof(*values));
    assert_non_null(values);
    assert_true(fixture->converted_count < CONVERTED_MAX);
    fixture->converted[fixture->converted_count++] = values;
    for (size_t i = 0; i < count; i++) {
        uint16_t bits;
        int32_t number;

        if (strcmp(type, "F32") == 0) {
            memcpy(&values[i], bytes + 4 * i, 4);
        } else if (strcmp(type, "F16") == 0) {
            memcpy(&bits, bytes + 2 * i, 2);
            values[i] = half(bits);
        } else if (strcmp(type, "I32") == 0) {
            memcpy(&number, bytes + 4 * i, 4);
            values[i] = (float)number;
        } else if (strcmp(type, "U8") == 0) {
            values[i] = bytes[i];
        } else {
            fail_msg("%s: element type %s", name, type);
        }
    }
    if (ret_count)
        *ret_count = count;
    return values;
}

double fixture_config(const struct fixture *fixture, const char *field, double absent)
{
    const struct json *number = json_member(fixture->config, field);

    return number ? json_number(number) : absent;
}

size_t fixture_config_count(const struct fixture *fixture, const char *field)
{
    const struct json *array = json_member(fixture->config, field);

    return array ? json_count(array) : 0;
}
