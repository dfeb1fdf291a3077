#!/usr/bin/env bash
# The daemon under a service manager, as sd_notify(3), sd_listen_fds(3) and sd_watchdog_enabled(3) have it, with
# tests/support/manager.py in systemd's place: what is told and when, the watchdog with threads that do not move,
# settings read again, stops, sockets passed to it, credentials; and the units, with systemd-analyze.
#   tests/ops/service.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
trap 'stop_daemon >/dev/null 2>&1; let_go; hush; rm -rf "$work"' EXIT
status= answer=
export LSAN_OPTIONS=${LSAN_OPTIONS:-}:detect_leaks=0 # it would want to hold our threads itself

if ! command -v python3 >/dev/null; then
    echo "skip - the daemon under a service manager: python3 is not installed"
    exit 0
fi

hearer=
# hear: messages go to $work/told from here on.
hear() {
    hush
    rm -f "$work/notify" "$work/told"
    : >"$work/needled.log"
    python3 tests/support/manager.py hear "$work/notify" "$work/told" "$work/needled.log" &
    hearer=$!
    wait_for 10 [ -S "$work/notify" ]
    export NOTIFY_SOCKET=$work/notify
}
hush() {
    unset NOTIFY_SOCKET
    [ -z "$hearer" ] || { kill "$hearer"; wait "$hearer"; } 2>/dev/null
    hearer=
}
heard() { grep -Pq -- "$1" "$work/told"; }        # a Perl pattern
logged() { grep -Pq -- "$1" "$work/needled.log"; }
pings() { grep -c 'WATCHDOG=1' "$work/told"; }
# pinged N: as many pings have come since $before.
pinged() { [ $(($(pings) - before)) -ge "$1" ]; }

holder=
# hold NAME: the threads of that name stand still.
hold() {
    : >"$work/held"
    python3 tests/support/manager.py hold "$daemon" "$1" >"$work/held" 2>&1 &
    holder=$!
    wait_for 10 grep -q '^held [1-9]' "$work/held"
}
let_go() {
    [ -z "$holder" ] || { kill "$holder"; wait "$holder"; } 2>/dev/null
    holder=
}

base_folder needle-3
mkdir -p "$work/state/models/mini"
cp tests/fixtures/needle3/mini/base.safetensors tests/fixtures/needle3/mini/tokenizer.model "$work/state/models/mini/"
lasting_lines >"$work/data.jsonl"

# moves: the job makes steps under this daemon.
moves() { curl -s "$url/v1/fine_tuning/jobs/$id/events?limit=1" | grep -q '"type":"metrics"'; }

# ---- ready, status, reload --------------------------------------------------------------------------------

settings() { echo "{$1}" >"$work/settings.json"; }
key() { echo "$1" >"$work/key" && chmod 600 "$work/key"; }
key first-key
settings "\"api_key_file\": \"$work/key\", \"log_level\": \"info\""
hear
start_daemon "$out" --config "$work/settings.json" || exit 1
expect "READY comes once the port answers" wait_for 20 heard '^answered 200'
expect "time is asked for while it starts" heard 'EXTEND_TIMEOUT_USEC=\d+'
expect "the status says that nothing runs" wait_for 10 heard 'STATUS=idle'
with_key() { call -H "Authorization: Bearer $1" "${@:2}"; }
with_key first-key -F purpose=fine-tune -F "file=@$work/data.jsonl" "$url/v1/files"
file=$(field id <<<"$answer")
with_key first-key -H 'Content-Type: application/json' "$url/v1/fine_tuning/jobs" \
    -d "{\"model\":\"mini\",\"training_file\":\"$file\",\"hyperparameters\":{$lasting}}"
id=$(field id <<<"$answer")
expect "the status says which job runs where, and how far it is" \
    wait_for 60 heard "STATUS=training $id on cpu:0, step \d+ of \d+"
statuses() { grep -c 'STATUS=training' "$work/told"; }
sleep 3
expect "about once a second, however fast the steps are" [ "$(statuses)" -le $((SECONDS + 2)) ]

key second-key
settings "\"api_key_file\": \"$work/key\", \"log_level\": \"debug\", \"allowed_hosts\": \"tuner.test\",
    \"upload_limit_mb\": 1, \"jobs_per_device\": 2"
