#include "daemon/sched/bases.h"

#include "daemon/base/buf.h"
#include "daemon/base/file.h"
#include "daemon/base/json.h"
#include "daemon/base/limits.h"
#include "daemon/model/lora.h"
#include "store/store.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define WEIGHTS_NAME "base.safetensors"
#define TOKENIZER_NAME "tokenizer.model"
#define KNOWN_BYTES ((size_t)160) /* of the names in a message */
#define BASES_MAX 1000            /* folders looked at */

static bool is_name(const char *name)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

    return name[0] != '\0' && name[0] != '.' && strlen(name) < STORE_NAME_SIZE / 2 &&
           name[strspn(name, safe)] == '\0';
}

/* Path of a file in a base's folder, if it is one. */
static bool find_part(const char *models_folder, const char *name, const char *part, char *ret_path,
                      size_t capacity, struct stat *ret_info)
{
    char folder[LIMIT_PATH_BYTES];

    return is_name(name) && file_join(folder, sizeof(folder), models_folder, name, NULL) &&
           file_join(ret_path, capacity, folder, part, NULL) && stat(ret_path, ret_info) == 0 &&
           S_ISREG(ret_info->st_mode);
}

static bool is_base(const char *models_folder, const char *name)
{
    char path[LIMIT_PATH_BYTES];
    struct stat info;

    return find_part(models_folder, name, WEIGHTS_NAME, path, sizeof(path), &info) &&
           find_part(models_folder, name, TOKENIZER_NAME, path, sizeof(path), &info);
}

static bool refuse_unknown(const char *models_folder, const char *name, struct error *err)
{
    char **names = NULL, path[LIMIT_PATH_BYTES];
    size_t count = 0;
    struct buf known;
    struct stat info;
    const bool has_weights =
        find_part(models_folder, name, WEIGHTS_NAME, path, sizeof(path), &info);
    const bool has_tokenizer =
        find_part(models_folder, name, TOKENIZER_NAME, path, sizeof(path), &info);

    if (has_weights || has_tokenizer)
        return error_set_param(err, ERR_NOT_FOUND, "model",
                               "the base model '%.64s' in the models folder '%.128s' has no %s",
                               name, models_folder, has_weights ? TOKENIZER_NAME : WEIGHTS_NAME);

    buf_init(&known, KNOWN_BYTES);
    if (bases_list(models_folder, &names, &count, NULL)) {
        for (size_t i = 0; i < count; i++)
            buf_format(&known, "%s%s", i ? ", " : "", names[i]);
        free(names);
    }
    error_set_param(
        err, ERR_NOT_FOUND, "model",
        "no base model '%.64s' in the models folder '%.128s' (a folder with " WEIGHTS_NAME
        " and " TOKENIZER_NAME "); there is: %s",
        name, models_folder, known.size ? known.data : "none");
    buf_release(&known);
    return false;
}

bool bases_find(const char *models_folder, const char *name, char *ret_folder, size_t capacity,
                struct error *err)
{
    if (strncmp(name, "ft:", 3) == 0)
        return error_set_param(err, ERR_INVALID, "model",
                               "'%.128s' is a fine-tuned model: going on from one is not served",
                               name);
    if (!is_name(name))
        return error_set_param(err, ERR_INVALID, "model",
                               "'%.64s' is no name of a model: letters, digits, '-', '_' and '.' "
                               "are needed; nothing is ever fetched",
                               name);
    if (!is_base(models_folder, name))
        return refuse_unknown(models_folder, name, err);
    return file_join(ret_folder, capacity, models_folder, name, err);
}

bool bases_inspect(const char *models_folder, const char *name, struct model_info *ret_info,
                   struct error *err)
{
    char folder[LIMIT_PATH_BYTES];

    if (!bases_find(models_folder, name, folder, sizeof(folder), err))
        return false;
    if (model_inspect(folder, ret_info, err))
        return true;
    if (err->code == ERR_NO_MEMORY)
        return false;
    (void)snprintf(err->param, sizeof(err->param), "model");
    err->code = ERR_INVALID; /* another base may do */
    return false;
}

