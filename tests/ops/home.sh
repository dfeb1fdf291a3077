#!/usr/bin/env bash
# The state folder goes away under a running daemon: moved, replaced by an empty one, by another one. Nothing is
# started or acknowledged meanwhile, and nothing is made in its place; back again, all goes on, and another state
# ends the daemon with a status of its own. A start does not make a new database over the files of an earlier one.
#   tests/ops/home.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
state=$work/state
trap 'stop_daemon >/dev/null 2>&1; rm -rf "$work"' EXIT

mkdir -p "$work/models/mini"
cp tests/fixtures/needle3/mini/base.safetensors tests/fixtures/needle3/mini/tokenizer.model "$work/models/mini/"
seq -f '{"query":"say %.0f","tools":[],"answers":[]}' 20 >"$work/small.jsonl"
printf '{"disk_reserve_mb":1,"checkpoint_steps":2}\n' >"$work/settings.json"
start() { start_daemon "$out" --config "$work/settings.json" --models-dir "$work/models"; }
record() { curl -s "$url/v1/fine_tuning/jobs/$1"; }
state_is() { [ "$(record "$1" | field status)" = "$2" ]; }
past() { [ "$(record "$1" | field completed_steps)" -ge "$2" ] 2>/dev/null; }
health_is() { [ "$(curl -s -o "$work/health" -w '%{http_code}' "$url/healthz") $(field status <"$work/health")" = "$1" ]; }
says() { grep -q -- "$1" "$work/needled.log"; }
small='"n_epochs":1,"batch_size":4,"learning_rate":0.002,"lora_rank":2,"lora_alpha":4'

start
upload "$work/small.jsonl"
create_lasting mini
long=$id
expect "a job gets under way" wait_for 120 past "$long" 8

mv "$state" "$work/away"
expect "the folder moved away, healthz is 503" health_is "503 failing"
expect "and says why" has '"state":"gone","reason":"the state folder is gone: No such file' "$(cat "$work/health")"
create_with "$small" mini
expect "a create is refused" is "$status $(field code <<<"$answer")" "503 state_gone"
call -F purpose=fine-tune -F "file=@$work/small.jsonl" "$url/v1/files"
expect "and an upload" is "$status $(field code <<<"$answer")" "503 state_gone"
call -X POST "$url/v1/fine_tuning/jobs/$long/cancel"
expect "and a cancel" is "$status $(field code <<<"$answer")" "503 state_gone"
call "$url/v1/fine_tuning/jobs"
expect "and a listing" is "$status $(field code <<<"$answer")" "503 state_gone"
expect "the job stops and is queued again" wait_for 60 says "running -> queued"
mkdir "$state"
expect "an empty folder in its place is no better" health_is "503 failing"
sleep 2.5 # two looks of the daemon's
expect "and stays empty" is "$(ls -A "$state")" ""
expect "while the daemon stays" kill -0 "$daemon"
expect "the log says it once" is "$(grep -c 'state folder is gone.*It was ' "$work/needled.log")" 1
rmdir "$state"
newest=$(ls "$work/away/checkpoints/$long"/resume-*.safetensors | tail -n 1)
echo damage >>"$newest"
mv "$work/away" "$state"
expect "back again, healthz is ok within seconds" wait_for 30 health_is "200 ok"
again() { has '"attempts":2.*"first_step":[1-9].*cannot be used and is passed over' "$(record "$1")"; }
expect "the job goes on, and warns of the damaged checkpoint" wait_for 120 again "$long"
create_with "$small" mini
expect "a create is taken again" is "$status" 200
quick=$id
call -X POST "$url/v1/fine_tuning/jobs/$long/cancel"
follow "$long"
printf '%s' "$job" >"$work/record"
expect "from its checkpoint" grep -q 'Training goes on after step [1-9]' <<<"$events"
expect "its events say why it stopped" grep -q 'The disk is gone (the state folder is gone.*queued again' <<<"$events"
expect "neither names a folder of the server's" is "$(grep -c "$state" "$work/record" <(cat <<<"$events") | cut -d: -f2 | xargs)" "0 0"
follow "$quick"
id=$quick
expect "the other succeeds" has '"status":"succeeded"' "$job"

mv "$state/uploads" "$work/uploads"
expect "a folder in it that is gone is the same" health_is "503 failing"
mv "$work/uploads" "$state/uploads"
expect "and comes back" wait_for 30 health_is "200 ok"
stop_daemon
expect "it stops with status 0" is $? 0

cp -r "$state" "$work/other"
start
: >"$work/other/needled.db-wal" # as the log of another daemon's
mv "$state" "$work/away"
mv "$work/other" "$state"
status=0
wait "$daemon" || status=$?
daemon=
expect "another state in its place ends the daemon with status 5" is "$status" 5
expect "the log says why" says 'stopping: another database lies in'
expect "the other's log is left to it" [ -e "$state/needled.db-wal" ]
expect "a new start takes it up" start
expect "with all that is in it" state_is "$id" succeeded
stop_daemon

# ---- at a start
# refuses WORDS: status 4, and the words in the log.
refuses() {
    local status=0
    "$out/needled" --state-dir "$state" --models-dir "$work/models" --listen 127.0.0.1:0 2>"$work/refused" || status=$?
    [ $status = 4 ] && grep -q -- "$1" "$work/refused"
}
cp "$state/needled.db" "$work/backup"
mv "$state/needled.db" "$work/aside"
expect "without its database no new one is made over what is there" refuses 'needled.db is gone, but uploads of an earlier one are there: [1-9].*needled --restore FILE; to begin anew, move'
expect "and nothing is" [ ! -e "$state/needled.db" ]
restores() { "$out/needled" --state-dir "$state" --restore "$work/backup" >"$work/restored"; }
expect "a backup comes back" restores
expect "and starts" start
expect "with what was in it" state_is "$id" succeeded
stop_daemon
mkdir -p "$work/old/checkpoints" "$work/old/uploads" "$work/old/artifacts"
mv "$state"/needled.db* "$state/uploads" "$state/checkpoints" "$state/artifacts" "$work/old/"
expect "with all of it moved away a new one begins" start
expect "which is empty" is "$(curl -s "$url/v1/fine_tuning/jobs" | field data)" '[]'
stop_daemon
