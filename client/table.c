#include "client/table.h"

#include "client/access.h"
#include "client/backup.h"
#include "client/call.h"
#include "client/commands.h"
#include "client/completion.h"
#include "client/events.h"
#include "client/files.h"
#include "client/jobs.h"
#include "client/models.h"
#include "client/queue.h"

#include <string.h>

#define LINE_WIDTH 96
#define NAME_WIDTH 24
#define JOB_OPTIONS                                                                                \
    "[--model NAME] [--validation DATA] [--suffix TEXT] [--seed N] [--device NAME] "               \
    "[--priority N] [--set NAME=VALUE]..."
#define DATA_OPTIONS "[--model NAME] [--max-len N] [--data-rules RULES] [--overlong WHAT]"

static const struct command commands[] = {
    {"submit", "DATA " JOB_OPTIONS " [--no-watch] [--curve] [--json]",
     "upload a data set (or name a file's id), create a job, watch it", command_submit},
    {"estimate", "DATA " JOB_OPTIONS " [--json]", "what that job would take; nothing is made",
     command_estimate},
    {"watch", "JOB [--curve] [--json]", "follow a job until it ends; Ctrl-C leaves it running",
     command_watch},
    {"jobs",
     "[--status STATUS] [--search TEXT] [--metadata NAME=VALUE]... [--limit N] [--after JOB] "
     "[--json]",
     "the newest jobs", command_jobs},
    {"move", "JOB [--position N] [--before JOB] [--after JOB] [--to END] [--priority N] [--json]",
     "give a waiting job another place in the queue", command_move},
    {"sweep", "DATA " JOB_OPTIONS " [--vary NAME=VALUE,...]... [--json]",
     "a job for every combination of values", command_sweep},
    {"sweeps", "[--limit N] [--after SWEEP] [--json]", "the sweeps there are", command_sweeps},
    {"sweeps get", "SWEEP [--json]", "a sweep's jobs side by side", command_sweeps},
    {"sweeps cancel", "SWEEP [--json]", "end those of its jobs that have not ended",
     command_sweeps},
    {"jobs get", "JOB [--json]", "a job's record", command_jobs},
    {"pause", "JOB [--json]", "hold a job back; it keeps its last step", command_pause},
    {"resume", "JOB [--json]", "let a paused job go on", command_resume},
    {"cancel", "JOB [--json]", "end a job; what it wrote stays", command_cancel},
    {"checkpoints", "JOB [--json]", "its checkpoints, each a model", command_checkpoints},
    {"metrics", "JOB [--points N] [--json]", "its curves, thinned to so many points",
     command_metrics},
    {"result", "JOB [-o PATH] [--json]", "its steps as CSV", command_result},
    {"events", "[--follow] [--after EVENT] [--types TYPE,...] [--limit N] [--json]",
     "what happened in all jobs; --follow goes on", command_events},
    {"upload", "PATH [--expires SECONDS] [--json]", "upload a data set", command_upload},
    {"files",
     "[--search TEXT] [--purpose PURPOSE] [--order ORDER] [--after FILE] [--limit N] [--json]",
     "the files there are", command_files},
    {"files get", "FILE [--json]", "a file's record", command_files},
    {"files delete", "FILE [--json]", "remove a file", command_files},
    {"files download", "FILE [-o PATH] [--json]", "a file's bytes", command_files},
    {"report",
     "FILE " DATA_OPTIONS " [--validation-file FILE] [--problems-after N] "
     "[--problems-limit N] [--json]",
     "what a job would find in a file; with --model lengths in tokens", command_report},
    {"example", "FILE LINE " DATA_OPTIONS " [--json]",
     "a line as it is rendered, tokenised and trained", command_example},
    {"fetch", "JOB-OR-MODEL [-o PATH] [--json]", "download an adapter", command_fetch},
    {"models", "[--search TEXT] [--limit N] [--json]", "bases, and what jobs made of them",
     command_models},
    {"models get", "MODEL [--json]", "a model's record", command_models_get},
    {"models delete", "MODEL [--json]", "remove a model and its adapter", command_models_delete},
    {"billing", "[--json]", "what the key may have, and has", command_billing},
    {"devices", "[--json]", "what the daemon computes with", command_devices},
    {"key create", "NAME [--scope SCOPE] [--jobs N] [--bytes N] [--json]",
     "make an API key; it is shown once", command_key_create},
    {"key list", "[--after KEY] [--limit N] [--json]", "API keys, also revoked ones",
     command_key_list},
    {"key revoke", "KEY [--json]", "end an API key, at once", command_key_revoke},
    {"webhook create", "URL [--name NAME] [--types TYPE,...] [--json]",
     "have an address told when jobs end", command_webhook_create},
    {"webhook list", "[--after WEBHOOK] [--limit N] [--json]", "the webhooks",
     command_webhook_list},
    {"webhook delete", "WEBHOOK [--json]", "remove a webhook", command_webhook_delete},
    {"webhook test", "WEBHOOK [--json]", "call a webhook now with a sample", command_webhook_test},
    {"webhook rotate", "WEBHOOK [--keep-old] [--json]", "a new signing secret",
     command_webhook_rotate},
    {"webhook deliveries", "WEBHOOK [--limit N] [--json]",
     "what a webhook was told and is still to be told", command_webhook_deliveries},
    {"backup", "PATH [--json]", "copy the database, while the daemon runs, into a new file",
     command_backup},
    {"call", "METHOD PATH [--data JSON] [--json]",
     "any call of the daemon, as its description has it", command_call},
    {"completion", "SHELL", "completion for bash, zsh or fish, as a script", command_completion},
};

