#!/usr/bin/env bash
# The inputs of tests/fixtures/inputs/ops that want a start of their own: environments, and a database that is none,
# with the outcome that manifest.json wants, and their siblings.
#   tests/ops/start.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
trap 'stop_daemon >/dev/null 2>&1; rm -rf "$work"' EXIT
inputs=tests/fixtures/inputs/ops
status= answer=

base_folder mini mini
lasting_lines | head -n 64 >"$work/data.jsonl"
quick='"batch_size":1,"lora_rank":4,"lora_alpha":8,"val_split":0'

# ---- environments --------------------------------------------------------------------------------------

# start_fails ENVIRONMENT...: sets status and answer.
start_fails() {
    answer=$(env "$@" timeout 100 "$out/needled" --state-dir "$work/none" --listen 127.0.0.1:0 2>&1)
    status=$?
}
start_fails $(<$inputs/platform-missing.env)
expect "platform-missing.env: does not start, says why and what there is" has '^3 .*cuda.*not (installed|available|found).*\bcpu\b' \
    "$status ${answer//$'\n'/ }"
expect "platform-missing.env: makes nothing" [ ! -e "$work/none" ]
start_fails NEEDLED_PLATFORMS=tpu
expect "an unknown platform neither" has '^2 .*tpu.*\bcpu\b' "$status ${answer//$'\n'/ }"
start_fails NEEDLED_PLATFORMS=,
expect "nor an empty list" has '^2 .*NEEDLED_PLATFORMS|^2 .*platform' "$status ${answer//$'\n'/ }"

export $(<$inputs/no-gpu.env)
start_daemon "$out" || exit 1
unset CUDA_VISIBLE_DEVICES
call "$url/v1/devices"
expect "no-gpu.env: starts on the CPU and says that no GPU is active" has '"id":"cpu:0".*"gpu_active":false' "$answer"
expect "no-gpu.env: and why" has '"platform":"cuda","reason":"[^"]{10,}"' "$answer"
expect "the libraries' versions are in the log" has 'needled [0-9.]+\S*, cJSON [0-9.]+, SQLite [0-9.]+' "$(<"$work/needled.log")"
expect "no-gpu.env: in the log too" has 'cuda is not available: ' "$(<"$work/needled.log")"
upload "$work/data.jsonl"
create_with "$quick,\"n_epochs\":1" mini '"device":"cuda"'
expect "no-gpu.env: a job that demands cuda is refused with the reason" has '^400 .*"param":"device"' "$status $answer"
create_with "$quick,\"n_epochs\":1" mini
follow "$id"
expect "no-gpu.env: another runs on the CPU, and its record says so" is \
    "$(field status <<<"$job") $(field device_used <<<"$job")" "succeeded cpu:0"
expect "what is all zero in the base is left out and listed" has \
    '"skipped_groups":\[{"path":"stack/layers/block/self_attn/gate_proj/kernel","reason":"all zero in the base"}\]' "$job"
call "$url/healthz"
expect "how changes are kept is told" has '"durability":"wal, synchronous=full"' "$answer"
stop_daemon

# threads_of_two_jobs: how many threads the daemon has while two jobs run side by side.
threads_of_two_jobs() {
    local first second
    start_daemon "$out" --jobs-per-device 2 || return 1
    create_lasting mini
    first=$id
    create_lasting mini
    second=$id
    two_run() { for id in $first $second; do
        [ "$(curl -s "$url/v1/fine_tuning/jobs/$id" | field completed_steps)" -ge 10 ] 2>/dev/null || return
    done; }
    wait_for 30 two_run || echo -n "not two jobs at once: "
    for _ in 1 2 3 4 5; do # the least: one that is there for a moment is no matter
        ls "/proc/$daemon/task" | wc -l
        sleep 0.1
    done | sort -n | head -n 1
    for id in $first $second; do call -X POST "$url/v1/fine_tuning/jobs/$id/cancel"; done
    stop_daemon
}
threads_of_two_jobs >"$work/plain"
export $(<$inputs/blas-64.env)
threads_of_two_jobs >"$work/blas"
unset OPENBLAS_NUM_THREADS OMP_NUM_THREADS
told=$(sed -n 's/.*device=cpu:0 .* \([0-9]*\) threads.*/\1/p' "$work/needled.log" | head -n 1)
expect "blas-64.env: the threads in force are logged, at most the cores" [ "${told:-99}" -le "$(nproc)" ]
expect "blas-64.env: two jobs ran at once" has '^\d+$' "$(<"$work/plain")"
expect "blas-64.env: no thread more than without it" is "$(<"$work/blas")" "$(<"$work/plain")"

