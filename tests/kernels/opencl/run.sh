#!/usr/bin/env bash
# The deep checks of kernels/gpu: all ops under Oclgrind, which watches every access of every work-item, and
# kernels with a fault in them, which it or PoCL must find. Prints "ok - what", "not ok - what".
#   tests/kernels/opencl/run.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../../.."
out=$(realpath "${1:?usage: tests/kernels/opencl/run.sh OUT}")
work=$(mktemp -d)
tree=. # where the kernels are read
trap 'rm -rf "$work"' EXIT
export POCL_CACHE_DIR=$out/opencl/cache OPENBLAS_NUM_THREADS=1
mkdir -p "$POCL_CACHE_DIR"

# Its exit status says nothing of what it found: that is in its log. 0 when nothing was.
watched() {
    : >"$work/log"
    (cd "$tree" && oclgrind "$@" --log "$work/log" "$out/opencl/test_opencl") >"$work/output" 2>&1 &&
        [ ! -s "$work/log" ]
}
everything() { watched --data-races --uninitialized; }
races() { watched --data-races; } # one of them alone: it stops telling after a thousand findings
unset_values() { watched --uninitialized; }
numbers() { # on PoCL
    : >"$work/log"
    (cd "$tree" && "$out/opencl/test_opencl") >"$work/output" 2>&1
}

if SIZES=${SIZES:-2} everything; then
    echo "ok - Oclgrind sees no race, no access outside, nothing unset in any op"
else
    echo "not ok - Oclgrind sees no race, no access outside, nothing unset in any op"
    head -n 40 "$work/log"
    tail -n 20 "$work/output"
fi

# fault WHO WANTED FILE EDIT CASE [SIZES]: with EDIT (a sed script) made in FILE, WHO finds WANTED (a pattern in its
# log, or in what the test prints) in CASE.
fault() {
    local who=$1 wanted=$2 file=$3 edit=$4
    export ONLY=$5 SIZES=${6:-2}
    rm -rf "$work/tree" && mkdir -p "$work/tree/kernels" && cp -r kernels/gpu "$work/tree/kernels/"
    sed -i "$edit" "$work/tree/kernels/gpu/$file"
    if cmp -s "kernels/gpu/$file" "$work/tree/kernels/gpu/$file"; then
        echo "not ok - $file has no place for the fault $edit"
    elif tree=$work/tree $who; then
        echo "not ok - $who finds '$wanted' in $file after $edit"
    elif ! grep -q "$wanted" "$work/log" "$work/output"; then
        echo "not ok - $who finds '$wanted' in $file after $edit, but not something else"
        cat "$work/log" "$work/output" | head -n 12
    else
        echo "ok - $who finds '$wanted' in $file after $edit"
    fi
}
fault races "data race" gpu.h '/DEVICE float gpu_group_sum/,/^}/{/scratch\[THREAD\] = value;/{n;d}}' rmsnorm
fault races "data race" residual_norm.cu '/gpu_residual_norm_gain/,/^}/s/dgain\[c\]/dgain[0]/' residual_norm 3
fault races "Invalid write" adamw.cu 's/if (i >= count)/if (0)/' adamw
fault races "Invalid read" embed.cu 's/tokens\[GROUP\]/tokens[GROUP + 9]/' embed
fault races "Invalid write" sum_squares.cu 's/scratch\[GROUP_SCRATCH\]/scratch[GROUP_SCRATCH - 16]/' sum_squares
fault races "divergence" cross_entropy.cu '0,/group_max(/s//THREAD > 9 ? 0 : group_max(/' cross_entropy
fault unset_values "uninitialized" code.h 's/if (THREAD < count)/if (THREAD < count - 1)/' round_code
fault unset_values "value written to global" heads.cu '/gpu_heads_gain_partials/,$s/if (TEAM == 0 \&\& c < C)/if (TEAM == 0 \&\& c < C - 1)/' heads
fault unset_values "Uninitialized" taps.cu 's|float sum = 0|float sum|' taps
fault numbers "normalised squared error" attention_tile.h 's|apart < window|apart <= window|' 'attention in'
