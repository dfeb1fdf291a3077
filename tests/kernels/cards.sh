#!/usr/bin/env bash
# The whole daemon on cards that are shared, full, short of memory and broken, with the stand-in for CUDA as its
# plug-in. Prints "ok - what" and "not ok - what".
#   tests/kernels/cards.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
. tests/support/shell/shim.sh
trap 'stop_daemon >/dev/null 2>&1; rm -rf "$work"' EXIT
export NEEDLED_PLUGINS=$out/plugins OPENBLAS_NUM_THREADS=1
unset NEEDLED_PLATFORMS NEEDLED_JOBS_PER_DEVICE JAX_PLATFORMS CUDA_VISIBLE_DEVICES

mkdir -p "$work/state/models/needle-3"
cp tests/fixtures/needle3/mini/base.safetensors tests/fixtures/needle3/mini/tokenizer.model "$work/state/models/needle-3/"
"$out/tests/make_lines" 8 5 demo >"$work/data.jsonl" # a step of one line takes the stand-in a second
"$out/tests/make_lines" 4000 5 demo >"$work/long.jsonl"
hyper='"lora_rank":2,"lora_alpha":4,"batch_size":1,"val_split":0'

job_of() { curl -s "$url/v1/fine_tuning/jobs/$1"; }
running() { for one in "$@"; do [ "$(job_of "$one" | field status)" = running ] || return 1; done; }
steps_of() { job_of "$1" | field completed_steps; }
made() { [ "$(steps_of "$1")" -ge "$2" ]; } # ID STEPS: so many at least
reason_is() { has "$2" "$(job_of "$1" | field status_reason)"; }
submit() { create_with "$hyper,\"n_epochs\":1" needle-3 "\"device\":\"$1\""; }
cancel() { for one in "$@"; do call -X POST "$url/v1/fine_tuning/jobs/$one/cancel"; done; }
# device ID: what the inventory says of it.
device() { curl -s "$url/v1/devices" | sed 's/{"id":/\n&/g' | grep "^{\"id\":\"$1\""; }
free_of() { device "$1" | field memory_free_bytes; }
# messages WORD: of the last stream, those with it.
messages() { grep '^data: ' <<<"$events" | sed 's/.*"message":"\([^"]*\)".*/\1/' | grep -- "$1"; }
ends() { # ID STATUS DEVICE
    follow "$1"
    is "$(field status <<<"$job") $(field device_used <<<"$job")" "$2 $3"
}

# ---- several at once ---------------------------------------------------------------------------------

export STANDIN_DEVICES=2 STANDIN_FULL_FILE="0:$work/full"
start_daemon "$out" --jobs-per-device 2 || exit 1
upload "$work/long.jsonl"
submit cuda:0 && a=$id
submit cuda:1 && b=$id
expect "two cards run a job each" wait_for 120 running "$a" "$b"
create_lasting needle-3 '"device":"cpu"' && c=$id # it is much faster there
expect "and the processor a third one, at once" wait_for 20 running "$a" "$b" "$c"
submit cuda:0 && d=$id
expect "a second job shares a card" wait_for 60 running "$a" "$d"
expect "and the inventory lists both" has "\"jobs\":\\[\"($a\",\"$d|$d\",\"$a)\"\\]" "$(device cuda:0)"
expect "both make steps" wait_for 60 made "$d" 1
submit cuda:0 && e=$id
expect "a third one waits, and says for what" wait_for 20 reason_is "$e" "waits for a device: cuda:0 is busy"
both_made() { made "$a" 2 && made "$d" 2; }
expect "while the two go on" wait_for 60 both_made
touch "$work/full"
cancel "$d" "$a"
expect "with the slots free and the memory taken by others it still waits" \
    wait_for 30 reason_is "$e" '^waits for cuda:0: needs 0\.\d GB, 0\.\d GB free of 1\.0 GB'
cancel "$b" "$c"
upload "$work/data.jsonl"
submit auto && a=$id
expect "auto takes the other card" wait_for 30 running "$a"
is_on() { is "$(job_of "$1" | field device_used)" "$2"; }
expect "and not the processor" is_on "$a" cuda:1
rm "$work/full"
expect "when the memory is free again it runs" wait_for 30 running "$e"
cancel "$e" "$a"
expect "the daemon stops with status 0" stop_daemon

