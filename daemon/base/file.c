#include "daemon/base/file.h"

#include "daemon/base/limits.h"
#include "daemon/base/pulse.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define HASH_CHUNK_BYTES ((size_t)1 << 16)
#define TEMPORARY_DIGITS 10
#define WRITE_BEHIND_BYTES ((uint64_t)8 << 20)

bool file_fail(struct error *err, const char *what, const char *path)
{
    const int number = errno;
    const char *limit = error_disk_limit(number);

    if (limit[0])
        return error_set_word(err, ERR_NO_MEMORY, ERROR_DISK_FULL, "", "%s '%s': %s", what, path,
                              limit);
    if (error_number_is_open_files(number))
        return error_set_word(err, ERR_UNAVAILABLE, ERROR_OPEN_FILES, "", "%s '%s': %s", what, path,
                              strerrordesc_np(number));
    return error_set(err,
                     number == ENOENT   ? ERR_NOT_FOUND
                     : number == ENOMEM ? ERR_NO_MEMORY
                                        : ERR_IO,
                     "%s '%s': %s", what, path,
                     strerrordesc_np(number) ? strerrordesc_np(number) : "unknown reason");
}

/* The same of a write, which the disk may have refused. */
static bool fail_write(struct error *err, const char *what, const char *path)
{
    const char *word = error_disk_word(errno);

    file_fail(err, what, path);
    if (word[0])
        error_name(err, word);
    return false;
}

/* ---- reading -------------------------------------------------------------------------------- */

static bool fail_kind(struct error *err, const char *path)
{
    return error_set(err, ERR_INVALID, "open '%s': not a regular file", path);
}

bool file_open(const char *path, int flags, int *ret_descriptor, struct error *err)
{
    const int descriptor = open(path, flags | O_CLOEXEC | O_NONBLOCK, 0600);
    struct stat info;

    if (descriptor < 0 && errno == ELOOP && (flags & O_NOFOLLOW))
        return error_set(err, ERR_CORRUPT, "open '%s': a symbolic link, which is not followed",
                         path);
    if (descriptor < 0 && (errno == ENXIO || errno == EISDIR)) /* to write: a pipe, a folder */
        return fail_kind(err, path);
    if (descriptor < 0)
        return file_fail(err, "open", path);
    if (fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode)) {
        *ret_descriptor = descriptor;
        return true;
    }
    (void)close(descriptor); /* nothing was read or written */
    return fail_kind(err, path);
}

bool mapping_open(struct mapping *map, const char *path, struct error *err)
{
    struct mapping opened = MAPPING_NONE;
    struct stat info;
    void *data;

    if (!file_open(path, O_RDONLY, &opened.descriptor, err))
        return false;
    if (fstat(opened.descriptor, &info) != 0) {
        file_fail(err, "look at", path);
        goto out;
    }
    opened.size = (size_t)info.st_size;
    if (opened.size) {
        data = mmap(NULL, opened.size, PROT_READ, MAP_PRIVATE, opened.descriptor, 0);
        if (data == MAP_FAILED) {
            file_fail(err, "map", path);
            goto out;
        }
        opened.data = data;
    }
    *map = opened;
    return true;
out:
    opened.size = 0;
    mapping_close(&opened);
    return false;
}

void mapping_close(struct mapping *map)
{
    if (map->data)
        (void)munmap((void *)(uintptr_t)map->data, map->size); /* our own mapping: cannot fail */
    if (map->descriptor >= 0)
        (void)close(map->descriptor); /* only read from */
    *map = MAPPING_NONE;
}

static void hex_of(struct sha256_ctx *hash, char ret_sha256[SHA256_HEX_SIZE])
{
    uint8_t digest[SHA256_DIGEST_SIZE];

    sha256_digest(hash, sizeof(digest), digest);
    for (size_t i = 0; i < sizeof(digest); i++)
        (void)snprintf(ret_sha256 + 2 * i, 3, "%02x", digest[i]);
}

void file_sha256_of(const void *bytes, size_t size, char ret_sha256[SHA256_HEX_SIZE])
{
    struct sha256_ctx hash;

    sha256_init(&hash);
    sha256_update(&hash, size, bytes);
    hex_of(&hash, ret_sha256);
}

bool file_sha256(const char *path, char ret_sha256[SHA256_HEX_SIZE], struct error *err)
{
    struct sha256_ctx hash;
    unsigned char chunk[HASH_CHUNK_BYTES];
    ssize_t count;
    int descriptor = -1;

    if (!file_open(path, O_RDONLY, &descriptor, err))
        return false;
    sha256_init(&hash);
    while ((count = read(descriptor, chunk, sizeof(chunk))) != 0) {
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0) {
            file_fail(err, "read", path);
            (void)close(descriptor); /* only read from */
            return false;
        }
        sha256_update(&hash, (size_t)count, chunk);
        pulse_beat();
    }
    (void)close(descriptor); /* only read from */
    hex_of(&hash, ret_sha256);
    return true;
}

