#!/usr/bin/env bash
# The wall clock is set back and forward during a job: steps, streams, connections and the line go on, nothing
# times out, no duration is negative, and events keep their order, also over a restart.
#   tests/ops/clock.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
. tests/support/shell/clock.sh
trap 'stop_daemon >/dev/null 2>&1; rm -rf "$work"' EXIT

base_folder mini mini
with_clock "$out"
start_daemon "$clocked" || exit 1
jobs=$url/v1/fine_tuning/jobs
hour=3600

lasting_lines | head -n 2 >"$work/short.jsonl"
tiny='"batch_size":1,"lora_rank":4,"lora_alpha":8,"val_split":0'
of() { curl -s "$jobs/$1" | field "$2"; }
past() { [ "$(of "$1" completed_steps)" -ge "$2" ] 2>/dev/null; }
goes_on() { wait_for 60 past "$long" $(($(of "$long" completed_steps) + 100)); }
running() { kill -0 "$1" 2>/dev/null; }
left() { ! running "$1"; }
# ids FILE: of a stream's events, a line each.
ids() { sed -n 's/^id: //p' "$1" | tr -d '\r'; }

upload "$work/short.jsonl"
short=$file
create_lasting mini
long=$id
expect "a long job runs" wait_for 60 past "$long" 100
curl -sN "$url/v1/events?stream=true&after=0" >"$work/all" &
reader=$!
exec 5<>"/dev/tcp/127.0.0.1/$port" 6<>"/dev/tcp/127.0.0.1/$port"
# asked DESCRIPTOR: a request on an open connection is answered.
asked() {
    local line
    (trap '' PIPE; printf 'GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n' >&"$1") 2>/dev/null || return
    while IFS= read -r -t 20 line <&"$1"; do
        [[ $line == *'"status":"ok"'* ]] && return
    done
    return 1
}
expect "a connection is kept open" asked 5
printf 'GET /healthz HT' >&6 # and one in the middle of a request
half_since=$SECONDS

# ---- an hour back, and a day forward -----------------------------------------------------------------

# jump NAME SECONDS
jump() {
    local name=$1 before
    before=$(of "$long" completed_steps)
    set_clock $((clock + $2))
    expect "$name: an open connection is not idle for it" asked 5
    expect "$name: steps go on" goes_on
    expect "$name: the stream of all goes on" running $reader
    call "$jobs/$long"
    expect "$name: the end is expected in the clock's own future" \
        [ "$(field estimated_finish <<<"$answer")" -ge "$(($(clock_now) - 5))" ]
    create "{\"model\":\"mini\",\"training_file\":\"$short\",\"hyperparameters\":{$tiny,\"n_epochs\":1}}"
    expect "$name: a job made now says when" within_of "$(field created_at <<<"$answer")" "$(clock_now)"
    waiting+=("$id")
}
within_of() { [ $(($1 - $2)) -ge -60 ] && [ $(($1 - $2)) -le 60 ]; }
waiting=()
jump "an hour back" -$hour
jump "a day forward" $((24 * hour))
jump "and back again" $((-24 * hour))
answered() { # its 15 true seconds may be over
    (trap '' PIPE; printf 'TP/1.1\r\nHost: 127.0.0.1\r\n\r\n' >&6) 2>/dev/null
    { IFS= read -r -t 30 line <&6 && has '200|408' "$line"; } || [ $((SECONDS - half_since)) -ge 14 ]
}
expect "half a request is answered when it is whole" answered
exec 5>&- 6>&-

sweep=$(curl -s -H 'Content-Type: application/json' "$url/v1/fine_tuning/sweeps" -d "{\"model\":\"mini\",
    \"training_file\":\"$short\",\"hyperparameters\":{$tiny,\"n_epochs\":[1,2]}}" | field id)
call -X POST "$jobs/$long/cancel"
follow "$long"
answer=$job
expect "a job that began before the clock was set back ends not before it began" dates_rise "$job"
for id in "${waiting[@]}"; do
    follow "$id"
    answer=$job
    expect "a job that waited over it succeeds" is "$(field status <<<"$job") $(field attempts <<<"$job")" "succeeded 1"
    expect "with dates that rise" dates_rise "$job"
done
ended() { call "$url/v1/fine_tuning/sweeps/$sweep" && has '"status":"succeeded"' "$answer"; }
expect "so does a sweep" wait_for 60 ended
expect "with times of its jobs" is "$(grep -o '"elapsed_s":[0-9]' <<<"$answer" | wc -l)" 2

# ---- back over a restart -------------------------------------------------------------------------------

create_lasting mini
long=$id
expect "another long job runs" wait_for 60 past "$long" 100
set_clock $((clock + hour))
create "{\"model\":\"mini\",\"training_file\":\"$short\",\"hyperparameters\":{$tiny,\"n_epochs\":1}}"
kept=$id
stop_daemon
expect "a stop ends with status 0" is "$?" 0
expect "the stream of all ends with it" wait_for 30 left $reader
expect "what was told was in order" is "$(grep '^id: ' "$work/all" | sort -k2 -n -c 2>&1 | wc -l)" 0
told=$(ids "$work/all" | tail -n 1)
expect "and each once" cmp -s <(ids "$work/all" | sort -n) <(seq "$told")
expect "no request took less than nothing" has_not ' -[0-9]+ ms' "$(<"$work/needled.log")"
set_clock $((clock - 2 * hour))
start_daemon "$clocked" || exit 1
jobs=$url/v1/fine_tuning/jobs
expect "with the clock set back in between, the job goes on" goes_on
curl -sN -H "Last-Event-ID: $told" --max-time 300 "$url/v1/events?stream=true" >"$work/more" &
reader=$!
call -X POST "$jobs/$long/cancel"
follow "$kept"
answer=$job
expect "who was made in the future waits no longer for it" is "$(field status <<<"$job")" succeeded
expect "and its dates rise" dates_rise "$job"
both_told() { [ "$(grep -c '^event: done' "$work/more")" -ge 2 ]; }
expect "the stream of all hears of both ends" wait_for 30 both_told
kill $reader 2>/dev/null
wait $reader 2>/dev/null
expect "events go on where they were" cmp -s <(ids "$work/more") \
    <(seq $((told + 1)) "$(ids "$work/more" | tail -n 1)")
call "$jobs?limit=100"
expect "lists are whole" is "$(grep -o '"object":"fine_tuning.job",' <<<"$answer" | wc -l)" 8
expect "nothing ran twice" is "$(numbers attempts "$answer" | sort | uniq -c | xargs)" "7 1 1 2"
expect "no request took less than nothing here either" has_not ' -[0-9]+ ms' "$(<"$work/needled.log")"
stop_daemon
expect "the daemon ends in order" is "$?" 0
