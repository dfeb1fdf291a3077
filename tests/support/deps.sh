#!/usr/bin/env bash
# Installs the Debian packages named as arguments that are missing: as root with apt-get, otherwise it
# prints the one command to run and stops.
set -euo pipefail

missing=()
for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "These packages are missing. Run this, then try again:"
    echo
    echo "    sudo apt-get update && sudo apt-get install -y ${missing[*]}"
    echo
    exit 1
fi
echo "installing: ${missing[*]}"
log=$(mktemp)
if ! { DEBIAN_FRONTEND=noninteractive apt-get update &&
       DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log"
    exit 1
fi
rm -f "$log"
