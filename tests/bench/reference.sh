#!/bin/sh
# Ours against the reference implementation (PyPI), in turn, on the same base and lines:
#   tests/bench/reference.sh BENCH_TRAIN BASE LINES [STEPS [BATCH [MAX_LEN]]]
# by make bench-reference. Makes a virtual environment in build/venv-bench. The reference takes two to four
# minutes a step at the real geometry; the first of STEPS is not counted.
set -eu

bench_train=${1:?usage: tests/bench/reference.sh BENCH_TRAIN BASE LINES [STEPS [BATCH [MAX_LEN]]]}
base=$2 lines=$3 steps=${4:-3} batch=${5:-8} max_len=${6:-1024}
cd "$(dirname "$0")/../.."
venv=build/venv-bench
wanted=tests/bench/requirements.txt

if ! [ -x "$venv/bin/python" ] || ! cmp -s "$wanted" "$venv/requirements.txt"; then
    rm -rf "$venv"
    mkdir -p build
    if ! python3 -m venv "$venv"; then
        rm -rf "$venv"
        echo "needs Python 3 with venv: apt-get install python3-venv" >&2
        exit 1
    fi
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$wanted"
    cp "$wanted" "$venv/requirements.txt"
fi

few=build/venv-bench/lines.jsonl
head -n $((steps * batch)) "$lines" >"$few"
for numerics in w4a8 float32; do
    echo
    echo "$numerics, batch $batch, $((steps - 1)) timed steps"
    JAX_PLATFORMS=cpu "$venv/bin/python" tests/bench/against_reference.py "$bench_train" "$base" "$few" \
        "$numerics" "$batch" "$max_len"
done
