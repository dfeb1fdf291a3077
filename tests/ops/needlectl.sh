#!/usr/bin/env bash
# needlectl as a tool: the table of commands, --help, the man page and the shells' completion say the same;
# every command has --json and the documented exit statuses; Ctrl-C leaves a job running.
#   tests/ops/needlectl.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
trap 'stop_daemon >/dev/null 2>&1; rm -rf "$work"' EXIT
export PATH=$PWD/$out:$PATH
[ "${out#/}" = "$out" ] || export PATH=$out:$PATH

ctl() {
    answer=$(needlectl "$@" 2>&1)
    status=$?
}

# ---- what it says of itself --------------------------------------------------------------------------

# A command's line in --help begins with two blanks; its name is what is in small letters.
needlectl --help >"$work/help"
mapfile -t commands < <(sed -n 's/^  \([a-z][a-z ]*[a-z]\)\( [A-Z ].*\|  .*\)$/\1/p' "$work/help")
expect "the help lists the commands" [ "${#commands[@]}" -ge 16 ]
for command in "${commands[@]}"; do
    ctl $command --help
    expect "$command --help shows its usage" has "^0 usage: needlectl $command( |\$)" "$status ${answer%%$'\n'*}"
    own=$(sed '/^       needlectl/,$d' <<<"$answer") # a first word's usage goes on with the second ones
    [ "$command" = completion ] || expect "$command takes --json" has '\[--json\]' "$own"
    section=$(sed -n "/^\\.It Cm $command\\( \\|\$\\)/,/^\\.It Cm /p" client/needlectl.1)
    expect "$command is in the man page" [ -n "$section" ]
    missing=
    for option in $(grep -o -- '\[--\?[a-z-]*' <<<"$own" | tr -d '[' | sort -u); do
        grep -q -- "Fl ${option#-}\\b" <<<"$section" || missing+=" $option"
    done
    expect "with all its options" is "$missing" ''
    unknown=
    for option in $(head -n 1 <<<"$section" | grep -o 'Fl [a-z-]*' | cut -d' ' -f2); do
        grep -q -- "\[-$option[] ]" <<<"$own" || unknown+=" $option"
    done
    expect "and no other" is "$unknown" ''
done
listed=$(grep -c '^\.It Cm [a-z]' client/needlectl.1)
expect "the man page has no command that is not there" is "$listed" "${#commands[@]}"

for code in 0 1 2 3 130; do
    expect "exit status $code is documented" grep -q "^\\.It $code\$" client/needlectl.1
done

# lint_page FILE
lint_page() { [ -z "$(mandoc -T lint -W warning "$1" 2>&1)" ]; }
for page in client/needlectl.1 daemon/needled.8 daemon/needled.json.5; do
    if command -v mandoc >/dev/null; then
        expect "$page is clean" lint_page "$page"
    else
        echo "skip - $page is not linted: mandoc is not installed"
    fi
done

# ---- the man pages of the daemon -----------------------------------------------------------------------

needled --help >"$work/daemon-help"
missing=
for option in $(grep -o -- '--[a-z-]*' "$work/daemon-help" | sort -u); do
    grep -q -- "Fl ${option#-}\\b" daemon/needled.8 || missing+=" $option"
done
expect "needled.8 has every option" is "$missing" ''
missing=
for key in $(sed -n '/^keys of the settings file/,$p' "$work/daemon-help" | sed 's/^keys of the settings file://'); do
    grep -q "^\\.It Va $key\\b" daemon/needled.json.5 || missing+=" $key"
done
expect "needled.json.5 has every key" is "$missing" ''
expect "and no other" is "$(grep -c '^\.It Va ' daemon/needled.json.5)" \
    "$(sed -n '/^keys of the settings file/,$p' "$work/daemon-help" | sed 's/^keys of the settings file://' | wc -w)"

# ---- completion ----------------------------------------------------------------------------------------

# complete WORD...: what bash offers for the last word.
complete_words() {
    needlectl completion bash >"$work/completion"
    bash --norc -c '. "$1"; shift; COMP_WORDS=(needlectl "$@"); COMP_CWORD=$#; _needlectl; echo "${COMPREPLY[*]}"' \
        bash "$work/completion" "$@"
}
expect "bash completes a command" is "$(complete_words sub)" submit
expect "and names every one" is "$(complete_words '' | tr ' ' '\n' | grep -c '^[a-z]')" \
    $(($(printf '%s\n' "${commands[@]}" | grep -vc ' ') + 1))
