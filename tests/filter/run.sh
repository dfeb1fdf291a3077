#!/usr/bin/env bash
# The tests of the built programs, with the daemon under the system-call filter of systemd/needled.service: the unit's
# groups are spelled out by systemd-analyze and put in force by libseccomp (filter.c), where no systemd runs to do it.
#   tests/filter/run.sh OUT            tests/http, and the scripts of tests/ops that talk to the daemon
#   tests/filter/run.sh OUT sample     a minute of them
# The last line is "N passed, N failed[, N skipped]".
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$(realpath "$1")
unit=systemd/needled.service
passed=0 failed=0 skipped=0

skip() {
    echo "skip - the unit's system-call filter: $1"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}
command -v systemd-analyze >/dev/null || skip "systemd-analyze is not installed"
[ -x "$out/tests/syscall_filter" ] || skip "libseccomp-dev is not installed"

# names WORD...: the calls of a group, of its groups, or the call itself.
names() {
    local word
    for word in "$@"; do
        case $word in
        @*) names $(systemd-analyze syscall-filter "$word" | sed -n 's/^ \+\([-@a-z0-9_]\+\)$/\1/p') ;;
        *) echo "$word" ;;
        esac
    done
}
filtered=$out/filtered
mkdir -p "$filtered"
: >"$filtered/calls"
while read -r words; do
    case $words in
    ~*) names ${words#\~} | sort -u | comm -13 - "$filtered/calls" >"$filtered/left" && mv "$filtered/left" "$filtered/calls" ;;
    *) names $words | sort -u - "$filtered/calls" >"$filtered/left" && mv "$filtered/left" "$filtered/calls" ;;
    esac
done < <(sed -n 's/^SystemCallFilter=//p' $unit)

# A build folder whose daemon is filtered.
for name in needlectl tests shims http-venv; do
    [ ! -e "$out/$name" ] || [ -e "$filtered/$name" ] || ln -s "$out/$name" "$filtered/$name"
done
printf '#!/bin/sh\nexec "%s" "%s" "%s" "$@"\n' "$out/tests/syscall_filter" "$filtered/calls" "$out/needled" >"$filtered/needled"
chmod 755 "$filtered/needled"

count() { # STATUS LOG NAME
    local ok bad
    ok=$(grep -ac '^ok - ' "$2") bad=$(grep -ac '^not ok - ' "$2")
    [ "$1" -eq 0 ] || [ "$bad" -gt 0 ] || bad=1
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + $(grep -ac '^skip - ' "$2")))
    if [ "$bad" -gt 0 ]; then
        echo "not ok - $3 under the filter (status $1)"
        tests/support/failures.sh "$2" 30
    else
        echo "ok - $3 under the filter: $ok"
    fi
}

work=$(mktemp -d)
log=$work/log
trap 'rm -rf "$work"' EXIT
export NEEDLED_PLUGINS=$work # a plug-in beside the programs is for make test-cuda: no cards here
# The filter is in force, and does what the unit means.
"$out/tests/syscall_filter" "$filtered/calls" /bin/mount -t tmpfs none /mnt >"$log" 2>&1 && echo "not ok - a mount was let through" >>"$log"
"$out/tests/syscall_filter" "$filtered/calls" "$out/needled" --version >>"$log" 2>&1 || echo "not ok - the daemon does not start" >>"$log"
count 0 "$log" "a mount is refused, a start is not"

[ "$failed" = 0 ] || exec sh -c "echo 0 passed, $failed failed; exit 1"
scripts="contract inputs access jobs life queue streams files stop"
[ "${2:-}" != sample ] || scripts="streams files stop"
for script in $scripts; do
    timeout 600 bash "tests/ops/$script.sh" "$filtered" >"$log" 2>&1
    count $? "$log" "tests/ops/$script.sh"
done
if [ "${2:-}" != sample ]; then
    tests/http/run.sh "$filtered" >"$log" 2>&1
    line=$(tail -n 1 "$log")
    echo "tests/http under the filter: $line"
    [ "${line#*, 0 failed}" != "$line" ] || tests/support/failures.sh "$log"
    read -r p f s <<<"$(sed -E 's/^([0-9]+) passed, ([0-9]+) failed(, ([0-9]+) skipped)?$/\1 \2 \4/' <<<"$line")"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + ${s:-0}))
fi
echo "$passed passed, $failed failed$([ $skipped -eq 0 ] || echo ", $skipped skipped")"
[ $failed -eq 0 ]
