#include "api/multipart.h"

#include "api/text.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DELIMITER_MAX (4 + MULTIPART_BOUNDARY_MAX)
#define VALUE_MAX 1024 /* bytes of a part's name or file name, with the NUL */

enum place { IN_PREAMBLE, AFTER_BOUNDARY, IN_HEADER, IN_DATA, IN_EPILOGUE, AFTER_FAULT };

struct multipart {
    struct multipart_events events;
    char delimiter[DELIMITER_MAX + 1]; /* CR LF - - boundary */
    size_t delimiter_size;
    size_t matched; /* bytes of the delimiter seen so far */
    enum place place;
    char header[MULTIPART_HEADER_MAX];
    size_t header_size;
    size_t part_count;
    size_t offset; /* of the body, for messages */
};

/* The value of a parameter of a header line, quoted or not. */
static bool read_parameter(const char *line, const char *name, char *ret_value, size_t capacity)
{
    const char *at = line;
    size_t name_size = strlen(name);

    while ((at = strchr(at, ';'))) {
        at += 1 + strspn(at + 1, " \t");
        if (strncasecmp(at, name, name_size) != 0 || at[name_size] != '=') {
            at = text_skip_parameter(at);
            continue;
        }
        return text_read_value(at + name_size + 1, ret_value, capacity);
    }
    return false;
}

bool multipart_new(const char *content_type, const struct multipart_events *events,
                   struct multipart **ret_reader, struct error *err)
{
    char boundary[MULTIPART_BOUNDARY_MAX + 1];
    struct multipart *reader;

    if (!read_parameter(content_type, "boundary", boundary, sizeof(boundary)) || !boundary[0] ||
        strpbrk(boundary, "\r\n"))
        return error_set(err, ERR_INVALID,
                         "multipart/form-data without a boundary of 1 to %d characters",
                         MULTIPART_BOUNDARY_MAX);
    reader = calloc(1, sizeof(*reader));
    if (!reader)
        return error_set(err, ERR_NO_MEMORY, "no memory to read the form");
    reader->events = *events;
    reader->delimiter_size = 4 + strlen(boundary);
    memcpy(reader->delimiter, "\r\n--", 4);
    memcpy(reader->delimiter + 4, boundary, strlen(boundary));
    reader->matched = 2; /* the first boundary may open the body, without a line end before it */
    *ret_reader = reader;
    return true;
}

void multipart_free(struct multipart *reader)
{
    free(reader);
}

static bool begin_part(struct multipart *reader, struct error *err)
{
    char name[VALUE_MAX], filename[VALUE_MAX];
    bool has_filename;
    char *line = reader->header, *end;

    reader->header[reader->header_size] = '\0';
    if (memchr(reader->header, '\0', reader->header_size))
        return error_set(err, ERR_INVALID, "a NUL in the header of part %zu", reader->part_count);
    for (; (end = strstr(line, "\r\n")); line = end + 2) {
        *end = '\0';
        if (strncasecmp(line, "content-disposition:", 20) == 0)
            break;
    }
    if (!end || !read_parameter(line, "name", name, sizeof(name)))
        return error_set(err, ERR_INVALID,
                         "part %zu has no Content-Disposition with a name of up to %d bytes",
                         reader->part_count, VALUE_MAX - 1);
    has_filename = read_parameter(line, "filename*", filename, sizeof(filename)) &&
                   text_decode_extended(filename);
    if (!has_filename)
        has_filename = read_parameter(line, "filename", filename, sizeof(filename));
    if (!has_filename && strcasestr(line, "filename="))
        return error_set_param(err, ERR_INVALID, "file", "the file name of part %zu is too long",
                               reader->part_count);
    return reader->events.begin(reader->events.context, name, has_filename ? filename : NULL, err);
}