kill -HUP "$daemon"
expect "SIGHUP: a reload is told with its time, and its end" wait_for 20 heard 'RELOADING=1 \| MONOTONIC_USEC=\d+'
wait_for 20 logged 'settings were read again'
with_key first-key "$url/v1/files"
expect "the old key is over" is "$status" 401
with_key second-key "$url/v1/files"
expect "the new one is in force" is "$status" 200
with_key second-key -H 'Host: tuner.test' "$url/v1/files"
expect "so is a new name of this server" is "$status" 200
head -c 1200000 /dev/zero >"$work/large"
with_key second-key -F purpose=fine-tune -F "file=@$work/large" "$url/v1/files"
expect "and the limit of an upload" is "$status" 413
expect "what has to wait for a start is named" wait_for 10 logged 'level=warn .*next start: jobs_per_device'
with_key second-key "$url/v1/files"
expect "and the level of the log" wait_for 10 logged 'level=debug'
key third-key
settings '"listen": 7'
kill -HUP "$daemon"
expect "settings that cannot be read are told" wait_for 20 logged 'level=error .*settings stay as they were: .*listen'
settings '"public_url": "foo"'
kill -HUP "$daemon"
expect "and so are those that can never work" wait_for 20 logged 'level=error .*settings stay as they were: .*public_url is .foo.'
with_key second-key "$url/v1/files"
expect "and the old ones stay" is "$status" 200
ready() { [ "$(grep -c 'READY=1' "$work/told")" -ge "$1" ]; }
expect "READY follows each reload" wait_for 10 ready 4
stop_daemon
expect "SIGTERM in a job ends with status 0" is $? 0
expect "STOPPING is told" wait_for 10 heard 'STOPPING=1'

# ---- watchdog ---------------------------------------------------------------------------------------------

hear
export WATCHDOG_USEC=2000000
start_daemon "$out" || exit 1
export -n WATCHDOG_USEC
before=0
expect "the job goes on, and pings come while it trains" wait_for 30 pinged 4
expect "the job runs meanwhile" wait_for 60 heard "STATUS=training $id"
# held NAME WHAT: pings end while threads of that name stand still, and come again.
held() {
    hold "$1" || { echo "skip - $2 stands still: $(<"$work/held")" && return; }
    expect "$2 stands still: no more pings, and the log says so" wait_for 30 logged 'watchdog is not told'
    before=$(pings)
    sleep 2
    expect "$2 stands still: none at all" is "$(pings)" "$before"
    let_go
    expect "$2 goes on: pings come again" wait_for 30 pinged 2
    expect "$2 goes on: which is logged" wait_for 10 logged 'everything moves again'
    : >"$work/needled.log"
}
held MHD-worker "the HTTP server"
held scheduler "the scheduler"
stop_daemon
export WATCHDOG_USEC=400000
settings '"webhook_hosts": "127.0.0.1"'
start_daemon "$out" --config "$work/settings.json" || exit 1
# stands NAME WHAT WORK...: the thread of that name stands still while there is work for it.
stands() {
    hold "$1" || { echo "skip - the thread that $2 stands still: $(<"$work/held")" && return; }
    "${@:3}"
    expect "the thread that $2 stands still with work to do: it is named, and pings end" \
        wait_for 60 logged "the thread that $2 has not moved.*watchdog is not told"
    let_go
    expect "the thread that $2 goes on: pings come again" wait_for 60 logged 'everything moves again'
    : >"$work/needled.log"
}
post() { call -H 'Content-Type: application/json' "$url$1" -d "$2"; }
stands streams "tells event streams their news" true # of the job that runs
stands webhooks "calls webhooks" post /v1/webhook_endpoints \
    '{"name":"mine","url":"http://127.0.0.1:9/","event_types":["fine_tuning.job.cancelled"]}'
stands sweeper "looks after connections" true # which it does every second
stands validator "reads data sets" post /v1/fine_tuning/jobs \
    "{\"model\":\"mini\",\"training_file\":\"$file\",\"hyperparameters\":{\"n_epochs\":1}}"
