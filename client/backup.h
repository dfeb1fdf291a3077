/*
 * backup: the command that copies the daemon's database.
 *
 * Purpose    A new file of mode 0600, whole and on disk when the command ends well.
 * Ownership  None kept.
 * Threads    The program's only one.
 * Failure    As commands.h. Nothing is left; a file that is there stays as it is.
 */
#ifndef NEEDLED_CLIENT_BACKUP_H
#define NEEDLED_CLIENT_BACKUP_H

struct http;

int command_backup(struct http *http, int count, char **arguments);

#endif