const struct command *table_commands(size_t *ret_count)
{
    *ret_count = sizeof(commands) / sizeof(commands[0]);
    return commands;
}

/* How many words of the arguments are the name; 0 when they are not. */
static int words_matched(const char *name, int count, char *const *arguments)
{
    int words = 0;

    while (*name != '\0') {
        size_t size = strcspn(name, " ");

        if (words >= count || strlen(arguments[words]) != size ||
            memcmp(arguments[words], name, size) != 0)
            return 0;
        words++;
        name += size + (name[size] == ' ' ? 1 : 0);
    }
    return words;
}

const struct command *table_find(int count, char *const *arguments)
{
    const struct command *found = NULL;
    size_t command_count;
    int longest = 0;

    (void)table_commands(&command_count);
    for (size_t i = 0; i < command_count; i++) {
        int words = words_matched(commands[i].name, count, arguments);

        if (words > longest) {
            longest = words;
            found = &commands[i];
        }
    }
    return found;
}

const struct command *table_named(const char *name)
{
    size_t command_count;

    (void)table_commands(&command_count);
    for (size_t i = 0; i < command_count; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    return NULL;
}

/* Broken between options. */
static void print_synopsis(FILE *stream, const char *lead, const struct command *command)
{
    int column = fprintf(stream, "%sneedlectl %s", lead, command->name);
    const char *at = command->synopsis;

    while (*at != '\0') {
        size_t size = *at == '[' ? strcspn(at, "]") + 1 : strcspn(at, " ");

        size += strspn(at + size, ".");
        if (column + (int)size + 1 > LINE_WIDTH)
            column = fprintf(stream, "\n           ") - 1;
        column += fprintf(stream, " %.*s", (int)size, at);
        at += size;
        at += strspn(at, " ");
    }
    (void)fputc('\n', stream);
}

void table_print_usage(FILE *stream, const char *name)
{
    const char *lead = "usage: ";
    const size_t size = strlen(name);
    size_t command_count;

    (void)table_commands(&command_count);
    for (size_t i = 0; i < command_count; i++) {
        const char *other = commands[i].name;

        if (strncmp(other, name, size) != 0 || (other[size] != '\0' && other[size] != ' '))
            continue;
        print_synopsis(stream, lead, &commands[i]);
        (void)fprintf(stream, "           %s\n", commands[i].summary);
        lead = "       ";
    }
}

void table_print_help(FILE *stream)
{
    size_t command_count;

    (void)table_commands(&command_count);
    for (size_t i = 0; i < command_count; i++) {
        const char *synopsis = commands[i].synopsis;
        int width = fprintf(stream, "  %s", commands[i].name);

        if (*synopsis != '[')
            width += fprintf(stream, " %.*s", (int)strcspn(synopsis, "["), synopsis);
        (void)fprintf(stream, "%*s%s\n", width < NAME_WIDTH ? NAME_WIDTH - width : 1, "",
                      commands[i].summary);
    }
}
