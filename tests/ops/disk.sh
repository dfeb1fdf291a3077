#!/usr/bin/env bash
# The state on a disk of 20 MB that fills up while a job trains: the job waits and says why, reading, deleting
# and cancelling go on, nothing half-written bears a final name; with room again the job goes on by itself and
# ends with the very adapter of an undisturbed run. Needs root, for the disk.
#   tests/ops/disk.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
. tests/support/shell/shim.sh
disk=$work/state
trap 'stop_daemon >/dev/null 2>&1; umount "$disk" 2>/dev/null; rm -rf "$work"' EXIT

mkdir -p "$disk"
if ! mount -t tmpfs -o size=20m,mode=700 none "$disk" 2>/dev/null; then
    echo "skip - a disk of 20 MB: only root mounts one, and not in every container"
    exit 0
fi
mkdir -p "$work/models/mini"
cp tests/fixtures/needle3/mini/base.safetensors tests/fixtures/needle3/mini/tokenizer.model "$work/models/mini/"
for i in $(seq 160); do printf '{"query":"Wake me up at %d","tools":[{"name":"a","parameters":{}}],"answers":[{"name":"a","arguments":{"n":%d}}]}\n' "$i" "$i"; done >"$work/data.jsonl"
head -n 20 "$work/data.jsonl" >"$work/small.jsonl"
printf '{"disk_reserve_mb":1,"checkpoint_steps":2}\n' >"$work/settings.json"
# A job stands still at its 20th step until it may go on: a fast one would have ended before the disk is full.
with_shim "$out" steps HOLD_AT_STEP=20 "HOLD_UNTIL=$work/go-on"
start() { start_daemon "$1" --config "$work/settings.json" --models-dir "$work/models"; }

fill() { # to the last byte: what is written meanwhile is filled up, too
    for _ in 1 2 3; do cat /dev/zero >>"$disk/filler" 2>/dev/null; done
}
record() { curl -s "$url/v1/fine_tuning/jobs/$1"; }
state_is() { [ "$(record "$1" | field status)" = "$2" ]; }
past() { [ "$(record "$1" | field completed_steps)" -ge "$2" ] 2>/dev/null; }
health_is() { [ "$(curl -s "$url/healthz" | field status)" = "$1" ]; }
waits_for_disk() { state_is "$1" queued && has '"status_reason":"disk full' "$(record "$1")"; }
digests_hold() {
    local file
    for file in "$disk"/checkpoints/*/resume-*.safetensors; do
        [ -e "$file.sha256" ] || continue # the last moment before its digest
        [ "$(sha256sum <"$file" | cut -c1-64)" = "$(cat "$file.sha256")" ] || return 1
    done
}
hyper='"n_epochs":4,"batch_size":4,"learning_rate":0.002,"lora_rank":4,"lora_alpha":8'

touch "$work/go-on"
start "$shimmed"
upload "$work/small.jsonl"
spare=$file
upload "$work/data.jsonl"
create_with "$hyper" mini
undisturbed=$id
follow "$undisturbed"
expect "a job succeeds while there is room" state_is "$undisturbed" succeeded

rm "$work/go-on"
create_with "$hyper" mini
job=$id
expect "a second one gets under way" wait_for 60 past "$job" 8
fill
touch "$work/go-on"
expect "on a full disk it is queued, with the reason in its record" wait_for 120 waits_for_disk "$job"
expect "healthz says degraded" wait_for 20 health_is degraded
call "$url/healthz"
expect "which is no 503, with the disk's figures" has '"disk":{"state":"full","reason":".*"free_bytes":' "$answer"
expect "and status 200" is "$status" 200
expect "the log says so once" is "$(grep -c 'is full:.*Jobs wait' "$work/needled.log")" 1
events=$(curl -s "$url/v1/fine_tuning/jobs/$job/events?limit=1000")
expect "its events can be read, and say it" has 'The disk is full .*queued again' "$events"
expect "checkpoints under final names are whole" digests_hold
upload "$work/small.jsonl"
expect "an upload is refused with 507" is "$status $(field code <<<"$answer")" "507 disk_full"
file=$spare create_with "$hyper" mini
expect "and so is a create" is "$status $(field code <<<"$answer")" "507 disk_full"
fill
call -X DELETE "$url/v1/files/$spare"
expect "a file can be deleted" is "$status" 200
fill
stop_daemon
expect "it stops with status 0" is $? 0
expect "it starts on a full disk" start "$out"
expect "where the job still waits" wait_for 60 waits_for_disk "$job"

rm "$disk/filler"
expect "with room again the job goes on by itself" wait_for 240 state_is "$job" succeeded
expect "healthz says ok" wait_for 90 health_is ok
curl -sL "$url/v1/models/$(record "$undisturbed" | field fine_tuned_model)/content" >"$work/a"
curl -sL "$url/v1/models/$(record "$job" | field fine_tuned_model)/content" >"$work/b"
expect "its adapter is that of the undisturbed job" cmp -s "$work/a" "$work/b"
events=$(curl -s "$url/v1/fine_tuning/jobs/$job/events?limit=1000")
steps=$(record "$job" | field total_steps)
expect "each of its $steps steps was told once" is "$(grep -o '"type":"metrics"' <<<"$events" | wc -l)" "$steps"
expect "nothing temporary is left" is "$(find "$disk" -name '*.tmp' | wc -l)" 0
stop_daemon
