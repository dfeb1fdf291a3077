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

/* Exit statuses: the request was refused, or no connection was had. */
int output_refused(const struct http *http);
int output_usage(const char *text);

const char *output_text(const struct cJSON *object, const char *name);
double output_number(const struct cJSON *object, const char *name);
const struct cJSON *output_member(const struct cJSON *object, const char *name);
/* One line of JSON. Returns the exit status. */
int output_json(const struct cJSON *answer);

#endif