expect "a second word" is "$(complete_words files del)" delete
expect "options" is "$(complete_words submit DATA --val)" --validation
expect "behind another server too" is "$(complete_words --server http://127.0.0.1:1 fe)" fetch
expect "and no option that is another command's" is "$(complete_words devices --val)" ''
for shell in bash zsh fish; do
    if command -v $shell >/dev/null; then
        needlectl completion $shell >"$work/completion.$shell"
        expect "$shell can read its completion" $shell -n "$work/completion.$shell"
    else
        echo "skip - $shell does not read its completion: it is not installed"
    fi
done
ctl completion csh
expect "another shell is refused by name" has "^2 .*'csh'.*bash, zsh, fish" "$status $answer"

# ---- exit statuses ---------------------------------------------------------------------------------------

ctl
expect "no command is bad usage" is "$status" 2
ctl nonsense
expect "an unknown one is named" has "^2 .*'nonsense'" "$status $answer"
ctl jobs --nonsense
expect "an unknown option is named" has "^2 .*'--nonsense'" "$status $answer"
ctl jobs --limit
expect "an option without its value is named" has "^2 .*'--limit'" "$status $answer"
ctl devices --json=1
expect "a value where none is taken is refused" has "^2 .*'--json'" "$status $answer"
ctl cancel
expect "a missing argument is counted" has '^2 .*1 argument' "$status $answer"
ctl cancel a b
expect "one too many is named" has "^2 .*'b'" "$status $answer"
ctl --server http://127.0.0.1:9 devices
expect "no connection is status 2 and names the address" has '^2 .*127.0.0.1:9' "$status $answer"

base_folder mini mini
start_daemon "$out" || exit 1
ctl watch ftjob-absent
expect "what is refused is status 1" has '^1 .*ftjob-absent' "$status $answer"

lines() { for n in $(seq "$1"); do printf '{"query":"say %d","tools":[],"answers":[]}\n' "$n"; done; }
lines 64 >"$work/data.jsonl"
hyper=(--set batch_size=1 --set lora_rank=4 --set lora_alpha=8 --set val_split=0)
ctl submit "$work/data.jsonl" --model mini "${hyper[@]}" --set n_epochs=1 --suffix quick
expect "submit waits and is status 0" has '^0 .*succeeded: ft:mini' "$status ${answer//$'\n'/ }"
quick=$(grep -o 'ftjob-[A-Za-z0-9]*' <<<"$answer" | head -n 1)
ctl submit "$work/data.jsonl" --model mini "${hyper[@]}" --set learning_rate=1e9 --set n_epochs=2
expect "a job that fails is status 1" has '^1 .*failed: ' "$status ${answer//$'\n'/ }"
lasting_lines >"$work/lasting.jsonl"
ctl submit "$work/lasting.jsonl" --model mini "${hyper[@]}" --set n_epochs=50 --no-watch --json
long=$(field id <<<"$answer")
expect "--no-watch --json prints the job alone" has '^0 \{"id":"ftjob-[^\n]*\}$' "$status $answer"
needlectl watch "$long" >"$work/watched" 2>&1 &
watcher=$!
wait_for 60 grep -q '^step ' "$work/watched"
kill -INT $watcher
wait $watcher
status=$?
answer=$(<"$work/watched")
expect "Ctrl-C is status 130 and says how to come back" has "^130 .*the job goes on: needlectl watch $long" "$status ${answer//$'\n'/ }"
call "$url/v1/fine_tuning/jobs/$long"
expect "the job goes on" is "$(field status <<<"$answer")" running
needlectl watch "$long" --json >"$work/watched" 2>&1 &
watcher=$!
ctl cancel "$long" --json
expect "cancel --json prints the job" has "^0 \\{\"id\":\"$long\".*\"status\":\"cancelled\"" "$status $answer"
wait $watcher
expect "whoever watches it ends with status 3" is $? 3
expect "watch --json prints objects, the job last" has "\"object\":\"fine_tuning.job\".*\"status\":\"cancelled\"" "$(tail -n 1 "$work/watched")"
expect "and nothing else" is "$(grep -vc '^{.*}$' "$work/watched")" 0

# ---- --json is the server's own answer --------------------------------------------------------------------

# rounded: a number has as many digits here and there.
rounded() { sed -E 's/(\.[0-9]{5})[0-9]*/\1/g'; }
# same PATH COMMAND...
same() {
    local path=$1
    shift
    ctl "$@" --json
    expect "$* --json is GET $path" is "$status $(rounded <<<"$answer")" "0 $(curl -s "$url$path" | rounded)"
}
same "/v1/fine_tuning/jobs?limit=100" jobs
same "/v1/fine_tuning/jobs?limit=1" jobs --limit 1
same /v1/files files
for place in "--json key list" "key --json list" "key list --json" "key list --limit 5 --json" \
    "--server $url --json key list" "--json --server $url key list"; do
    ctl $place # words of it
    expect "--json counts in '${place//$url/URL}'" has '^0 \{"object":"list"' "$status $answer"
