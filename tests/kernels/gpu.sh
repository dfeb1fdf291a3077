#!/usr/bin/env bash
# tests/gpu/run.sh where there is no card: its parts over the stand-in, what it says when a part hangs, when
# time is up and when there is no card. Prints "ok - what", "not ok - what".
#   tests/kernels/gpu.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
out=${1:?usage: tests/kernels/gpu.sh OUT}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# expect WHAT CODE PATTERN ARGUMENT...: how the script ends, and what it printed into its file.
expect() {
    local what=$1 code=$2 pattern=$3 status
    shift 3
    tests/gpu/run.sh "$@" "$folder/log" >/dev/null 2>&1
    status=$?
    if [ $status -eq "$code" ] && grep -qE "$pattern" "$folder/log"; then
        echo "ok - $what"
    else
        echo "not ok - $what: exit code $status, wanted $code with '$pattern'"
        tail -n 40 "$folder/log"
    fi
}

SECONDS_MAX=3000 expect "over the stand-in every part passes" 0 '^3 passed, 0 failed, 0 skipped' --standin "$out"
mkdir -p "$folder/hangs/tests" # OUT with a bench that does not end
for built in "$(realpath "$out")"/*; do
    case $built in
    */tests | */gpu-lines.jsonl) ;;
    *) ln -s "$built" "$folder/hangs/" ;;
    esac
done
ln -s "$(realpath "$out")/tests/make_lines" "$folder/hangs/tests/"
printf '#!/bin/sh\nexec sleep 60\n' >"$folder/hangs/tests/bench_train" && chmod +x "$folder/hangs/tests/bench_train"
SECONDS_MAX=5 expect "a part that takes too long is stopped, and is a failure" 1 \
    '^not ok - speed, bf16: not done after [345] s$' --standin "$folder/hangs"
SECONDS_MAX=2 expect "where nothing was run, nothing passed" 1 '^0 passed, 0 failed, 3 skipped' --standin "$out"
if command -v nvidia-smi >/dev/null; then
    echo "skip - without a card: this machine has one"
else
    expect "without a card it says skipped" 77 '^skipped: nothing was proven on a card$' "$folder"
fi
