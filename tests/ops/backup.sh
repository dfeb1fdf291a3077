#!/usr/bin/env bash
# A copy of the database made while jobs run, and its way back: into an empty state folder, over a newer database,
# over a damaged one; and what is refused.
#   tests/ops/backup.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
load=
trap '[ -n "$load" ] && kill "$load" 2>/dev/null; stop_daemon >/dev/null 2>&1; rm -rf "$work"' EXIT

base_folder mini mini
lines() { for n in $(seq "$1"); do printf '{"query":"say %d","tools":[],"answers":[]}\n' "$n"; done; }
lines 32 >"$work/data.jsonl"
quick='"batch_size":4,"lora_rank":4,"lora_alpha":8,"val_split":0,"n_epochs":1'

# ctl ARGUMENT...: needlectl over the socket, as the daemon's user.
ctl() {
    answer=$("$out/needlectl" --server "unix:$work/state/needled.sock" "$@" 2>"$work/err")
    status=$?
}
# restore FILE [STATE]
restore() {
    answer=$("$out/needled" --state-dir "${2:-$work/state}" --restore "$1" 2>&1)
    status=$?
}
hold() { mv "$work/state" "$work/state.$1"; }

# ---- made under load -----------------------------------------------------------------------------------

start_daemon "$out" || exit 1
upload "$work/data.jsonl"
create_with "$quick" mini
follow "$id"
first=$id model=$(field fine_tuned_model <<<"$job")
(
    while :; do
        curl -s -o /dev/null -H 'Content-Type: application/json' "$url/v1/fine_tuning/jobs" -d \
            "{\"model\":\"mini\",\"training_file\":\"$file\",\"suffix\":\"s$((++n))\",\"hyperparameters\":{$quick}}"
        curl -s -o /dev/null "$url/v1/events?limit=100"
    done
) &
load=$!
ctl backup "$work/copy.db" --json
expect "a backup is made while jobs are created and run" has "^0 .*\"bytes\":[1-9]" "$status $answer"
expect "only its owner reads it" is "$(stat -c %a "$work/copy.db")" 600
expect "it has the size that was said" is "$(stat -c %s "$work/copy.db")" "$(field bytes <<<"$answer")"
expect "nothing is left beside it, nor in the state folder" is \
    "$(ls "$work" | grep -c 'copy\.db.')$(ls "$work/state/uploads" | grep -c backup)" 00
cp "$work/copy.db" "$work/before"
ctl backup "$work/copy.db"
expect "a file that is there is not written over" has "^1 .*exists|^2 .*exists" "$status $(<"$work/err")"
expect "and stays as it is" cmp "$work/before" "$work/copy.db"
ctl backup "$work/none/copy.db"
expect "a folder that is not there is named" has "none/copy.db" "$(<"$work/err")"
kill "$load" && wait "$load" 2>/dev/null
load=

ctl key create reader --scope read
reader=$answer
ctl key create boss --scope admin
boss=$answer
answer=$(NEEDLED_API_KEY=$reader "$out/needlectl" backup "$work/stolen.db" 2>&1)
expect "a key that only reads may not" has "admin" "$answer"
expect "and gets no file" [ ! -e "$work/stolen.db" ]
echo mine >"$work/keys.db.part"
NEEDLED_API_KEY=$boss "$out/needlectl" backup "$work/keys.db" >/dev/null
expect "a file that is called as half a backup is left alone" is "$(cat "$work/keys.db.part")" mine
expect "one of scope admin may, over TCP too" is "$? $(head -c 15 "$work/keys.db")" "0 SQLite format 3"

restore "$work/keys.db"
expect "no restore while a daemon has the state folder" has "^1 .*another daemon.*stop it first" "$status $answer"
stop_daemon

# ---- into an empty state folder -------------------------------------------------------------------------

hold full
restore "$work/keys.db"
expect "a backup comes back into an empty folder" has "^0 .*is now" "$status ${answer//$'\n'/ }"
expect "what it names and is not there is counted" has "that are gone: [1-9].*adapter is gone: [1-9]" "${answer//$'\n'/ }"
cp -R "$work/state.full/models" "$work/state/"
start_daemon "$out" || exit 1
call -H "Authorization: Bearer $boss" "$url/v1/fine_tuning/jobs/$first"
expect "jobs are there, and keys are in force" has '^200 .*"status":"succeeded"' "$status $answer"
call "$url/v1/fine_tuning/jobs"
expect "for everybody" is "$status" 401
all_over() {
    call -H "Authorization: Bearer $boss" "$url/v1/fine_tuning/jobs?limit=1000" &&
        [ "$status" = 200 ] && has_not '"status":"(queued|running|validating_files)"' "$answer"
}
expect "no job waits for what is gone" wait_for 120 all_over
ctl fetch "$model" -o "$work/adapter"
expect "an adapter that is gone is said, and the daemon lives" [ "$status" != 0 -a ! -e "$work/adapter" ]
ctl jobs
expect "it answers on" is "$status" 0
stop_daemon

# ---- over the one that is there -------------------------------------------------------------------------

rm -rf "$work/state" && mv "$work/state.full" "$work/state"
restore "$work/copy.db"
expect "a backup comes back over a newer database" has "^0 .*is kept|^0 .*that was there is" "$status ${answer//$'\n'/ }"
aside=$(ls "$work"/state/needled.db.replaced-*)
expect "which is kept beside it" is "$(head -c 15 "$aside")" "SQLite format 3"
start_daemon "$out" || exit 1
call "$url/v1/fine_tuning/jobs/$first"
expect "the job of then is there, the keys of later are not" is "$status" 200
call "$url/v1/models/$model/adapter.safetensors" -o /dev/null
expect "and its adapter" is "$status" 200
expect "jobs that were not finished go on to their end" wait_for 120 all_over
stop_daemon

restore "$aside"
expect "the newer one comes back the same way" is "$status" 0
start_daemon "$out" || exit 1
call -H "Authorization: Bearer $boss" "$url/v1/fine_tuning/jobs/$first"
expect "with its keys" is "$status" 200
stop_daemon

# ---- what is no backup, and a database that is damaged ----------------------------------------------------

cp "$work/state/needled.db" "$work/sound"
printf 'no database\n' >"$work/text"
restore "$work/text"
expect "what is no backup is refused by its name" has "^1 .*nothing was restored.*text' is not a database" "$status $answer"
restore "$work/nothing"
expect "a file that is not there too" has "^1 .*nothing" "$status $answer"
expect "the database is as it was" cmp "$work/sound" "$work/state/needled.db"
dd if=/dev/urandom of="$work/state/needled.db" bs=4096 seek=1 count=20 conv=notrunc status=none
start_daemon "$out" >"$work/said"
expect "a damaged database does not start, and the way out is said" has "damaged.*needled --restore" "$(<"$work/said")"
restore "$work/keys.db"
expect "which works" is "$status" 0
start_daemon "$out"
expect "and the daemon starts" is "$?" 0
stop_daemon
