/*
 * migrations: how the database came to its present shape, step by step.
 *
 * Purpose    migrations[n] takes a database of version n to n + 1 (PRAGMA user_version). A step that
 *            was released is never edited; a change of shape is a further step.
 * Ownership  Static text.
 * Threads    Constants.
 * Failure    None.
 */
#ifndef NEEDLED_STORE_MIGRATIONS_H
#define NEEDLED_STORE_MIGRATIONS_H

#define MIGRATION_COUNT 3
#define MIGRATION_APPLICATION_ID 0x6e64646c /* "nddl": names the file as ours */

extern const char *const migrations[MIGRATION_COUNT];

#endif
