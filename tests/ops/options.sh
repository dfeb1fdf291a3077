#!/usr/bin/env bash
# The command line and the settings file: what is refused says why, with status 2.
#   tests/ops/options.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
trap 'rm -rf "$work"' EXIT

# refuses WORDS ARGUMENT...: status 2 and the words on stderr.
refuses() {
    local words=$1 status=0
    shift
    "$out/needled" "$@" >"$work/out" 2>&1 || status=$?
    [ $status -eq 2 ] && grep -q -- "$words" "$work/out"
}
# lacks WORDS ARGUMENT...: the same with status 3, a device that is not there.
lacks() {
    local words=$1 status=0
    shift
    "$out/needled" "$@" >"$work/out" 2>&1 || status=$?
    [ $status -eq 3 ] && grep -q -- "$words" "$work/out"
}
# says WORDS ARGUMENT...: status 0 and the words on stdout.
says() {
    local words=$1
    shift
    "$out/needled" "$@" >"$work/out" 2>/dev/null && grep -q -- "$words" "$work/out"
}

result "an unknown option is named" refuses "'--nonsense'" --nonsense
result "an option without its value is named" refuses "'--listen' wants a value" --listen
result "an unknown platform says what there is" refuses "cpu" --platforms tpu --devices
result "a platform that is missing says why" lacks "cuda" --platforms cuda --devices
export NEEDLED_PLATFORMS=cuda
result "the environment's platform list is held to the same" lacks "cuda" --devices
unset NEEDLED_PLATFORMS
export JAX_PLATFORMS=cpu
result "JAX_PLATFORMS is honoured" says "cpu:0" --devices
unset JAX_PLATFORMS
result "the inventory names the CPU and why CUDA is missing" says "cuda.*not installed" --devices
export NEEDLED_SIMD=plain
result "the level of SIMD is chosen and shown" says "plain, OpenBLAS" --devices
export NEEDLED_SIMD=avx3
result "an unknown level of SIMD says what there is" refuses "NEEDLED_SIMD.*'avx3'.*plain" --devices
result "an option wins over the environment" says "plain, OpenBLAS" --simd plain --devices
unset NEEDLED_SIMD
result "each level of SIMD agrees with plain loops" says "cpu:0 *plain .* agrees\$" --platforms cpu --devices --check
result "--check alone is refused" refuses "'--check' goes with --devices" --check
checks() { says "$1" "${@:2}" --check-config --state-dir "$work/s"; }
result "a device runs one job at once" checks "jobs_per_device  1\$"
export NEEDLED_JOBS_PER_DEVICE=3
result "or as many as the environment says" checks "jobs_per_device  3\$"
echo '{"jobs_per_device": 4}' >"$work/good.json"
result "or the settings file" checks "jobs_per_device  4\$" --config "$work/good.json"
result "or, last, the command line" checks "jobs_per_device  5\$" --jobs-per-device 5 --config "$work/good.json"
for bad in 0 9 -1 2x; do
    result "but not '$bad'" refuses "from 1 to 8" --jobs-per-device "$bad" --check-config
done
export NEEDLED_JOBS_PER_DEVICE=many
result "and a word is refused by name" refuses "NEEDLED_JOBS_PER_DEVICE is 'many'" --check-config
unset NEEDLED_JOBS_PER_DEVICE
result "an address has any number of connections at home" checks "connections_per_address (none on loopback"
echo '{"connections_per_address": 9}' >"$work/good.json"
result "or so many as the settings say" checks "connections_per_address 9\$" --config "$work/good.json"
echo '{"connections_per_address": -1}' >"$work/bad.json"
result "but not fewer than none" refuses "'connections_per_address'" --config "$work/bad.json" --check-config
result "a job is checkpointed every 30 seconds" checks "checkpoint_interval_s 30\$"
result "and not by steps" checks "checkpoint_steps 0\$"
echo '{"checkpoint_interval_s": 5, "checkpoint_steps": 100}' >"$work/good.json"
result "or as often as the settings say, in time" checks "checkpoint_interval_s 5\$" --config "$work/good.json"
result "and in steps" checks "checkpoint_steps 100\$" --config "$work/good.json"
echo '{"checkpoint_interval_s": 0}' >"$work/bad.json"
result "but not all the time" refuses "'checkpoint_interval_s'" --config "$work/bad.json" --check-config
result "500 steps of a finished job are kept" checks "metrics_kept     500\$"
echo '{"metrics_kept": 3}' >"$work/bad.json"
result "but not as few as 3" refuses "metrics_kept is 3" --config "$work/bad.json" --check-config
result "two deaths in one place fail a job" checks "crash_limit      2\$"
echo '{"crash_limit": 0}' >"$work/good.json"
result "or none" checks "crash_limit      0\$" --config "$work/good.json"
result "the version is told" says "needled $(cat daemon/VERSION)" --version
result "the help lists the options" says "--check-config" --help

echo '{"listen": "127.0.0.1:9999", "log_level": "warn"}' >"$work/good.json"
result "settings come from a file" says "127.0.0.1:9999" --config "$work/good.json" --check-config --state-dir "$work/s"
result "the command line wins over the file" says "127.0.0.1:8888" --listen 127.0.0.1:8888 --config "$work/good.json" --check-config --state-dir "$work/s"
echo '{"simd": "plain"}' >"$work/good.json"
result "the level of SIMD may stand in the file" says "plain, OpenBLAS" --config "$work/good.json" --devices
echo '{"simd": "fast"}' >"$work/bad.json"
result "where an unknown one is refused too" refuses "'fast'" --config "$work/bad.json" --check-config
echo '{"listn": "x"}' >"$work/bad.json"
result "an unknown key is named" refuses "listn" --config "$work/bad.json" --check-config
echo '{"listen": 1}' >"$work/bad.json"
result "a wrong type is named" refuses "listen" --config "$work/bad.json" --check-config
echo '{"listen": "x",}' >"$work/bad.json"
result "a file that is not JSON is named" refuses "bad.json" --config "$work/bad.json" --check-config
result "a file that is not there is named" refuses "absent.json" --config "$work/absent.json" --check-config

mkdir -p "$work/foreign"
cp README.md "$work/foreign/needled.db"
cp README.md "$work/before"
"$out/needled" --state-dir "$work/foreign" --listen 127.0.0.1:0 >"$work/out" 2>&1
status=$?
foreign() { [ $status -ne 0 ] && grep -q "needled.db" "$work/out" && cmp -s "$work/before" "$work/foreign/needled.db"; }
result "a file that is no database is refused, named and left as it is" foreign

result "a check of the settings refuses what a start would" refuses "address with a port" --listen nonsense --check-config
refused_early() { refuses "key" --state-dir "$work/open" --listen 0.0.0.0:0 && [ ! -e "$work/open" ]; }
result "nothing is made before the settings are in order" refused_early
result "an address that is not loopback wants a key" refuses "key" --state-dir "$work/open" --listen 0.0.0.0:0

base_folder needle-3
start_daemon "$out"
second() { ! "$out/needled" --state-dir "$work/state" --listen 127.0.0.1:0 >"$work/out" 2>&1 && grep -q "another daemon" "$work/out"; }
result "a second daemon on the same state is refused" second
started=$(date +%s%N)
stop_daemon
status=$?
took_ms=$((($(date +%s%N) - started) / 1000000))
quick() { [ $status -eq 0 ] && [ $took_ms -lt 10000 ]; } # stop.sh has the machine for itself, and asks for less
result "an idle daemon stops at once with status 0 ($took_ms ms)" quick
