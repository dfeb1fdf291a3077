#include "store/lostlog.h"

#include "daemon/base/file.h"
#include "daemon/base/limits.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SIDE_PATH_BYTES (LIMIT_PATH_BYTES + 16)
#define PIECE_BYTES 512 /* the smallest page; each is a multiple of it */
#define PAGE_BYTES_MAX 65536

/* The index's header, in the machine's order: two copies, then what was written back. */
#define INDEX_BYTES 100
#define INDEX_COPY_BYTES 48
#define INDEX_FRAMES 16
#define INDEX_WRITTEN_BACK 96

/* The log: in big-endian order; its words are summed in the order that the magic number says. */
#define LOG_HEADER_BYTES 32
#define LOG_MAGIC UINT32_C(0x377f0682) /* with the last bit set: sums of big-endian words */
#define LOG_PAGE_SIZE 8
#define LOG_SALTS 16
#define LOG_SUMS 24
#define FRAME_HEADER_BYTES 24
#define FRAME_PAGES 4 /* of the database, in the last frame of a transaction; else 0 */
#define FRAME_SALTS 8
#define FRAME_SUMS 16
#define FRAME_SUMMED 8 /* of its header; then the page */
#define SALTS_BYTES 8

struct log {
    FILE *file;
    bool big_endian;
    uint32_t page_size, sums[2];
    unsigned char salts[SALTS_BYTES];
    uint64_t whole_count; /* frames before the first damaged one */
    bool more_ended;      /* a transaction ended behind that */
};

static FILE *open_side(const char *path, const char *suffix)
{
    char side[SIDE_PATH_BYTES];
    FILE *file;
    int descriptor;

    (void)snprintf(side, sizeof(side), "%s%s", path, suffix); /* made to fit */
    if (!file_open(side, O_RDONLY | O_NOFOLLOW, &descriptor, NULL))
        return NULL;
    file = fdopen(descriptor, "r");
    if (!file)
        (void)close(descriptor); /* only read */
    return file;
}

static uint32_t read_word(const unsigned char *bytes, bool big_endian)
{
    const uint32_t first = bytes[0], second = bytes[1], third = bytes[2], fourth = bytes[3];

    return big_endian ? first << 24 | second << 16 | third << 8 | fourth
                      : fourth << 24 | third << 16 | second << 8 | first;
}

static void add_to_sums(struct log *log, const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i + 8 <= size; i += 8) {
        log->sums[0] += read_word(bytes + i, log->big_endian) + log->sums[1];
        log->sums[1] += read_word(bytes + i + 4, log->big_endian) + log->sums[0];
    }
}

static bool sums_are(const struct log *log, const unsigned char *bytes)
{
    return read_word(bytes, true) == log->sums[0] && read_word(bytes + 4, true) == log->sums[1];
}

static bool read_header(struct log *log)
{
    unsigned char header[LOG_HEADER_BYTES];
    uint32_t magic;

    if (fread(header, 1, sizeof(header), log->file) != sizeof(header))
        return false;
    magic = read_word(header, true);
    log->big_endian = magic & 1;
    log->page_size = read_word(header + LOG_PAGE_SIZE, true);
    memcpy(log->salts, header + LOG_SALTS, SALTS_BYTES);
    add_to_sums(log, header, LOG_SUMS);
    return (magic & ~UINT32_C(1)) == LOG_MAGIC && sums_are(log, header + LOG_SUMS) &&
           log->page_size >= PIECE_BYTES && log->page_size <= PAGE_BYTES_MAX &&
           log->page_size % PIECE_BYTES == 0;
}

/* False at the log's end: what is no whole frame was never part of it. */
static bool read_frame(struct log *log, bool *ret_is_whole, bool *ret_ends)
{
    unsigned char header[FRAME_HEADER_BYTES], piece[PIECE_BYTES];
    bool has_salts;

    if (fread(header, 1, sizeof(header), log->file) != sizeof(header))
        return false;
    add_to_sums(log, header, FRAME_SUMMED);
    for (uint32_t at = 0; at < log->page_size; at += PIECE_BYTES) {
        if (fread(piece, 1, sizeof(piece), log->file) != sizeof(piece))
            return false;
        add_to_sums(log, piece, sizeof(piece));
    }
    has_salts = memcmp(header + FRAME_SALTS, log->salts, SALTS_BYTES) == 0;
    *ret_is_whole = has_salts && read_word(header, true) != 0 && sums_are(log, header + FRAME_SUMS);
    *ret_ends = has_salts && read_word(header + FRAME_PAGES, true) != 0;
    return true;
}

static void read_log(const char *path, struct log *log)
{
    bool is_whole, ends, is_damaged = false;

    *log = (struct log){.file = open_side(path, "-wal")};
    if (!log->file)
        return;
    if (read_header(log)) {
        while (!log->more_ended && read_frame(log, &is_whole, &ends)) {
            log->more_ended = is_damaged && ends;
            is_damaged = is_damaged || !is_whole; /* the sums go on: none is right after it */
            log->whole_count += !is_damaged;
        }
    }
    (void)fclose(log->file); /* only read */
    log->file = NULL;
}

static bool read_index(const char *path, unsigned char ret_bytes[INDEX_BYTES])
{
    FILE *file = open_side(path, "-shm");
    size_t size;

    if (!file)
        return false;
    size = fread(ret_bytes, 1, INDEX_BYTES, file);
    (void)fclose(file); /* only read */
    return size == INDEX_BYTES &&
           memcmp(ret_bytes, ret_bytes + INDEX_COPY_BYTES, INDEX_COPY_BYTES) == 0;
}

bool lostlog_look(const char *path)
{
    unsigned char index[INDEX_BYTES];
    uint32_t frames, written_back;
    struct log log;

    read_log(path, &log);
    if (!read_index(path, index))
        return log.more_ended;
    memcpy(&frames, index + INDEX_FRAMES, sizeof(frames));
    memcpy(&written_back, index + INDEX_WRITTEN_BACK, sizeof(written_back));
    return frames > written_back && log.whole_count < frames;
}
