#!/usr/bin/env bash
# Memory stays flat: over a large upload, and over thousands of steps of a tiny job while a client follows its
# stream (resident memory of the daemon at a step, 2,000 steps later and after the end, from /proc).
#   tests/ops/memory.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
trap 'stop_daemon >/dev/null 2>&1; rm -rf "$work"' EXIT

case $out in
*asan*|*tsan*)
    echo "skip - memory stays flat: a sanitizer keeps what is freed for a while"
    exit 0
    ;;
esac

base_folder mini mini
start_daemon "$out" || exit 1
peak_kb() { sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$daemon/status"; }
yes '{"query":"say something that is a bit longer","tools":[],"answers":[]}' | head -n 500000 >"$work/large.jsonl"
before=$(peak_kb)
upload "$work/large.jsonl"
grown=$(($(peak_kb) - before))
expect "a file of $(wc -c <"$work/large.jsonl") bytes is taken" is "$(field line_count <<<"$answer")" 500000
expect "and does not lie in memory: $grown kB more at the peak" [ $grown -lt 4096 ]
rm "$work/large.jsonl"

create_lasting mini
expect "a job of thousands of steps is taken" is "$status" 200
curl -sN "$url/v1/fine_tuning/jobs/$id/events?stream=true" >"$work/stream" &
reader=$!

resident_kb() { sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$daemon/status"; }
steps() { curl -s "$url/v1/fine_tuning/jobs/$id" | field completed_steps; }
made() { [ "$(steps)" -ge "$1" ] 2>/dev/null; }
# SQLite's cache of pages fills up to its 2 MB by step 4,000.
from=5000 growth_max=1024
wait_for 200 made $from
first_step=$(steps) first=$(resident_kb)
wait_for 200 made $((from + 2000))
last_step=$(steps) last=$(resident_kb)
call -X POST "$url/v1/fine_tuning/jobs/$id/cancel"
wait $reader
after=$(resident_kb)
expect "all steps are told" is "$(grep -c '^event: metrics' "$work/stream")" "$(steps)"
flat() { [ "$last_step" -ge $((from + 2000)) ] && [ $((last - first)) -le $growth_max ] && [ $((after - first)) -le $growth_max ]; }
expect "memory is flat: $first kB at step $first_step, $last kB at step $last_step, $after kB after the end" flat
stop_daemon
