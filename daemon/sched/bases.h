/*
 * bases: the base models in the models folder.
 *
 * Purpose    A base is a folder with base.safetensors and tokenizer.model; its folder's name is the
 *            model's name. A name is never a path.
 * Ownership  Lists and trees belong to the caller.
 * Threads    Any.
 * Failure    ERR_NOT_FOUND or ERR_INVALID with param "model".
 */
#ifndef NEEDLED_BASES_H
#define NEEDLED_BASES_H

#include "daemon/model/model.h"

struct json;

/* Folder of the base of that name, and what it is. */
MUST_CHECK bool bases_find(const char *models_folder, const char *name, char *ret_folder,
                           size_t capacity, struct error *err);
MUST_CHECK bool bases_inspect(const char *models_folder, const char *name,
                              struct model_info *ret_info, struct error *err);
/* Names in order, array and texts in one block for free(). */
MUST_CHECK bool bases_list(const char *models_folder, char ***ret_names, size_t *ret_count,
                           struct error *err);
struct json *bases_json(const char *models_folder, const char *name);
int64_t bases_depth(const char *models_folder, const char *name); /* layers; 0: not known */
/* Bytes an adapter of this rank takes as a file, without its header. */
MUST_CHECK bool bases_adapter_bytes(const char *models_folder, const char *name, size_t rank,
                                    size_t *ret_bytes, struct error *err);

#endif