# ---- a card that runs out of memory in the middle of a job ------------------------------------------------

export STANDIN_DEVICES=1
STANDIN_OUT_OF_MEMORY=0:100 start_daemon "$out" || exit 1
before=$(free_of cuda:0)
submit cuda:0 && a=$id
submit cuda:0 && b=$id
expect "running out of memory ends the job" ends "$a" failed cuda:0
expect "with needed and free bytes" has 'out of memory: [0-9]+ bytes needed for scratch, [0-9]+ free' "$(error_of "$job")"
expect "the next job runs on the same card" ends "$b" succeeded cuda:0
expect "which is in service" has '"in_service":true' "$(device cuda:0)"
given_back() { [ $((before - $(free_of cuda:0))) -lt 1000000 ]; }
expect "with its memory given back, but for what its worker computes in" wait_for 10 given_back
stop_daemon

# ---- a stop, a kill and a broken card on the way of one job --------------------------------------------------

# It stands still where it is to be stopped, killed, and to lose its card: a fast machine makes eight steps in a moment.
with_shim "$out" steps "HOLD_UNTIL=$work/go-on"
held() { HOLD_AT_STEP=$1 start_daemon "$shimmed" "${@:2}"; } # the step before is told
held 4 || exit 1
submit auto && a=$id
expect "a job makes three steps on the card" wait_for 60 made "$a" 3
kill -TERM "$daemon"
stops() { grep -q 'msg="stopping' "$work/needled.log"; }
wait_for 20 stops
sleep 0.3 # and has told its threads
touch "$work/go-on"
stop_daemon
rm "$work/go-on"
held 6 || exit 1
kept=$(steps_of "$a")
expect "after a stop it is there again" wait_for 60 made "$a" $((kept + 1))
expect "on the card" is_on "$a" cuda:0
kill -KILL "$daemon"
wait "$daemon" 2>/dev/null
STANDIN_FAIL_FILE="0:$work/broken" held 7 --jobs-per-device 2 || exit 1
submit cuda && b=$id
expect "after a kill it is there again, beside another job" wait_for 60 running "$a" "$b"
stands_at() { is "$(od -An -td8 -j8 -N8 "$work/state/checkpoints/$1/resume-place" | xargs)" "$2"; } # daemon/sched/place.h
expect "and makes the seventh step" wait_for 60 stands_at "$a" 7
touch "$work/broken" "$work/go-on"
expect "when the card breaks the job ends well elsewhere" ends "$a" succeeded cpu:0
# After the kill it keeps checkpoints sooner: the broken card may cost less than what the kill did.
resumed=$(messages 'Training goes on after step' | sed -n 's/.*after step \([0-9]*\) of 8.*/\1/p' | sort -n)
expect "each time it went on from its checkpoint, not from the start" \
    is "$(wc -l <<<"$resumed") $(head -n 1 <<<"$resumed")" "3 $kept"
expect "it tells the stop, the kill and the broken card" \
    is "$(messages 'queued again' | grep -c 'The daemon stopped\|The daemon ended\|Device cuda:0 failed and is out of service')" 3
expect "and why it runs on the processor" \
    has 'The job runs on cpu:0 and not on a GPU: cuda:0 is out of service: .*unspecified launch failure' "$(warnings_of "$job")"
broke=$(grep -n 'Device cuda:0 failed' <<<"$events" | cut -d: -f1)
last=$(head -n "$broke" <<<"$events" | sed -n 's/.*Step \([0-9]*\)\/8.*/\1/p' | sort -n | tail -n 1)
expect "the card broke after the seventh step" is "$last" 7
expect "the card is out of service, with the reason" has '"in_service":false,"reason":"[^"]*unspecified launch failure' "$(device cuda:0)"
expect "as the log says" has 'level=error device=cuda:0 msg="out of service: .*unspecified launch failure' "$(cat "$work/needled.log")"
expect "the job that insists on a card waits for it, with the reason" \
    wait_for 20 reason_is "$b" '^cuda:0 is out of service: .*unspecified launch failure'
