#!/usr/bin/env bash
# The life of jobs and files, seen from outside: queue, cancel, devices, over-long lines, validation, seeds,
# numbers that run away, and what may be deleted when.
#   tests/ops/life.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
trap 'stop_daemon >/dev/null 2>&1; rm -rf "$work"' EXIT

base_folder needle-3
start_daemon "$out" || exit 1
jobs=$url/v1/fine_tuning/jobs
quick='"lora_rank":4,"lora_alpha":8,"n_epochs":1'
inputs=tests/fixtures/inputs/jsonl
"$out/tests/make_lines" 48 5 demo >"$work/data.jsonl"

status_of() { curl -s "$jobs/$1" | field status; }
at() { [ "$(status_of "$1")" = "$2" ]; }
past() { [ "$(curl -s "$jobs/$1" | field completed_steps)" -ge "$2" ] 2>/dev/null; }
stored() { ls "$work/state/$1" 2>/dev/null | xargs; }
adapter_sha() { curl -s "$url/v1/models/$(field fine_tuned_model <<<"$job")" | field sha256; }
# run HYPER [TOP]: a job on the last upload, to its end.
run() {
    create_with "$1" needle-3 "${2:-}"
    follow "$id"
    answer=$job
}

# ---- two at once ----------------------------------------------------------------------------------

lasting_lines >"$work/lasting.jsonl"
upload "$work/lasting.jsonl"
data=$file
for n in 1 2; do
    curl -s -H 'Content-Type: application/json' "$jobs" -o "$work/created-$n" \
        -d "{\"model\":\"needle-3\",\"training_file\":\"$data\",\"hyperparameters\":{$lasting}}" &
    creating[n]=$!
done
wait "${creating[@]}"
one=$(field id <"$work/created-1") two=$(field id <"$work/created-2")
# which of them came first
running() { at "$one" running || at "$two" running; }
expect "one of two gets under way" wait_for 60 running
at "$one" running || { other=$one one=$two two=$other; }
waits() { at "$two" queued && has "waits|busy|$one" "$(curl -s "$jobs/$two" | field status_reason)"; }
expect "the other is queued and says why" wait_for 20 waits
call "$url/v1/devices"
expect "the device says which job it runs" is "$(field job <<<"$answer")" "$one"
call -X DELETE "$url/v1/files/$data"
expect "a file that jobs need is not deleted" is "$status" 409
call -X POST "$jobs/$one/cancel"
follow "$one"
ended=$(field finished_at <<<"$job")
expect "the first ends" is "$(field status <<<"$job")" cancelled
expect "the second runs then" wait_for 60 at "$two" running
call "$jobs/$two"
expect "and began when the first had ended" [ "$(field started_at <<<"$answer")" -ge "$ended" ]
call -X POST "$jobs/$two/cancel"
upload "$work/data.jsonl"
data=$file
run "$quick,\"batch_size\":4"
two=$id
expect "one that may go on to its end succeeds" is "$(field status <<<"$job")" succeeded
expect "on the device that is named" is "$(field device_used <<<"$job")" cpu:0
expect "why not on a GPU is told as a warning" has '"level":"warn","message":"[^"]*GPU: cuda is not available: needled-cuda.so is not installed' "$events"

# ---- seeds ----------------------------------------------------------------------------------------

upload "$inputs/seventeen.jsonl"
run "$quick"
first=$(adapter_sha)
run "$quick" '"seed":0,"device":"cpu"'
expect "the same again gives the same adapter, bit for bit" is "$(adapter_sha)" "$first"
run "$quick" '"seed":1,"device":"cpu:0"'
another() { [ "$(field status <<<"$job")" = succeeded ] && [ "$(adapter_sha)" != "$first" ]; }
expect "another seed gives another" another

# ---- cancel ---------------------------------------------------------------------------------------

file=$data
create_lasting
victim=$id
create_with "$quick"
waiting=$id
expect "a job gets under way" wait_for 60 past "$victim" 2
call -X POST "$jobs/$waiting/cancel"
expect "a queued job is cancelled at once" is "$status $(field status <<<"$answer")" "200 cancelled"
follow "$waiting"
expect "it never ran" is "$(field attempts <<<"$job") $(field device_used <<<"$job")" "0 null"
call -X POST -H 'Content-Type: application/json' "$jobs/$victim/cancel"
expect "so is a running one" is "$status $(field status <<<"$answer")" "200 cancelled"
expect "as everybody sees" at "$victim" cancelled
call -X POST "$jobs/$victim/cancel"
expect "a second cancel is harmless" is "$status $(field status <<<"$answer")" "200 cancelled"
follow "$victim"
answer=$job
expect "it ends as cancelled, not failed" is "$(field status <<<"$job") $(field error <<<"$job")" "cancelled null"
expect "only the closing event follows" is "$(sed -n 's/^event: //p' <<<"$events" | tail -n 2 | xargs)" "state done"
idle() { [ "$(curl -s "$url/v1/devices" | field job)" = null ]; }
expect "the device is free again" wait_for 30 idle
follow "$victim"
expect "nothing was told after the end" is "$(sed -n 's/^event: //p' <<<"$events" | tail -n 2 | xargs)" "state done"
expect "no adapter and no checkpoint is left" is \
    "$(stored artifacts | grep -c "$victim")$(stored "checkpoints/$victim")" 0
