/*
 * embed: openapi.yaml on standard input as the C source of the text that /v1/openapi.json answers.
 *
 *   embed VERSION <openapi.yaml >openapi_json.c
 *
 * A tool of the build over libyaml. A key that stands twice or has no value, and a plain word that
 * versions of YAML read differently (yes, no, on, off), end the build with their line. VERSION becomes
 * info.version.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define LINE_BYTES 80

static void stop(size_t line, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));

static void stop(size_t line, const char *format, ...)
{
    va_list arguments;

    (void)fprintf(stderr, "openapi.yaml:%zu: ", line + 1);
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fputc('\n', stderr);
    exit(EXIT_FAILURE);
}

/* ---- YAML to JSON --------------------------------------------------------------------------------- */

struct source {
    yaml_document_t document;
    const char *version;
    FILE *json;
};

static void print_text(FILE *json, const char *text)
{
    (void)fputc('"', json);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            (void)fprintf(json, "\\%c", *text);
        else if ((unsigned char)*text < 0x20)
            (void)fprintf(json, "\\u%04x", (unsigned)*text);
        else
            (void)fputc(*text, json);
    }
    (void)fputc('"', json);
}

static bool skip_digits(const char **at)
{
    const size_t count = strspn(*at, "0123456789");

    *at += count;
    return count > 0;
}

/* By JSON's grammar. */
static bool is_number(const char *text)
{
    if (*text == '-')
        text++;
    if (text[0] == '0' && text[1] >= '0' && text[1] <= '9')
        return false;
    if (!skip_digits(&text))
        return false;
    if (*text == '.') {
        text++;
        if (!skip_digits(&text))
            return false;
    }
    if (*text == 'e' || *text == 'E') {
        text++;
        if (*text == '+' || *text == '-')
            text++;
        if (!skip_digits(&text))
            return false;
    }
    return *text == '\0';
}

static bool is_one_of(const char *text, const char *const *words)
{
    for (; *words != NULL; words++) {
        if (strcmp(text, *words) == 0)
            return true;
    }
    return false;
}

static void print_scalar(const struct source *source, const yaml_node_t *node)
{
    static const char *const same[] = {"null", "true", "false", NULL};
    static const char *const unclear[] = {"yes", "no", "on", "off", "~", "y", "n", NULL};
    const char *text = (const char *)node->data.scalar.value;

    if (strlen(text) != node->data.scalar.length)
        stop(node->start_mark.line, "a text holds a NUL");
    if (node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) {
        print_text(source->json, text);
        return;
    }
    if (text[0] == '\0')
        stop(node->start_mark.line, "a key has no value: within {} quote a text with a comma");
    if (is_one_of(text, unclear))
        stop(node->start_mark.line, "'%s' is read differently by versions of YAML: quote it", text);
    if (is_number(text) || is_one_of(text, same))
        (void)fputs(text, source->json);
    else
        print_text(source->json, text);
}

static const char *key_text(struct source *source, const yaml_node_pair_t *pair)
{
    const yaml_node_t *key = yaml_document_get_node(&source->document, pair->key);

    if (key->type != YAML_SCALAR_NODE)
        stop(key->start_mark.line, "a key is no text");
    if (key->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
        is_number((const char *)key->data.scalar.value))
        stop(key->start_mark.line, "the key %s is a number: quote it", key->data.scalar.value);
    return (const char *)key->data.scalar.value;
}

/* in_info: the node is the value of the top's `info`. */
static void print_node(struct source *source, int index, int depth, bool in_info);

static void print_mapping(struct source *source, const yaml_node_t *node, int depth, bool in_info)
{
    const yaml_node_pair_t *first = node->data.mapping.pairs.start;

    (void)fputc('{', source->json);
    for (const yaml_node_pair_t *pair = first; pair < node->data.mapping.pairs.top; pair++) {
        const char *name = key_text(source, pair);

        for (const yaml_node_pair_t *other = first; other < pair; other++) {
            if (strcmp(key_text(source, other), name) == 0)
                stop(yaml_document_get_node(&source->document, pair->key)->start_mark.line,
                     "the key '%s' stands twice", name);
        }
        if (pair > first)
            (void)fputc(',', source->json);
        print_text(source->json, name);
        (void)fputc(':', source->json);
        if (in_info && strcmp(name, "version") == 0)
            print_text(source->json, source->version);
        else
            print_node(source, pair->value, depth + 1, depth == 0 && strcmp(name, "info") == 0);
    }
    (void)fputc('}', source->json);
}

static void print_node(struct source *source, int index, int depth, bool in_info)
{
    const yaml_node_t *node = yaml_document_get_node(&source->document, index);

    switch (node->type) {
    case YAML_SCALAR_NODE:
        print_scalar(source, node);
        break;
    case YAML_SEQUENCE_NODE:
        (void)fputc('[', source->json);
        for (const yaml_node_item_t *item = node->data.sequence.items.start;
             item < node->data.sequence.items.top; item++) {
            if (item > node->data.sequence.items.start)
                (void)fputc(',', source->json);
            print_node(source, *item, depth + 1, false);
        }
        (void)fputc(']', source->json);
        break;
    case YAML_MAPPING_NODE:
        print_mapping(source, node, depth, in_info);
        break;
    case YAML_NO_NODE:
        stop(node->start_mark.line, "there is nothing");
    }
}

/* ---- JSON to C ------------------------------------------------------------------------------------ */

static void print_source(const char *text, size_t size)
{
    (void)fputs("#include \"api/openapi.h\"\n\nconst char openapi_json[] =", stdout);
    for (size_t i = 0; i < size; i++) {
        if (i % LINE_BYTES == 0)
            (void)fputs(i == 0 ? "\n    \"" : "\"\n    \"", stdout);
        if (text[i] == '"' || text[i] == '\\' || text[i] == '?') /* ??( is a bracket in C17 */
            (void)putchar('\\');
        (void)putchar(text[i]);
    }
    printf("\";\nconst size_t openapi_json_size = %zu;\n", size);
}

int main(int count, char **arguments)
{
    struct source source = {.version = count == 2 ? arguments[1] : ""};
    yaml_parser_t parser;
    char *text = NULL;
    size_t size = 0;

    if (count != 2 || !yaml_parser_initialize(&parser)) {
        (void)fputs("usage: embed VERSION <openapi.yaml >openapi_json.c\n", stderr);
        return EXIT_FAILURE;
    }
    yaml_parser_set_input_file(&parser, stdin);
    if (!yaml_parser_load(&parser, &source.document))
        stop(parser.problem_mark.line, "%s", parser.problem ? parser.problem : "no memory");
    if (!yaml_document_get_root_node(&source.document))
        stop(0, "there is nothing");
    source.json = open_memstream(&text, &size);
    if (!source.json)
        stop(0, "no memory");
    print_node(&source, 1, 0, false); /* 1 is the root */
    if (fclose(source.json) != 0)
        stop(0, "no memory");
    print_source(text, size);
    free(text);
    yaml_document_delete(&source.document);
    yaml_parser_delete(&parser);
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
