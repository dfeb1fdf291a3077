#include "client/completion.h"

#include "client/commands.h"
#include "client/output.h"
#include "client/table.h"
#include "client/words.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* In single quotes, for all three shells. */
static void print_quoted(const char *text)
{
    (void)putchar('\'');
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            (void)fputs("'\\''", stdout);
        else
            (void)putchar(*text);
    }
    (void)putchar('\'');
}

/* The options of a synopsis, a blank before each but the first. */
static void print_options(const char *synopsis)
{
    const char *blank = "";

    for (const char *at = strchr(synopsis, '['); at; at = strchr(at + 1, '[')) {
        printf("%s%.*s", blank, (int)strcspn(at + 1, " ]"), at + 1);
        blank = " ";
    }
}

/* The second words behind a first one: "get delete download" of "files". */
static void print_second_words(const char *first)
{
    const size_t size = strlen(first);
    const char *blank = "";
    size_t count;
    const struct command *commands = table_commands(&count);

    for (size_t i = 0; i < count; i++) {
        if (strncmp(commands[i].name, first, size) != 0 || commands[i].name[size] != ' ')
            continue;
        printf("%s%s", blank, commands[i].name + size + 1);
        blank = " ";
    }
}

/* What lists the ids that a command's first argument may be, or "". */
static const char *id_list(const char *synopsis)
{
    static const struct {
        const char *word, *list;
    } lists[] = {{"JOB", "jobs"},
                 {"JOB-OR-MODEL", "jobs"},
                 {"FILE", "files"},
                 {"MODEL", "models"},
                 {"SWEEP", "sweeps"}};
    const size_t size = strcspn(synopsis, " ");

    for (size_t i = 0; i < COUNT_OF(lists); i++) {
        if (strlen(lists[i].word) == size && strncmp(synopsis, lists[i].word, size) == 0)
            return lists[i].list;
    }
    return "";
}

/* The cases of a shell's switch over "FIRST SECOND": two-word names first, since they are more. */
static void print_cases(const char *open, const char *end)
{
    size_t count;
    const struct command *commands = table_commands(&count);

    for (int two_words = 1; two_words >= 0; two_words--) {
        for (size_t i = 0; i < count; i++) {
            if ((strchr(commands[i].name, ' ') != NULL) != (two_words == 1))
                continue;
            printf("    %s'%s%s'%s) words='", open, commands[i].name, two_words ? "" : " ",
                   two_words ? "" : "*");
            print_second_words(commands[i].name);
            (void)fputs("' options='", stdout);
            print_options(commands[i].synopsis);
            printf("' ids='%s' %s\n", id_list(commands[i].synopsis), end);
        }
    }
}

static void print_first_words(void)
{
    const char *blank = "";
    size_t count;
    const struct command *commands = table_commands(&count);

    for (size_t i = 0; i < count; i++) {
        if (strchr(commands[i].name, ' '))
            continue;
        printf("%s%s", blank, commands[i].name);
        blank = " ";
    }
}

#define ASK_FOR_IDS                                                                                \
    "needlectl \"$ids\" --json 2>/dev/null | grep -o '\"id\":\"[^\"]*\"' | cut -d'\"' -f4"

static void print_bash(void)
{
    (void)fputs("# needlectl completion bash\n"
                "_needlectl() {\n"
                "    local current=${COMP_WORDS[COMP_CWORD]} at=1 words= options= ids=\n"
                "    COMPREPLY=()\n"
                "    [[ ${COMP_WORDS[1]} == --server ]] && ((COMP_CWORD > 2)) && at=3\n"
                "    if ((COMP_CWORD == at)); then\n"
                "        COMPREPLY=($(compgen -W '",
                stdout);
    print_first_words();
    (void)fputs(" help --server --help --version' -- \"$current\"))\n"
                "        return\n"
                "    fi\n"
                "    case \"${COMP_WORDS[at]} ${COMP_WORDS[at + 1]}\" in\n",
                stdout);
    print_cases("", ";;");
    (void)fputs("    esac\n"
                "    if [[ $current == -* ]]; then\n"
                "        COMPREPLY=($(compgen -W \"$options --help\" -- \"$current\"))\n"
                "    else\n"
                "        ((COMP_CWORD > at + 1)) && words=\n"
                "        [[ -n $ids ]] && words+=\" $(" ASK_FOR_IDS ")\"\n"
                "        COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
                "    fi\n"
                "}\n"
                "complete -o default -F _needlectl needlectl\n",
                stdout);
}

