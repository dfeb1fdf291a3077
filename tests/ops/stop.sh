#!/usr/bin/env bash
# SIGTERM in the middle of a job: status 0, the job queued again; the next start goes on and ends with the very
# adapter of an unbroken run. A second job waits its turn meanwhile. A stop takes less than two seconds.
# Alone: the time of a stop is bounded.
#   tests/ops/stop.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
. tests/support/shell/shim.sh
trap 'stop_daemon >/dev/null 2>&1; rm -rf "$work"' EXIT

base_folder needle-3
"$out/tests/make_lines" 160 5 demo >"$work/data.jsonl"
"$out/tests/make_lines" 20 6 demo >"$work/small.jsonl"
start_daemon "$out"

# submit FILE: prints the job's id.
submit() {
    "$out/needlectl" submit "$1" --no-watch --set n_epochs=3 --set batch_size=4 --set learning_rate=0.002 \
        --set lora_rank=4 --set lora_alpha=8 | sed -n 's/^created //p'
}
status_of() { curl -s "$url/v1/fine_tuning/jobs/$1" | field status; }
steps_of() { curl -s "$url/v1/fine_tuning/jobs/$1" | field completed_steps; }
ended() { case $(status_of "$1") in succeeded|failed|cancelled) ;; *) return 1 ;; esac; }
at() { [ "$(status_of "$1")" = "$2" ]; }
past() { [ "$(steps_of "$1")" -ge "$2" ] 2>/dev/null; }

unbroken=$(submit "$work/data.jsonl")
wait_for 300 ended "$unbroken"
result "an unbroken job succeeds" [ "$(status_of "$unbroken")" = succeeded ]
stop_daemon

# The job stands still at its 20th step until the daemon has heard of the stop: a fast one would have ended by then.
with_shim "$out" steps STEP_MS=10 HOLD_AT_STEP=20 "HOLD_UNTIL=$work/go-on"
start_daemon "$shimmed"
job=$(submit "$work/data.jsonl")
next=$(submit "$work/small.jsonl")
result "the job gets under way" wait_for 120 past "$job" 12
result "a second job waits" wait_for 60 at "$next" queued
kill -TERM "$daemon"
hears() { grep -q 'msg="stopping' "$work/needled.log"; }
wait_for 20 hears
touch "$work/go-on"
stop_daemon
result "SIGTERM ends it with status 0" [ $? -eq 0 ]

start_daemon "$out"
result "the job goes on and succeeds" wait_for 300 ended "$job"
result "as succeeded" [ "$(status_of "$job")" = succeeded ]
result "the waiting one ends too" wait_for 120 ended "$next"
events=$(curl -s "$url/v1/fine_tuning/jobs/$job/events?limit=1000")
once() { [ "$(grep -o '"type":"metrics"' <<<"$events" | wc -l)" -eq 108 ]; }
result "each of its 108 steps was told once" once
"$out/needlectl" fetch "$unbroken" -o "$work/a" >/dev/null
"$out/needlectl" fetch "$job" -o "$work/b" >/dev/null
result "the adapter is byte for byte that of the unbroken run" cmp -s "$work/a" "$work/b"

create_lasting
victim=$id
wait_for 120 past "$victim" 3
"$out/needlectl" cancel "$victim" >/dev/null
result "a cancelled job says so at once" [ "$(status_of "$victim")" = cancelled ]
result "a second cancel is harmless" "$out/needlectl" cancel "$victim"
after=$(submit "$work/small.jsonl")
result "the queue moves on" wait_for 120 ended "$after"

# ---- how long a stop takes, in the middle of a job: the best of a few ---------------------------------------

limit_ms=2000 took_ms=99999
case $out in *asan*|*tsan*) limit_ms=10000 ;; esac # the sanitizers slow it down
create_lasting
for _ in 1 2 3; do
    wait_for 120 past "$id" $(($(steps_of "$id") + 3))
    started=$(date +%s%N)
    stop_daemon
    ms=$((($(date +%s%N) - started) / 1000000))
    [ $ms -ge $took_ms ] || took_ms=$ms
    [ $took_ms -ge $limit_ms ] || break
    start_daemon "$out"
done
result "a stop takes less than two seconds ($took_ms ms)" [ $took_ms -lt $limit_ms ]
stop_daemon
