#include "daemon/base/utf8.h"

#include <assert.h>
#include <string.h>

size_t utf8_decode(const char *text, size_t size, uint32_t *ret_code)
{
    const unsigned char *b = (const unsigned char *)text;
    static const uint32_t code_min[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t code;
    size_t length;

    assert(size > 0);
    if (b[0] < 0x80) {
        *ret_code = b[0];
        return 1;
    }
    length = b[0] >= 0xf0 ? 4 : b[0] >= 0xe0 ? 3 : 2;
    if (b[0] < 0xc2 || b[0] > 0xf4 || length > size)
        return 0;
    code = b[0] & (0xffu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if ((b[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (b[i] & 0x3fu);
    }
    if (code < code_min[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return 0;
    *ret_code = code;
    return length;
}

/* Most text is ASCII: eight bytes at once have no upper bit set. */
static size_t skip_ascii(const char *text, size_t at, size_t size)
{
    uint64_t word;

    for (; size - at >= sizeof(word); at += sizeof(word)) {
        memcpy(&word, text + at, sizeof(word));
        if (word & UINT64_C(0x8080808080808080))
            break;
    }
    return at;
}

size_t utf8_find_fault(const char *text, size_t size)
{
    size_t i = 0;

    while ((i = skip_ascii(text, i, size)) < size) {
        uint32_t code;
        size_t length = utf8_decode(text + i, size - i, &code);

        if (!length)
            return i;
        i += length;
    }
    return size;
}

size_t utf8_encode(uint32_t code, char ret_bytes[UTF8_BYTES_MAX])
{
    assert(code <= 0x10ffff);
    if (code < 0x80) {
        ret_bytes[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        ret_bytes[0] = (char)(0xc0 | code >> 6);
        ret_bytes[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        ret_bytes[0] = (char)(0xe0 | code >> 12);
        ret_bytes[1] = (char)(0x80 | (code >> 6 & 0x3f));
        ret_bytes[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    ret_bytes[0] = (char)(0xf0 | code >> 18);
    ret_bytes[1] = (char)(0x80 | (code >> 12 & 0x3f));
    ret_bytes[2] = (char)(0x80 | (code >> 6 & 0x3f));
    ret_bytes[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

size_t utf8_find_surrogate(const char *text, size_t size)
{
    const char *next = text, *end = text + size;

    while (next < end && (next = memchr(next, 0xed, (size_t)(end - next))) != NULL) {
        if (end - next >= 3 && ((unsigned char)next[1] & 0xe0) == 0xa0)
            return (size_t)(next - text);
        next++;
    }
    return size;
}

size_t utf8_find_control(const char *text, size_t size, const char *taken)
{
    for (size_t i = 0; i < size; i++) {
        const unsigned char byte = (unsigned char)text[i];
        const bool upper = byte == 0xc2 && i + 1 < size && (unsigned char)text[i + 1] < 0xa0;

        if (upper || byte == 0x7f || (byte < 0x20 && (byte == 0 || !strchr(taken, byte))))
            return i;
    }
    return size;
}

size_t utf8_cut(const char *text, size_t size, size_t max)
{
    if (size <= max)
        return size;
    while (max && ((unsigned char)text[max] & 0xc0) == 0x80)
        max--;
    return max;
}

bool utf8_is_space(uint32_t code)
{
    return (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x20) || code == 0x85 ||
           code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
           code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

void utf8_strip(const char **text, size_t *size)
{
    const char *start = *text;
    size_t left = *size;
    uint32_t code;

    while (left) {
        size_t length = utf8_decode(start, left, &code);

        if (!length || !utf8_is_space(code))
            break;
        start += length;
        left -= length;
    }
    while (left) {
        size_t back = 1;

        while (back < left && back < UTF8_BYTES_MAX &&
               ((unsigned char)start[left - back] & 0xc0) == 0x80)
            back++;
        if (utf8_decode(start + left - back, back, &code) != back || !utf8_is_space(code))
            break;
        left -= back;
    }
    *text = start;
    *size = left;
}
