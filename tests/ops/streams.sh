#!/usr/bin/env bash
# Event streams from outside: curl -N, a reader that never reads among others, a restart under followers, and
# needlectl: events of all jobs, watch over a restart, Ctrl-C.
#   tests/ops/streams.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
trap 'stop_daemon >/dev/null 2>&1; rm -rf "$work"' EXIT

base_folder mini mini
start_daemon "$out" || exit 1
for n in $(seq 40); do
    printf '{"query":"say %d","tools":[],"answers":[]}\n' "$n"
done >"$work/data.jsonl"
upload "$work/data.jsonl"
ids() { sed -n 's/^id: //p' "$1" | tr -d '\r'; }
in_order() { [ -s "$1" ] && diff -q <(ids "$1") <(seq "$2" "$3") >/dev/null; }
running() { kill -0 "$1" 2>/dev/null; }
has_line() { grep -q -- "$1" "$2"; }
left() { ! running "$1"; }

# ---- curl -N -------------------------------------------------------------------------------------

create_with '"n_epochs":1,"batch_size":1,"lora_rank":4,"lora_alpha":8,"val_split":0' mini # 40 steps
first=$id
curl -sNi --max-time 120 "$url/v1/fine_tuning/jobs/$first/events?stream=true" >"$work/one"
last=$(ids "$work/one" | tail -n 1)
expect "curl follows a job to its end" grep -q '^event: done' "$work/one"
expect "each event once, in order" in_order "$work/one" 1 "$last"
expect "as an event stream" grep -qi '^content-type: text/event-stream' "$work/one"
expect "that nothing on the way keeps or packs" grep -qi '^cache-control: no-cache, no-transform' "$work/one"
expect "or holds back" grep -qi '^x-accel-buffering: no' "$work/one"
expect "retry is part of the first event" is "$(grep -n '^retry: ' "$work/one" | wc -l) $(grep -A1 '^id: 1.\?$' "$work/one" | grep -c '^retry: [0-9]')" "1 1"
call -H "Last-Event-ID: $last" "$url/v1/fine_tuning/jobs/$first/events?stream=true"
expect "who has read it is sent home" is "$status" 204
call -H "Last-Event-ID: 5" --http1.0 "$url/v1/fine_tuning/jobs/$first/events?stream=true"
printf '%s\n' "$answer" >"$work/old"
expect "HTTP/1.0 gets it too, from where it was" in_order "$work/old" 6 "$last"
call -I "$url/v1/events?stream=true"
expect "HEAD has the headers" has 'text/event-stream' "$status $answer"

# ---- a reader that never reads, others beside it, a restart --------------------------------------

create_lasting mini
long=$id
exec 3<>"/dev/tcp/127.0.0.1/$port"
printf 'GET /v1/fine_tuning/jobs/%s/events?stream=true HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n' "$long" >&3
curl -sN --max-time 120 "$url/v1/events?stream=true&after=0" >"$work/all" &
all=$!
"$out/needlectl" watch "$long" >"$work/watched" 2>&1 &
watch=$!
"$out/needlectl" events --follow --types state,done --after 0 >"$work/lines" 2>&1 &
follow=$!
expect "events of all jobs come" wait_for 60 has_line "\"fine_tuning_job_id\":\"$long\".*\"number\":60}" "$work/all"
expect "watch shows steps" wait_for 60 has_line '^step 60/500000' "$work/watched"
stop_daemon
expect "a stop ends with status 0" is "$?" 0
expect "it ends the stream of all jobs" wait_for 30 left $all
exec 3>&-
expect "which says when to come again" has_line '^retry: [0-9]*$' <(tail -n 1 "$work/all")
expect "and was in order" in_order "$work/all" 1 "$(ids "$work/all" | tail -n 1)"
seen=$(ids "$work/all" | tail -n 1)
start_daemon "$out" --listen "127.0.0.1:$port" || exit 1
curl -sN --max-time 120 -H "Last-Event-ID: $seen" "$url/v1/events?stream=true" >"$work/more" &
all=$!
expect "watch goes on by itself" wait_for 60 has_line '^step 400/500000' "$work/watched"
steps=$(sed -n 's|^step \([0-9]*\)/.*|\1|p' "$work/watched") # not of a line that is half written
expect "no step is shown twice" is "$(sort <<<"$steps" | uniq -d)" ''
expect "and none is left out" is "$steps" "$(seq "$(head -n 1 <<<"$steps")" "$(tail -n 1 <<<"$steps")")"

# ---- Ctrl-C --------------------------------------------------------------------------------------

kill -INT $watch
wait $watch
expect "Ctrl-C leaves" is "$?" 130
expect "and says how to come back" has_line "the job goes on: needlectl watch $long" "$work/watched"
expect "the job goes on" is "$(curl -s "$url/v1/fine_tuning/jobs/$long" | field status)" running
"$out/needlectl" cancel "$long" >/dev/null
expect "followers of all jobs hear of the end" wait_for 60 has_line "$long  done" "$work/lines"
expect "as does the stream that came again" wait_for 60 has_line '^event: done' "$work/more"
expect "which goes on where it was" in_order "$work/more" $((seen + 1)) "$(ids "$work/more" | tail -n 1)"
kill -INT $follow
wait $follow
expect "Ctrl-C leaves the events too" is "$?" 130
expect "and says how to go on" has_line 'needlectl events --follow --after [0-9]* --types state,done' "$work/lines"
expect "only the types asked for were shown" is "$(grep -c '  metrics  ' "$work/lines")" 0

"$out/needlectl" events --limit 3 >"$work/page"
expect "needlectl events shows the newest last" is "$(wc -l <"$work/page") $(tail -n 1 "$work/page" | grep -c '  done ')" "3 1"
"$out/needlectl" events --limit 2 --json >"$work/page"
expect "as JSON, an event a line" is "$(grep -c '^{"id":"ftevent-' "$work/page")" 2
"$out/needlectl" events --types nonsense >"$work/page" 2>&1
expect "a type that is none is refused" is "$? $(grep -c nonsense "$work/page")" "1 1"
"$out/needlectl" events --after 999999 --follow >"$work/page" 2>&1
expect "a place in the future too" is "$? $(grep -c 999999 "$work/page")" "1 1"
kill $all 2>/dev/null
stop_daemon