# ---- a database that is none ----------------------------------------------------------------------------

# refused_database NAME PATTERN: $work/database under the database's name.
refused_database() {
    rm -rf "$work/foreign" && mkdir -p "$work/foreign"
    cp -R "$work/database" "$work/foreign/needled.db"
    answer=$(timeout 100 "$out/needled" --state-dir "$work/foreign" --listen 127.0.0.1:0 2>&1)
    status=$?
    expect "$1: does not start and names the file" has "^[1-9].*needled\\.db.*($2)" "$status ${answer//$'\n'/ }"
    expect "$1: is left as it is" diff -r "$work/database" "$work/foreign/needled.db"
}
cp $inputs/not-a-database.db "$work/database"
refused_database not-a-database.db 'not a (SQLite )?database'
head -c 4096 /dev/zero >"$work/database"
refused_database "a file of zeros" 'not a (SQLite )?database'
head -c 50 "$work/state/needled.db" >"$work/database"
refused_database "the beginning of a database" 'database|malformed'
{ head -c 100 "$work/state/needled.db" && head -c 40000 /dev/urandom; } >"$work/database"
refused_database "a database with its pages overwritten" 'database|malformed'
rm "$work/database" && mkdir "$work/database"
refused_database "a folder" 'folder|directory|regular|open'
start_daemon "$out" <&- >&-
expect "the sound state still starts" is $? 0
places=$(readlink /proc/$daemon/fd/0 /proc/$daemon/fd/1 | xargs)
expect "and lets no file of its own have a closed standard descriptor" is "$places" "/dev/null /dev/null"
"$out/needlectl" fetch x <&- >&- 2>"$work/told"
expect "needlectl works with them closed" has 'x' "$(<"$work/told")"

# ---- limits of the process --------------------------------------------------------------------------------

# Without memory a thread of OpenBLAS's never ends; a sanitizer wants more memory than there is.
case $out in
*asan*|*tsan*) echo "skip - a start without memory: a sanitizer takes terabytes of addresses" ;;
*)
    answer=$(ulimit -v 100000; OPENBLAS_NUM_THREADS=2 timeout -k 1 30 "$out/needled" --state-dir "$work/short" --listen 127.0.0.1:0 2>&1)
    expect "a start that finds no memory ends, with its reason" is "$? $(grep -c 'cannot start: ' <<<"$answer")" "1 1"
    answer=$(ulimit -S -s 256; timeout 30 "$out/needled" --state-dir "$work/short" --listen 127.0.0.1:0 2>&1)
    expect "a stack that is too small is refused, with both sizes" has '^2 .*stack.* 256 kB' "$? $answer"
    ;;
esac
answer=$("$out/needled" --version 2>&1 >/dev/full)
expect "an output that is full is told" has '^1 .*standard output' "$? $answer"
"$out/needled" --check-config --state-dir "$work/state" >&- 2>"$work/told"
expect "and so is one that is closed" has '^1 .*standard output' "$? $(<"$work/told")"

limit_of_files() { prlimit --pid "$daemon" "--fsize=$1:"; }
hard=$(prlimit --pid "$daemon" --fsize --noheadings --output HARD)
yes '{"query":"a","tools":[],"answers":[]}' | head -n 150000 >"$work/large.jsonl"
limit_of_files 4000000
upload "$work/large.jsonl"
expect "an upload past the limit of files' sizes is refused as on a full disk, with the reason" \
    has '^507 .*file size limit.*"disk_full"' "$status $answer"
limit_of_files "$hard"
has_disk() { [ "$(curl -s "$url/healthz" | field status)" = ok ]; }
expect "with the limit lifted all goes on" wait_for 90 has_disk
upload "$work/large.jsonl"
expect "and the same upload is taken" is "$status" 200

