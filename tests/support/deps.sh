#!/usr/bin/env bash
# The Debian packages named as arguments: installs those that are missing as root with apt-get, otherwise
# prints the one command to run and stops. Where there is no dpkg it says so and lets the build try.
#   tests/support/deps.sh [--say] PACKAGE...    --say: print the command also as root
set -euo pipefail

say=
[ "${1:-}" = --say ] && say=1 && shift

if ! command -v dpkg-query >/dev/null; then
    echo "No dpkg here, so the packages are not checked. On Debian 12 they are: $*" >&2
    exit 0
fi
missing=()
for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

install="apt-get install -y --no-install-recommends ${missing[*]}"
if [ -n "$say" ] || [ "$(id -u)" -ne 0 ]; then
    echo "These packages are missing. Run this, then try again:"
    echo
    if [ "$(id -u)" -eq 0 ]; then
        echo "    apt-get update && $install"
    elif command -v sudo >/dev/null; then
        echo "    sudo apt-get update && sudo $install"
    else
        echo "    su -c 'apt-get update && $install'"
    fi
    echo
    exit 1
fi

echo "installing (takes about a minute): ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# a broken foreign source fails the update alone; whether the packages are there is for the install to say
if ! { apt-get update || true; $install; } >"$log" 2>&1; then
    tail -n 20 "$log"
    echo
    echo "apt-get could not install them (above is the end of what it said). When that is mended, try again, or run:"
    echo
    echo "    apt-get update && $install"
    echo
    exit 1
fi
