#!/usr/bin/env bash
# Runs the built tests and adds up what they say; the last line is "N passed, N failed[, N skipped]".
#   tests/run.sh OUT          every unit test, then the scripts in tests/ops
#   tests/run.sh OUT unit     the unit tests alone
#   tests/run.sh OUT tsan     the rooms with threads, for a thread-sanitizer build
# OUT is the build folder (build/release). A program that dies counts as one failure.
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: tests/run.sh OUT [unit|tsan]}
what=${2:-all}

passed=0 failed=0 skipped=0
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
export NEEDLED_PLUGINS=$logs # a plug-in beside the programs is for make test-cuda: no cards here
export TSAN_OPTIONS="suppressions=$PWD/tests/support/tsan.supp ${TSAN_OPTIONS:-}"
export LSAN_OPTIONS="suppressions=$PWD/tests/support/lsan.supp ${LSAN_OPTIONS:-}"

# count LOG STATUS NAME: adds the "[  PASSED  ] 3 test(s)." style lines of one program.
count() {
    local ok bad skip
    ok=$(grep -ac '^\[       OK \]' "$1")
    # cmocka repeats each failing and each skipped name in its closing list
    bad=$(grep -a '^\[  FAILED  \] [a-z]' "$1" | sort -u | wc -l)
    skip=$(grep -a '^\[  SKIPPED \] [a-z]' "$1" | sort -u | wc -l)
    [ "$2" -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
    if [ "$bad" -gt 0 ]; then
        printf 'FAIL  %-40s %d ok, %d failed (status %d)\n' "$3" "$ok" "$bad" "$2"
        tests/support/failures.sh "$1"
    else
        printf 'ok    %-40s %d ok%s\n' "$3" "$ok" "$([ "$skip" -gt 0 ] && echo ", $skip skipped")"
    fi
}

# Two at a time: most are single-threaded.
names=()
for source in tests/unit/test_*.c; do
    name=$(basename "$source" .c)
    if [ "$what" = tsan ]; then
        case $name in test_kernels_cpu*|test_store_*|test_sched_*|test_api_*) ;; *) continue ;; esac
    fi
    names+=("$name")
done
export out logs
run_one() {
    timeout 1200 "$out/tests/$1" >"$logs/$1" 2>&1
    echo $? >"$logs/$1.status"
}
export -f run_one
printf '%s\n' "${names[@]}" | tac | xargs -P "$(nproc)" -I{} bash -c 'run_one {}' # the trainer's are the longest
for name in "${names[@]}"; do
    count "$logs/$name" "$(cat "$logs/$name.status" 2>/dev/null || echo 255)" "$name"
done

# The scripts too; one that says "# Alone: why" has the machine for itself.
run_script() {
    local log=$logs/$(basename "$1") started=$SECONDS
    timeout 900 bash "$1" "$out" >"$log" 2>&1
    echo $? >"$log.status"
    echo $((SECONDS - started)) >"$log.seconds"
}
export -f run_script
if [ "$what" = all ]; then
    mapfile -t shared < <(grep -L '^# Alone: ' tests/ops/*.sh)
    mapfile -t alone < <(grep -l '^# Alone: ' tests/ops/*.sh)
    printf '%s\n' "${shared[@]}" | xargs -P "$(nproc)" -I{} bash -c 'run_script {}'
    [ ${#alone[@]} -gt 0 ] && printf '%s\n' "${alone[@]}" | xargs -I{} bash -c 'run_script {}'
    for script in tests/ops/*.sh; do
        log=$logs/$(basename "$script") name=${script#tests/}
        status=$(cat "$log.status" 2>/dev/null || echo 255)
        # a script prints "ok - what" and "not ok - what", and "skip - what: reason"
        ok=$(grep -ac '^ok - ' "$log")
        bad=$(grep -ac '^not ok - ' "$log")
        skip=$(grep -ac '^skip - ' "$log")
        [ "$status" -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
        passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
        if [ "$bad" -gt 0 ]; then
            printf 'FAIL  %-40s %d ok, %d failed (status %d)\n' "$name" "$ok" "$bad" "$status"
            tests/support/failures.sh "$log"
        else
            printf 'ok    %-40s %d ok%s, %d s\n' "$name" "$ok" \
                "$([ "$skip" -gt 0 ] && echo ", $skip skipped")" "$(cat "$log.seconds")"
            grep -a '^skip - ' "$log"
        fi
    done
fi

echo
if [ "$skipped" -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