/* ---- lists -------------------------------------------------------------------------------------- */

static int compare(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* Names collected as text, one after the other with their NULs, then pointed at. */
static bool pack(const struct buf *texts, size_t count, char ***ret_names, struct error *err)
{
    char **names = malloc(count * sizeof(*names) + texts->size + 1);
    char *at;

    if (!names || texts->failed) {
        free(names);
        return error_set(err, ERR_NO_MEMORY, "no memory for the names of %zu models", count);
    }
    at = (char *)(names + count);
    if (texts->size)
        memcpy(at, texts->data, texts->size);
    for (size_t i = 0; i < count; i++) {
        names[i] = at;
        at += strlen(at) + 1;
    }
    if (count)
        qsort(names, count, sizeof(*names), compare);
    *ret_names = names;
    return true;
}

bool bases_list(const char *models_folder, char ***ret_names, size_t *ret_count, struct error *err)
{
    DIR *folder = opendir(models_folder);
    const struct dirent *entry;
    struct buf texts;
    size_t count = 0;
    bool ok;

    if (!folder)
        return error_set(err, ERR_IO, "open models folder '%s': %s", models_folder,
                         strerrordesc_np(errno));
    buf_init(&texts, (size_t)BASES_MAX * STORE_NAME_SIZE);
    while (count < BASES_MAX && (entry = readdir(folder)) != NULL) {
        if (!is_base(models_folder, entry->d_name))
            continue;
        buf_append(&texts, entry->d_name, strlen(entry->d_name) + 1);
        count++;
    }
    (void)closedir(folder); /* only read */
    ok = pack(&texts, count, ret_names, err);
    buf_release(&texts);
    if (ok)
        *ret_count = count;
    return ok;
}

struct json *bases_json(const char *models_folder, const char *name)
{
    char path[LIMIT_PATH_BYTES], folder[LIMIT_PATH_BYTES];
    struct model_info info;
    struct stat file = {0};
    struct json *object = json_new_object();

    json_add_string(object, "id", name);
    json_add_string(object, "object", "model");
    if (!find_part(models_folder, name, WEIGHTS_NAME, path, sizeof(path), &file))
        file.st_mtim.tv_sec = 0; /* gone since it was listed */
    json_add_int(object, "created", file.st_mtim.tv_sec);
    json_add_string(object, "owned_by", "system");
    json_add_string(object, "name", name);
    json_add(object, "variants", json_new_array());
    if (bases_find(models_folder, name, folder, sizeof(folder), NULL) &&
        model_inspect(folder, &info, NULL)) {
        json_add_int(object, "depth", (int64_t)info.layer_count);
        json_add_int(object, "max_seq_len", (int64_t)info.max_seq_len);
        json_add_int(object, "parameters", (int64_t)info.parameter_count);
    }
    return object;
}

int64_t bases_depth(const char *models_folder, const char *name)
{
    char path[LIMIT_PATH_BYTES];
    struct geometry geometry;
    struct stat info;
    size_t parameters;

    if (!find_part(models_folder, name, WEIGHTS_NAME, path, sizeof(path), &info) ||
        !weights_check(path, &geometry, &parameters, NULL))
        return 0;
    return (int64_t)geometry.layer_count;
}

bool bases_adapter_bytes(const char *models_folder, const char *name, size_t rank,
                         size_t *ret_bytes, struct error *err)
{
    char path[LIMIT_PATH_BYTES];
    struct geometry geometry;
    struct stat info;
    size_t parameters;

    if (!find_part(models_folder, name, WEIGHTS_NAME, path, sizeof(path), &info))
        return refuse_unknown(models_folder, name, err);
    if (!weights_check(path, &geometry, &parameters, err))
        return false;
    *ret_bytes = lora_device_bytes(&geometry, rank) / 4; /* values, gradients and two moments */
    return true;
}
