#!/usr/bin/env bash
# Memory stays flat: over a large upload, and over 2,000 steps of a tiny job while a client follows its stream
# (resident memory of the daemon at step 200 and at the end, from /proc).
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

for n in $(seq 40); do
    printf '{"query":"say %d","tools":[],"answers":[]}\n' "$n"
done >"$work/data.jsonl"
upload "$work/data.jsonl"
create_with '"n_epochs":50,"batch_size":1,"lora_rank":4,"lora_alpha":8,"val_split":0' mini
expect "a job of 2,000 steps is taken" is "$status" 200
curl -sN "$url/v1/fine_tuning/jobs/$id/events?stream=true" >"$work/stream" &
reader=$!

resident_kb() { sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$daemon/status"; }
steps=0 first= first_step=0 last=0 last_step=0
while kill -0 $reader 2>/dev/null; do
    now=$(resident_kb)
    steps=$(curl -s "$url/v1/fine_tuning/jobs/$id" | field completed_steps)
    if [ "${steps:-0}" -ge 200 ] && [ "$steps" -lt 2000 ]; then
        [ -n "$first" ] || { first=$now first_step=$steps; }
        last=$now last_step=$steps
    fi
    sleep 0.1
done
wait $reader
after=$(resident_kb)
expect "all steps are made" is "$(curl -s "$url/v1/fine_tuning/jobs/$id" | field completed_steps)" 2000
expect "and told" is "$(grep -c '^event: metrics' "$work/stream")" 2000
flat() { [ "$last_step" -gt 1500 ] && [ $((last - first)) -le 1024 ] && [ $((after - first)) -le 1024 ]; }
expect "memory is flat: $first kB at step $first_step, $last kB at step $last_step, $after kB after the end" flat
stop_daemon