call -X POST "$url/v1/fine_tuning/jobs/$(field id <<<"$answer")/cancel"
stop_daemon
start_daemon "$out" || exit 1
export -n WATCHDOG_USEC
wait_for 60 moves
if hold "job cpu:0"; then
    expect "a worker that shows nothing of its job for long is no progress" \
        wait_for 60 logged 'job on cpu:0 has not moved.*watchdog is not told'
    kill -TERM "$daemon"
    wait_for 10 heard 'STATUS=stopping'
    sleep 2
    expect "a stop waits for a worker, in the time the manager grants" kill -0 "$daemon"
    kill -TERM "$daemon"
    expect "a second SIGTERM cuts it short" wait_for 15 logged 'stopping at once'
    stop_daemon
    expect "with status 0 too" is $? 0
    let_go
else
    echo "skip - a worker that stands still: $(<"$work/held")"
    stop_daemon
fi
hush
start_daemon "$out" || exit 1
expect "the job is taken up at the next start" wait_for 60 moves
call -X POST "$url/v1/fine_tuning/jobs/$id/cancel"
stop_daemon

# ---- sockets passed to it ---------------------------------------------------------------------------------

# start_passed WORD...: with those sockets; sets port as start_daemon does.
start_passed() {
    : >"$work/needled.log"
    python3 tests/support/manager.py pass "$@" -- "$out/needled" --state-dir "$work/state" --listen 127.0.0.1:0 \
        2>"$work/needled.log" &
    daemon=$!
    listens() { logged 'port \d+"$' || ! kill -0 "$daemon" 2>/dev/null; }
    wait_for 30 listens
    port=$(sed -n 's/.*port \([0-9]*\)"$/\1/p' "$work/needled.log" | tail -n 1)
    url=http://127.0.0.1:$port
}
start_passed --names web:local tcp "unix:$work/passed"
call "$url/healthz"
expect "a TCP socket that was passed is served" is "$status" 200
call --unix-socket "$work/passed" http://needled/v1/files
expect "a Unix socket too" is "$status" 200
expect "and nothing beside them" [ ! -e "$work/state/needled.sock" ]
expect "children do not believe the sockets to be theirs" \
    [ "$(find "/proc/$daemon/fd" -lname 'socket:*' | wc -l)" -gt 0 ]
stop_daemon
expect "the path of a socket that was passed is not ours to remove" [ -S "$work/passed" ]
start_passed --pid 1 tcp
call --unix-socket "$work/state/needled.sock" http://needled/healthz
expect "sockets for another process are left alone" is "$status" 200
stop_daemon
start_passed any
wait "$daemon"
expect "a socket that is reachable from outside wants a key" is $? 2
expect "and the log says so" logged "'0.0.0.0:[0-9]*' is reachable from outside"
start_passed file
wait "$daemon"
expect "a descriptor that is no socket is refused" is $? 2
daemon=

# ---- credentials ------------------------------------------------------------------------------------------

mkdir "$work/credentials" && echo a-credential >"$work/credentials/api_key"
CREDENTIALS_DIRECTORY=$work/credentials start_daemon "$out"
call "$url/v1/files"
expect "a credential named api_key is the key" is "$status" 401
with_key a-credential "$url/v1/files"
expect "and opens" is "$status" 200
CREDENTIALS_DIRECTORY=$work/credentials "$out/needlectl" jobs >/dev/null 2>&1
expect "needlectl takes its unit's" is $? 0
CREDENTIALS_DIRECTORY=$work/credentials NEEDLED_API_KEY=another "$out/needlectl" jobs >/dev/null 2>&1
expect "unless it is given another" is $? 1
: >"$work/credentials/api_key"
answer=$(CREDENTIALS_DIRECTORY=$work/credentials "$out/needlectl" jobs 2>&1)
expect "one that holds nothing is told by it" is "$? $answer" \
    "2 needlectl: '$work/credentials/api_key' cannot be read, or holds no key"
answer=$(CREDENTIALS_DIRECTORY=$work/credentials "$out/needled" --state-dir "$work/state" --check-config 2>&1)
expect "and by the daemon, which does not go on without" is "$?" 2
stop_daemon
rm "$work/credentials/api_key" && mkdir "$work/credentials/api_key"
answer=$(CREDENTIALS_DIRECTORY=$work/credentials "$out/needled" --state-dir "$work/state" --check-config 2>&1)
expect "nor does it where one cannot be read" is "$?" 2
rmdir "$work/credentials/api_key"
CREDENTIALS_DIRECTORY=$work/credentials start_daemon "$out"
call "$url/v1/files"
expect "without one there is none" is "$status" 200
stop_daemon
