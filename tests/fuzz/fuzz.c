#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DATA_MAX ((size_t)1 << 20)
#define PREFIX_SIZE 8

static char folder[128];

void fuzz_promise(bool holds, const char *what)
{
    if (holds)
        return;
    (void)fprintf(stderr, "broken promise: %s\n", what);
    abort();
}

void fuzz_promise_reason(bool ok, const struct error *err)
{
    fuzz_promise(ok || (err->code != ERR_NONE && err->message[0] != '\0'),
                 "a failure has a reason");
    fuzz_promise(memchr(err->message, 0, sizeof(err->message)) != NULL, "a message ends");
}

static void empty_folder(const char *path)
{
    DIR *listing = opendir(path);

    for (const struct dirent *entry; listing && (entry = readdir(listing));) {
        char name[512];

        (void)snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (unlink(name) != 0) { /* a folder */
            empty_folder(name);
            (void)rmdir(name); /* at the end of the process: nobody is left to tell */
        }
    }
    if (listing)
        (void)closedir(listing);
}

static void remove_folder(void)
{
    empty_folder(folder);
    (void)rmdir(folder); /* the same */
}

const char *fuzz_folder(void)
{
    if (folder[0])
        return folder;
    (void)snprintf(folder, sizeof(folder), "%s/needled-fuzz-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    fuzz_promise(mkdtemp(folder) != NULL, "a folder for the files can be made");
    fuzz_promise(atexit(remove_folder) == 0, "the folder will be removed");
    return folder;
}

const char *fuzz_file(const char *name, const void *bytes, size_t size)
{
    static char path[512];
    int descriptor;

    (void)snprintf(path, sizeof(path), "%s/%s", fuzz_folder(), name);
    descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fuzz_promise(descriptor >= 0 && write(descriptor, bytes, size) == (ssize_t)size &&
                     close(descriptor) == 0,
                 "the file can be written");
    return path;
}

char *fuzz_text(const uint8_t *bytes, size_t size)
{
    char *text = malloc(size + 1);

    fuzz_promise(text != NULL, "there is memory");
    if (size > 0)
        memcpy(text, bytes, size);
    text[size] = '\0';
    return text;
}

/* The largest end of a range in the header, at most DATA_MAX. */
static size_t find_data_size(const char *header)
{
    static const char mark[] = "\"data_offsets\"";
    size_t largest = 0;

    for (const char *at = header; (at = strstr(at, mark)) != NULL;) {
        char *end = NULL;

        at += strlen(mark);
        at += strcspn(at, ",]}");
        if (*at != ',')
            continue;
        errno = 0;
        const unsigned long long number = strtoull(at + 1, &end, 10);
        if (errno == 0 && number <= DATA_MAX && (size_t)number > largest)
            largest = (size_t)number;
    }
    return largest;
}

const char *fuzz_tensors(const char *name, const uint8_t *bytes, size_t size)
{
    char *header = fuzz_text(bytes, size);
    const size_t header_size = strlen(header);
    const size_t given = header_size < size ? size - header_size - 1 : 0;
    const size_t wanted = find_data_size(header);
    const size_t total = PREFIX_SIZE + header_size + (wanted > given ? wanted : given);
    unsigned char *file = calloc(1, total);
    const char *path;

    fuzz_promise(file != NULL, "there is memory");
    for (size_t i = 0; i < PREFIX_SIZE; i++)
        file[i] = (unsigned char)(header_size >> (8 * i));
    memcpy(file + PREFIX_SIZE, header, header_size);
    if (given > 0)
        memcpy(file + PREFIX_SIZE + header_size, bytes + header_size + 1, given);
    path = fuzz_file(name, file, total);
    free(file);
    free(header);
    return path;
}
