#include "kernels/plugin.h"

#include <assert.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct loaded { /* what became of a kind's file, guarded by lock */
    bool tried;
    const struct plugin *plugin;
    char reason[256];
    char build[64];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct loaded kinds[BACKEND_KIND_COUNT];

/* The folder that this program's file is in; "" when that cannot be told. */
static void own_folder(char *ret_folder, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", ret_folder, size - 1);

    ret_folder[length > 0 ? length : 0] = 0;
    char *slash = strrchr(ret_folder, '/');
    if (slash)
        *slash = 0;
}

static bool find_file(const char *name, char *ret_path, size_t size)
{
    const char *given = getenv("NEEDLED_PLUGINS");
    char folder[PATH_MAX];

    if (given && given[0]) {
        (void)snprintf(ret_path, size, "%s/%s", given, name);
        return access(ret_path, F_OK) == 0;
    }
    own_folder(folder, sizeof folder);
    (void)snprintf(ret_path, size, "%s/%s", folder, name);
    if (access(ret_path, F_OK) == 0)
        return true;
    (void)snprintf(ret_path, size, "%s/../lib/needled/%s", folder, name);
    return access(ret_path, F_OK) == 0;
}

static bool fits(const struct plugin *plugin, const char *name, struct loaded *loaded)
{
    if (plugin && plugin->abi == PLUGIN_ABI &&
        plugin->backend_size_bytes == sizeof(struct backend) &&
        plugin->table_size_bytes == sizeof(struct backend_table))
        return true;
    (void)snprintf(loaded->reason, sizeof loaded->reason,
                   "%s is of another version: its interface is number %u (%u and %u bytes), "
                   "needed is %u (%zu and %zu)",
                   name, plugin ? (unsigned)plugin->abi : 0,
                   plugin ? (unsigned)plugin->backend_size_bytes : 0,
                   plugin ? (unsigned)plugin->table_size_bytes : 0, (unsigned)PLUGIN_ABI,
                   sizeof(struct backend), sizeof(struct backend_table));
    return false;
}

/* Whether `count` entries of `entry_bytes` from `offset` on lie within the file. */
static bool lies_within(uint64_t offset, uint64_t count, uint64_t entry_bytes, uint64_t file_bytes)
{
    return offset <= file_bytes && count * entry_bytes <= file_bytes - offset; /* 16 bits each */
}

/* The loader maps what the headers name, and a page that the file does not have is a signal that ends
 * the process. The table of sections is the last of a file: one that was cut has lost it. */
static bool is_whole(int descriptor, uint64_t file_bytes)
{
    Elf64_Ehdr header;
    Elf64_Phdr part;

    if (pread(descriptor, &header, sizeof header, 0) != (ssize_t)sizeof header ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64)
        return true; /* the loader says what it is */
    if (!lies_within(header.e_shoff, header.e_shnum, header.e_shentsize, file_bytes) ||
        !lies_within(header.e_phoff, header.e_phnum, sizeof part, file_bytes))
        return false;
    for (size_t i = 0; i < header.e_phnum; i++) {
        const uint64_t at = header.e_phoff + i * sizeof part;

        if (pread(descriptor, &part, sizeof part, (off_t)at) != (ssize_t)sizeof part ||
            (part.p_type == PT_LOAD && !lies_within(part.p_offset, 1, part.p_filesz, file_bytes)))
            return false;
    }
    return true;
}

static bool can_be_mapped(const char *path, const char *name, struct loaded *loaded)
{
    /* Of a pipe nobody may ever open the other end. */
    const int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    const char *what = NULL;
    struct stat file;

    if (descriptor < 0 || fstat(descriptor, &file) != 0)
        what = strerror(errno);
    else if (!S_ISREG(file.st_mode))
        what = "it is no regular file";
    else if (!is_whole(descriptor, (uint64_t)file.st_size))
        what = "its end is missing";
    if (what)
        (void)snprintf(loaded->reason, sizeof loaded->reason, "%s does not load: %s", name, what);
    if (descriptor >= 0)
        (void)close(descriptor); /* was only read */
    return what == NULL;
}

static void note_build(const char *path, struct loaded *loaded)
{
    struct stat file;

    if (stat(path, &file) == 0)
        (void)snprintf(loaded->build, sizeof loaded->build, "%lld bytes of %lld.%09ld",
                       (long long)file.st_size, (long long)file.st_mtim.tv_sec,
                       file.st_mtim.tv_nsec);
}

static void load_file(const char *path, const char *name, struct loaded *loaded)
{
    plugin_entry *entry = NULL;

    if (!can_be_mapped(path, name, loaded))
        return;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        (void)snprintf(loaded->reason, sizeof loaded->reason, "%s does not load: %s", name,
                       dlerror());
        return;
    }
    void *symbol = dlsym(library, PLUGIN_ENTRY);
    if (!symbol) {
        (void)snprintf(loaded->reason, sizeof loaded->reason,
                       "%s is not a plug-in: it has no function " PLUGIN_ENTRY, name);
    } else {
        memcpy(&entry, &symbol, sizeof entry); /* C has no cast from one to the other */
        if (fits(entry(), name, loaded)) {
            loaded->plugin = entry();
            note_build(path, loaded);
            return;
        }
    }
    (void)dlclose(library); /* not taken */
}

const struct plugin *plugin_load(enum backend_kind kind, char *ret_reason, size_t reason_size)
{
    assert(kind < BACKEND_KIND_COUNT);
    struct loaded *loaded = &kinds[kind];
    char name[32], path[PATH_MAX + 64];

    (void)pthread_mutex_lock(&lock);
    if (!loaded->tried) {
        loaded->tried = true;
        (void)snprintf(name, sizeof name, "needled-%s.so", backend_name(kind));
        if (find_file(name, path, sizeof path))
            load_file(path, name, loaded);
        else
            (void)snprintf(loaded->reason, sizeof loaded->reason, "%s is not installed", name);
    }
    const struct plugin *plugin = loaded->plugin;
    if (!plugin)
        (void)snprintf(ret_reason, reason_size, "%s", loaded->reason);
    (void)pthread_mutex_unlock(&lock);
    return plugin;
}

void plugin_build(enum backend_kind kind, char *ret_build, size_t size)
{
    assert(kind < BACKEND_KIND_COUNT);
    (void)pthread_mutex_lock(&lock);
    (void)snprintf(ret_build, size, "%s", kinds[kind].build);
    (void)pthread_mutex_unlock(&lock);
}
