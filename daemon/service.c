#include "daemon/service.h"

#include "api/server.h"
#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/base/notify.h"
#include "daemon/sched/scheduler.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)
#define TICK_MS 1000              /* between two looks at what is trained */
#define EXTEND_MS 5000            /* between two requests for more time, */
#define EXTEND_NS (15 * NS_PER_S) /* each for so much */
#define EXTEND_MAX (30 * 60 / 5)  /* of them: what takes longer than half an hour hangs */
#define WORKER_PATIENCE 10        /* layers and files may take so many times the watchdog's limit */

/* ---- signals ---- */

/* All threads of ours block the signals, which wait in `pending` for a read. A library may have made a
 * thread before main began, which does not: what hits it comes through `taken`. */
static struct {
    int pending;    /* a signalfd */
    int taken, put; /* a pipe */
} arrivals = {-1, -1, -1};

static void pass_on(int number)
{
    const int kept = errno;
    const unsigned char byte = (unsigned char)number;

    (void)!write(arrivals.put, &byte, 1); /* a pipe full of signals has told enough */
    errno = kept;
}

static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};

bool service_take_signals(struct error *err)
{
    const struct sigaction action = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
    sigset_t signals;
    int ends[2];

    (void)sigemptyset(&signals); /* none of these can fail for valid numbers */
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
        (void)sigaddset(&signals, numbers[i]);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    arrivals.pending = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (arrivals.pending < 0 || pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return error_set(err, ERR_IO, "take signals: %s", strerror(errno));
    arrivals.taken = ends[0];
    arrivals.put = ends[1];
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
        (void)sigaction(numbers[i], &action, NULL);
    return true;
}

/* Nobody is left to wait for them: the next one ends the process, which no job's files mind. */
static void give_signals_back(void)
{
    sigset_t signals;

    (void)sigemptyset(&signals); /* none of these can fail for valid numbers */
    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        (void)signal(numbers[i], numbers[i] == SIGHUP ? SIG_IGN : SIG_DFL);
        (void)sigaddset(&signals, numbers[i]);
    }
    (void)pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
}

/* The next signal, or 0: the time is over, or `other` (-1: none) has something to read. timeout_ms < 0:
 * no end. */
static int wait_for_signal(int other, int timeout_ms)
{
    struct pollfd waits[] = {{.fd = arrivals.pending, .events = POLLIN},
                             {.fd = arrivals.taken, .events = POLLIN},
                             {.fd = other, .events = POLLIN}};
    struct signalfd_siginfo about;
    unsigned char byte;

    if (poll(waits, COUNT_OF(waits), timeout_ms) <= 0)
        return 0;
    if (read(arrivals.pending, &about, sizeof(about)) == (ssize_t)sizeof(about))
        return (int)about.ssi_signo;
    return read(arrivals.taken, &byte, 1) == 1 ? byte : 0;
}

/* ---- while it starts or stops ---- */

/* One of main's at a time; the thread is joined before the next. */
static struct keeper {
    pthread_t thread;
    int over; /* an eventfd; -1: none */
    bool runs;
    const char *doing;
    atomic_bool *hurry; /* NULL: it starts */
} keeper = {.over = -1};

static void take_signal(struct keeper *k, int number)
{
    if (number == SIGHUP) /* settings were read just now, or are no more */
        return;
    if (k->hurry) {
        log_write(LOG_LEVEL_WARN, "stopping at once: %s", strsignal(number));
        atomic_store(k->hurry, true);
        return;
    }
    log_write(LOG_LEVEL_INFO, "stopping while starting: %s", strsignal(number));
    notify_send("STOPPING=1");
    _exit(0); /* a power cut would be no different, and there is nothing to hand over yet */
}