static void print_zsh(void)
{
    size_t count;
    const struct command *commands = table_commands(&count);

    (void)fputs("#compdef needlectl\n"
                "_needlectl() {\n"
                "    local words_given=\"$words[2] $words[3]\" words= options= ids=\n"
                "    if ((CURRENT == 2)); then\n"
                "        local -a commands=(\n",
                stdout);
    for (size_t i = 0; i < count; i++) {
        if (strchr(commands[i].name, ' '))
            continue;
        printf("            '%s':", commands[i].name);
        print_quoted(commands[i].summary);
        (void)putchar('\n');
    }
    (void)fputs("        )\n"
                "        _describe command commands\n"
                "        return\n"
                "    fi\n"
                "    case $words_given in\n",
                stdout);
    print_cases("(", ";;");
    (void)fputs("    esac\n"
                "    if [[ $PREFIX == -* ]]; then\n"
                "        compadd -- ${=options} --help\n"
                "        return\n"
                "    fi\n"
                "    ((CURRENT > 3)) && words=\n"
                "    [[ -n $ids ]] && words+=\" $(" ASK_FOR_IDS ")\"\n"
                "    [[ -n $words ]] && compadd -- ${=words}\n"
                "    _files\n"
                "}\n"
                "compdef _needlectl needlectl\n",
                stdout);
}

static void print_fish_options(const char *word, const char *synopsis)
{
    for (const char *at = strchr(synopsis, '['); at; at = strchr(at + 1, '[')) {
        const int size = (int)strcspn(at + 1, " ]");
        const bool is_long = at[2] == '-';

        printf("complete -c needlectl -n '__fish_seen_subcommand_from %s' -%c %.*s%s\n", word,
               is_long ? 'l' : 's', size - (is_long ? 2 : 1), at + (is_long ? 3 : 2),
               at[1 + size] == ' ' ? " -r" : "");
    }
}

/* Said for each command and option; fish keeps what it has seen. */
static void print_fish(void)
{
    size_t count;
    const struct command *commands = table_commands(&count);

    (void)fputs("# needlectl completion fish\n"
                "complete -c needlectl -n __fish_use_subcommand -l server -r -d 'the daemon'\n",
                stdout);
    for (size_t i = 0; i < count; i++) {
        const char *name = commands[i].name, *second = strchr(name, ' ');
        const int first_size = (int)strcspn(name, " ");

        if (second)
            printf("complete -c needlectl -f -n '__fish_seen_subcommand_from %.*s' -a %s -d ",
                   first_size, name, second + 1);
        else
            printf("complete -c needlectl -f -n __fish_use_subcommand -a %s -d ", name);
        print_quoted(commands[i].summary);
        (void)putchar('\n');
        print_fish_options(second ? second + 1 : name, commands[i].synopsis);
        if (*id_list(commands[i].synopsis) != '\0')
            printf("complete -c needlectl -n '__fish_seen_subcommand_from %s' -a "
                   "\"(needlectl %s --json 2>/dev/null | string match -ar "
                   "'(?<=\\\"id\\\":\\\")[^\\\"]*')\"\n",
                   second ? second + 1 : name, id_list(commands[i].synopsis));
    }
}

int command_completion(struct http *http, int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*print)(void);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    struct words words;

    (void)http; /* nobody is asked */
    if (!words_read("completion", count, arguments, &words))
        return COMMAND_USAGE;
    for (size_t i = 0; i < COUNT_OF(shells); i++) {
        if (strcmp(words.word[0], shells[i].name) == 0) {
            shells[i].print();
            return COMMAND_OK;
        }
    }
    (void)fprintf(stderr, "needlectl: no completion for '%s'; there is bash, zsh, fish\n",
                  words.word[0]);
    return COMMAND_USAGE;
}
