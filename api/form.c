#include "api/form.h"

#include "api/multipart.h"
#include "api/text.h"
#include "daemon/sched/datasets.h"
#include "store/files.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define FIELD_MAX 256       /* bytes of a text part */
#define PURPOSE "fine-tune" /* the only one there is use for */
#define LIFETIME_MIN_S 3600 /* both of the hosted API */
#define LIFETIME_MAX_S 2592000

enum part { PART_PURPOSE, PART_ANCHOR, PART_SECONDS, PART_FILE, PART_OTHER };
#define TEXT_COUNT PART_FILE /* parts before it are texts */

static const char *const part_names[] = {"purpose", "expires_after[anchor]",
                                         "expires_after[seconds]", "file"};
static_assert(COUNT_OF(part_names) == PART_OTHER, "every part that is read has its name");

struct form {
    struct multipart *reader;
    struct upload *upload; /* NULL before the file part, and once finished */
    const char *state_folder;
    atomic_int *helpers;
    size_t file_limit_bytes, file_bytes;
    enum part part;
    bool has[PART_OTHER];
    struct text {
        char bytes[FIELD_MAX];
        size_t size;
    } texts[TEXT_COUNT];
};

static bool begin_part(void *context, const char *name, const char *filename, struct error *err)
{
    struct form *form = context;
    char label[STORE_NAME_SIZE];

    form->part = PART_PURPOSE;
    while (form->part < PART_OTHER && strcmp(name, part_names[form->part]) != 0)
        form->part++;
    if (form->part == PART_OTHER)
        return true;
    if (form->has[form->part])
        return error_set_param(err, ERR_INVALID, name, "the form has '%s' twice", name);
    form->has[form->part] = true;
    if (form->part != PART_FILE)
        return true;
    text_label(label, sizeof(label), filename ? filename : "upload");
    if (upload_open(form->state_folder, label, PURPOSE, &form->upload, err)) {
        upload_set_helpers(form->upload, form->helpers);
        return true;
    }
    if (err->code == ERR_NOT_FOUND)
        err->code = ERR_IO; /* a folder of ours is missing: nothing the client named */
    return false;
}

static bool add_text(struct text *text, const char *name, const char *bytes, size_t size,
                     struct error *err)
{
    if (size >= sizeof(text->bytes) - text->size)
        return error_set_param(err, ERR_INVALID, name, "'%s' is longer than %d bytes", name,
                               FIELD_MAX - 1);
    for (size_t i = 0; i < size; i++) {
        if ((unsigned char)bytes[i] < 0x20 || bytes[i] == 0x7f)
            return error_set_param(err, ERR_INVALID, name,
                                   "'%s' has a control character at byte %zu", name,
                                   text->size + i);
    }
    memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
    return true;
}

static bool add_data(void *context, const char *bytes, size_t size, struct error *err)
{
    struct form *form = context;

    switch (form->part) {
    case PART_PURPOSE:
    case PART_ANCHOR:
    case PART_SECONDS:
        return add_text(&form->texts[form->part], part_names[form->part], bytes, size, err);
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

/* Refused where it stands: before the rest of a large body has come. */
static bool end_part(void *context, struct error *err)
{
    const struct form *form = context;
    const char *purpose = form->texts[PART_PURPOSE].bytes;

    if (form->part != PART_PURPOSE || strcmp(purpose, PURPOSE) == 0)
        return true;
    return error_set_param(err, ERR_INVALID, "purpose",
                           "purpose is '%.40s', this server takes 'fine-tune'", purpose);
}

bool form_read_lifetime(const char *anchor, const char *seconds, int64_t *ret_lifetime_s,
                        struct error *err)
{
    int64_t lifetime_s = 0;

    *ret_lifetime_s = 0;
    if (!anchor && !seconds)
        return true;
    if (!anchor || strcmp(anchor, "created_at") != 0)
        return error_set_word(err, ERR_INVALID, "invalid_expiry", part_names[PART_ANCHOR],
                              "'expires_after[anchor]' is '%.40s', 'created_at' is needed",
                              anchor ? anchor : "missing");
    if (!seconds || !text_read_number(seconds, INT32_MAX, &lifetime_s) ||
        lifetime_s < LIFETIME_MIN_S || lifetime_s > LIFETIME_MAX_S)
        return error_set_word(err, ERR_INVALID, "invalid_expiry", part_names[PART_SECONDS],
                              "'expires_after[seconds]' is '%.40s', a number from %d to %d is "
                              "needed",
                              seconds ? seconds : "missing", LIFETIME_MIN_S, LIFETIME_MAX_S);
    *ret_lifetime_s = lifetime_s;
    return true;
}

bool form_new(const char *content_type, const char *state_folder, size_t file_limit_bytes,
              atomic_int *helpers, struct form **ret_form, struct error *err)
{
    struct form *form = calloc(1, sizeof(*form));
    struct multipart_events events = {begin_part, add_data, end_part, form};

    if (!form)
        return error_set(err, ERR_NO_MEMORY, "no memory for the upload");
    form->state_folder = state_folder;
    form->file_limit_bytes = file_limit_bytes;
    form->helpers = helpers;
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

/* NULL: the form did not have it. */
static const char *text_of(const struct form *form, enum part part)
{
    return form->has[part] ? form->texts[part].bytes : NULL;
}

bool form_finish(struct form *form, struct store *store, struct upload_terms *terms,
                 struct file_record *ret_file, struct json **ret_lines, struct error *err)
{
    struct upload *upload = form->upload;

    if (!multipart_finish(form->reader, err))
        return false;
    if (!form->has[PART_PURPOSE])
        return error_set_param(err, ERR_INVALID, "purpose",
                               "the form has no part 'purpose' (fine-tune)");
    if (!form->has[PART_FILE])
        return error_set_param(err, ERR_INVALID, "file", "the form has no part 'file'");
    if (!form_read_lifetime(text_of(form, PART_ANCHOR), text_of(form, PART_SECONDS),
                            &terms->lifetime_s, err))
        return false;
    form->upload = NULL; /* upload_finish frees it in every case */
    return upload_finish(upload, store, terms, ret_file, ret_lines, err);
}