/* ---- writing -------------------------------------------------------------------------------- */

struct file_writer {
    int descriptor;
    char path[LIMIT_PATH_BYTES];
    char temporary[LIMIT_PATH_BYTES];
    uint64_t size_bytes, begun_bytes; /* begun: on their way to disk */
    struct sha256_ctx hash;
};

bool file_writer_open(const char *path, struct file_writer **ret_writer, struct error *err)
{
    struct file_writer *writer = calloc(1, sizeof(*writer));
    char suffix[TEMPORARY_DIGITS + 8];
    int length;

    if (!writer)
        return error_set(err, ERR_NO_MEMORY, "write '%s': out of memory", path);
    writer->descriptor = -1;
    if (!file_random_id(suffix, sizeof(suffix), ".", TEMPORARY_DIGITS, err))
        goto fail;
    (void)snprintf(writer->path, sizeof(writer->path), "%s", path);
    length = snprintf(writer->temporary, sizeof(writer->temporary), "%s%s.tmp", path, suffix);
    if (length < 0 || (size_t)length >= sizeof(writer->temporary)) {
        error_set(err, ERR_LIMIT, "write '%.64s...': the path is too long", path);
        goto fail;
    }
    writer->descriptor =
        open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (writer->descriptor < 0) {
        fail_write(err, "create", path);
        goto fail;
    }
    sha256_init(&writer->hash);
    *ret_writer = writer;
    return true;
fail:
    free(writer);
    return false;
}

/* The disk begins early, so that the sync at the end of a large file has little left to wait for. */
static void begin_writing(struct file_writer *writer)
{
    uint64_t size = writer->size_bytes - writer->begun_bytes;

    if (size < WRITE_BEHIND_BYTES)
        return;
    (void)sync_file_range(writer->descriptor, (off64_t)writer->begun_bytes, (off64_t)size,
                          SYNC_FILE_RANGE_WRITE); /* a hint: the sync tells of failures */
    writer->begun_bytes = writer->size_bytes;
}

bool file_writer_append(struct file_writer *writer, const void *bytes, size_t size,
                        struct error *err)
{
    const unsigned char *next = bytes;
    size_t left = size;

    while (left) {
        ssize_t count = write(writer->descriptor, next, left);

        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return fail_write(err, "write", writer->path);
        next += count;
        left -= (size_t)count;
    }
    if (size)
        sha256_update(&writer->hash, size, bytes);
    writer->size_bytes += size;
    begin_writing(writer);
    return true;
}

/* The folder part of a path: "." when it has none. */
static void folder_of(const char *path, char ret_folder[LIMIT_PATH_BYTES])
{
    const char *slash = strrchr(path, '/');

    if (!slash)
        (void)snprintf(ret_folder, LIMIT_PATH_BYTES, ".");
    else if (slash == path)
        (void)snprintf(ret_folder, LIMIT_PATH_BYTES, "/");
    else
        (void)snprintf(ret_folder, LIMIT_PATH_BYTES, "%.*s", (int)(slash - path), path);
}

static bool sync_folder_of(const char *path, struct error *err)
{
    char folder[LIMIT_PATH_BYTES];
    int descriptor;
    bool ok;

    folder_of(path, folder);
    descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0)
        return file_fail(err, "open", folder);
    ok = fsync(descriptor) == 0 || fail_write(err, "sync", folder);
    (void)close(descriptor); /* only read from */
    return ok;
}

bool file_writer_commit(struct file_writer *writer, uint64_t *ret_size_bytes,
                        char ret_sha256[SHA256_HEX_SIZE], struct error *err)
{
    int closed;

    if (fsync(writer->descriptor) != 0) {
        fail_write(err, "sync", writer->path);
        goto fail;
    }
    closed = close(writer->descriptor);
    writer->descriptor = -1;
    if (closed != 0) {
        fail_write(err, "close", writer->path);
        goto fail;
    }
    if (rename(writer->temporary, writer->path) != 0) {
        fail_write(err, "rename to", writer->path);
        goto fail;
    }
    writer->temporary[0] = '\0';
    if (!sync_folder_of(writer->path, err)) {
        (void)unlink(writer->path); /* the caller hears that there is no such file */
        goto fail;
    }
    if (ret_size_bytes)
        *ret_size_bytes = writer->size_bytes;
    if (ret_sha256)
        hex_of(&writer->hash, ret_sha256);
    free(writer);
    return true;
fail:
    file_writer_discard(writer);
    return false;
}

