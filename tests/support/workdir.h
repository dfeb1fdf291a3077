/*
 * workdir: a folder for the files a test writes, and files made there byte by byte.
 *
 * Purpose    Tests of readers and writers get a folder of their own that is gone at the end.
 * Ownership  workdir_clear removes it; paths point into static memory until the next call.
 * Threads    The test's.
 * Failure    Every failure fails the test.
 */
#ifndef NEEDLED_TEST_SCRATCH_H
#define NEEDLED_TEST_SCRATCH_H

#include "tests/support/test.h"

#include <dirent.h>
#include <unistd.h>

static char workdir_folder[256];

static inline const char *workdir_path(const char *name)
{
    static char path[512];

    if (!workdir_folder[0]) {
        const char *temporary = getenv("TMPDIR");

        snprintf(workdir_folder, sizeof(workdir_folder), "%s/needled-test-XXXXXX",
                 temporary ? temporary : "/tmp");
        assert_non_null(mkdtemp(workdir_folder));
    }
    snprintf(path, sizeof(path), "%s/%s", workdir_folder, name);
    return path;
}

/* The path of a file that holds these bytes. */
static inline const char *workdir_file(const char *name, const void *bytes, size_t size)
{
    const char *path = workdir_path(name);
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return path;
}

/* All bytes of a file, for the caller to free(). */
static inline unsigned char *workdir_read(const char *path, size_t *ret_size)
{
    FILE *file = fopen(path, "rb");
    unsigned char *bytes;
    long size;

    if (!file)
        fail_msg("cannot open %s", path);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    size = ftell(file);
    assert_true(size >= 0);
    rewind(file);
    bytes = malloc((size_t)size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, (size_t)size, file), size);
    fclose(file);
    *ret_size = (size_t)size;
    return bytes;
}

static inline int workdir_clear(void **state)
{
    DIR *folder = workdir_folder[0] ? opendir(workdir_folder) : NULL;
    struct dirent *entry;

    (void)state;
    while (folder && (entry = readdir(folder)) != NULL) {
        char path[600];

        snprintf(path, sizeof(path), "%s/%s", workdir_folder, entry->d_name);
        if (entry->d_name[0] != '.')
            unlink(path);
    }
    if (folder) {
        closedir(folder);
        rmdir(workdir_folder);
    }
    workdir_folder[0] = 0;
    return 0;
}

#endif