expect "and not on the processor" is_on "$b" cuda:0
cancel "$b"
call -H 'Content-Type: application/json' "$url/v1/fine_tuning/jobs" \
    -d "{\"model\":\"needle-3\",\"training_file\":\"$file\",\"device\":\"cuda:1\"}"
expect "a card that is not there is refused" is "$status $(field param <<<"$answer")" "400 device"
expect "with what there is" has 'there is auto, cuda:0, cpu:0' "$answer"
stop_daemon
rm "$work/broken"
start_daemon "$out" || exit 1
expect "after a restart the card is in service again" has '"in_service":true' "$(device cuda:0)"
stop_daemon

# ---- a job that goes on on another device ----------------------------------------------------------------------

rm -f "$work/go-on"
STANDIN_FAIL_FILE="0:$work/broken" held 3 || exit 1
"$out/tests/make_lines" 2 5 demo >"$work/two.jsonl"
upload "$work/two.jsonl"
create_with "$hyper,\"n_epochs\":2" needle-3 '"device":"auto"' && a=$id
expect "a job is in its second epoch" wait_for 60 made "$a" 2
checkpoint_file=$work/state/checkpoints/$a/epoch-2.safetensors
expect "with the first one's checkpoint" wait_for 20 test -e "$checkpoint_file"
first_sum=$(sha256sum <"$checkpoint_file" | cut -d' ' -f1)
touch "$work/broken" "$work/go-on"
expect "the card breaks, and it goes on elsewhere" ends "$a" succeeded cpu:0
checkpoint=$(curl -s "$url/v1/fine_tuning/jobs/$a/checkpoints" | grep -o '[^"]*:ckpt-step-2' | head -n 1)
record=$(curl -s "$url/v1/models/$checkpoint")
second_sum=$(sha256sum <"$checkpoint_file" | cut -d' ' -f1)
expect "the checkpoint is made again there" [ "$first_sum" != "$second_sum" ]
expect "and its record says what the file is now" has "$second_sum" "$record"
expect "and where it was made" is "$(field device <<<"$record")" cpu:0
stop_daemon
rm "$work/broken"

# ---- a card that is gone ----------------------------------------------------------------------------------------

STANDIN_DEVICES=2 STANDIN_CLOSED_FILE="1:$work/data.jsonl" start_daemon "$out" || exit 1
upload "$work/data.jsonl"
submit cuda:1 && a=$id
stop_daemon
start_daemon "$out" || exit 1
expect "a job for a card that is gone after a restart says so" \
    wait_for 20 reason_is "$a" "^no device 'cuda:1': there is auto, cuda:0, cpu:0"
cancel "$a"
stop_daemon

# ---- a card that is too small --------------------------------------------------------------------------------

STANDIN_MEMORY=100000000 start_daemon "$out" || exit 1
submit auto && a=$id
expect "a job that no card can ever hold runs on the processor" ends "$a" succeeded cpu:0
expect "and says so" has 'cuda:0 is too small: the job needs 0\.\d GB, it can give 0\.1 GB' "$(warnings_of "$job")"
submit cuda:0 && a=$id
follow "$a"
expect "one that insists on it fails before it takes the card" has '"status":"failed".*"attempts":0' "$job"
expect "with needed and available bytes" \
    has '[0-9]+ bytes of memory are needed, 93750000 are available \(the most that cuda:0 can give\)' "$(error_of "$job")"
stop_daemon

# ---- no card at all -------------------------------------------------------------------------------------------

STANDIN_DEVICES=0 start_daemon "$out" || exit 1
submit cuda
expect "without a card a job that insists on one is refused" is "$status" 400
expect "with the probe's reason" has '"message":"no device .cuda.: .*no device.*"param":"device"' "$answer"
submit auto && a=$id
expect "one that does not runs on the processor" ends "$a" succeeded cpu:0
expect "and says why" has 'The job runs on cpu:0 and not on a GPU: cuda is not available: .*no device' "$(warnings_of "$job")"
stop_daemon
