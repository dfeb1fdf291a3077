#include "api/text.h"

#include "daemon/base/buf.h"
#include "daemon/base/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int hex_digit(char byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    if (byte >= 'a' && byte <= 'f')
        return byte - 'a' + 10;
    if (byte >= 'A' && byte <= 'F')
        return byte - 'A' + 10;
    return -1;
}

void text_encode(const char *segment, struct buf *out)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~:";

    for (const char *at = segment; *at; at++) {
        if (strchr(plain, *at))
            buf_append_char(out, *at);
        else
            buf_format(out, "%%%02X", (unsigned char)*at);
    }
}

bool text_decode(char *text)
{
    char *out = text;

    for (const char *in = text; *in; in++) {
        if (*in == '%') {
            int high = hex_digit(in[1]);
            int low = high < 0 ? -1 : hex_digit(in[2]);

            if (low < 0 || (high == 0 && low == 0))
                return false;
            *out++ = (char)(high * 16 + low);
            in += 2;
        } else {
            *out++ = *in;
        }
    }
    *out = '\0';
    return utf8_find_fault(text, (size_t)(out - text)) == (size_t)(out - text);
}

bool text_decode_extended(char *value)
{
    const char *language = strchr(value, '\'');
    const char *start = language ? strchr(language + 1, '\'') : NULL;

    if (!start || strncasecmp(value, "utf-8'", 6) != 0)
        return false;
    memmove(value, start + 1, strlen(start + 1) + 1);
    return text_decode(value);
}

bool text_read_value(const char *at, char *ret_value, size_t capacity)
{
    bool quoted = *at == '"';
    size_t size = 0;

    if (quoted)
        at++;
    for (; *at; at++) {
        char byte = *at;

        if (quoted ? byte == '"' : byte == ';' || byte == ' ' || byte == '\t')
            break;
        if (quoted && byte == '\\' && (at[1] == '"' || at[1] == '\\')) {
            byte = *++at;
        } else if (quoted && strncmp(at, "%22", 3) == 0) {
            byte = '"';
            at += 2;
        }
        if (size + 1 >= capacity)
            return false;
        ret_value[size++] = byte;
    }
    ret_value[size] = '\0';
    return !quoted || *at == '"';
}

const char *text_skip_parameter(const char *at)
{
    bool quoted = false;

    for (; *at && (quoted || *at != ';'); at++) {
        if (*at == '"')
            quoted = !quoted;
        else if (quoted && *at == '\\' && at[1])
            at++;
    }
    return at;
}

bool text_is_media_type(const char *content_type, const char *wanted)
{
    size_t size = strlen(wanted);

    content_type += strspn(content_type, " \t");
    if (strncasecmp(content_type, wanted, size) != 0)
        return false;
    return content_type[size] == '\0' || strchr("; \t", content_type[size]);
}

bool text_accepts(const char *accept, const char *wanted)
{
    while (accept) {
        if (text_is_media_type(accept, wanted))
            return true;
        /* "type, type;q=1": text_is_media_type wants ; or the end after it */
        accept += strspn(accept, " \t");
        if (strncasecmp(accept, wanted, strlen(wanted)) == 0 && accept[strlen(wanted)] == ',')
            return true;
        accept = strchr(accept, ',');
        if (accept)
            accept++;
    }
    return false;
}

bool text_read_number(const char *text, int64_t max, int64_t *ret_number)
{
    int64_t number = 0;

    if (!*text)
        return false;
    for (; *text; text++) {
        int digit = *text - '0';

        if (digit < 0 || digit > 9 || number > (max - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    *ret_number = number;
    return true;
}

void text_label(char *ret_label, size_t capacity, const char *filename)
{
    size_t size = 0, left, used;

    for (const char *at = filename; *at; at++) {
        if (*at == '/' || *at == '\\')
            filename = at + 1;
    }
    for (left = strlen(filename); left > 0; left -= used, filename += used) {
        uint32_t code = 0;
        bool clean;

        used = utf8_decode(filename, left, &code);
        clean = used > 0 && code >= 0x20 && !(code >= 0x7f && code < 0xa0);
        if (used == 0)
            used = 1;
        if (size + (clean ? used : 1) >= capacity)
            break;
        if (clean)
            memcpy(ret_label + size, filename, used);
        else
            ret_label[size] = '_';
        size += clean ? used : 1;
    }
    ret_label[size] = '\0';
    if (size == 0 || strcmp(ret_label, ".") == 0 || strcmp(ret_label, "..") == 0)
        memcpy(ret_label, "upload", sizeof("upload"));
}

bool text_check_label(const char *field, const char *text, struct error *err)
{
    const size_t size = strlen(text), at = utf8_find_control(text, size, "");

    return at == size || error_set_param(err, ERR_INVALID, field,
                                         "'%s' has a control character at byte %zu", field, at);
}

bool text_equal_secret(const char *given, const char *secret)
{
    size_t given_size = strlen(given), secret_size = strlen(secret);
    volatile unsigned char difference = given_size == secret_size ? 0 : 1;

    for (size_t i = 0; i < given_size; i++)
        difference |= (unsigned char)(given[i] ^ secret[secret_size ? i % secret_size : 0]);
    return difference == 0;
}
