/*
 * Prints how long the plug-in named as argument takes to load and to say how many cards there are,
 * in microseconds, and what it said: plugin.sh holds it to a bound, since every start of the daemon
 * pays it.
 */
#include "kernels/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static long now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000L + now.tv_nsec / 1000;
}

int main(int argc, char **argv)
{
    const struct plugin *(*entry)(void) = NULL;
    char reason[200] = "";
    const long start_us = now_us();
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    void *symbol = library ? dlsym(library, "needled_plugin") : NULL;

    if (!symbol) {
        fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "usage: time_plugin FILE");
        return 1;
    }
    memcpy(&entry, &symbol, sizeof(entry));
    const int count = entry()->device_count(reason, sizeof(reason));
    printf("%ld us: %d devices: %s\n", now_us() - start_us, count, reason);
    return 0;
}
