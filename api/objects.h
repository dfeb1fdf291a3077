/*
 * objects: the JSON objects of files, jobs, models, events and checkpoints, as clients know them.
 *
 * Purpose    One place for the field names of the API; pages and streams show the same event.
 * Ownership  Results are the caller's to free; NULL without memory (response_set_json takes that).
 * Threads    Any.
 * Failure    Stored JSON that cannot be read back becomes null.
 */
#ifndef NEEDLED_API_OBJECTS_H
#define NEEDLED_API_OBJECTS_H

#include <stdint.h>

struct checkpoint_record;
struct event_record;
struct file_record;
struct job_outlook;
struct job_record;
struct json;
struct model_record;

struct json *objects_file(const struct file_record *file);
struct json *objects_job(const struct job_record *job, const struct job_outlook *outlook);
/* depth: the base's layers; 0: not known. */
struct json *objects_model(const struct model_record *model, int64_t depth);
struct json *objects_event(const struct event_record *event);
struct json *objects_checkpoint(const struct checkpoint_record *checkpoint);

#endif
