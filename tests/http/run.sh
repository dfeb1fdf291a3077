#!/bin/sh
# Real clients from PyPI, unmodified, against the built daemon: run.sh OUT [PYTEST-ARGUMENT...], by
# make test-http; ended after twelve minutes.
set -eu

out=${1:?usage: tests/http/run.sh OUT [PYTEST-ARGUMENT...]}
shift
exec "$(dirname "$0")/../support/python/run.sh" "$out" http 720 "$@"