# Nobody can connect while nothing can be opened: who has before is answered.
state_is() { [ "$(curl -s "$url/v1/fine_tuning/jobs/$1" | field status)" = "$2" ]; }
beyond() { [ "$(curl -s "$url/v1/fine_tuning/jobs/$1" | field completed_steps)" -gt "$2" ] 2>/dev/null; }
create_lasting mini
expect "a job runs" wait_for 60 beyond "$id" 10
call -X POST "$url/v1/fine_tuning/jobs/$id/pause"
expect "and is paused" wait_for 60 state_is "$id" paused
before=$(curl -s "$url/v1/fine_tuning/jobs/$id" | field completed_steps)
exec 3<>"/dev/tcp/127.0.0.1/$port"
printf 'GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n' >&3
read -r -u 3 answer
limits=$(prlimit --pid "$daemon" --nofile --noheadings --raw --output SOFT,HARD)
prlimit --pid "$daemon" --nofile=3:
lacks_files() { # resumed, again where the request itself found no file
    printf 'POST /v1/fine_tuning/jobs/%s/resume HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n' "$id" >&3
    grep -q "job=$id msg=\"running -> queued\"" "$work/needled.log"
}
trap '' PIPE # the daemon may end a connection
expect "one that can open no more files is queued again" wait_for 60 lacks_files
prlimit --pid "$daemon" "--nofile=${limits/ /:}"
exec 3>&-
expect "with the limit lifted it goes on by itself" wait_for 120 beyond "$id" "$before"
events=$(curl -s "$url/v1/fine_tuning/jobs/$id/events?limit=1000&types=state")
expect "and its events say what it lacked" has 'No more files can be opened \(.*Too many open files\); the job is queued again' "$events"
expect "healthz says ok again" wait_for 90 has_disk
call -X POST "$url/v1/fine_tuning/jobs/$id/cancel" # others are to run
stop_daemon

# ---- few descriptors --------------------------------------------------------------------------------------

# low N: a needled with so many, and none of ours.
mkdir -p "$work/low"
low() {
    printf '#!/usr/bin/env bash\nulimit -n %d\nfor n in {3..20}; do eval "exec $n>&-"; done\nexec "%s/needled" --platforms cpu "$@"\n' \
        "$1" "$(realpath "$out")" >"$work/low/needled"
    chmod +x "$work/low/needled"
}
for n in 20 50; do
    low $n
    answer=$(timeout 30 "$work/low/needled" --state-dir "$work/few" --listen 127.0.0.1:0 2>&1)
    expect "a limit of $n open files is refused, with what is needed" \
        has "^[12] .*limit of open files \\(ulimit -n, LimitNOFILE=\\) is $n, \\d+ are needed" "$? $answer"
done
low 64
crowd=()
answers() { [ "$(curl -s -o "$work/none" -w '%{http_code}' --max-time 10 "$@")" = 200 ]; }
# crowd_of TEXT: 60 connections that send it, and stay.
crowd_of() {
    local connection
    for _ in {1..60}; do
        exec {connection}<>"/dev/tcp/127.0.0.1/$port" || continue
        crowd+=("$connection")
        printf "$1" 2>/dev/null >&"$connection"
    done
}
disperse() {
    local connection
    for connection in "${crowd[@]}"; do exec {connection}>&-; done
    crowd=()
}
for kind in half-open stream; do
    start_daemon "$work/low"
    expect "with 64 open files it starts" is $? 0
    upload "$work/data.jsonl"
    case $kind in
    half-open) crowd_of 'GET / HT' ;;
    stream) crowd_of 'GET /v1/events?stream=true HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n' ;;
    esac
    expect "60 $kind connections shut nobody out" wait_for 20 answers "$url/healthz"
    expect "nor from the Unix socket" wait_for 20 answers --unix-socket "$work/state/needled.sock" http://localhost/healthz
    create_with "$quick,\"n_epochs\":4" mini
    expect "a job beside them succeeds" wait_for 100 state_is "$id" succeeded
    expect "which lacked nothing" is "$(grep -c 'Too many open files' "$work/needled.log")" 0
    disperse
    expect "when they are gone it answers at once" answers "$url/healthz"
    stop_daemon
done
