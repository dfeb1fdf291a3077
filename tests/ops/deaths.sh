#!/usr/bin/env bash
# Jobs that kill the daemon, seen from outside: failed after the second time in one place, with the reason, while
# the others go on. Killed elsewhere each time, a job gets on.
#   tests/ops/deaths.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
. tests/support/shell/shim.sh
trap 'stop_daemon >/dev/null 2>&1; rm -rf "$work"' EXIT

base_folder mini mini
for n in $(seq 40); do
    printf '{"query":"say %d","tools":[],"answers":[]}\n' "$n"
done >"$work/data.jsonl"
echo '{"checkpoint_steps": 5}' >"$work/settings"

# submit EPOCHS: 40 steps each; sets id
submit() { create_with "\"n_epochs\":$1,\"batch_size\":1,\"lora_rank\":4,\"lora_alpha\":8,\"val_split\":0" mini; }
get() { call "$url/v1/fine_tuning/jobs/$1"; }
at() { [ "$(curl -s "$url/v1/fine_tuning/jobs/$1" | field status)" = "$2" ]; }
sha_of() { curl -s "$url/v1/models/$(field fine_tuned_model <<<"$1")" | field sha256; }
events_of() { events=$(curl -s "$url/v1/fine_tuning/jobs/$1/events?limit=1000"); }
left() { ! kill -0 "$1" 2>/dev/null; }

# The same program, which dies where the environment says, but not before it may: the answers to whom kills it come first.
with_shim "$out" steps "HOLD_UNTIL=$work/may-die"
dying=$shimmed
start() { start_daemon "$1" --config "$work/settings" >"$work/start.log" 2>&1; }
# dies: whether the daemon is killed by its shim.
dies() {
    local status=0
    wait_for 60 left "$daemon" || return 1
    wait "$daemon" 2>/dev/null || status=$?
    daemon=
    [ $status -eq 137 ]
}

# ---- a step ----------------------------------------------------------------------------------------

start "$out" || exit 1
upload "$work/data.jsonl"
submit 2
follow "$id"
unbroken=$(sha_of "$job")
expect "in peace the job succeeds" has '^[0-9a-f]{64}$' "$unbroken"
stop_daemon
export DIE_AT_STEP=67 HOLD_AT_STEP=67
start "$dying"
submit 2
killer=$id
submit 1
next=$id
touch "$work/may-die"
expect "a job kills the daemon" dies
start "$dying" # which may die at once
expect "and again at the same step" dies
unset DIE_AT_STEP HOLD_AT_STEP
rm "$work/may-die"
start "$out" || exit 1
get "$killer"
expect "it is failed" is "$status $(field status <<<"$answer") $(field attempts <<<"$answer")" "200 failed 2"
expect "with the reason" has \
    '"error":\{"code":"daemon_died","message":"the daemon died 2 times in a row in the same place, the last time while the job ran \(attempt 2, after step 67\)' "$answer"
events_of "$killer"
expect "each attempt is an event" is "$(grep -o '"device":"cpu:0","attempt":[0-9]' <<<"$events" | cut -d: -f4 | xargs)" "2 1"
expect "so is the first death" has 'The daemon ended while the job ran \(attempt 1, after step 67\)[^"]*; it is queued again' "$events"
expect "what it had finished is left of it" is "$(ls "$work/state/checkpoints/$killer" | xargs)" epoch-40.safetensors
expect "the next job runs" wait_for 60 at "$next" succeeded
stop_daemon

# ---- at another step each time -----------------------------------------------------------------------

for step in 11 23 47 61; do
    export DIE_AT_STEP=$step HOLD_AT_STEP=$step
    start "$dying"
    [ $step -eq 11 ] && submit 2 && touch "$work/may-die"
    expect "the daemon dies at step $step" dies
done
unset DIE_AT_STEP HOLD_AT_STEP
rm "$work/may-die"
start "$out" || exit 1
follow "$id"
answer=$job
expect "the job succeeds all the same" is "$(field status <<<"$job") $(field attempts <<<"$job")" "succeeded 5"
# near: each time from a step at most five before the death.
near() {
    local resumed
    mapfile -t resumed < <(grep -o '"Training goes on after step [0-9]*' <<<"$events" | grep -o '[0-9]*$')
    [ ${#resumed[@]} -eq 4 ] || return 1
    for step in 11 23 47 61; do
        [ $((step - resumed[0])) -ge 0 ] && [ $((step - resumed[0])) -le 5 ] || return 1
        resumed=("${resumed[@]:1}")
    done
}
expect "it has gone on from its checkpoints" near
expect "to the adapter of an unbroken run" is "$(sha_of "$job")" "$unbroken"
expect "an ended job has nothing to go on from" has '"resume_checkpoint":null' "$job"
stop_daemon

# ---- files that kill their reader ----------------------------------------------------------------------

export DIE_READING=1 HOLD_READING=1
start "$dying"
submit 1
touch "$work/may-die"
expect "a data set kills its reader" dies
start "$dying"
expect "and again" dies
unset DIE_READING HOLD_READING
start "$out" || exit 1
get "$id"
expect "its job is failed, by the file" has \
    '"error":\{"code":"daemon_died","message":"[^"]*while the job.s files were read[^"]*","param":"training_file"' "$answer"
create_lasting mini
kept() { has '"resume_checkpoint":\{"step":[0-9]+,"created_at":[0-9]+,"bytes":[0-9]+\}' "$(curl -s "$url/v1/fine_tuning/jobs/$id")"; }
expect "a job that runs says what it would go on from" wait_for 60 kept
stop_daemon
