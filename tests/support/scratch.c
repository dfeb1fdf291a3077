#include "tests/support/scratch.h"

#include "tests/support/test.h"

#include <ftw.h>
#include <unistd.h>

#define PATH_BYTES 4096

char *scratch_new(void)
{
    const char *root = getenv("TMPDIR");
    char path[PATH_BYTES];

    (void)snprintf(path, sizeof(path), "%s/needled-test-XXXXXX", root ? root : "/tmp");
    assert_non_null(mkdtemp(path));
    return strdup(path);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info;
    (void)kind;
    (void)place;
    return remove(path);
}

void scratch_free(char *scratch)
{
    if (!scratch)
        return;
    (void)nftw(scratch, remove_one, 16, FTW_DEPTH | FTW_PHYS); /* a leftover harms nobody */
    free(scratch);
}

char *scratch_shared;

int scratch_make_shared(void **state)
{
    (void)state;
    scratch_shared = scratch_new();
    return 0;
}

int scratch_drop_shared(void **state)
{
    (void)state;
    scratch_free(scratch_shared);
    return 0;
}

const char *scratch_path(const char *scratch, const char *name)
{
    static char paths[8][PATH_BYTES];
    static size_t next;
    char *path = paths[next++ % 8];

    (void)snprintf(path, PATH_BYTES, "%s/%s", scratch, name);
    return path;
}

void scratch_write(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

char *scratch_read(const char *path, size_t *ret_size)
{
    FILE *file = fopen(path, "rb");
    size_t size = 0, capacity = 1 << 16;
    char *bytes = malloc(capacity + 1);

    assert_non_null(file);
    assert_non_null(bytes);
    for (;;) {
        size_t count = fread(bytes + size, 1, capacity - size, file);

        size += count;
        if (size < capacity)
            break;
        capacity *= 2;
        bytes = realloc(bytes, capacity + 1);
        assert_non_null(bytes);
    }
    (void)fclose(file); /* only read */
    bytes[size] = '\0';
    if (ret_size)
        *ret_size = size;
    return bytes;
}
