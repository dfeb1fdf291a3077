/*
 * Proves of the cpu backend's threads that they do every index once and the same way each time, and
 * of its check of the matrix product that it catches each way a product can be wrong.
 */
#include "kernels/cpu/blas.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/ops/vector.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS_MAX 8
#define COUNT_MAX 1000

/* ---- threads ------------------------------------------------------------ */

struct visits {
    int count[COUNT_MAX];
    size_t part[COUNT_MAX];
    size_t calls[THREADS_MAX];
};

static void visit(void *context, size_t begin, size_t end, size_t part)
{
    struct visits *visits = context;

    for (size_t i = begin; i < end; i++) {
        visits->count[i]++;
        visits->part[i] = part;
    }
    visits->calls[part]++;
}

static void check_visits(const struct visits *visits, size_t threads, size_t count, const char *how)
{
    for (size_t i = 0; i < COUNT_MAX; i++)
        if (visits->count[i] != (i < count))
            fail_msg("%s, %zu threads, %zu indices: index %zu was done %d times", how, threads,
                     count, i, visits->count[i]);
}

static void every_index_is_done_once_at_any_thread_count(void **state)
{
    static const size_t counts[] = {0, 1, 2, 3, 7, 8, 9, 63, COUNT_MAX};
    static const size_t grains[] = {0, 1, 5, 400, 5000};
    (void)state;

    for (size_t threads = 1; threads <= THREADS_MAX; threads++) {
        struct team *team = team_open(threads, NULL);
        assert_non_null(team);
        assert_int_equal(team_thread_count(team), threads);
        for (size_t c = 0; c < COUNT_OF(counts); c++) {
            for (size_t g = 0; g < COUNT_OF(grains); g++) {
                struct visits visits = {0};
                team_run(team, counts[c], grains[g], visit, &visits);
                check_visits(&visits, threads, counts[c], "run");
                for (size_t part = 0; part < threads; part++)
                    assert_true(visits.calls[part] <= 1);
            }
            struct visits visits = {0};
            team_deal(team, counts[c], visit, &visits);
            check_visits(&visits, threads, counts[c], "deal");
        }
        team_close(team);
    }
}

static void shares_are_the_same_each_time_and_as_large_as_asked(void **state)
{
    struct team *team = team_open(3, NULL);
    (void)state;

    assert_non_null(team);
    for (int round = 0; round < 50; round++) {
        struct visits a = {0}, b = {0};
        team_run(team, 100, 1, visit, &a);
        for (size_t i = 0; i < 100; i++)
            assert_int_equal(a.part[i], i < 34 ? 0 : i < 67 ? 1 : 2);
        team_run(team, 100, 60, visit, &b); /* not enough for two */
        for (size_t i = 0; i < 100; i++)
            assert_int_equal(b.part[i], 0);
    }
    team_close(team);
}

static void add_up(void *context, size_t begin, size_t end, size_t part)
{
    long *sums = context;

    for (size_t i = begin; i < end; i++)
        sums[part * 16] += (long)i;
}

static void many_short_runs_lose_nothing(void **state)
{
    (void)state;
    for (size_t threads = 2; threads <= 4; threads++) {
        struct team *team = team_open(threads, NULL);
        long sums[4 * 16] = {0}, total = 0;

        assert_non_null(team);
        for (int round = 0; round < 3000; round++) {
            team_run(team, 8, 1, add_up, sums);
            if (round % 1000 == 999) /* let them fall asleep between runs, too */
                assert_int_equal(usleep(2000), 0);
        }
        for (size_t part = 0; part < threads; part++)
            total += sums[part * 16];
        assert_int_equal(total, 3000 * (0 + 1 + 2 + 3 + 4 + 5 + 6 + 7));
        team_close(team);
    }
}

static void run_again(void *context, size_t begin, size_t end, size_t part)
{
    struct visits visits = {0};

    (void)begin;
    (void)end;
    (void)part;
    team_run(context, 1, 1, visit, &visits);
}

