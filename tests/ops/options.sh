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

# ---- what can never work
# bad SETTINGS WORDS: refused by name, by a start too.
bad() {
    echo "$1" >"$work/bad.json"
    result "refused: $1" refuses "$2" --config "$work/bad.json" --state-dir "$work/s" --check-config
}
bad '{"public_url": "foo"}' "public_url is 'foo', needed is http:// or https://"
bad '{"public_url": "https://a b/"}' "public_url is "
bad '{"public_url": "https://x.org/?a"}' "public_url is "
bad '{"public_url": "ftp://x.org"}' "public_url is "
bad '{"public_url": "http://x.org:0"}' "public_url is "
bad '{"public_url": "http://user@x.org"}' "public_url is "
bad '{"allowed_hosts": "a/b"}' "allowed_hosts has 'a/b', needed are names of hosts"
bad '{"allowed_hosts": "good.org, x.org:80"}' "allowed_hosts has 'x.org:80'"
bad '{"allowed_hosts": "*.x.org"}' "allowed_hosts has '\*.x.org'"
bad '{"webhook_hosts": "http://x"}' "webhook_hosts has 'http://x', needed are names"
bad '{"webhook_hosts": "*x.org"}' "webhook_hosts has '\*x.org'"
bad "{\"socket_path\": \"/$(printf 'x%.0s' $(seq 120))\"}" "socket_path is .*a socket's path has at most 107"
bad '{"socket_path": "/nowhere/at/all.sock"}' "there is no folder '/nowhere/at'"
bad '{"socket_path": "/etc/passwd"}' "is there and is no socket"
bad '{"models_dir": "/etc/passwd"}' "models_dir is '/etc/passwd', and '/etc/passwd' is no folder"
bad '{"disk_reserve_mb": 16777216}' "disk_reserve_mb is 16777216, the whole disk"
printf 'two words\n' >"$work/key"
bad "{\"api_key_file\": \"$work/key\"}" "has a blank or control character in the key"
result "refused: a state folder that is none" refuses "state_dir is '/dev/null', and '/dev/null' is no folder" --state-dir /dev/null --check-config
result "or lies below a file" refuses "state_dir is '/etc/passwd/a', and '/etc/passwd' is no folder" --state-dir /etc/passwd/a --check-config
result "a start neither" refuses "'/etc/passwd' is no folder" --state-dir /etc/passwd/a --listen 127.0.0.1:0
statuses=
mkdir "$work/elsewhere" && touch -d '20 days ago' "$work/elsewhere/photo"
for thing in "ln -s $work/elsewhere uploads" "touch uploads" "ln -s $work/elsewhere strays" "touch strays"; do
    rm -rf "$work/odd" && mkdir "$work/odd"
    (cd "$work/odd" && $thing)
    timeout 30 "$out/needled" --state-dir "$work/odd" --listen 127.0.0.1:0 >"$work/out" 2>&1
    statuses+="$? "
done
result "a folder of the state that is a link or a file is status 4" [ "$statuses" = "4 4 4 4 " ]
statuses=
for thing in "mkfifo lock" "ln -s ../elsewhere/photo lock"; do
    rm -rf "$work/odd" && mkdir "$work/odd"
    (cd "$work/odd" && $thing)
    timeout 30 "$out/needled" --state-dir "$work/odd" --listen 127.0.0.1:0 >"$work/out" 2>&1
    statuses+="$? "
done
result "a lock that is a pipe or a link is status 4" [ "$statuses" = "4 4 " ]
result "and nothing behind such a link is removed" [ -e "$work/elsewhere/photo" ]
many() { (export LISTEN_FDS=99999999; exec bash -c 'LISTEN_PID=$BASHPID exec "$@"' - "$out/needled" --state-dir "$work/s" >"$work/out" 2>&1); [ $? = 2 ] && grep -q "99999999 sockets were passed" "$work/out"; }
result "more sockets than can be passed are status 2" many
result "a check makes nothing" [ ! -e "$work/s" ]
echo '{"public_url": "https://x.org:8443/needled/", "allowed_hosts": "a.org, B-2.org ::1", "webhook_hosts": "*, *.x.org, 10.0.0.7, a_b"}' >"$work/good.json"
result "what may work is taken" checks "public_url *https://x.org:8443/needled/\$" --config "$work/good.json"
echo '{"public_url": "http://[::1]:80"}' >"$work/good.json"
result "an address too" checks "public_url *http://\[::1\]:80\$" --config "$work/good.json"

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
