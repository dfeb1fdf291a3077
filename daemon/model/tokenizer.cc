extern "C" {
#include "daemon/model/tokenizer.h"

#include "daemon/base/file.h"
#include "daemon/base/utf8.h"
}

#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <sentencepiece_processor.h>
#include <string>
#include <time.h>
#include <vector>

struct tokenizer {
    sentencepiece::SentencePieceProcessor processor;
};

extern "C" const char *const tokenizer_markers[] = {
    "<|im_start|>", "<|im_end|>",   "<think>",       "</think>",       "<tools>",   "</tools>",
    "<tool_call>",  "</tool_call>", "<tool_result>", "</tool_result>", "<context>", "</context>",
    "<extract>",    "</extract>",   "<schema>",      "</schema>",      nullptr,
};

namespace
{

/* ---- memory ----------------------------------------------------------------------------------- */

/* Measured: a model file's load takes 22 times its size, a text 320 times its own. */
const size_t LOAD_FACTOR = 32, TEXT_FACTOR = 384, RESERVE_LEAST_BYTES = 64 << 10;
const int WAITS_MAX = 100; /* of a millisecond each, for others to let go of theirs */

/*
 * Where an allocation of the library's fails midway, protobuf, which it is built on, ends the process or frees
 * what it never had. So none may fail: a call that goes into the library first takes what it may come to
 * need, or says that there is no memory; where operator new fails after that, the reserve is given up for it.
 */
class reserve
{
  public:
    reserve(size_t count, size_t factor)
        : memory(count < SIZE_MAX / factor - RESERVE_LEAST_BYTES
                     ? std::malloc(count * factor + RESERVE_LEAST_BYTES)
                     : nullptr),
          before(current)
    {
        if (!memory)
            throw std::bad_alloc();
        current = this;
    }
    ~reserve()
    {
        current = before;
        std::free(memory);
    }
    reserve(const reserve &) = delete;
    reserve &operator=(const reserve &) = delete;

  private:
    void *memory; /* NULL: given up */
    reserve *before;
    int waits = 0;

    static thread_local reserve *current;
    static const std::new_handler earlier_handler; /* of who was here first */

    /* What operator new calls before it tries once more. */
    static void find_memory()
    {
        const struct timespec pause = {0, 1000000};

        if (current && current->memory) {
            std::free(current->memory);
            current->memory = nullptr;
        } else if (current && current->waits++ < WAITS_MAX) {
            (void)nanosleep(&pause, nullptr); /* cut short, it is asked again */
        } else if (earlier_handler) {
            earlier_handler();
        } else {
            throw std::bad_alloc();
        }
    }
};

thread_local reserve *reserve::current = nullptr;
const std::new_handler reserve::earlier_handler = std::set_new_handler(find_memory);

/* ---- the library's calls ----------------------------------------------------------------------- */

/* The template writes the first of them; the id of marker i is FIRST_MARKER_ID + i. */
const int FIRST_MARKER_ID = 4;
const int FIXED_MARKER_COUNT = 10;

bool check_special(const char *name, int found, int wanted, struct error *err)
{
    if (found == wanted)
        return true;
    return error_set(err, ERR_INVALID, "the %s token has id %d, the model family wants %d", name,
                     found, wanted);
}

/* A marker must be one piece with its id, and be found in text: a control piece never is. */
bool check_marker(const sentencepiece::SentencePieceProcessor &processor, int index,
                  struct error *err)
{
    const char *marker = tokenizer_markers[index];
    int wanted = FIRST_MARKER_ID + index, found = processor.PieceToId(marker), hits = 0;
    std::vector<int> ids;

    if (found == processor.unk_id() || processor.IsUnknown(found))
        return error_set(err, ERR_INVALID, "the marker '%s' is missing", marker);
    if (found != wanted)
        return error_set(err, ERR_INVALID, "the marker '%s' has id %d, the model family wants %d",
                         marker, found, wanted);
    if (!processor.Encode(marker, &ids).ok())
        return error_set(err, ERR_CORRUPT, "the marker '%s' cannot be encoded", marker);
    for (int id : ids)
        hits += id == wanted;
    if (hits != 1)
        return error_set(err, ERR_INVALID, "the marker '%s' is not found in text", marker);
    return true;
}

bool check_template(const sentencepiece::SentencePieceProcessor &processor, struct error *err)
{
    if (!check_special("padding", processor.pad_id(), TOKEN_PAD, err) ||
        !check_special("end-of-text", processor.eos_id(), TOKEN_EOS, err) ||
        !check_special("begin-of-text", processor.bos_id(), TOKEN_BOS, err) ||
        !check_special("unknown", processor.unk_id(), TOKEN_UNK, err))
        return false;
    for (int i = 0; i < FIXED_MARKER_COUNT; i++)
        if (!check_marker(processor, i, err))
            return false;
    return true;
}

bool load(const char *path, const struct mapping *map, struct tokenizer *tokenizer,
          struct error *err)
{
    const reserve memory(map->size, LOAD_FACTOR);
    std::string bytes(reinterpret_cast<const char *>(map->data), map->size);
    auto status = tokenizer->processor.LoadFromSerializedProto(bytes);