static void a_body_that_runs_the_team_again_is_a_bug(void **state)
{
    (void)state;
    for (size_t threads = 1; threads <= 2; threads++) {
        int status = 0;
        pid_t child = fork();

        assert_true(child >= 0);
        if (child == 0) {
            const struct rlimit no_core = {0, 0};
            int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
            (void)setrlimit(RLIMIT_CORE, &no_core);
            (void)dup2(null, STDERR_FILENO); /* the assert's words are expected */
            (void)signal(SIGABRT, SIG_DFL);
            struct team *team = team_open(threads, NULL);
            team_run(team, 2, 1, run_again, team);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
            fail_msg("%zu threads: the nested run ended with status %d", threads, status);
    }
}

/* ---- the check of the matrix product ------------------------------------------------------------ */

enum mistake {
    NO_MISTAKE,
    IGNORES_ALPHA,
    IGNORES_BETA,
    READS_C_WITH_BETA_0,
    LEAVES_C_WITHOUT_K,
    CLEARS_C_WITHOUT_K,
    IGNORES_TRANSPOSE_A,
    IGNORES_TRANSPOSE_B,
    IGNORES_GAP_OF_A,
    IGNORES_GAP_OF_B,
    WRITES_INTO_GAP_OF_C,
    DROPS_LAST_ROW,
    DROPS_LAST_COLUMN,
    DROPS_LAST_TERM,
    DROPS_TERM_PAST_128,
    WRONG_WITH_ODD_M,
    WRONG_IN_ONE_ELEMENT,
    LOSES_HALF_THE_BITS,
};

static enum mistake planted;

static float product_element(const float *A, const float *B, const struct matmul *s, size_t i,
                             size_t j)
{
    double sum = 0;

    for (size_t k = 0; k < s->K; k++) {
        float a = A[s->transpose_a ? k * s->lda + i : i * s->lda + k];
        float b = B[s->transpose_b ? j * s->ldb + k : k * s->ldb + j];
        if (planted == DROPS_LAST_TERM && k + 1 == s->K && k > 0)
            continue;
        if (planted == DROPS_TERM_PAST_128 && k == 128)
            continue;
        sum += (double)a * (double)b;
    }
    if (planted == WRONG_WITH_ODD_M && s->M % 2 == 1 && i + 1 == s->M)
        sum = -sum;
    if (planted == WRONG_IN_ONE_ELEMENT && i == 40 && j == 100)
        sum += 1e-2;
    if (planted == LOSES_HALF_THE_BITS)
        sum = (double)vector_from_bits(vector_bits((float)sum) & 0xffff0000u);
    return (float)sum;
}

static void plain_gemm(float *C, const float *A, const float *B, const struct matmul *shape)
{
    struct matmul s = *shape;

    if (planted == LEAVES_C_WITHOUT_K && s.K == 0)
        return;
    if (planted == CLEARS_C_WITHOUT_K && s.K == 0)
        s.beta = 0;
    if (planted == IGNORES_ALPHA)
        s.alpha = 1;
    if (planted == IGNORES_BETA)
        s.beta = 0;
    if (planted == IGNORES_TRANSPOSE_A && s.M == s.K)
        s.transpose_a = false;
    if (planted == IGNORES_TRANSPOSE_B && s.N == s.K)
        s.transpose_b = false;
    if (planted == IGNORES_GAP_OF_A)
        s.lda = s.transpose_a ? s.M : s.K;
    if (planted == IGNORES_GAP_OF_B)
        s.ldb = s.transpose_b ? s.K : s.N;
    for (size_t i = 0; i < s.M - (planted == DROPS_LAST_ROW); i++) {
        for (size_t j = 0; j < s.N - (planted == DROPS_LAST_COLUMN); j++) {
            float *target = &C[i * s.ldc + j], value = s.alpha * product_element(A, B, &s, i, j);
            *target =
                s.beta != 0 || planted == READS_C_WITH_BETA_0 ? value + s.beta * *target : value;
        }
        if (planted == WRITES_INTO_GAP_OF_C && s.ldc > s.N)
            C[i * s.ldc + s.N] = 0;
    }
}

static void the_check_catches_each_wrong_product_and_names_its_shape(void **state)
{
    static const struct {
        const char *name;
        enum mistake mistake;
        const char *words; /* of the shape that must show it */
    } cases[] = {
        {"alpha ignored", IGNORES_ALPHA, "alpha 0.5"},
        {"beta ignored", IGNORES_BETA, "beta 1"},
        {"C read with beta 0", READS_C_WITH_BETA_0, "beta 0"},
        {"C left without K", LEAVES_C_WITHOUT_K, "K=0"},
        {"C cleared without K", CLEARS_C_WITHOUT_K, "K=0"},
        {"transpose of A ignored", IGNORES_TRANSPOSE_A, "A transposed"},
        {"transpose of B ignored", IGNORES_TRANSPOSE_B, "B transposed"},
        {"gap of A ignored", IGNORES_GAP_OF_A, "A [ld"},
        {"gap of B ignored", IGNORES_GAP_OF_B, "B [ld"},
        {"gap of C written", WRITES_INTO_GAP_OF_C, "ld of C"},
        {"last row left out", DROPS_LAST_ROW, "M=1 N=1 K=1"},
        {"last column left out", DROPS_LAST_COLUMN, "M=1 N=1 K=1"},
        {"last term left out", DROPS_LAST_TERM, "M=3 N=5 K=7"},
        {"a late term left out", DROPS_TERM_PAST_128, "K=129"},
        {"odd M wrong", WRONG_WITH_ODD_M, "M=1 N=1 K=1"},
        {"one element wrong", WRONG_IN_ONE_ELEMENT, "[40,100]"},
        {"16 bits lost", LOSES_HALF_THE_BITS, "M=1 N=1 K=1"},
    };
    (void)state;

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char reason[256] = "";
        planted = cases[i].mistake;
        bool ok = blas_check(plain_gemm, reason, sizeof(reason));
        planted = NO_MISTAKE;
        if (ok || !strstr(reason, cases[i].words))
            fail_msg("%s: ok=%d, '%s', expected '%s' in it", cases[i].name, ok, reason,
                     cases[i].words);
    }
}

static void the_check_passes_right_products(void **state)
{
    char reason[256] = "";
    (void)state;

    planted = NO_MISTAKE;
    if (!blas_check(plain_gemm, reason, sizeof(reason)))
        fail_msg("plain loops: %s", reason);
    blas_use_one_thread();
    if (!blas_check(blas_gemm, reason, sizeof(reason)))
        fail_msg("the library: %s", reason);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_index_is_done_once_at_any_thread_count),
        cmocka_unit_test(shares_are_the_same_each_time_and_as_large_as_asked),
        cmocka_unit_test(many_short_runs_lose_nothing),
        cmocka_unit_test(a_body_that_runs_the_team_again_is_a_bug),
        cmocka_unit_test(the_check_catches_each_wrong_product_and_names_its_shape),
        cmocka_unit_test(the_check_passes_right_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