static void *keep(void *context)
{
    struct keeper *k = context;
    int64_t asked_ns = 0;
    uint64_t over;

    for (int asked = 0; read(k->over, &over, sizeof(over)) < 0;) {
        const int64_t now_ns = clock_monotonic_ns();
        int number;

        if (now_ns - asked_ns >= EXTEND_MS * INT64_C(1000000) && asked < EXTEND_MAX) {
            notify_extend(EXTEND_NS);
            notify_status(k->doing);
            asked_ns = now_ns;
            asked++;
        }
        number = wait_for_signal(k->over, EXTEND_MS);
        if (number != 0)
            take_signal(k, number);
    }
    return NULL;
}

static void close_keeper(struct keeper *k)
{
    if (k->over >= 0)
        (void)close(k->over); /* nothing of it is to be kept */
    *k = (struct keeper){.over = -1};
}

static void begin(const char *doing, atomic_bool *hurry)
{
    keeper.doing = doing;
    keeper.hurry = hurry;
    keeper.over = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    keeper.runs = keeper.over >= 0 && pthread_create(&keeper.thread, NULL, keep, &keeper) == 0;
    if (!keeper.runs) {
        log_write(LOG_LEVEL_WARN, "no thread is left to ask for more time while %s", doing);
        close_keeper(&keeper);
        if (hurry)
            give_signals_back();
    }
}

static void end(void)
{
    const uint64_t one = 1;

    if (!keeper.runs)
        return;
    (void)!write(keeper.over, &one, sizeof(one)); /* the first write to it always fits */
    (void)pthread_join(keeper.thread, NULL);      /* ours, joined once */
    close_keeper(&keeper);
}

void service_begin_start(void)
{
    begin("starting: looking at the database and at what is there", NULL);
}

void service_end_start(void)
{
    end();
}

void service_begin_stop(atomic_bool *hurry)
{
    notify_send("STOPPING=1");
    begin("stopping: waiting for running jobs to keep their last step", hurry);
}

void service_end_stop(void)
{
    end();
    log_settle(true);
}

/* ---- the watchdog ---- */

struct watch {
    struct server *server;
    pthread_t thread;
    bool runs;
    int64_t limit_ns;          /* the manager's; 0: it watches nothing */
    _Atomic int64_t answer_ns; /* when the server answered last; relaxed: it guards nothing */
    char stuck[96];            /* main's: who was told not to move; "" nobody */
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool over; /* guarded by lock */
};

static struct timespec timespec_of(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
}

static void *probe(void *context)
{
    struct watch *watch = context;

    (void)pthread_mutex_lock(&watch->lock);
    while (!watch->over) {
        struct error err = {0};
        struct timespec next;
        bool answers;

        (void)pthread_mutex_unlock(&watch->lock);
        answers = server_is_alive(watch->server, clock_monotonic_ns() + watch->limit_ns / 2, &err);
        if (answers)
            atomic_store_explicit(&watch->answer_ns, clock_monotonic_ns(), memory_order_relaxed);
        else
            log_write(LOG_LEVEL_WARN, "a look at ourselves: %s", err.message);
        next = timespec_of(clock_monotonic_ns() + watch->limit_ns / 8);
        (void)pthread_mutex_lock(&watch->lock);
        if (!watch->over)
            (void)pthread_cond_timedwait(&watch->ended, &watch->lock, &next); /* or later */
    }
    (void)pthread_mutex_unlock(&watch->lock);
    return NULL;
}

static void watch_begin(struct watch *watch, struct server *server)
{
    pthread_condattr_t monotonic;

    *watch = (struct watch){.server = server, .limit_ns = notify_watchdog_ns()};
    watch->answer_ns = clock_monotonic_ns();
    /* None of these can fail with the attributes given. */
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&watch->lock, NULL);
    (void)pthread_cond_init(&watch->ended, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    if (watch->limit_ns == 0)
        return;
    watch->runs = pthread_create(&watch->thread, NULL, probe, watch) == 0;
    if (!watch->runs)
        log_write(LOG_LEVEL_ERROR, "no thread is left to look whether the server answers: the "
                                   "watchdog will not be told that it does");
}

