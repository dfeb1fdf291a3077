#!/bin/sh
# A suite of pytest against the built daemon: run.sh OUT SUITE SECONDS [PYTEST-ARGUMENT...], for tests/SUITE. Makes a
# virtual environment of tests/SUITE/requirements.txt beside the build; ends with "N passed, N failed[, N skipped]".
# Bounded: what takes longer than SECONDS is ended and has failed.
# Where PyPI cannot be reached or Python has no venv, everything is skipped and says why.
set -eu

out=${1:?usage: run.sh OUT SUITE SECONDS [PYTEST-ARGUMENT...]}
suite=$2
seconds=$3
shift 3
cd "$(dirname "$0")/../../.."
venv=$out/$suite-venv
results=$out/$suite-results.xml

skip() {
    echo "skip - tests/$suite: $1"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}

if ! cmp -s "tests/$suite/requirements.txt" "$venv/requirements.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv" >"$venv.log" 2>&1 || skip "no virtual environment: apt-get install python3-venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "tests/$suite/requirements.txt" >"$venv.log" 2>&1 ||
        skip "its packages cannot be installed: $(tail -n 1 "$venv.log")"
    cp "tests/$suite/requirements.txt" "$venv/requirements.txt"
fi

status=0
rm -f "$results"
NEEDLED_OUT=$out timeout -k 10 "$seconds" "$venv/bin/python" -B -m pytest -p no:cacheprovider -q -rfEs --junitxml "$results" "tests/$suite" "$@" || status=$?
"$venv/bin/python" - "$results" <<'EOF'
import sys, xml.etree.ElementTree as tree
passed = failed = skipped = 0
try:
    for suite in tree.parse(sys.argv[1]).getroot().iter("testsuite"):
        bad = int(suite.get("failures")) + int(suite.get("errors"))
        failed += bad
        skipped += int(suite.get("skipped"))
        passed += int(suite.get("tests")) - bad - int(suite.get("skipped"))
except OSError:
    failed = 1
print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
EOF
exit $status