done
ctl --json completion bash
expect "a command without it says so" has "^2 .*'--json'" "$status $answer"
expect "bash completes ids" has "$quick" "$(complete_words watch ftjob-)"
same /v1/plans call GET /v1/plans
ctl call POST "/v1/fine_tuning/jobs/$quick/cancel"
expect "call makes a POST, and its refusal is status 1" has '^1 .*succeeded' "$status $answer"
ctl call POST /v1/files --data '{"name":"a.jsonl","bytes":100}'
expect "with a body" has '^0 \{"id":"upload-' "$status $answer"
ctl call PATCH /v1/files
expect "another method is bad usage" has "^2 .*'PATCH'" "$status $answer"
ctl call GET v1/files
expect "as is a path without its slash" has "^2 .*'v1/files'" "$status $answer"
ctl call GET /v1/files --data '{}'
expect "and a body where none goes" has '^2 .*--data' "$status $answer"
ctl devices --json
expect "devices --json too" has '^0 \{"object":"list","data":\[\{"id":"cpu:0"' "$status $answer"
ctl fetch "$quick" -o "$work/adapter" --json
expect "fetch --json prints the model" has '^0 \{"id":"ft:mini' "$status $answer"
expect "and saves the adapter" is "$(sha256sum <"$work/adapter" | cut -d' ' -f1)" "$(field sha256 <<<"$answer")"
ctl fetch "$quick" -o "$work/absent/adapter"
expect "a file that cannot be written is status 2" has "^2 .*absent/adapter" "$status $answer"
mkdir "$work/folder" && mkfifo "$work/pipe" && ln -s pipe "$work/link"
ctl fetch "$quick" -o "$work/folder"
expect "a folder is none either" has "^2 .*folder': Is a directory" "$status $answer"
expect "and nothing is left beside it" is "$(ls "$work" | grep -c '\.part$')" 0
cat "$work/pipe" >"$work/piped" &
ctl fetch "$quick" -o "$work/link"
wait $!
expect "a pipe behind a link gets the bytes" cmp -s "$work/piped" "$work/adapter"
expect "and neither is replaced" [ "$status" = 0 -a -L "$work/link" -a -p "$work/pipe" ]
ln -s /dev/full "$work/full"
ctl fetch "$quick" -o "$work/full"
expect "a full disk is told with the file" has "^2 .*full': No space left" "$status $answer"
expect "a device is not replaced" [ -c /dev/full ]
for command in 'jobs' 'jobs --json' '--help' 'help jobs' '--version'; do
    answer=$(needlectl $command 2>&1 >/dev/full)
    expect "$command that cannot be printed is status 2" has "^2 .*output: No space left" "$? $answer"
done
named=$(needlectl upload "$work/data.jsonl" --json | field id)
mkdir "$work/home" && echo mine >"$work/home/data.jsonl"
answer=$(cd "$work/home" && needlectl files download "$named" 2>&1)
expect "no file is written over under its uploader's name" has "^2 .*'data.jsonl' is there" "$? $answer"
expect "it stays as it was" is "$(cat "$work/home/data.jsonl")" mine
answer=$(cd "$work/home" && rm data.jsonl && needlectl files download "$named" 2>&1)
expect "a new one is made" cmp -s "$work/home/data.jsonl" "$work/data.jsonl"
uploads() { grep -c 'msg="POST /v1/files ' "$work/needled.log"; }
before=$(uploads)
ctl sweep "$work/data.jsonl" --model mini --vary lora_rank=2,wide
expect "a sweep that is wrong is refused by its field" has "^1 .*lora_rank" "$status $answer"
ctl sweep "$work/data.jsonl" --model absent --vary lora_rank=2,4
expect "so is one of a base that is not there" has "^1 .*absent" "$status $answer"
ctl submit "$work/data.jsonl" --model mini --set n_epochs=many --no-watch
expect "and a job" has "^1 .*n_epochs" "$status $answer"
ctl submit "$work/data.jsonl" --model mini --validation "$work/absent.jsonl"
expect "a second file that is not there is named" has "^2 .*absent.jsonl" "$status $answer"
expect "all before anything is uploaded" is "$(uploads)" "$before"
ctl upload "$work/absent.jsonl"
expect "as is one that cannot be read" has "^2 .*absent.jsonl" "$status $answer"
stop_daemon
expect "the daemon ends in order" is $? 0
