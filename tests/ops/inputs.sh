#!/usr/bin/env bash
# Every input of tests/fixtures/inputs (jsonl, safetensors) through a running daemon, with the outcome
# that manifest.json beside them wants. The tables below are that manifest, a line each; the patterns are its own.
#   tests/ops/inputs.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
trap 'stop_daemon >/dev/null 2>&1; rm -rf "$work"' EXIT

inputs=tests/fixtures/inputs
tried=
quick='"lora_rank":4,"lora_alpha":8,"n_epochs":1'
place='(byte|offset|column|col|position|char)\w*\W{0,3}(at\W)?\d+'
overlong='max_len|too long|over-?\s?long|longer|exceed|trunc'

uploads() { ls -A "$work/state/uploads"; }
serves() { [[ $(curl -s "$url/healthz") == *'"status":"ok"'* ]]; }

# words NAME TEXT PATTERN...: all of them.
words() {
    local name=$1 text=$2 pattern
    shift 2
    for pattern; do
        expect "$name: says ${pattern:0:40}" has "$pattern" "$text"
    done
}

# ---- refused: 400 at upload, or a job that fails before a device is taken --------------------------

# refused_at_upload FILE LINES PATTERN...
refused_at_upload() {
    local name=$1 lines=$2 before
    shift 2
    tried+=" $name"
    before=$(uploads)
    upload "$inputs/jsonl/$name"
    expect "$name is refused at upload" is "$status $(field param <<<"$answer")" "400 file"
    expect "$name: names lines '$lines'" is "$(line_numbers "$answer")" "${lines:-0}"
    words "$name" "$answer" "file '$name': ${lines:+line $lines\\b}" "$@"
    expect "$name: nothing is kept" is "$(uploads)" "$before"
    expect "$name: the next request works" serves
}

# refused_by_job FILE LINES HYPER PATTERN...
refused_by_job() {
    local name=$1 lines=$2 fault
    tried+=" $name"
    upload "$inputs/jsonl/$name"
    create_with "$quick${3:+,$3}"
    follow "$id"
    fault=$(error_of "$job")
    answer=$job
    expect "$name: its job fails" is "$(field status <<<"$job") $(field param <<<"$fault")" "failed training_file"
    [ "$lines" ] && expect "$name: names lines '$lines'" is "$(line_numbers "$fault")" "$lines"
    shift 3
    words "$name" "$fault" "file '$name': ${lines:+line ${lines%% *}\\b}" "$@"
    expect "$name: no device was taken" has_not '"status":"running"' "$events"
    expect "$name: no attempt was made" is "$(field attempts <<<"$job")$(field started_at <<<"$job")" 0null
    expect "$name: leaves no checkpoint and no adapter" is "$(ls -A "$work/state/artifacts" | grep -c "$id")" 0
    expect "$name: the next request works" serves
}

# ---- accepted ------------------------------------------------------------------------------------

# adapter_sha: of the last job followed.
adapter_sha() { curl -s "$url/v1/models/$(field fine_tuned_model <<<"$job")" | field sha256; }

