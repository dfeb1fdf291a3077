#!/usr/bin/env bash
# The static checks; each prints what it finds. The last line is "N passed, N failed[, N skipped]".
set -uo pipefail
cd "$(dirname "$0")/../.."
passed=0 failed=0 skipped=0

sources() { git ls-files -co --exclude-standard "$@"; }

# check NAME OUTPUT: nothing found is a pass.
check() {
    if [ -z "$2" ]; then
        echo "ok - $1"
        passed=$((passed + 1))
    else
        echo "not ok - $1"
        printf '%s\n' "$2" | head -n 40
        failed=$((failed + 1))
    fi
}
skip() {
    echo "skip - $1: $2"
    skipped=$((skipped + 1))
}

rooms() {
    local room allowed
    while IFS=$'\t' read -r room allowed; do
        [[ $room == \#* ]] && continue
        sources "$room*" | grep -E '\.(c|h|cc|cu)$' | xargs -r grep -nE '^#include "' |
            grep -vE "#include \"($allowed)" | sed "s|^|$room may not: |"
    done <tests/lint/rooms.txt
}
banned() { # in the product; a test may start programs and read numbers as it likes
    local name instead
    while IFS=$'\t' read -r name instead; do
        [[ $name == \#* ]] && continue
        sources '*.c' '*.h' '*.cc' '*.cu' | grep -v '^tests/' | xargs grep -nE "(^|[^a-zA-Z0-9_>.\"-])$name\(" | grep -v '^\S*: \*' |
            sed "s|\$|    (use $instead)|"
    done <tests/lint/banned.txt
}
# A file of the state or of a base is opened by file_open, which waits for no pipe; these can be none.
opens() {
    sources 'api/*.c' 'daemon/*.c' 'daemon/*.cc' 'store/*.c' | grep -vxE 'daemon/base/file\.c|api/dashboard/embed\.c' |
        xargs grep -nE '(^|[^a-zA-Z0-9_>."-])(open|open64|openat|fopen|freopen|creat)\(' |
        grep -vE '"/(proc|dev)/|O_EXCL|O_DIRECTORY|/\* a device \*/'
}
line_comments() { sources '*.c' '*.h' '*.cu' | xargs grep -nE '(^|[ ;{}])//' | grep -vE '"[^"]*//[^"]*"'; }
long_files() { sources '*.c' '*.h' '*.cc' '*.cu' | xargs wc -l | awk '$2 != "total" && $1 > 600 { print $2 ": " $1 " lines" }'; }
long_lines() { # of C the format is checked, which holds them too
    sources 'client/dashboard/*.js' 'client/dashboard/*.css' |
        LC_ALL=C.UTF-8 xargs grep -nE '^.{101,}' | sed 's/:\([0-9]*\):.*/:\1: more than 100 columns/'
}
todo() { sources '*.c' '*.h' '*.cc' '*.cu' '*.sh' Makefile | grep -v '^tests/lint/' | xargs grep -nE 'TODO|FIXME' | grep -v '#[0-9]'; }
top_level() {
    git ls-files -co --exclude-standard | cut -d/ -f1 | sort -u |
        grep -vxE 'Makefile|daemon|kernels|api|store|systemd|tests|client|README.md|LICENSE|\..*'
}
# Data become text nodes; nothing is asked of another origin (names of XML are no addresses to load).
dashboard() {
    sources 'client/dashboard/*.js' 'client/dashboard/*.html' 'client/dashboard/*.css' |
        xargs grep -nE 'innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|https?://[a-z]|style="| on[a-z]+="' |
        grep -vE 'http://www\.w3\.org/2000/svg'
}
header_manuals() {
    sources '*.h' | while read -r header; do
        for word in Purpose Ownership Threads Failure; do
            grep -qE "^ \* $word  " "$header" || echo "$header: no line '$word' in its top comment"
        done
    done
}
functions() { # longer than 70 lines or with more than 6 parameters, kernels excepted for the latter
    sources 'daemon/*.c' 'store/*.c' 'api/*.c' 'client/*.c' 'kernels/*.c' 'kernels/*.cu' | xargs awk '
        FNR == 1 { start = 0 }
        /^[a-z].*[^;]$/ && !/^(struct|enum|static const|typedef|union|extern)[^(]*$/ { head = FNR }
        /^{/ { start = FNR }
        /^}/ { if (start && FNR - start > 71) print FILENAME ":" start ": function of " FNR - start " lines"; start = 0 }'
}

hazards() { # each test that the table names is there; a unit test also in its list
    local reference file name
    grep -oE '`[a-z]+/[^`: ]+: [^`]+`' tests/ops/HAZARDS.md | tr -d '`' | sort -u | while IFS= read -r reference; do
        file=tests/${reference%%: *} name=${reference#*: }
        if ! grep -qF -- "$name" "$file" 2>/dev/null; then
            echo "tests/ops/HAZARDS.md: $file has no '$name'"
        elif [[ $file == *.c ]] && [ "$(grep -cwF -- "$name" "$file")" -lt 2 ]; then
            echo "tests/ops/HAZARDS.md: $file does not run '$name'"
        fi
    done
    awk -F' *[|] *' '/^[|]/ && !/^[|] (---|Situation)/ && $4 !~ /`/ && $4 !~ /^\*Open\*/ { print "tests/ops/HAZARDS.md:" FNR ": no proof: " $2 }' \
        tests/ops/HAZARDS.md
}

check "rooms include what they may" "$(rooms)"
check "banned calls" "$(banned)"
check "files are opened by file_open" "$(opens)"
check "comments are /* */" "$(line_comments)"
check "files have at most 600 lines" "$(long_files)"
check "functions have at most 70 lines" "$(functions)"
check "lines of scripts and styles have at most 100 columns" "$(long_lines)"
check "no marker without an issue number" "$(todo)"
check "the top level is the agreed one" "$(top_level)"
check "the dashboard writes no markup and names no other origin" "$(dashboard)"
check "every header is a manual" "$(header_manuals)"
check "each situation has its proof" "$(hazards)"

if command -v clang-format >/dev/null; then
    check "format" "$(sources '*.c' '*.h' '*.cc' '*.cu' | xargs clang-format --dry-run -Werror 2>&1 | grep 'error:')"
else
    skip "format" "clang-format is not installed"
fi
if command -v cppcheck >/dev/null; then
    check "cppcheck" "$(sources '*.c' | grep -v '^tests/' | xargs cppcheck -q -j2 --std=c11 -I. \
        --enable=warning,performance,portability --inline-suppr --suppressions-list=tests/lint/cppcheck.txt \
        --error-exitcode=0 2>&1 | grep -E '(error|warning|performance|portability):')"
else
    skip "cppcheck" "cppcheck is not installed"
fi
if command -v clang-tidy >/dev/null; then
    check "clang-tidy" "$(sources '*.c' | grep -v '^tests/' | xargs -P2 -n8 tests/lint/tidy.sh 2>/dev/null |
        grep -E '(warning|error):' | sort -u)"
else
    skip "clang-tidy" "clang-tidy is not installed"
fi

echo
if [ $skipped -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ $failed -eq 0 ]
