#!/usr/bin/env bash
# One run on a machine with an NVIDIA card, in at most eight minutes with the build for that card alone:
# kernels against ref, recorded training runs, the daemon's own check, speed at the real geometry, and where
# they are installed compute-sanitizer and the reference implementation. The most valuable parts come first
# and each has a limit, so that one that hangs leaves time to the others.
#   tests/gpu/run.sh [--standin|--no-build] OUT [LOG]
# OUT is the folder to build into, LOG (OUT/gpu.log) gets everything that is printed. --no-build takes what
# was built into OUT elsewhere; --standin tests this script where there is no card: OUT is one in which
# make test-cuda built. The last line is "N passed, N failed, N skipped". Exit codes: 0 passed, 1 failed,
# 2 called wrongly, 77 skipped: there is no card, or nothing to build for it with.
#   CUDA_ARCH=90   the card's capability, where nvidia-smi cannot say
#   SECONDS_MAX    of the whole run; 470
# shellcheck disable=SC2317 # parts are called by name, in a shell of their own
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
mode=card
case ${1:-} in
--standin | --no-build) mode=${1#--} && shift ;;
esac
usage="usage: tests/gpu/run.sh [--standin|--no-build] OUT [LOG]"
case ${1:-} in
'' | -*)
    echo "$usage" >&2
    exit 2
    ;;
esac
[ $# -gt 2 ] && echo "$usage" >&2 && exit 2
out=$1
log=${2:-$out/gpu.log}
passed=0 failed=0 skipped=0
export LC_ALL=C OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-4}
unset NEEDLED_PLATFORMS NEEDLED_CUBLAS ONLY STEPS

skip() { # NAME REASON
    echo "skip - $1: $2"
    skipped=$((skipped + 1))
}

# part NAME SECONDS COMMAND...: runs it, for no longer than that nor than what is left; says how it went.
part() {
    local name=$1 limit=$2 left=$((${SECONDS_MAX:-470} - SECONDS)) started=$SECONDS status
    shift 2
    [ $left -lt "$limit" ] && limit=$left
    if [ "$limit" -lt 3 ]; then
        skip "$name" "no time is left"
        return 1
    fi
    printf '\n---- %s\n' "$name"
    timeout --kill-after=5 "$limit" bash -c 'set -o pipefail; "$@"' part "$@" </dev/null # the functions below, too
    status=$?
    case $status in
    0)
        passed=$((passed + 1))
        echo "ok - $name ($((SECONDS - started)) s)"
        ;;
    77) skip "$name" "see above" ;;
    124 | 137)
        failed=$((failed + 1))
        echo "not ok - $name: not done after $limit s"
        ;;
    *)
        failed=$((failed + 1))
        echo "not ok - $name: exit code $status"
        ;;
    esac
    return $status
}

finish() { # CODE
    printf '\n%d passed, %d failed, %d skipped (%d s)\n' $passed $failed $skipped $SECONDS
    [ "$1" -eq 77 ] && echo "skipped: nothing was proven on a card"
    exit "$1"
}

# ---- the card and the build -------------------------------------------------------------------------

describe_machine() {
    date -u +'%Y-%m-%d %H:%M UTC'
    uname -srm
    git log -1 --format='commit %h of %cs' 2>/dev/null
    command -v nvcc >/dev/null && nvcc --version | tail -n 2 | head -n 1
    if command -v nvidia-smi >/dev/null; then
        nvidia-smi --query-gpu=name,compute_cap,driver_version,memory.total,memory.free,power.limit --format=csv
    fi
}

# The first card's capability as nvcc writes it; nothing: not known.
capability() {
    if [ -n "${CUDA_ARCH:-}" ]; then
        echo "$CUDA_ARCH"
    elif command -v nvidia-smi >/dev/null; then
        nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d '. '
    fi
}

build() {
    make --no-print-directory -j"$(nproc)" OUT="$out" CUDA_ARCH="$1" \
        "$out/needled-cuda.so" "$out/show_cuda" "$out/gpu/test_ops" "$out/test_golden" "$out/tests/bench_train" \
        "$out/tests/bench_base" "$out/needled" "$out/tests/make_lines"
}

# What make bench-base makes, where it is not there yet.
prepare_bench() {
    local folder=build/bench lines
    mkdir -p "$folder/base" || return
    for lines in long mixed; do
        [ -e "$folder/$lines.jsonl" ] || "$out/tests/make_lines" 640 32 "$lines" >"$folder/$lines.jsonl" || return
    done
    [ -e "$folder/base/base.safetensors" ] && return
    "$out/tests/make_lines" 4000 11 mixed >"$folder/tokenizer.jsonl" &&
        "$out/tests/bench_base" "$folder/tokenizer.jsonl" "$folder/base"
}

get_ready() {
    local arch
    arch=$(capability)
    if [[ ! $arch =~ ^[0-9]+$ ]]; then
        skip "everything" "no card: nvidia-smi is missing or names none (CUDA_ARCH=90 says what to build for)"
        finish 77
    fi
    if [ "$mode" = card ]; then
        if ! command -v nvcc >/dev/null; then
            skip "everything" "nvcc is not installed"
            finish 77
        fi
        part "build for capability $arch" 240 build "$arch" || finish 1
    fi
    export NEEDLED_PLUGINS=$out
}

