/*
 * openapi: the description of what is served, as JSON text in the program.
 *
 * Purpose    Made from openapi.yaml by openapi/embed.c when the program is built: the two cannot differ.
 * Ownership  Static.
 * Threads    Any.
 * Failure    None.
 */
#ifndef NEEDLED_API_OPENAPI_H
#define NEEDLED_API_OPENAPI_H

#include <stddef.h>

extern const char openapi_json[];
extern const size_t openapi_json_size;

#endif
