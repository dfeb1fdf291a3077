#!/usr/bin/env bash
# kill -9 at random times while jobs run, are made, cancelled, paused and followed: crash/crash.py, with few kills
# and a fixed seed. `make crash KILLS=200` does it for longer.
#   tests/ops/crash.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
if ! command -v python3 >/dev/null; then
    echo "skip - random kills: python3 is not installed"
    exit 0
fi
load=(--kills 20 --long-epochs 8)
case $out in
*asan*|*tsan*) load=(--kills 6 --long-epochs 4 --small-jobs 2 --lines 32) ;; # they slow starts and steps down
esac
python3 tests/ops/crash/crash.py "$out" --seed 20 "${load[@]}"
