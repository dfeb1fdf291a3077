/*
 * train_tokenizer: a small SentencePiece model from lines of text.
 *
 * Purpose    Hides libsentencepiece_train (C++) behind plain C; lets no exception out.
 * Ownership  None.
 * Threads    Any.
 * Failure    The library's words.
 */
#ifndef NEEDLED_BENCH_TRAIN_TOKENIZER_H
#define NEEDLED_BENCH_TRAIN_TOKENIZER_H

#include "daemon/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A BPE model of the kind the model family wants: its ids and markers, bytes as a fallback, digits
 * apart, text as it is. Writes the whole file. */
MUST_CHECK bool train_tokenizer(const char *corpus_path, const char *model_path, struct error *err);

#ifdef __cplusplus
}
#endif

#endif