static bool feed_header(struct multipart *reader, char byte, struct error *err)
{
    static const char end[] = "\r\n\r\n";
    size_t size;

    if (reader->header_size + 1 >= sizeof(reader->header))
        return error_set(err, ERR_LIMIT, "the header of part %zu is longer than %d bytes",
                         reader->part_count, MULTIPART_HEADER_MAX);
    reader->header[reader->header_size++] = byte;
    size = reader->header_size;
    if (size != 2 || memcmp(reader->header, "\r\n", 2) != 0) {
        if (size < 4 || memcmp(reader->header + size - 4, end, 4) != 0)
            return true;
    }
    if (!begin_part(reader, err))
        return false;
    reader->place = IN_DATA;
    reader->matched = 0;
    return true;
}

/* What follows a boundary: a line end opens a part, two hyphens close the body. */
static bool feed_after_boundary(struct multipart *reader, char byte, struct error *err)
{
    char *seen = reader->header;

    if (reader->header_size == 0 && (byte == ' ' || byte == '\t'))
        return true;
    seen[reader->header_size++] = byte;
    if (reader->header_size < 2)
        return true;
    if (memcmp(seen, "--", 2) == 0) {
        reader->place = IN_EPILOGUE;
        return true;
    }
    if (memcmp(seen, "\r\n", 2) != 0)
        return error_set(err, ERR_INVALID, "byte %zu of the form: the boundary runs on",
                         reader->offset);
    if (++reader->part_count > MULTIPART_PART_MAX)
        return error_set(err, ERR_LIMIT, "the form has more than %d parts", MULTIPART_PART_MAX);
    reader->place = IN_HEADER;
    reader->header_size = 0;
    return true;
}

static bool give_data(struct multipart *reader, const char *bytes, size_t size, struct error *err)
{
    if (size == 0 || reader->place == IN_PREAMBLE)
        return true;
    return reader->events.data(reader->events.context, bytes, size, err);
}

/* Data up to a delimiter. A carriage return stands only at a delimiter's start, so a false start holds
 * no other start inside. */
static bool feed_data(struct multipart *reader, const char *bytes, size_t size, size_t *ret_used,
                      struct error *err)
{
    size_t at = 0;

    if (reader->matched == 0) {
        const char *start = memchr(bytes, '\r', size);

        at = start ? (size_t)(start - bytes) : size;
        if (!give_data(reader, bytes, at, err))
            return false;
    }
    while (at < size && reader->matched < reader->delimiter_size &&
           bytes[at] == reader->delimiter[reader->matched]) {
        at++;
        reader->matched++;
    }
    *ret_used = at;
    if (reader->matched == reader->delimiter_size) {
        if (reader->place == IN_DATA && !reader->events.end(reader->events.context, err))
            return false;
        reader->place = AFTER_BOUNDARY;
        reader->header_size = 0;
        return true;
    }
    if (at < size && reader->matched > 0) {
        size_t false_start = reader->matched;

        reader->matched = 0;
        return give_data(reader, reader->delimiter, false_start, err);
    }
    return true;
}

static bool feed_some(struct multipart *reader, const char *bytes, size_t size, size_t *ret_used,
                      struct error *err)
{
    *ret_used = 1;
    switch (reader->place) {
    case IN_PREAMBLE:
    case IN_DATA:
        return feed_data(reader, bytes, size, ret_used, err);
    case AFTER_BOUNDARY:
        return feed_after_boundary(reader, bytes[0], err);
    case IN_HEADER:
        return feed_header(reader, bytes[0], err);
    case IN_EPILOGUE:
        *ret_used = size; /* RFC 2046: to be ignored */
        return true;
    case AFTER_FAULT:
        break;
    }
    return error_set(err, ERR_INVALID, "the form was refused before");
}

bool multipart_feed(struct multipart *reader, const char *bytes, size_t size, struct error *err)
{
    while (size > 0) {
        size_t used = 0;

        if (!feed_some(reader, bytes, size, &used, err)) {
            reader->place = AFTER_FAULT;
            return false;
        }
        assert(used <= size);
        bytes += used;
        size -= used;
        reader->offset += used;
    }
    return true;
}

bool multipart_finish(const struct multipart *reader, struct error *err)
{
    if (reader->place == IN_EPILOGUE)
        return true;
    return error_set(err, ERR_INVALID, "the form ends after %zu bytes without its closing boundary",
                     reader->offset);
}
