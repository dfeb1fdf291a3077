#!/bin/sh
# Real clients from PyPI, unmodified, against the built daemon: run.sh OUT [PYTEST-ARGUMENT...], by
# make test-http. Makes a virtual environment beside the build; ends with "N passed, N failed[, N skipped]".
# Bounded: what takes longer than six minutes is ended and has failed.
# Where PyPI cannot be reached or Python has no venv, everything is skipped and says why.
set -eu

out=${1:?usage: tests/http/run.sh OUT [PYTEST-ARGUMENT...]}
shift
cd "$(dirname "$0")/../.."
venv=$out/http-venv
results=$out/http-results.xml

skip() {
    echo "skip - tests/http: $1"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}

if ! cmp -s tests/http/requirements.txt "$venv/requirements.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv" >"$out/http-venv.log" 2>&1 || skip "no virtual environment: apt-get install python3-venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r tests/http/requirements.txt >"$out/http-venv.log" 2>&1 ||
        skip "the clients cannot be installed: $(tail -n 1 "$out/http-venv.log")"
    cp tests/http/requirements.txt "$venv/requirements.txt"
fi

status=0
rm -f "$results"
NEEDLED_OUT=$out timeout -k 10 360 "$venv/bin/python" -B -m pytest -p no:cacheprovider -q -rs --junitxml "$results" tests/http "$@" || status=$?
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
