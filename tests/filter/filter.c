/*
 * filter: becomes a program that may make the named system calls alone, as systemd makes a service.
 *
 *   filter LIST PROGRAM [ARGUMENT...]
 *
 * LIST holds the calls' names, one a line; every other call is answered EPERM, as the unit's SystemCallErrorNumber says.
 * On top of that, as MemoryDenyWriteExecute, RestrictAddressFamilies and RestrictRealtime have it: no memory that is
 * written and run, no sockets but Unix ones and the internet's. NoNewPrivileges comes with it.
 */
#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <unistd.h>

#define REFUSE SCMP_ACT_ERRNO(EPERM)

/* Names that this machine's kernel does not know are passed over, as systemd does. */
static int allow_named(scmp_filter_ctx filter, const char *path)
{
    FILE *file = fopen(path, "re");
    char name[128];
    int count = 0;

    while (file && fgets(name, sizeof(name), file)) {
        name[strcspn(name, "\n")] = '\0';
        int number = seccomp_syscall_resolve_name(name);
        int code = 0;

        if (number == __NR_SCMP_ERROR || strcmp(name, "socket") == 0 || strcmp(name, "mmap") == 0 ||
            strcmp(name, "mprotect") == 0 || strcmp(name, "shmat") == 0)
            continue;
        code = seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 0);
        if (code != 0 && code != -EDOM)
            return -1;
        count++;
    }
    if (file)
        (void)fclose(file); /* only read */
    return count > 0 ? 0 : -1;
}

/* mmap may not write and run at once, mprotect not run what was written; so many flags are off at least. */
static int allow_without(scmp_filter_ctx filter, int number, unsigned argument, uint64_t flag)
{
    return seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 1,
                            SCMP_CMP(argument, SCMP_CMP_MASKED_EQ, flag, 0));
}

static int restrict_more(scmp_filter_ctx filter)
{
    static const int families[] = {AF_UNIX, AF_INET, AF_INET6};

    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        if (seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1,
                             SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)families[i])) != 0)
            return -1;
    }
    if (allow_without(filter, SCMP_SYS(mmap), 2, PROT_EXEC) != 0 ||
        seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
                         SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC | PROT_WRITE, PROT_EXEC)) != 0 ||
        allow_without(filter, SCMP_SYS(mprotect), 2, PROT_EXEC) != 0 ||
        allow_without(filter, SCMP_SYS(shmat), 2, SHM_EXEC) != 0)
        return -1;
    return 0;
}

int main(int argument_count, char **arguments)
{
    scmp_filter_ctx filter = seccomp_init(REFUSE);

    if (argument_count < 3 || !filter)
        return 2;
    if (allow_named(filter, arguments[1]) != 0 || restrict_more(filter) != 0 ||
        seccomp_load(filter) != 0) {
        (void)fprintf(stderr, "filter: %s: %s\n", arguments[1], strerror(errno));
        return 2;
    }
    seccomp_release(filter);
    (void)execv(arguments[2], arguments + 2);
    (void)fprintf(stderr, "filter: %s: %s\n", arguments[2], strerror(errno));
    return 2;
}