call -X POST "$jobs/$two/cancel"
expect "a job that has succeeded cannot be cancelled" has '^409 .*succeeded' "$status $answer"
call -X POST "$jobs/ftjob-absent/cancel"
expect "nor one that is not there" is "$status" 404
call -X DELETE "$url/v1/files/$data"
expect "a file that no unfinished job needs is deleted" has '^200 .*"deleted":true' "$status $answer"
call "$url/v1/files/$data/content"
expect "and is gone" is "$status $(stored uploads | grep -c "$data")" "404 0"
call "$jobs/$two"
expect "jobs made of it are still shown" is "$(field training_file <<<"$answer")" "$data"

"$out/tests/make_lines" 40 5 demo >"$work/forty.jsonl"
upload "$work/forty.jsonl"
create_with '"lora_rank":4,"n_epochs":50,"batch_size":1,"val_split":0' # 40 steps each
expect "a job of many epochs gets past the first" wait_for 60 past "$id" 41
call -X POST "$jobs/$id/cancel"
wait_for 30 idle
call "$jobs/$id/checkpoints?limit=100"
epochs=$(numbers step_number "$answer" | wc -l)
expect "a cancelled job keeps its epochs' checkpoints" [ "$epochs" -ge 1 ]
expect "and nothing else" is "$(stored "checkpoints/$id")" \
    "$(seq -f 'epoch-%.0f.safetensors' 40 40 $((40 * epochs)) | sort | xargs)"
model=$(sed -n 's/.*"fine_tuned_model_checkpoint":"\([^"]*:ckpt-step-40\)".*/\1/p' <<<"$answer")
call -o "$work/checkpoint" "$url/v1/models/$model/adapter.safetensors"
expect "which can be had" is "$status $(sha256sum <"$work/checkpoint" | cut -d' ' -f1)" \
    "200 $(curl -s "$url/v1/models/$model" | field sha256)"

# ---- models ---------------------------------------------------------------------------------------

upload "$inputs/seventeen.jsonl"
run "$quick"
model=$(field fine_tuned_model <<<"$job")
call -X DELETE "$url/v1/models/$model"
expect "a model is deleted" has '^200 .*"deleted":true' "$status $answer"
call -o /dev/null "$url/v1/models/$model/adapter.safetensors"
expect "and gone" is "$status" 404
call -o /dev/null "$url/v1/models/$model:ckpt-step-1/adapter.safetensors"
expect "the last checkpoint, which shared its file, stays" is "$status" 200
call -X DELETE "$url/v1/models/$model:ckpt-step-1"
expect "with it goes the file" is "$status $(stored artifacts | grep -c "$id")" "200 0"
call -X DELETE "$url/v1/models/needle-3"
expect "a base is not deleted" has '^400 .*base model' "$status $answer"

# ---- files ----------------------------------------------------------------------------------------

upload "$inputs/crlf.jsonl"
same=$file
upload "$inputs/crlf.jsonl"
expect "the same name twice makes two files" [ "$same" != "$file" ]
curl -sL -o "$work/content" "$url/v1/files/$file/content"
expect "content comes back byte for byte" cmp -s "$work/content" "$inputs/crlf.jsonl"
call "$url/v1/files/$file"
expect "its record holds size, digest and lines" has \
    "\"bytes\":637,.*\"sha256\":\"$(sha256sum <"$inputs/crlf.jsonl" | cut -d' ' -f1)\",\"line_count\":2" "$answer"
call "$url/v1/files?limit=1"
expect "files are listed, newest first" has "\"data\":\[{\"id\":\"$file\"" "$answer"

# ---- over-long lines --------------------------------------------------------------------------------

for n in 1 2 1 2 1; do sed -n ${n}p "$inputs/over-long-prompt.jsonl"; done >"$work/mixed.jsonl"
upload "$work/mixed.jsonl"
mixed=$file
run "$quick,\"max_len\":256"
fault=$(error_of "$job")
expect "refuse fails the job" is "$(field status <<<"$job") $(field param <<<"$fault")" "failed training_file"
expect "with every over-long line" is "$(line_numbers "$fault")" "2 4"
expect "in words too" has "file 'mixed.jsonl': line 2: 2483 tokens, longer than max_len 256; line 4" "$fault"
run "$quick,\"max_len\":256,\"overlong\":\"drop\""
expect "drop goes on without them" is "$(field status <<<"$job") $(field examples <<<"$job")" "succeeded 3"
expect "and reports lines and count" has \
    '"overlong","count":2,"reason":"2 lines are longer than max_len \(lines 2, 4\); 3 examples are used' "$job"
