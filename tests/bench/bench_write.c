/*
 * bench_write: the least that taking a file can cost: its bytes written, hashed and on disk.
 *
 *   bench_write SOURCE TARGET    prints the milliseconds it took
 *
 * Purpose    The measure that tests/ops/upload.sh holds uploads against: one pass in pieces, SHA-256,
 *            one sync at the end.
 */
#include "daemon/base/clock.h"

#include <fcntl.h>
#include <inttypes.h>
#include <nettle/sha2.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#define PIECE_BYTES 65536

static bool copy(int source, int target, struct sha256_ctx *hash)
{
    static unsigned char piece[PIECE_BYTES];
    ssize_t size;

    while ((size = read(source, piece, sizeof(piece))) > 0) {
        if (write(target, piece, (size_t)size) != size)
            return false;
        sha256_update(hash, (size_t)size, piece);
    }
    return size == 0 && fsync(target) == 0;
}

int main(int count, char **arguments)
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx hash;
    int source = count == 3 ? open(arguments[1], O_RDONLY | O_CLOEXEC) : -1;
    int target =
        count == 3 ? open(arguments[2], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    int64_t started_ns = clock_monotonic_ns();

    sha256_init(&hash);
    if (source < 0 || target < 0 || !copy(source, target, &hash) || close(target) != 0) {
        (void)fputs("usage: bench_write SOURCE TARGET, both of them files\n", stderr);
        return 2;
    }
    sha256_digest(&hash, sizeof(digest), digest);
    printf("%" PRId64 " %02x%02x\n", (clock_monotonic_ns() - started_ns) / 1000000, digest[0],
           digest[1]);
    (void)close(source); /* only read */
    return 0;
}
