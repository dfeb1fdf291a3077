#!/bin/sh
# The reference implementation reads the adapters we wrote: run.sh OUT [ADAPTER...], by
# make test-reference. Adapters of real jobs may follow: they are read and checked too.
# Makes a virtual environment with cactus-needle from PyPI beside the build; ends with
# "N passed, N failed".
set -eu

out=${1:?usage: tests/reference/run.sh OUT [ADAPTER...]}
shift
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
venv=$out/reference-venv
adapters=$out/reference-adapters

if ! [ -x "$venv/bin/python" ] ||
    ! cmp -s tests/reference/requirements.txt "$venv/requirements.txt"; then
    rm -rf "$venv"
    if ! python3 -m venv "$venv"; then
        rm -rf "$venv"
        echo "needs Python 3 with venv: apt-get install python3-venv" >&2
        exit 1
    fi
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r tests/reference/requirements.txt
    cp tests/reference/requirements.txt "$venv/requirements.txt"
fi

make --no-print-directory OUT="$out" "$out/tests/test_model_lora_file"
rm -rf "$adapters"
mkdir -p "$adapters"
NEEDLED_ADAPTERS=$adapters "$out/tests/test_model_lora_file" >"$adapters/test.log" 2>&1 || {
    cat "$adapters/test.log"
    exit 1
}
exec "$venv/bin/python" tests/reference/read_adapter.py "$adapters" tests/fixtures/needle3 "$@"
