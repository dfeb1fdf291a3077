/*
 * dashboard: the pages for a browser, as files in the program.
 *
 * Purpose    Made from client/dashboard and Debian's dygraphs by dashboard/embed.c when the program is
 *            built; served under / and /dashboard/, with a policy that lets them load nothing else.
 * Ownership  Static.
 * Threads    Any.
 * Failure    A name that is none of them is 404.
 */
#ifndef NEEDLED_API_DASHBOARD_H
#define NEEDLED_API_DASHBOARD_H

#include <stddef.h>

struct dashboard_file {
    const char *name; /* below /dashboard/: "pages/home.js" */
    const char *content_type;
    const char *sha256;
    const char *bytes;
    size_t size_bytes;
    const char *gzip_bytes; /* the same, made smaller */
    size_t gzip_size_bytes;
};

extern const struct dashboard_file dashboard_files[];
extern const size_t dashboard_file_count;

#endif
