#!/usr/bin/env bash
# What ptxas said of each kernel on each target (OUT/cuda/kernels/gpu/*.ptxas) against what a card must have,
# and against the committed table, budget.txt. Prints "ok - what", "not ok - what"; --write rewrites the table.
#   tests/kernels/budget.sh OUT [--write]
set -uo pipefail
cd "$(dirname "$0")/../.."
out=${1:?usage: tests/kernels/budget.sh OUT [--write]}
table=${BUDGET:-tests/kernels/budget.txt}
nvcc=${NVCC:-nvcc}
found=$(mktemp)
trap 'rm -f "$found"' EXIT

compiler="nvcc $("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p')"
cat "$out"/cuda/kernels/gpu/*.ptxas 2>/dev/null | awk '
    # KERNEL TARGET REGISTERS SHARED STACK SPILLED
    /Compiling entry function/ { gsub("\047", ""); kernel = $7; target = $9; shared = 0 }
    /bytes stack frame/ { stack = $1; spilled = $5 + $9 }
    /Used [0-9]+ registers/ {
        for (i = 2; i < NF; i++)
            if ($(i + 1) == "bytes" && $(i + 2) ~ /^smem/) shared = $i
        print kernel, target, $5, shared, stack, spilled
    }' | sort >"$found"
[ -s "$found" ] || { echo "not ok - kernels were compiled into $out/cuda"; exit 1; }

# What no kernel may do on any card.
limits=$(awk '
    $6 > 0 { print "  " $1 " on " $2 ": " $6 " bytes spilled" }
    $3 * 256 > 65536 { print "  " $1 " on " $2 ": " $3 " registers, so that 256 threads do not fit" }
    $4 > 32768 { print "  " $1 " on " $2 ": " $4 " bytes of shared memory, 32768 are allowed" }' "$found")

if [ "${2:-}" = --write ]; then
    [ -z "$limits" ] || { printf 'not written: a card must have more\n%s\n' "$limits" >&2; exit 1; }
    awk -v compiler="$compiler" '
        BEGIN {
            print "# Registers of each kernel on each target, the most shared memory and stack frame (bytes) on any of them."
            print "# A rise fails the tests. Written by `make cuda-budget`: look at the difference before it is committed."
            print "# compiler: " compiler
        }
        !($2 in seen_target) { seen_target[$2]; targets[++target_count] = $2 }
        !($1 in seen) { seen[$1]; kernels[++kernel_count] = $1 }
        { registers[$1, $2] = $3 }
        $4 > shared[$1] { shared[$1] = $4 }
        $5 > stack[$1] { stack[$1] = $5 }
        END {
            for (i = 1; i <= target_count; i++) # by number
                for (k = i + 1; k <= target_count; k++)
                    if (substr(targets[k], 4) + 0 < substr(targets[i], 4) + 0) { t = targets[i]; targets[i] = targets[k]; targets[k] = t }
            printf "%-34s", "kernel"
            for (i = 1; i <= target_count; i++) printf " %6s", targets[i]
            printf " %7s %6s\n", "shared", "stack"
            for (k = 1; k <= kernel_count; k++) {
                printf "%-34s", kernels[k]
                for (i = 1; i <= target_count; i++) printf " %6d", registers[kernels[k], targets[i]]
                printf " %7d %6d\n", shared[kernels[k]], stack[kernels[k]]
            }
        }' "$found" >"$table.part" && mv "$table.part" "$table" && echo "$table: $(grep -c '^gpu_' "$table") kernels"
    exit
fi

check() { # WHAT FOUND: nothing found is a pass
    if [ -z "$2" ]; then echo "ok - $1"; else printf 'not ok - %s\n%s\n' "$1" "$2"; fi
}
against_table() {
    awk '
        FNR == NR && /^#/ { next }
        FNR == NR && $1 == "kernel" { for (i = 2; i <= NF; i++) column[i] = $i; next }
        FNR == NR { for (i = 2; i <= NF; i++) budget[$1, column[i]] = $i; listed[$1]; next }
        { met[$1] }
        !($1 in listed) { if (!told[$1]++) print "  " $1 " is not in the table"; next }
        !(($1, $2) in budget) { if (!told[$2]++) print "  " $2 " is not in the table"; next }
        $3 > budget[$1, $2] { print "  " $1 " on " $2 ": " $3 " registers, budget " budget[$1, $2] }
        $4 > budget[$1, "shared"] { print "  " $1 " on " $2 ": " $4 " bytes of shared memory, budget " budget[$1, "shared"] }
        $5 > budget[$1, "stack"] { print "  " $1 " on " $2 ": a stack frame of " $5 " bytes, budget " budget[$1, "stack"] }
        END { for (kernel in listed) if (!(kernel in met)) print "  " kernel " is in the table, but there is no such kernel" }
        ' "$table" "$found"
}

check "$(wc -l <"$found") kernels and targets without spills, with 256 threads and 32 KB a group" "$limits"
if grep -qx "# compiler: $compiler" "$table"; then
    check "none takes more than the table allows (if it must: make cuda-budget)" "$(against_table)"
else
    echo "skip - registers against the table: it is of another compiler than $compiler"
fi
