/*
 * tokenizer: text to token ids by a SentencePiece model file.
 *
 * Purpose    Hides libsentencepiece (C++) behind plain C; lets no exception out.
 * Ownership  tokenizer_open / tokenizer_close.
 * Threads    An open tokenizer may be read by several threads.
 * Failure    A missing or damaged file, a missing marker or a marker whose id disagrees with the
 *            template is named. Text must be UTF-8 (a lone surrogate is not); the flags of the
 *            model file (dummy prefix, spaces) are the library's business, not ours. Without
 *            memory: ERR_NO_MEMORY, before the library is asked, which could only end the process.
 */
#ifndef NEEDLED_TOKENIZER_H
#define NEEDLED_TOKENIZER_H

#include "daemon/base/error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Fixed by the model family: the file must agree. */
enum token_id { TOKEN_PAD = 0, TOKEN_EOS = 1, TOKEN_BOS = 2, TOKEN_UNK = 3 };

struct tokenizer;

MUST_CHECK bool tokenizer_open(const char *path, struct tokenizer **ret_tokenizer,
                               struct error *err);
void tokenizer_close(struct tokenizer *tokenizer); /* NULL is fine */

size_t tokenizer_piece_count(const struct tokenizer *tokenizer);

/* Ids of the text, without BOS or EOS, in memory the caller frees with free(). */
MUST_CHECK bool tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t size,
                                 uint32_t **ret_ids, size_t *ret_count, struct error *err);
/* The same for bytes of any kind: what is not UTF-8 becomes U+FFFD, as the library has it. */
MUST_CHECK bool tokenizer_encode_bytes(const struct tokenizer *tokenizer, const char *bytes,
                                       size_t size, uint32_t **ret_ids, size_t *ret_count,
                                       struct error *err);
/* Text of the ids, NUL-terminated, for the caller to free(). */
MUST_CHECK bool tokenizer_decode(const struct tokenizer *tokenizer, const uint32_t *ids,
                                 size_t count, char **ret_text, size_t *ret_size,
                                 struct error *err);

/* The piece of an id as the model file has it ("_rain" with U+2581 for "_", "<0x0A>"), NUL-terminated, for showing; ""
 * for an id that is none. Cut to capacity at a character's end. */
void tokenizer_piece(const struct tokenizer *tokenizer, uint32_t id, char *ret_piece,
                     size_t capacity);

/* The template's control markers ("<|im_start|>", "<tool_call>", ...), NULL-terminated. */
extern const char *const tokenizer_markers[];

#ifdef __cplusplus
}
#endif

#endif
