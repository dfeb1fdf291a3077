#include "tests/kernels/standin/report.h"

#include "tests/kernels/standin/group.h"
#include "tests/kernels/standin/standin.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PRINTED_MAX 40
#define EXIT_STUCK 98

static struct printed {
    const void *code;
    const char *format;
} printed[PRINTED_MAX];
static size_t printed_count, report_count;

size_t standin_report_count(void)
{
    return report_count;
}

/* Whether these words from this code are new; false too when enough was said. */
static bool is_new(const void *code, const char *format)
{
    for (size_t i = 0; i < printed_count; i++)
        if (printed[i].code == code && printed[i].format == format)
            return false;
    if (printed_count == PRINTED_MAX)
        return false;
    printed[printed_count++] = {code, format};
    return true;
}

/* "    at function at file:line", with the functions it was inlined into. */
static void print_line(const void *code)
{
    const char *address = static_cast<const char *>(code) - 1; /* code is where the call returns */
    char command[1024];
    Dl_info info;

    if (!dladdr(code, &info) || !info.dli_fname) {
        fprintf(stderr, "    at %p\n", code);
        return;
    }
    if (static_cast<const Elf64_Ehdr *>(info.dli_fbase)->e_type == ET_DYN) /* moved when loaded */
        address -= reinterpret_cast<uintptr_t>(info.dli_fbase);
    snprintf(command, sizeof command, "addr2line -s -f -p -i -C -e '%s' %p | sed 's/^/    /' >&2",
             access(info.dli_fname, R_OK) == 0 ? info.dli_fname : "/proc/self/exe",
             static_cast<const void *>(address));
    fflush(stderr);
    if (system(command) != 0)
        fprintf(stderr, "    at %s + %p\n", info.dli_fname, static_cast<const void *>(address));
}

static void print(const char *format, va_list arguments)
{
    char place[160];

    group_describe_thread(place, sizeof place);
    fprintf(stderr, "standin: %s: ", place);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
}

void report(const void *code, const char *format, ...)
{
    va_list arguments;

    report_count++;
    if (!is_new(code, format))
        return;
    va_start(arguments, format);
    print(format, arguments);
    va_end(arguments);
    if (code)
        print_line(code);
}

void report_and_exit(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    print(format, arguments);
    va_end(arguments);
    fflush(NULL);
    _exit(EXIT_STUCK);
}

/* A program that nobody asks for its count, as the daemon, still shows it. */
__attribute__((destructor)) static void print_count(void)
{
    if (report_count > 0)
        fprintf(stderr, "standin: %zu reports\n", report_count);
}
