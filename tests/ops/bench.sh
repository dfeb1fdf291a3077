#!/usr/bin/env bash
# The benches run, on the small base: what they print is whole and adds up.
# Alone: it measures.
#   tests/ops/bench.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
trap 'rm -rf "$work"' EXIT

status=0
"$out/tests/make_lines" 24 1 demo >"$work/lines.jsonl"
train() {
    answer=$("$out/tests/bench_train" --base tests/fixtures/needle3 --lines "$work/lines.jsonl" --batch 8 --max-len 128 \
        --steps 2 --threads 2 "$@" 2>&1)
    status=$?
}

train --brief --no-peak
expect "a run is timed" is "$status" 0
expect "step by step, the first left out" is "$(cut -d' ' -f1,2 <<<"$answer" | xargs)" "step 2 step 3"
tokens=$(awk '{ sum += $3 } END { print sum + 0 }' <<<"$answer")
first=$("$out/tests/bench_train" --base tests/fixtures/needle3 --lines "$work/lines.jsonl" --batch 24 --max-len 128 --no-peak \
    --steps 1 2>&1)
expect "what has no second step says so" has 'one step in' "$first"
expect "real tokens are told" [ "$tokens" -gt 300 ]

train
shares() { awk '/ %  / { sum += $(NF - 2) } END { print (sum > 98 && sum < 102) ? "whole" : sum }' <<<"$answer"; }
expect "shares of operations and of the rest make a whole" is "$(shares)" whole
expect "each step has one optimiser's" is "$(awk '$1 == "adamw" { print $2 }' <<<"$answer")" 1
expect "the share of the peak is told" has "of the peak of products" "$answer"
expect "and the formula with its sum" has '^  all .* MFLOP a row' "$(grep '^  all' <<<"$answer")"

answer=$("$out/tests/bench_http" "$out/needled" tests/fixtures/needle3 mini readers 20 pairs 1 seconds 1 2>&1)
status=$?
expect "readers are timed while a job trains" is "$status" 0
http() { awk -v name="http_$1_mini" '$2 == name { print $3 }' <<<"$answer"; }
expect "events come to them" [ "$(http deliveries | cut -d. -f1 | sed 's/e+.*/0/')" -gt 0 ]
expect "their delay is told" has '^bench http_step_to_reader_p99_mini [0-9.e+]+ ms$' "$(grep p99 <<<"$answer")"