    if (!status.ok())
        return error_set(err, ERR_CORRUPT, "tokenizer '%s': not a SentencePiece model (%s)", path,
                         status.ToString().c_str());
    if (!check_template(tokenizer->processor, err)) {
        error_wrap(err, "tokenizer '%s'", path);
        return false;
    }
    return true;
}

bool encode(const struct tokenizer *tokenizer, const char *bytes, size_t size, uint32_t **ret_ids,
            size_t *ret_count, struct error *err)
{
    const reserve memory(size, TEXT_FACTOR);
    std::vector<int> ids;
    auto status = tokenizer->processor.Encode(std::string_view(size ? bytes : "", size), &ids);
    uint32_t *copy;

    if (!status.ok())
        return error_set(err, ERR_INTERNAL, "tokenize: %s", status.ToString().c_str());
    copy = static_cast<uint32_t *>(std::malloc((ids.size() + 1) * sizeof(*copy)));
    if (!copy)
        return error_set(err, ERR_NO_MEMORY, "tokenize: out of memory");
    for (size_t i = 0; i < ids.size(); i++)
        copy[i] = static_cast<uint32_t>(ids[i]);
    *ret_ids = copy;
    *ret_count = ids.size();
    return true;
}

bool decode(const struct tokenizer *tokenizer, const uint32_t *ids, size_t count, char **ret_text,
            size_t *ret_size, struct error *err)
{
    const reserve memory(count, TEXT_FACTOR);
    size_t pieces = tokenizer_piece_count(tokenizer);
    std::vector<int> copy(count);
    std::string text;
    char *out;

    for (size_t i = 0; i < count; i++) {
        if (ids[i] >= pieces)
            return error_set(err, ERR_INVALID, "token id %u, the tokenizer has %zu", ids[i],
                             pieces);
        copy[i] = static_cast<int>(ids[i]);
    }
    auto status = tokenizer->processor.Decode(copy, &text);
    if (!status.ok())
        return error_set(err, ERR_INTERNAL, "decode: %s", status.ToString().c_str());
    out = static_cast<char *>(std::malloc(text.size() + 1));
    if (!out)
        return error_set(err, ERR_NO_MEMORY, "decode: out of memory");
    std::memcpy(out, text.c_str(), text.size() + 1);
    *ret_text = out;
    *ret_size = text.size();
    return true;
}

/* Runs the body and turns what it throws into an error: nothing of C++ gets out. */
template <typename Body> bool guarded(struct error *err, Body body)
{
    try {
        return body();
    } catch (const std::bad_alloc &) {
        return error_set(err, ERR_NO_MEMORY, "tokenizer: out of memory");
    } catch (const std::exception &fault) {
        return error_set(err, ERR_CORRUPT, "tokenizer: %s", fault.what());
    } catch (...) {
        return error_set(err, ERR_INTERNAL, "tokenizer: the library failed");
    }
}

} // namespace

extern "C" bool tokenizer_open(const char *path, struct tokenizer **ret_tokenizer,
                               struct error *err)
{
    struct mapping map = {nullptr, 0, -1};
    struct tokenizer *tokenizer = nullptr;
    bool ok;

    if (!mapping_open(&map, path, err)) {
        error_wrap(err, "tokenizer");
        return false;
    }
    ok = guarded(err, [&] {
        tokenizer = new struct tokenizer;
        return load(path, &map, tokenizer, err);
    });
    mapping_close(&map);
    if (!ok) {
        tokenizer_close(tokenizer);
        return false;
    }
    *ret_tokenizer = tokenizer;
    return true;
}

extern "C" void tokenizer_close(struct tokenizer *tokenizer)
{
    delete tokenizer;
}

extern "C" size_t tokenizer_piece_count(const struct tokenizer *tokenizer)
{
    return static_cast<size_t>(tokenizer->processor.GetPieceSize());
}

extern "C" bool tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t size,
                                 uint32_t **ret_ids, size_t *ret_count, struct error *err)
{
    size_t fault = utf8_find_fault(text, size);

    if (fault < size)
        return error_set(err, ERR_INVALID, "tokenize: not UTF-8 at byte %zu", fault);
    return tokenizer_encode_bytes(tokenizer, text, size, ret_ids, ret_count, err);
}

extern "C" bool tokenizer_encode_bytes(const struct tokenizer *tokenizer, const char *bytes,
                                       size_t size, uint32_t **ret_ids, size_t *ret_count,
                                       struct error *err)
{
    return guarded(err, [&] { return encode(tokenizer, bytes, size, ret_ids, ret_count, err); });
}

extern "C" bool tokenizer_decode(const struct tokenizer *tokenizer, const uint32_t *ids,
                                 size_t count, char **ret_text, size_t *ret_size, struct error *err)
{
    return guarded(err, [&] { return decode(tokenizer, ids, count, ret_text, ret_size, err); });
}

extern "C" void tokenizer_piece(const struct tokenizer *tokenizer, uint32_t id, char *ret_piece,
                                size_t capacity)
{
    ret_piece[0] = '\0';
    if (id >= tokenizer_piece_count(tokenizer))
        return;
    (void)guarded(nullptr, [&] {
        const std::string &piece = tokenizer->processor.IdToPiece(static_cast<int>(id));
        size_t size = utf8_cut(piece.data(), piece.size(), capacity - 1);

        std::memcpy(ret_piece, piece.data(), size);
        ret_piece[size] = '\0';
        return true;
    }); /* without memory it stays empty: it is only shown */
}