void file_writer_discard(struct file_writer *writer)
{
    if (!writer)
        return;
    if (writer->descriptor >= 0)
        (void)close(writer->descriptor); /* thrown away anyway */
    if (writer->temporary[0])
        (void)unlink(writer->temporary); /* a leftover has a temporary name and harms nobody */
    free(writer);
}

bool file_write(const char *path, const void *bytes, size_t size, struct error *err)
{
    struct file_writer *writer;

    if (!file_writer_open(path, &writer, err))
        return false;
    if (!file_writer_append(writer, bytes, size, err)) {
        file_writer_discard(writer);
        return false;
    }
    return file_writer_commit(writer, NULL, NULL, err);
}

/* ---- folders and names ---------------------------------------------------------------------- */

bool file_make_folder(const char *path, struct error *err)
{
    char partial[LIMIT_PATH_BYTES];
    size_t length = strlen(path);
    struct stat info;

    if (length == 0 || length >= sizeof(partial))
        return error_set(err, ERR_LIMIT, "create folder '%.64s': the path is %s", path,
                         length ? "too long" : "empty");
    (void)snprintf(partial, sizeof(partial), "%s", path);
    for (size_t i = 1; i <= length; i++) {
        if (partial[i] != '/' && partial[i] != '\0')
            continue;
        partial[i] = '\0';
        if (mkdir(partial, 0700) != 0 && errno != EEXIST)
            return fail_write(err, "create folder", partial);
        if (i < length)
            partial[i] = '/';
    }
    if (stat(path, &info) != 0)
        return file_fail(err, "create folder", path);
    if (!S_ISDIR(info.st_mode))
        return error_set(err, ERR_IO, "create folder '%s': a file of that name is in the way",
                         path);
    return true;
}

/* -1: errno says why. */
static int open_folder(const char *path)
{
    return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static bool fail_folder(struct error *err, const char *path)
{
    struct stat info;

    if (errno != ENOTDIR && errno != ELOOP) /* a link is either, as the system likes */
        return file_fail(err, "open folder", path);
    return error_set(err, ERR_CORRUPT, "open folder '%s': %s", path,
                     lstat(path, &info) == 0 && S_ISLNK(info.st_mode)
                         ? "a symbolic link, which is not followed"
                         : "not a folder");
}

bool file_open_folder(const char *path, DIR **ret_folder, struct error *err)
{
    const int descriptor = open_folder(path);
    DIR *folder;

    if (descriptor < 0)
        return fail_folder(err, path);
    folder = fdopendir(descriptor);
    if (!folder) {
        file_fail(err, "open folder", path);
        (void)close(descriptor); /* nothing was read */
        return false;
    }
    *ret_folder = folder;
    return true;
}

bool file_remove(const char *path, struct error *err)
{
    if (unlink(path) != 0 && errno != ENOENT)
        return fail_write(err, "remove", path);
    return true;
}

bool file_remove_inside(const char *path, struct error *err)
{
    const char *slash = strrchr(path, '/');
    char folder[LIMIT_PATH_BYTES];
    int descriptor;
    bool ok;

    folder_of(path, folder);
    descriptor = open_folder(folder);
    if (descriptor < 0)
        return errno == ENOENT || fail_folder(err, folder);
    ok = unlinkat(descriptor, slash ? slash + 1 : path, 0) == 0 || errno == ENOENT ||
         fail_write(err, "remove", path);
    (void)close(descriptor); /* only looked at */
    return ok;
}

bool file_join(char *ret_path, size_t capacity, const char *folder, const char *name,
               struct error *err)
{
    size_t length = strlen(folder);
    const char *slash = length && folder[length - 1] == '/' ? "" : "/";
    size_t wanted = length + strlen(slash) + strlen(name);

    if (wanted >= capacity)
        return error_set(err, ERR_LIMIT, "path '%.64s.../%.64s': longer than %zu bytes", folder,
                         name, capacity - 1);
    (void)snprintf(ret_path, capacity, "%s%s%s", folder, slash, name);
    return true;
}

bool file_random_id(char *ret_id, size_t capacity, const char *prefix, size_t digit_count,
                    struct error *err)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const unsigned count = sizeof(digits) - 1;
    size_t length = strlen(prefix), done = 0;

    assert(length + digit_count < capacity);
    memcpy(ret_id, prefix, length);
    while (done < digit_count) {
        unsigned char byte;

        if (getrandom(&byte, 1, 0) != 1) {
            if (errno == EINTR)
                continue;
            return error_set(err, ERR_IO, "random numbers: %s", strerrordesc_np(errno));
        }
        if (byte < count * (256 / count)) /* the rest would favour the first digits */
            ret_id[length + done++] = digits[byte % count];
    }
    ret_id[length + done] = '\0';
    return true;
}
