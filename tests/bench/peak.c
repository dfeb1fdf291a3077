#include "tests/bench/peak.h"

#include "daemon/base/clock.h"
#include "kernels/cpu/blas.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SIZE 768
#define THREADS_MAX 256
#define RUNS 8
#define RUN_PRODUCTS 4 /* of a thread in a run: some 30 ms */

struct worker {
    struct peak *peak;
    float *a, *b, *c; /* [SIZE, SIZE] */
};

struct peak {
    int thread_count;
    double best_gflops;
    pthread_barrier_t barrier;
    int64_t elapsed_ns[RUNS]; /* written by the first worker */
    struct worker workers[THREADS_MAX];
};

void peak_free(struct peak *peak)
{
    if (!peak)
        return;
    for (int i = 0; i < peak->thread_count; i++)
        free(peak->workers[i].a);
    (void)pthread_barrier_destroy(&peak->barrier);
    free(peak);
}

struct peak *peak_new(int thread_count)
{
    struct peak *peak;

    if (thread_count < 1 || thread_count > THREADS_MAX)
        return NULL;
    peak = calloc(1, sizeof(*peak));
    if (!peak || pthread_barrier_init(&peak->barrier, NULL, (unsigned)thread_count) != 0) {
        free(peak);
        return NULL;
    }
    peak->thread_count = thread_count;
    for (int i = 0; i < thread_count; i++) {
        struct worker *worker = &peak->workers[i];
        const size_t count = (size_t)SIZE * SIZE;

        worker->peak = peak;
        worker->a = aligned_alloc(64, 3 * count * sizeof(float));
        if (!worker->a) {
            peak_free(peak);
            return NULL;
        }
        worker->b = worker->a + count;
        worker->c = worker->b + count;
        for (size_t k = 0; k < 3 * count; k++)
            worker->a[k] = (float)(k % 1021) / 1021.0f;
    }
    return peak;
}

static void *work(void *context)
{
    const struct worker *worker = context;
    struct peak *peak = worker->peak;
    const struct matmul shape = {
        .M = SIZE, .N = SIZE, .K = SIZE, .lda = SIZE, .ldb = SIZE, .ldc = SIZE, .alpha = 1};

    blas_use_one_thread();
    for (int run = 0; run < RUNS; run++) {
        int64_t started_ns;

        (void)pthread_barrier_wait(&peak->barrier);
        started_ns = clock_monotonic_ns();
        for (int i = 0; i < RUN_PRODUCTS; i++)
            blas_gemm(worker->c, worker->a, worker->b, &shape);
        (void)pthread_barrier_wait(&peak->barrier);
        if (worker == peak->workers)
            peak->elapsed_ns[run] = clock_monotonic_ns() - started_ns;
    }
    return NULL;
}

double peak_measure(struct peak *peak)
{
    const double flops = 2.0 * SIZE * SIZE * SIZE * RUN_PRODUCTS * peak->thread_count;
    pthread_t threads[THREADS_MAX];

    for (int i = 1; i < peak->thread_count; i++)
        if (pthread_create(&threads[i], NULL, work, &peak->workers[i]) != 0)
            abort(); /* the others would wait for it */
    (void)work(&peak->workers[0]);
    for (int i = 1; i < peak->thread_count; i++)
        (void)pthread_join(threads[i], NULL);
    for (int run = 0; run < RUNS; run++) {
        const double gflops = flops / (double)peak->elapsed_ns[run];

        if (gflops > peak->best_gflops)
            peak->best_gflops = gflops;
    }
    return peak->best_gflops;
}

/* ---- cards ----------------------------------------------------------------------------------- */

/* Values of a product that is not zero: those run faster than data does. */
static bool fill_card(struct backend *be, float *values, size_t count)
{
    float *host = malloc(count * sizeof(*host));
    uint32_t random = 1;

    if (!host)
        return false;
    for (size_t i = 0; i < count; i++) {
        random = random * 1664525u + 1013904223u;
        host[i] = (float)(random >> 8) / (float)(1 << 24) - 0.5f;
    }
    backend_upload(be, values, host, count * sizeof(*host));
    free(host);
    return true;
}

double peak_of_card(struct backend *be, size_t size)
{
    const struct matmul shape = {
        .M = size, .N = size, .K = size, .lda = size, .ldb = size, .ldc = size, .alpha = 1};
    const size_t count = size * size;
    const double flops = 2.0 * (double)size * (double)size * (double)size * RUN_PRODUCTS;
    float *a = backend_alloc(be, 3 * count * sizeof(*a));
    double best_gflops = 0;

    if (!a || !fill_card(be, a, 2 * count)) {
        backend_free(be, a);
        return 0;
    }
    for (int run = 0; run <= RUNS; run++) { /* the first one loads kernels */
        (void)backend_sync(be);
        const int64_t started_ns = clock_monotonic_ns();
        for (int i = 0; i < RUN_PRODUCTS; i++)
            backend_matmul(be, a + 2 * count, a, a + count, &shape);
        if (backend_sync(be) != BACKEND_OK)
            break;
        const double gflops = flops / (double)(clock_monotonic_ns() - started_ns);
        if (run > 0 && gflops > best_gflops)
            best_gflops = gflops;
    }
    backend_free(be, a);
    return best_gflops;
}
