/*
 * strays: files of the state folder that no record names, kept for a while before they go.
 *
 * Purpose    A kill between a file and its record leaves one, which nobody wants. A database that was
 *            restored, or lost, leaves all that came after it, which somebody will want: so nothing is
 *            removed before it has lain in strays/ for STRAYS_KEPT_S.
 * Ownership  Paths are the caller's.
 * Threads    Any; one at a time for one state folder.
 * Failure    Logged: what cannot be moved stays where it is, what cannot be removed stays too.
 */
#ifndef NEEDLED_STRAYS_H
#define NEEDLED_STRAYS_H

#include <stdbool.h>
#include <stdint.h>

#define STRAYS_FOLDER "strays" /* in the state folder */
#define STRAYS_KEPT_S (INT64_C(7) * 24 * 3600)

/* Moves the file to strays/<name with '-' for '/'>, with ".2" and so on where there is one; name: its path in
 * the state folder. */
bool strays_put(const char *state_folder, const char *path, const char *name);
/* Removes what has lain there longer. */
void strays_sweep(const char *state_folder, int64_t now_unix_s);

#endif
