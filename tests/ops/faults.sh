#!/usr/bin/env bash
# A write, a sync, a rename, ... of a short story fails: faults/faults.py, at a few points chosen with a fixed seed.
# `make faults` takes every one of them.
#   tests/ops/faults.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
if ! command -v python3 >/dev/null; then
    echo "skip - faults at every write: python3 is not installed"
    exit 0
fi
kinds=write,sync,rename,create,step,place sample=12
case $out in *asan*|*tsan*) kinds=write,sync,step sample=3 ;; esac # slower, and they have their own malloc
python3 tests/ops/faults/faults.py "$out" --kinds $kinds --sample $sample --seed 5 --jobs 4
