#!/usr/bin/env bash
# Runs every fuzz target for SECONDS from its kept corpus, as many at once as there are cores; the last line
# is "N passed, N failed". What breaks a target is left in OUT/found.
#   tests/fuzz/run.sh OUT SECONDS
# Two passes: the corpus alone, so that a kept input that breaks fails by its name, then new inputs, which
# are collected in OUT/corpus and stay for the next run.
set -uo pipefail
cd "$(dirname "$0")/../.."
out=${1:?usage: tests/fuzz/run.sh OUT SECONDS} seconds=${2:?usage: tests/fuzz/run.sh OUT SECONDS}
mkdir -p "$out/found" "$out/logs"
export out seconds
export UBSAN_OPTIONS=print_stacktrace=1

run_one() {
    local name=$1 log=$out/logs/$1 target=$out/tests/fuzz_$1
    mkdir -p "$out/corpus/$name"
    # Time and memory: an input that takes 10 s or 2 GB is a finding.
    local options=(-timeout=10 -rss_limit_mb=2048 -artifact_prefix="$out/found/$name-" -print_final_stats=1)
    "$target" "${options[@]}" -runs=0 "tests/fuzz/corpus/$name" >"$log" 2>&1 &&
        "$target" "${options[@]}" -max_total_time="$seconds" -max_len=16384 "$out/corpus/$name" \
            "tests/fuzz/corpus/$name" >>"$log" 2>&1
    echo $? >"$log.status"
}
export -f run_one

names=()
for source in tests/fuzz/fuzz_*.c; do
    name=$(basename "$source" .c)
    names+=("${name#fuzz_}")
done
printf '%s\n' "${names[@]}" | xargs -P "$(nproc)" -I{} bash -c 'run_one {}'

passed=0 failed=0
for name in "${names[@]}"; do
    log=$out/logs/$name
    if [ "$(cat "$log.status" 2>/dev/null || echo 255)" -eq 0 ]; then
        passed=$((passed + 1))
        printf 'ok    %-12s %s inputs tried\n' "$name" \
            "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)"
    else
        failed=$((failed + 1))
        printf 'FAIL  %s\n' "$name"
        tests/support/failures.sh "$log"
    fi
done
echo
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
