#!/usr/bin/env bash
# Runs the tests of kernels/gpu that were built into OUT (make test-cuda), and compiles the kernels for the
# kinds of card whose compilers are installed. The last line is "N passed, N failed[, N skipped]".
#   tests/kernels/run.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=${1:?usage: tests/kernels/run.sh OUT}
passed=0 failed=0 skipped=0
logs=$(mktemp -d)
log=$logs/log
trap 'rm -rf "$logs"' EXIT
export OPENBLAS_NUM_THREADS=1 LSAN_OPTIONS="suppressions=$PWD/tests/support/lsan.supp ${LSAN_OPTIONS:-}"

# said NAME OK BAD SKIPPED: adds up and says so; with failures, what failed too.
said() {
    passed=$((passed + $2)) failed=$((failed + $3)) skipped=$((skipped + $4))
    if [ "$3" -gt 0 ]; then
        printf 'FAIL  %-40s %d ok, %d failed\n' "$1" "$2" "$3"
        tests/support/failures.sh "$log"
    else
        printf 'ok    %-40s %d ok%s\n' "$1" "$2" "$([ "$4" -gt 0 ] && echo ", $4 skipped")"
    fi
}
skip() {
    echo "skip - $1: $2"
    skipped=$((skipped + 1))
}

# ---- programs and scripts, two at once --------------------------------------------------------------------------------

started=()

# start KIND NAME COMMAND...: when fewer than two run.
start() {
    local number=${#started[@]}
    started+=("$1 $2")
    shift 2
    while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done
    { timeout 1800 "$@" >"$logs/$number" 2>&1; echo $? >"$logs/$number.status"; } &
}
program() { start cmocka "$@"; } # NAME COMMAND...
script() { start shell "$@" "$out"; } # NAME PATH

# Waits for all, and tells of them in the order in which they were started.
finish() {
    local number ok bad skips status
    wait
    for number in "${!started[@]}"; do
        log=$logs/$number status=$(cat "$logs/$number.status" 2>/dev/null || echo 1)
        case ${started[number]} in
        cmocka*)
            ok=$(grep -ac '^\[       OK \]' "$log")
            bad=$(grep -a '^\[  FAILED  \] [a-z]' "$log" | sort -u | wc -l)
            skips=$(grep -a '^\[  SKIPPED \] [a-z]' "$log" | sort -u | wc -l)
            ;;
        *)
            ok=$(grep -ac '^ok - ' "$log") bad=$(grep -ac '^not ok - ' "$log") skips=$(grep -ac '^skip - ' "$log")
            grep -a '^skip - ' "$log"
            ;;
        esac
        [ "$status" -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
        said "${started[number]#* }" "$ok" "$bad" "$skips"
    done
    log=$logs/log started=()
}

for build in asan race fast; do # the longest first
    program "test_ops, $build" "$out/standin-$build/test_ops"
done
for build in fast asan race; do
    for test in standin cublas reports faults step; do
        program "test_$test, $build" "$out/standin-$build/test_$test"
    done
    NEEDLED_CUBLAS=none ONLY=matmul program "test_ops, $build, without cuBLAS" "$out/standin-$build/test_ops"
done

# Of the recorded runs the first steps: the second's adapter has moved, and each takes ten seconds.
STANDIN_SEAL=1 NEEDLED_PLUGINS=$out/plugins STEPS=2 program "test_golden" "$out/test_golden"
# As OpenCL, on the processor: the one build in which the OpenCL halves of gpu.h run. Races and bounds are for
# test_ops's race build and for make test-gpu-deep.
if [ ! -x "$out/opencl/test_opencl" ]; then
    skip "kernels over OpenCL" "ocl-icd-opencl-dev is not installed"
elif ! compgen -G '/etc/OpenCL/vendors/pocl*.icd' >/dev/null; then
    skip "kernels over OpenCL" "pocl-opencl-icd is not installed"
else
    mkdir -p "$out/opencl/cache"
    POCL_CACHE_DIR=$out/opencl/cache program "test_opencl, PoCL" "$out/opencl/test_opencl"
fi
script "plug-in and probe" tests/kernels/plugin.sh
script "the daemon on cards" tests/kernels/daemon.sh
script "cards shared, full and broken" tests/kernels/cards.sh
script "the check of cards" tests/kernels/check.sh
script "the script for a card" tests/kernels/gpu.sh

# ---- for cards: one check a kind ------------------------------------------------------------------

if [ -d "$out/cuda" ] && command -v "${NVCC:-nvcc}" >/dev/null; then
    script "registers, spills, shared memory" tests/kernels/budget.sh
else
    skip "kernels for CUDA" "nvcc is not installed"
fi
finish

each_kernel() { # NAME COMMAND...: every kernel file through the command
    local name=$1
    shift
    printf '%s\n' kernels/gpu/*.cu |
        xargs -P "$(nproc)" -I{} sh -c '"$@" "$0" && echo "ok - $0" || echo "not ok - $0"' {} "$@" >"$log" 2>&1
    said "$name" "$(grep -ac '^ok - ' "$log")" "$(grep -ac '^not ok - ' "$log")" 0
}

# Strictly OpenCL C 1.2, without the extensions a card may lack; float16 is only loaded.
if command -v clang >/dev/null; then
    each_kernel "OpenCL C 1.2" clang -x cl -cl-std=CL1.2 -pedantic -Wall -Wextra -Werror -target spir64-unknown-unknown \
        -Xclang -finclude-default-header -Xclang -cl-ext=-all,+cl_khr_fp16 -DGPU_OPENCL -I. -fsyntax-only
else
    skip "kernels for OpenCL" "clang is not installed"
fi
if command -v hipcc >/dev/null; then
    # it leaves an empty folder per kernel
    mkdir "$logs/hip"
    TMPDIR=$logs/hip each_kernel "HIP" hipcc -x hip --offload-arch=gfx90a -std=c++17 -O2 -Wall -Wextra -Werror -I. -c -o /dev/null
else
    skip "kernels for HIP" "hipcc is not installed"
fi

echo
if [ $skipped -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ $failed -eq 0 ] && [ $passed -gt 0 ]
