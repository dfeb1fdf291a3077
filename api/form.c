#include "api/form.h"

#include "api/multipart.h"
#include "api/text.h"
#include "daemon/sched/datasets.h"
#include "store/files.h"

#include <stdlib.h>
#include <string.h>

#define FIELD_MAX 256       /* bytes of a text part */
#define PURPOSE "fine-tune" /* the only one there is use for */

enum part { PART_OTHER, PART_PURPOSE, PART_FILE };

struct form {
    struct multipart *reader;
    struct upload *upload; /* NULL before the file part, and once finished */
    const char *state_folder;
    size_t file_limit_bytes, file_bytes;
    enum part part;
    bool has_purpose, has_file;
    char purpose[FIELD_MAX];
    size_t purpose_size;
};

static bool begin_part(void *context, const char *name, const char *filename, struct error *err)
{
    struct form *form = context;
    char label[STORE_NAME_SIZE];

    form->part = PART_OTHER;
    if (strcmp(name, "purpose") == 0) {
        if (form->has_purpose)
            return error_set_param(err, ERR_INVALID, "purpose", "the form has 'purpose' twice");
        form->part = PART_PURPOSE;
        form->has_purpose = true;
        return true;
    }
    if (strcmp(name, "file") != 0)
        return true; /* expires_after[...] and the like: files here never expire */
    if (form->has_file)
        return error_set_param(err, ERR_INVALID, "file", "the form has 'file' twice");
    form->part = PART_FILE;
    form->has_file = true;
    text_label(label, sizeof(label), filename ? filename : "upload");
    if (upload_open(form->state_folder, label, PURPOSE, &form->upload, err))
        return true;
    if (err->code == ERR_NOT_FOUND)
        err->code = ERR_IO; /* a folder of ours is missing: nothing the client named */
    return false;
}

static bool add_data(void *context, const char *bytes, size_t size, struct error *err)
{
    struct form *form = context;

    switch (form->part) {
    case PART_PURPOSE:
        if (form->purpose_size + size >= sizeof(form->purpose))
            return error_set_param(err, ERR_INVALID, "purpose", "'purpose' is longer than %d bytes",
                                   FIELD_MAX - 1);
        memcpy(form->purpose + form->purpose_size, bytes, size);
        form->purpose_size += size;
        return true;
    case PART_FILE:
        if (size > form->file_limit_bytes - form->file_bytes)
            return error_set_param(err, ERR_LIMIT, "file", "the file is larger than %zu bytes",
                                   form->file_limit_bytes);
        form->file_bytes += size;
        return upload_append(form->upload, bytes, size, err);
    case PART_OTHER:
        break;
    }
    return true;
}

static bool end_part(void *context, struct error *err)
{
    struct form *form = context;

    if (form->part != PART_PURPOSE)
        return true;
    if (strcmp(form->purpose, PURPOSE) != 0)
        return error_set_param(err, ERR_INVALID, "purpose",
                               "purpose is '%.40s', this server takes 'fine-tune'", form->purpose);
    return true;
}

bool form_new(const char *content_type, const char *state_folder, size_t file_limit_bytes,
              struct form **ret_form, struct error *err)
{
    struct form *form = calloc(1, sizeof(*form));
    struct multipart_events events = {begin_part, add_data, end_part, form};

    if (!form)
        return error_set(err, ERR_NO_MEMORY, "no memory for the upload");
    form->state_folder = state_folder;
    form->file_limit_bytes = file_limit_bytes;
    if (!multipart_new(content_type, &events, &form->reader, err)) {
        form_free(form);
        return false;
    }
    *ret_form = form;
    return true;
}

void form_free(struct form *form)
{
    if (!form)
        return;
    upload_abort(form->upload);
    multipart_free(form->reader);
    free(form);
}

bool form_feed(struct form *form, const char *bytes, size_t size, struct error *err)
{
    return multipart_feed(form->reader, bytes, size, err);
}

bool form_finish(struct form *form, struct store *store, struct file_record *ret_file,
                 struct json **ret_lines, struct error *err)
{
    struct upload *upload = form->upload;

    if (!multipart_finish(form->reader, err))
        return false;
    if (!form->has_purpose)
        return error_set_param(err, ERR_INVALID, "purpose",
                               "the form has no part 'purpose' (fine-tune)");
    if (!form->has_file)
        return error_set_param(err, ERR_INVALID, "file", "the form has no part 'file'");
    form->upload = NULL; /* upload_finish frees it in every case */
    return upload_finish(upload, store, ret_file, ret_lines, err);
}
