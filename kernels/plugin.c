#include "kernels/plugin.h"

#include <assert.h>
#include <dlfcn.h>
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
                   "%s is of another version: its interface is number %u, needed is %u", name,
                   plugin ? (unsigned)plugin->abi : 0, (unsigned)PLUGIN_ABI);
    return false;
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
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    plugin_entry *entry = NULL;

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
