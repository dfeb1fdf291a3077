/*
 * files: needlectl's commands about files and data.
 *
 * Purpose    upload, files, report, example: what there is, what a job would find in it, how a line is
 *            read. With --json the server's own answer is printed.
 * Ownership  None kept.
 * Threads    The program's only one.
 * Failure    As commands.h.
 */
#ifndef NEEDLED_CLIENT_FILES_H
#define NEEDLED_CLIENT_FILES_H

struct http;

int command_upload(struct http *http, int count, char **arguments);
int command_files(struct http *http, int count, char **arguments);
int command_report(struct http *http, int count, char **arguments);
int command_example(struct http *http, int count, char **arguments);

#endif
