#!/bin/sh
# What failed, out of a log: failures.sh LOG [LINES [COLUMNS]]
# The lines that say so, with what explains them: a script's "not ok" and the lines behind it, cmocka's failed tests with
# their assertions, a sanitizer's report and its first frames, pytest's, a crash, an error of a compiler or of make. A log
# without any of them shows its end. At most LINES (60), each cut at COLUMNS (1000).
lines=${2:-60} columns=${3:-1000}
LC_ALL=C awk -v max="$lines" '
    function say() { if (count++ < max) print; else left++ }
    /^(ok|skip) +- / || /^ok    / { behind = frames = 0; next }
    /^not ok - / || /^FAIL  / { behind = 3; say(); next }
    /^\[  ERROR   \] / || /: error: Failure!/ || /^\[  FAILED  \] [A-Za-z]/ { if (!seen[$0]++) say(); next }
    /^end: / { say(); next }
    /^(FAILED|ERROR) [^ ]+::/ || /^E   / { say(); next }
    /(ERROR|WARNING): [A-Za-z]*Sanitizer/ || /^==[0-9]+== ?ERROR: / || /: runtime error: / { frames = 8; say(); next }
    frames > 0 && /^ +#[0-9]+ / { frames--; say(); next }
    /^SUMMARY: / || /Assertion .* failed/ || /^Traceback / || /(Segmentation fault|core dumped|terminate called)/ { say(); next }
    /: (fatal )?error: / || /undefined reference to/ || /^make(\[[0-9]+\])?: \*\*\* / || /: line [0-9]+: .*: (command not found|unbound variable)/ { say(); next }
    behind > 0 && NF { behind--; say(); next }
    END { if (left) print "(and " left " more such lines)"; exit !count }
' "$1" >"$1.failures" || tail -n 15 "$1" | sed '/^$/d; s/^/end: /' >"$1.failures"
cut -c "1-$columns" "$1.failures"
rm -f "$1.failures"