dropped=$(field tokens <<<"$job")
run "$quick,\"max_len\":256,\"overlong\":\"truncate\""
expect "truncate keeps them" is "$(field status <<<"$job") $(field examples <<<"$job")" "succeeded 5"
expect "cut to max_len" is "$(field tokens <<<"$job")" $((dropped + 2 * 256))
expect "and says which train nothing" has 'lines 2, 4\); 5 examples are used, 2 of them keep no target' "$job"

# ---- validation -----------------------------------------------------------------------------------

upload "$inputs/refusals.jsonl"
held=$file
upload "$inputs/seventeen.jsonl"
run "$quick,\"val_split\":0"
expect "without a split nothing is validated, and the job says so" is \
    "$(told validation full_valid_loss)$(warnings_of "$job" | grep -c 'val_split is 0')" 1
run "$quick" "\"validation_file\":\"$held\""
expect "a validation file is used instead of a split" has '"training_examples":17,"validation_examples":2' "$job"
expect "and gives a loss" has '^[0-9.]+$' "$(told validation full_valid_loss)"
run "$quick,\"max_len\":256" "\"validation_file\":\"$mixed\""
fault=$(error_of "$job")
expect "a bad validation file fails the job as such" is \
    "$(field status <<<"$job") $(field param <<<"$fault")" "failed validation_file"
expect "by name and lines" is "$(has "file 'mixed.jsonl'" "$fault" && line_numbers "$fault")" "2 4"

# ---- numbers that run away --------------------------------------------------------------------------

run '"learning_rate":1e9,"n_epochs":20'
fault=$(error_of "$job")
step=$(sed -n 's/.*"message":"step \([0-9]*\): the [a-z ]* is not a finite number.*/\1/p' <<<"$fault")
expect "a loss that is no number fails the job and names the step" has \
    '^failed [1-9]\d*$' "$(field status <<<"$job") $step"
expect "no number in its events is none" has_not '[:,\[]\s*-?(nan|inf)' "$events"
expect "only the steps before it are told" is "$(told metrics step | tail -n 1)" "$((step - 1))"
call "$jobs/$id/checkpoints"
last=$(sed -n 's/.*"data":\[{[^}]*"fine_tuned_model_checkpoint":"\([^"]*\)".*/\1/p' <<<"$answer")
call -o /dev/null "$url/v1/models/$last/adapter.safetensors"
expect "the last good checkpoint stays" is "$status ${last##*-}" "200 $((step - 1))"
expect "there is no model" is "$(field fine_tuned_model <<<"$job")" null
run "$quick"
expect "the next job works" is "$(field status <<<"$job") $(adapter_sha)" "succeeded $first"

# ---- ends of the daemon ---------------------------------------------------------------------------

create_lasting
curl -sN "$jobs/$id/events?stream=true" >"$work/stream" &
reader=$!
exec 5<>"/dev/tcp/127.0.0.1/${url##*:}"
printf 'GET /v1/models HT' >&5 # half a request, left open
expect "a job gets under way" wait_for 60 past "$id" 2
live() { grep -q '^event: metrics' "$work/stream" && at "$id" running; }
expect "its steps are streamed while it runs" wait_for 20 live
started=$(date +%s%N)
stop_daemon
expect "with a stream and half a request open it ends in order" is $? 0
took_ms=$((($(date +%s%N) - started) / 1000000))
expect "and waits for neither: half a request has 15 seconds to become whole ($took_ms ms)" [ $took_ms -lt 12000 ]
exec 5>&-
wait $reader
start_daemon "$out"
jobs=$url/v1/fine_tuning/jobs
before=$(curl -s "$jobs/$id" | field completed_steps)
expect "the job goes on at the next start" wait_for 60 past "$id" $((before + 2))
kill -KILL "$daemon"
wait "$daemon" 2>/dev/null
start_daemon "$out"
jobs=$url/v1/fine_tuning/jobs
before=$(curl -s "$jobs/$id" | field completed_steps)
expect "killed, it goes on" wait_for 60 past "$id" $((before + 2))
call -X POST "$jobs/$id/cancel"
follow "$id"
expect "its events say so" has 'the daemon (ended|died|was killed)[^"]*queued again' "$events"
expect "each step was told once" is "$(told metrics step)" "$(seq "$(field completed_steps <<<"$job")")"
stop_daemon
expect "the daemon ends in order" is $? 0
