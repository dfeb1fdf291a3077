/*
 * output: what the commands share when they print.
 *
 * Purpose    Fields of an answer by name, the answer itself as JSON, refusals and usage on stderr.
 * Ownership  Trees are borrowed.
 * Threads    The program's only one.
 * Failure    Absent fields are "" and 0.
 */
#ifndef NEEDLED_CLIENT_OUTPUT_H
#define NEEDLED_CLIENT_OUTPUT_H

struct cJSON;
struct http;
struct words;

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Exit statuses: the request was refused, or no connection was had. */
int output_refused(const struct http *http);
/* A download failed: refused, no connection, or the bytes could not be written. */
int output_not_saved(const struct http *http);

const char *output_text(const struct cJSON *object, const char *name);
double output_number(const struct cJSON *object, const char *name);
const struct cJSON *output_member(const struct cJSON *object, const char *name);
/* One line of JSON. Returns the exit status. */
int output_json(const struct cJSON *answer);
/* A command's end: with --json the answer is printed. Deletes it; returns the exit status. */
int output_end(const struct words *words, struct cJSON *answer);

#endif