# accepted FILE EXAMPLES [HYPER [STEPS]]
accepted() {
    local name=${1##*/}
    tried+=" $name"
    case $1 in */*) upload "$1" ;; *) upload "$inputs/jsonl/$1" ;; esac
    create_with "$quick${3:+,$3}"
    follow "$id"
    answer=$job
    expect "$name: its job succeeds" is "$(field status <<<"$job") $(field error <<<"$job")" "succeeded null"
    expect "$name: $2 examples" is "$(field examples <<<"$job")" "$2"
    expect "$name: steps are made and told" is \
        "$(grep -c '^event: metrics' <<<"$events") $(field completed_steps <<<"$job")" "${4:-1} ${4:-1}"
    expect "$name: the loss is a number above 0" has '"train_loss":[1-9][0-9]*\.' "$job"
}

# warned FILE LINES EXAMPLES HYPER PATTERN...: accepted, and the record and the events name the lines.
warned() {
    local name=$1 lines=$2 warnings
    accepted "$name" "$3" "$4"
    shift 4
    warnings=$(warnings_of "$job")
    expect "$name: warnings name lines '$lines'" is "$(line_numbers "$warnings")" "$lines"
    words "$name warnings" "$warnings" "$@"
    words "$name events" "$(grep '"level":"warn"' <<<"$events")" "$name line ${lines%% *}\\b" "$@"
}

base_folder needle-3
start_daemon "$out" || exit 1

# ---- the tables ----------------------------------------------------------------------------------
#                 file                  lines
refused_at_upload blank-lines.jsonl     6
refused_at_upload nul-byte.jsonl        2 '\bnul\b|null byte|u0000|0x00|control'
refused_at_upload invalid-utf8.jsonl    2 'utf-?8|unicode|encoding' "$place"
refused_at_upload lone-surrogate.jsonl  2
refused_at_upload trailing-comma.jsonl  2 "$place"
refused_at_upload concat-objects.jsonl  1 'after|trailing|more|extra|two|end of'
refused_at_upload truncated-last.jsonl  3 'cut|trunc|unterminated|incomplete|end|unexpected'
refused_at_upload json-array.json       1 'array' 'one JSON object per line'
refused_at_upload deep-nesting.jsonl    2 'nest|deep|depth|level' '64'
refused_at_upload data.csv              1 'json'
refused_at_upload plain.jsonl.gz        1 'gzip|compress'
refused_at_upload empty.jsonl           '' 'no (\w+ ){0,3}(example|line|record|data)|holds? no|empty|nothing'

#              file                     lines   hyper-parameters
refused_by_job dup-key.jsonl            2       ''  'query' 'dup|twice|repeat|again'
refused_by_job nan-literal.jsonl        2       ''  'nan|json|number|literal|token|value'
refused_by_job missing-query.jsonl      2       ''  'query|messages'
refused_by_job chat-unknown-role.jsonl  1       ''  'messages\W*1\W*role' 'robot'
refused_by_job marker-in-query.jsonl    1       ''  'marker'
refused_by_job long-line.jsonl          2       ''  "$overlong"
refused_by_job over-long-prompt.jsonl   2       '"max_len":256' "$overlong"
refused_by_job all-over-long.jsonl      '1 2 3' '"max_len":256' "$overlong"
refused_by_job all-over-long.jsonl      ''      '"max_len":256,"overlong":"truncate"' 'target' "$overlong"
refused_by_job all-over-long.jsonl      ''      '"max_len":256,"overlong":"drop"' "$overlong"

#      file                        examples
accepted bom.jsonl                 2
one=$(adapter_sha)
accepted crlf.jsonl                2
expect "CRLF makes no difference to a bit" is "$(adapter_sha)" "$one"
accepted no-final-newline.jsonl    2
expect "nor does a missing last newline" is "$(adapter_sha)" "$one"
accepted u2028.jsonl               2
accepted sparse-args.jsonl         2
accepted refusals.jsonl            2
accepted chat-basic.jsonl          1
accepted chat-system-and-tools.jsonl 1
accepted rare-chars.jsonl          1
accepted whitespace.jsonl          1
accepted big-int.jsonl             1
accepted seventeen.jsonl           17 '"batch_size":16,"val_split":0' 2
expect "seventeen.jsonl: the batch of one example is used" is \
    "$(told metrics tokens | awk '{ sum += $1 } END { print sum }')" "$(field tokens <<<"$job")"

accepted tools-as-string.jsonl     2
for line in 1 2; do
    sed -n ${line}p "$inputs/jsonl/tools-as-string.jsonl" >"$work/line-$line.jsonl"
    accepted "$work/line-$line.jsonl" 1
    shas[line]=$(adapter_sha)
done
expect "tools as JSON and as a string of it train the same" is "${shas[1]}" "${shas[2]}"

#      file                   lines  examples hyper-parameters
warned unknown-tool.jsonl     2      2 ''     'play_music'
warned empty-query.jsonl      '2 3'  3 ''     'query'
warned long-line.jsonl        2      2 '"overlong":"drop"' "$overlong"
warned over-long-prompt.jsonl 2      1 '"max_len":256,"overlong":"drop"' "$overlong" 'left out' '1 examples are used'
warned over-long-prompt.jsonl 2      2 '"max_len":256,"overlong":"truncate"' "$overlong" '1 of them keep no target'

# ---- one example, all defaults --------------------------------------------------------------------

# payload FILE: a safetensors file without its header.
payload() { tail -c "+$(($(od -An -tu8 -N8 "$1") + 9))" "$1"; }
adapter() { curl -s -o "$2" "$url/v1/models/$1/adapter.safetensors"; }

upload "$inputs/jsonl/one-example.jsonl"
create "{\"model\":\"needle-3\",\"training_file\":\"$file\"}"
follow "$id"
answer=$job
expect "one-example.jsonl: three steps with the defaults" is \
    "$(field status <<<"$job") $(grep -c '^event: metrics' <<<"$events")" "succeeded 3"
no_validation='valid\w*.{0,60}(\boff\b|\bno\b|none|skip|disab|without|empty|small|few|\b0\b)'
no_validation+='|(\bno\b|without|skip\w*|too (few|small)).{0,60}valid'
expect "one-example.jsonl: says that validation is off" has "$no_validation" "$(warnings_of "$job")"
expect "one-example.jsonl: no step has a loss of 0" has_not '"train_loss":(0|null)[,}]' "$events"
model=$(field fine_tuned_model <<<"$job")
adapter "$model" "$work/end.safetensors"
adapter "$model:ckpt-step-1" "$work/start.safetensors" # the first rate is 0: nothing has moved yet
payload "$work/end.safetensors" >"$work/end"
payload "$work/start.safetensors" >"$work/start"
expect "one-example.jsonl: both adapters are of one size" is "$(wc -c <"$work/end")" "$(wc -c <"$work/start")"
moved() { [ -s "$work/end" ] && ! cmp -s "$work/end" "$work/start"; }
expect "one-example.jsonl: the adapter differs from its start" moved

# ---- checkpoints offered as a base ----------------------------------------------------------------

upload "$inputs/jsonl/bom.jsonl"
base_folder offered

# refused_base FILE PATTERN...
refused_base() {
    local name=$1 pattern text before after
    shift
    tried+=" $name"
    cp "$inputs/safetensors/$name" "$work/state/models/offered/base.safetensors"
    before=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$daemon/status")
    create_with "$quick" offered
    after=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$daemon/status")
    expect "$name is refused as a base" is "$status $(field param <<<"$answer")" "400 model"
    text=${answer//"$work"/} # its letters are chance
    for pattern; do
        expect "$name: says $pattern" has "$pattern" "$text"
    done
    expect "$name: no memory by its numbers" [ $((after - before)) -lt $((48 * 1024)) ]
    expect "$name: the next request works" serves
}

refused_base too-short.safetensors            'short|\b8 bytes|\b7 bytes|cut'
refused_base header-length-huge.safetensors   'header|length'
refused_base header-past-end.safetensors      '4096|past|beyond|exceed|cut'
refused_base header-is-array.safetensors      'object'
refused_base header-bad-json.safetensors      'json' "$place"
refused_base duplicate-tensor.safetensors     '\bt\b' 'dup|twice|again|repeat'
refused_base begin-after-end.safetensors      '\bt\b' 'revers'
refused_base past-end.safetensors             '\bt\b' '\b16\b' '\b8\b'
refused_base shape-bytes-mismatch.safetensors '\bt\b' '4,?000,?000' '\b4\b'
refused_base overlap.safetensors              '\ba\b' '\bb\b' 'overlap'
refused_base big-endian-length.safetensors    'header|length'
refused_base unsupported-dtype.safetensors    'F8_E4M3' '\bt\b' 'container is fine'
refused_base truncated-data.safetensors       '\bb\b' 'cut|trunc|short|past|end'
refused_base pickle-as-safetensors.safetensors 'pickle'
refused_base pickle-with-call.pkl             'pickle'
# sound containers that hold no model: refused for what they lack
refused_base empty-metadata.safetensors       'config'
refused_base zero-size-tensor.safetensors     'config'
refused_base space-padded-header.safetensors  'config'
refused_base bf16-values.safetensors          'config'
refused_base adapter-rank-mismatch.safetensors 'config'

untried() {
    local path
    for path in "$inputs"/jsonl/* "$inputs"/safetensors/*; do
        case " $tried one-example.jsonl " in *" ${path##*/} "*) ;; *) echo "${path##*/}" ;; esac
    done
}
expect "every input was tried" is "$(untried)" ''
log_is_clean() { ! grep -q 'needled-unpickled-me' "$work/needled.log"; }
expect "no pickle was run" log_is_clean
create_with "$quick"
follow "$id"
expect "after all of it a job on the sound base succeeds" is "$(field status <<<"$job")" succeeded
stop_daemon
expect "the daemon ends in order" is $? 0
