#include "daemon/sched/scanner.h"

#include "daemon/train/dataset.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES ((size_t)64 << 10)
#define PIECE_COUNT 8

struct piece {
    size_t size;
    char bytes[PIECE_BYTES];
};

struct scanner {
    struct dataset_scan *scan; /* the thread's while there is one */
    atomic_int *helpers;
    size_t size_bytes; /* fed so far */

    bool has_thread;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct piece *pieces;            /* a ring of PIECE_COUNT */
    size_t current_size;             /* of the piece being filled; the caller's */
    size_t filled_count, used_count; /* guarded by lock: pieces handed over, and parsed */
    bool ended;                      /* guarded by lock: no more pieces come */
    bool failed;                     /* guarded by lock: fault says why; pieces are dropped */
    struct error fault;
};

bool scanner_new(struct scanner **ret_scanner, struct error *err)
{
    struct scanner *scanner = calloc(1, sizeof(*scanner));

    if (!scanner)
        return error_set(err, ERR_NO_MEMORY, "no memory to read a data set");
    if (!dataset_scan_new(&scanner->scan, err)) {
        free(scanner);
        return false;
    }
    pthread_mutex_init(&scanner->lock, NULL);
    pthread_cond_init(&scanner->changed, NULL);
    *ret_scanner = scanner;
    return true;
}

void scanner_set_helpers(struct scanner *scanner, atomic_int *helpers)
{
    scanner->helpers = helpers;
}

/* ---- the thread --------------------------------------------------------------------------------- */

/* The next piece, or NULL at the end. */
static const struct piece *next_piece(struct scanner *scanner)
{
    const struct piece *piece = NULL;

    pthread_mutex_lock(&scanner->lock);
    while (scanner->used_count == scanner->filled_count && !scanner->ended)
        pthread_cond_wait(&scanner->changed, &scanner->lock);
    if (scanner->used_count < scanner->filled_count)
        piece = &scanner->pieces[scanner->used_count % PIECE_COUNT];
    pthread_mutex_unlock(&scanner->lock);
    return piece;
}

static void *parse(void *context)
{
    struct scanner *scanner = context;
    const struct piece *piece;
    struct error fault = {0};
    bool ok = true;

    while ((piece = next_piece(scanner)) != NULL) {
        ok = ok && dataset_scan_feed(scanner->scan, piece->bytes, piece->size, &fault);
        pthread_mutex_lock(&scanner->lock);
        scanner->used_count++;
        if (!ok && !scanner->failed) {
            scanner->failed = true;
            scanner->fault = fault;
        }
        pthread_cond_signal(&scanner->changed);
        pthread_mutex_unlock(&scanner->lock);
    }
    return NULL;
}

/* Without a thread to be had the caller goes on parsing. */
static void start_thread(struct scanner *scanner)
{
    if (atomic_fetch_add(scanner->helpers, 1) < SCANNER_HELPERS_MAX) {
        scanner->pieces = calloc(PIECE_COUNT, sizeof(*scanner->pieces));
        scanner->has_thread =
            scanner->pieces && pthread_create(&scanner->thread, NULL, parse, scanner) == 0;
    }
    if (scanner->has_thread)
        return;
    (void)atomic_fetch_sub(scanner->helpers, 1);
    scanner->helpers = NULL; /* not asked again */
    free(scanner->pieces);
    scanner->pieces = NULL;
}

static void hand_over(struct scanner *scanner)
{
    pthread_mutex_lock(&scanner->lock);
    scanner->pieces[scanner->filled_count % PIECE_COUNT].size = scanner->current_size;
    scanner->filled_count++;
    pthread_cond_signal(&scanner->changed);
    pthread_mutex_unlock(&scanner->lock);
    scanner->current_size = 0;
}

/* Everything that was fed is parsed afterwards; a fault of it is told. */
static bool end_thread(struct scanner *scanner, struct error *err)
{
    if (!scanner->has_thread)
        return true;
    if (scanner->current_size > 0)
        hand_over(scanner);
    pthread_mutex_lock(&scanner->lock);
    scanner->ended = true;
    pthread_cond_signal(&scanner->changed);
    pthread_mutex_unlock(&scanner->lock);
    (void)pthread_join(scanner->thread, NULL); /* ours, joined once: cannot fail */
    scanner->has_thread = false;
    (void)atomic_fetch_sub(scanner->helpers, 1);
    if (scanner->failed && err)
        *err = scanner->fault;
    return !scanner->failed;
}

void scanner_free(struct scanner *scanner)
{
    if (!scanner)
        return;
    (void)end_thread(scanner, NULL); /* thrown away anyway */
    dataset_scan_free(scanner->scan);
    free(scanner->pieces);
    pthread_cond_destroy(&scanner->changed);
    pthread_mutex_destroy(&scanner->lock);
    free(scanner);
}

/* ---- the caller's side -------------------------------------------------------------------------- */

/* Waits until the piece to be filled is free; false: the parser has failed. */
static bool wait_for_piece(struct scanner *scanner, struct error *err)
{
    bool failed;

    pthread_mutex_lock(&scanner->lock);
    while (scanner->filled_count - scanner->used_count == PIECE_COUNT && !scanner->failed)
        pthread_cond_wait(&scanner->changed, &scanner->lock);
    failed = scanner->failed;
    pthread_mutex_unlock(&scanner->lock);
    if (failed && err)
        *err = scanner->fault; /* not written any more */
    return !failed;
}

static bool feed_thread(struct scanner *scanner, const char *bytes, size_t size, struct error *err)
{
    while (size > 0) {
        struct piece *piece = &scanner->pieces[scanner->filled_count % PIECE_COUNT];
        size_t part = PIECE_BYTES - scanner->current_size;

        if (scanner->current_size == 0 && !wait_for_piece(scanner, err))
            return false;
        if (part > size)
            part = size;
        memcpy(piece->bytes + scanner->current_size, bytes, part);
        scanner->current_size += part;
        bytes += part;
        size -= part;
        if (scanner->current_size == PIECE_BYTES)
            hand_over(scanner);
    }
    return true;
}

bool scanner_feed(struct scanner *scanner, const void *bytes, size_t size, struct error *err)
{
    if (!scanner->has_thread && scanner->helpers && scanner->size_bytes >= SCANNER_SMALL_BYTES)
        start_thread(scanner);
    scanner->size_bytes += size;
    return scanner->has_thread ? feed_thread(scanner, bytes, size, err)
                               : dataset_scan_feed(scanner->scan, bytes, size, err);
}

bool scanner_finish(struct scanner *scanner, struct dataset_report *ret_report, struct error *err)
{
    return end_thread(scanner, err) && dataset_scan_finish(scanner->scan, ret_report, err);
}
