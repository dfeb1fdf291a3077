#!/bin/sh
# The dashboard in a real browser, Debian's Chromium without a screen: run.sh OUT [PYTEST-ARGUMENT...], by
# make test-browser; ended after fifteen minutes. Pictures of every page lie in OUT/screenshots afterwards.
set -eu

out=${1:?usage: tests/browser/run.sh OUT [PYTEST-ARGUMENT...]}
shift
if ! command -v chromium >/dev/null || ! command -v chromedriver >/dev/null; then
    echo "skip - tests/browser: no browser: apt-get install chromium chromium-driver"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
exec "$(dirname "$0")/../support/python/run.sh" "$out" browser 900 "$@"