static void watch_end(struct watch *watch)
{
    if (watch->runs) {
        (void)pthread_mutex_lock(&watch->lock);
        watch->over = true;
        (void)pthread_cond_signal(&watch->ended);
        (void)pthread_mutex_unlock(&watch->lock);
        (void)pthread_join(watch->thread, NULL); /* ours, joined once */
    }
    (void)pthread_cond_destroy(&watch->ended);
    (void)pthread_mutex_destroy(&watch->lock);
}

/* Whether everything moves; else who does not. */
static bool is_moving(const struct watch *watch, const struct scheduler *scheduler, char *ret_who,
                      size_t size)
{
    const int64_t silent_ns =
        clock_monotonic_ns() - atomic_load_explicit(&watch->answer_ns, memory_order_relaxed);
    const int64_t patience_ns = watch->limit_ns < INT64_MAX / WORKER_PATIENCE
                                    ? watch->limit_ns * WORKER_PATIENCE
                                    : INT64_MAX;

    if (silent_ns > watch->limit_ns / 4 * 3) {
        (void)snprintf(ret_who, size, "server, scheduler or database");
        return false;
    }
    return !scheduler_find_stuck(scheduler, patience_ns, ret_who, size) &&
           !server_find_stuck(watch->server, watch->limit_ns, ret_who, size);
}

static void ping(struct watch *watch, const struct scheduler *scheduler)
{
    char who[sizeof(watch->stuck)];

    if (!watch->runs)
        return;
    if (is_moving(watch, scheduler, who, sizeof(who))) {
        notify_send("WATCHDOG=1");
        if (watch->stuck[0] != '\0')
            log_write(LOG_LEVEL_INFO, "everything moves again");
        watch->stuck[0] = '\0';
    } else if (strcmp(watch->stuck, who) != 0) { /* each once, also one after the other */
        log_write(LOG_LEVEL_ERROR,
                  "%s has not moved for too long: the watchdog is not told that we are well", who);
        memcpy(watch->stuck, who, sizeof(who));
    }
}

/* ---- while it runs ---- */

static void reload(const struct service_parts *parts)
{
    char message[64];
    struct error err = {0};

    (void)snprintf(message, sizeof(message), "RELOADING=1\nMONOTONIC_USEC=%" PRId64,
                   clock_monotonic_ns() / 1000);
    notify_send(message);
    if (!parts->reload(parts->context, &err))
        log_write(LOG_LEVEL_ERROR, "the settings stay as they were: %s", err.message);
    notify_send("READY=1");
}

struct status {
    char text[NOTIFY_TEXT_BYTES];
    int64_t told_ns;
};

/* At most once a second, and only what is new. */
static void tell_status(struct status *status, struct scheduler *scheduler)
{
    const int64_t now_ns = clock_monotonic_ns();
    char text[sizeof(status->text)];

    if (status->told_ns != 0 && now_ns - status->told_ns < TICK_MS * INT64_C(1000000))
        return;
    scheduler_write_status(scheduler, text, sizeof(text));
    if (strcmp(text, status->text) == 0)
        return;
    memcpy(status->text, text, sizeof(text));
    status->told_ns = now_ns;
    notify_status(text);
}

int service_wait(const struct service_parts *parts)
{
    const bool heard = notify_is_heard();
    struct status status = {.told_ns = 0};
    struct watch watch;
    int tick_ms = TICK_MS;
    int number;

    watch_begin(&watch, parts->server);
    if (watch.runs && watch.limit_ns / 4 < TICK_MS * INT64_C(1000000))
        tick_ms = (int)(watch.limit_ns / 4000000);
    notify_send("READY=1");
    do {
        if (heard) {
            tell_status(&status, parts->scheduler);
            ping(&watch, parts->scheduler);
        }
        number = wait_for_signal(-1, tick_ms);
        log_settle(false);
        if (number == SIGHUP)
            reload(parts);
    } while (number != SIGTERM && number != SIGINT && !parts->is_over(parts->context));
    watch_end(&watch);
    return number == SIGTERM || number == SIGINT ? number : 0;
}