# ---- the parts --------------------------------------------------------------------------------------

bench() { # PRECISION MORE...
    local precision=$1 settings
    shift
    read -ra settings <<<"$bench_settings"
    "$out/tests/bench_train" --device cuda --precision "$precision" "${settings[@]}" "$@" | tee -a "$figures"
}

# The figures that were printed, over what the card's data sheet gives: dense, without sparsity.
sheet_shares() { # NAME OF THE CARD
    local sheet
    case $1 in
    *H100* | *H200*) sheet="float32=67 tf32=494 bf16=989" ;;
    *A100*) sheet="float32=19.5 tf32=156 bf16=312" ;;
    *L40S*) sheet="float32=91.6 tf32=183 bf16=362" ;;
    *"RTX 4090"*) sheet="float32=82.6 tf32=82.6 bf16=165" ;;
    *) return 0 ;;
    esac
    awk -v sheet="$sheet" '
        BEGIN { n = split(sheet, pairs, " "); for (i = 1; i <= n; i++) { split(pairs[i], p, "="); most[p[1]] = p[2] } }
        $1 == "bench" && $2 ~ /^card_(peak|products)_tflops_/ {
            precision = $2; sub(/.*_/, "", precision)
            printf "%s: %.0f TFLOP/s, %.1f %% of the data sheet'\''s %s\n", $2, $3, 100 * $3 / most[precision], most[precision]
        }' "$figures"
}

reference() {
    python3 -c 'import jax, needle.model.finetune' 2>/dev/null || {
        echo "the reference implementation is not installed (needle, jax)"
        return 77
    }
    head -n $((3 * 16)) build/bench/mixed.jsonl >"$out/reference.jsonl"
    XLA_PYTHON_CLIENT_PREALLOCATE=false python3 tests/bench/against_reference.py "$out/tests/bench_train" \
        build/bench/base "$out/reference.jsonl" w4a8 16 1024 --device cuda --precision bf16 --no-profile |
        tee -a "$figures"
}

sanitize() { # TOOL
    local said tool=$1
    command -v compute-sanitizer >/dev/null || {
        echo "compute-sanitizer is not installed"
        return 77
    }
    said=$(ONLY=add_scaled compute-sanitizer --tool "$tool" "$test_ops" 2>&1)
    if [[ $said =~ "not supported"|"unable to"|"nsufficient permissions" ]]; then
        tail -n 3 <<<"$said"
        return 77
    fi
    ONLY=${2:-} compute-sanitizer --tool "$tool" --error-exitcode 1 --print-limit 20 "$test_ops"
}

without_library() {
    NEEDLED_CUBLAS=none ONLY=matmul "$test_ops"
}

check_devices() {
    local state
    state=$(mktemp -d)
    "$out/needled" --state-dir "$state" --devices --check
    local status=$?
    rm -rf "$state"
    return "$status"
}

# ---- the run ----------------------------------------------------------------------------------------

over_standin() {
    export NEEDLED_PLUGINS=$out/plugins STEPS=1
    test_ops=$out/standin-fast/test_ops
    "$out/tests/make_lines" 4 5 demo >"$out/gpu-lines.jsonl" # the stand-in is slow
    bench_settings="--base tests/fixtures/needle3/mini --lines $out/gpu-lines.jsonl --max-len 512 --batch 2"
    bench_settings+=" --steps 1 --peak-size 64"
    part "speed, bf16" 900 bench bf16 --no-profile
    ONLY=rmsnorm part "kernels against ref" 900 "$test_ops"
    ONLY='*small_float*' part "recorded losses" 900 "$out/test_golden"
}

on_card() {
    test_ops=$out/gpu/test_ops
    bench_settings="--lines long --batch 64 --steps 4"
    part "kernels against ref" 90 "$test_ops"
    part "recorded losses" 60 "$out/test_golden"
    part "base and lines of the benches" 90 prepare_bench
    for precision in bf16 tf32 float32; do
        part "speed, $precision" 45 bench $precision --no-profile
    done
    part "operations, bf16" 45 bench bf16 --no-peak
    part "the daemon's check of its devices" 60 check_devices
    part "products without cuBLAS" 30 without_library
    part "memcheck" 60 sanitize memcheck
    part "the reference on the same card" 100 reference
    part "racecheck" 60 sanitize racecheck attention
}

run() {
    describe_machine
    if [ "$mode" = standin ]; then
        over_standin
    else
        get_ready
        if ! "$out/show_cuda" | tee /dev/stderr | grep -q '^[1-9][0-9]* devices'; then
            skip "everything" "no card that can be used: the line above says why"
            finish 77
        fi
        on_card
    fi
    printf '\n---- figures\n'
    grep '^bench ' "$figures"
    sheet_shares "$("$out/show_cuda" 2>/dev/null | sed -n 2p)"
    [ $failed -eq 0 ] && [ $passed -gt 0 ]
    finish $?
}

mkdir -p "$out" "$(dirname "$log")"
figures=$out/gpu-figures bench_settings='' test_ops=''
: >"$figures"
export out figures bench_settings test_ops
export -f bench reference sanitize without_library check_devices build prepare_bench
run 2>&1 | tee "$log"; exit "${PIPESTATUS[0]}"
