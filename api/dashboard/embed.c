/*
 * embed: the dashboard's files as the C source of the table that is served under / and /dashboard/.
 *
 *   embed FOLDER NAME... >dashboard_files.c
 *
 * A tool of the build. Each NAME stands in FOLDER as it is and, made smaller by gzip, as NAME.gz. A
 * file's tag is the digest of its bytes; a name whose kind is unknown ends the build.
 */
#include <nettle/sha2.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 80

static const struct {
    const char *end, *type;
} kinds[] = {
    {".html", "text/html; charset=utf-8"},     {".css", "text/css; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"}, {".svg", "image/svg+xml"},
    {".txt", "text/plain; charset=utf-8"},
};

struct bytes {
    char *data;
    size_t size;
};

static void stop(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

static void stop(const char *format, ...)
{
    va_list arguments;

    (void)fputs("embed: ", stderr);
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fputc('\n', stderr);
    exit(EXIT_FAILURE);
}

static struct bytes read_file(const char *folder, const char *name, const char *end)
{
    struct bytes bytes = {NULL, 0};
    char path[4096], piece[65536];
    FILE *file, *copy;
    size_t size;

    (void)snprintf(path, sizeof(path), "%s/%s%s", folder, name, end); /* cut: it does not open */
    file = fopen(path, "rb");
    copy = open_memstream(&bytes.data, &bytes.size);
    if (!file || !copy)
        stop("'%s' cannot be read", path);
    while ((size = fread(piece, 1, sizeof(piece), file)) > 0)
        (void)fwrite(piece, 1, size, copy); /* fclose tells */
    if (ferror(file) || fclose(copy) != 0)
        stop("'%s' cannot be read", path);
    (void)fclose(file); /* opened for reading */
    return bytes;
}

static const char *type_of(const char *name)
{
    const char *end = strrchr(name, '.');

    for (size_t i = 0; end && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(end, kinds[i].end) == 0)
            return kinds[i].type;
    }
    stop("'%s' is of no kind that is served", name);
}

static void print_bytes(const char *what, int index, const struct bytes *bytes)
{
    printf("static const char %s_%d[] =", what, index);
    for (size_t i = 0; i < bytes->size; i++) {
        const unsigned char byte = (unsigned char)bytes->data[i];

        if (i % LINE_BYTES == 0)
            (void)fputs(i == 0 ? "\n    \"" : "\"\n    \"", stdout);
        if (byte < 0x20 || byte > 0x7e || byte == '"' || byte == '\\' || byte == '?')
            printf("\\%03o", byte);
        else
            (void)putchar(byte);
    }
    (void)fputs(bytes->size ? "\";\n" : " \"\";\n", stdout);
}

static void print_digest(const struct bytes *bytes)
{
    struct sha256_ctx context;
    uint8_t digest[SHA256_DIGEST_SIZE];

    sha256_init(&context);
    sha256_update(&context, bytes->size, (const uint8_t *)bytes->data);
    sha256_digest(&context, sizeof(digest), digest);
    for (size_t i = 0; i < sizeof(digest); i++)
        printf("%02x", digest[i]);
}

int main(int count, char **arguments)
{
    if (count < 3) {
        (void)fputs("usage: embed FOLDER NAME... >dashboard_files.c\n", stderr);
        return EXIT_FAILURE;
    }
    (void)fputs("#include \"api/dashboard.h\"\n\n", stdout);
    for (int i = 2; i < count; i++) {
        struct bytes plain = read_file(arguments[1], arguments[i], "");
        struct bytes small = read_file(arguments[1], arguments[i], ".gz");

        print_bytes("plain", i, &plain);
        print_bytes("small", i, &small);
        printf("#define FILE_%d {\"%s\", \"%s\", \"", i, arguments[i], type_of(arguments[i]));
        print_digest(&plain);
        printf("\", plain_%d, %zu, small_%d, %zu}\n", i, plain.size, i, small.size);
        free(plain.data);
        free(small.data);
    }
    (void)fputs("\nconst struct dashboard_file dashboard_files[] = {", stdout);
    for (int i = 2; i < count; i++)
        printf("FILE_%d, ", i);
    printf("};\nconst size_t dashboard_file_count = %d;\n", count - 2);
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
