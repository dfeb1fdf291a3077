#!/usr/bin/env bash
# The queue and sweeps, seen from outside: places, moves, priorities, expected times, a failed job among
# others, several jobs on a device, lists of values.
#   tests/ops/queue.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
trap 'stop_daemon >/dev/null 2>&1; rm -rf "$work"' EXIT

base_folder needle-3
start_daemon "$out" || exit 1
jobs=$url/v1/fine_tuning/jobs
sweeps=$url/v1/fine_tuning/sweeps
quick='"lora_rank":4,"lora_alpha":8,"n_epochs":1'
"$out/tests/make_lines" 48 5 demo >"$work/data.jsonl"

post() { call -H 'Content-Type: application/json' -d "$2" "$1"; }
move() { post "$jobs/$1/move" "$2"; }
get() { call "$jobs/$1"; }
of() { curl -s "$jobs/$1" | field "$2"; }
at() { [ "$(of "$1" status)" = "$2" ]; }
# line: the jobs that wait, by their places, as the names given to them.
line() {
    local name
    for name in "${!named[@]}"; do
        echo "$(of "${named[$name]}" queue_position) $name"
    done | grep -v null | sort -n | cut -d' ' -f2 | xargs
}
declare -A named
# add NAME [TOP]: a small job.
add() {
    create_with "$quick" needle-3 "${2:-}"
    named[$1]=$id
}

# ---- a line behind a job that runs long -------------------------------------------------------------

upload "$work/data.jsonl"
data=$file
create_lasting needle-3 '"priority":100'
long=$id
expect "a long job runs" wait_for 60 at "$long" running
for name in a b c; do add $name; done
add urgent '"priority":5'
for name in a b c urgent; do
    expect "$name waits" wait_for 30 at "${named[$name]}" queued
done
expect "a higher priority stands in front, the others by age" is "$(line)" "urgent a b c"
get "${named[a]}"
expect "the record says the place and the priority" has '"priority":0,"queue_position":2' "$answer"
expect "nothing is known yet of its start" has '"estimated_start":(null|[0-9]+)' "$answer"
get "$long"
expect "a running job has no place" has '"queue_position":null,"estimated_start":null' "$answer"
ends() { [ "$(of "$long" estimated_finish)" -gt "$(date +%s)" ] 2>/dev/null; }
expect "and says when it should end" wait_for 30 ends
get "${named[urgent]}"
expect "when the first behind it should start is known by its steps" \
    [ "$(field estimated_start <<<"$answer")" -ge "$(($(date +%s) - 1))" ]

move "${named[c]}" '{"to":"front"}'
expect "a job is moved to the front" is "$status" 200
expect "and answered with its new place and priority" has '"priority":5,"queue_position":1' "$answer"
expect "the others keep their order" is "$(line)" "c urgent a b"
move "${named[urgent]}" "{\"after\":\"${named[a]}\"}"
expect "one is moved behind another" is "$(line)" "c a urgent b"
move "${named[b]}" '{"position":2}'
expect "one is moved to a place" is "$(line)" "c b a urgent"
move "${named[a]}" '{"priority":-1}'
expect "one takes another priority" is "$(line)" "c b urgent a"
move "${named[a]}" "{\"before\":\"${named[c]}\"}"
expect "one is moved before another" is "$(line)" "a c b urgent"
call "$jobs/${named[a]}/events"
expect "its events say so" has 'moved to place 1 of 4 in the queue.*"data":{"queue_position":1,"priority":5}' "$answer"

# refused NAME STATUS PATTERN BODY JOB
refused() {
    move "$5" "$4"
    expect "$1" is "$status" "$2"
    expect "$1: it says why" has "$3" "$answer"
}
refused "a running job is not moved" 409 'is running: only a job that waits' '{"to":"front"}' "$long"
refused "nor one that is not there" 404 "no job 'ftjob-none'" '{"to":"front"}' ftjob-none
refused "nor before one that does not wait" 400 '"param":"before"' "{\"before\":\"$long\"}" "${named[a]}"
refused "nor to no place at all" 400 'exactly one of' '{}' "${named[a]}"
refused "nor to two" 400 '2 places are given' '{"to":"front","position":1}' "${named[a]}"
refused "nor to place 0" 400 '"param":"position"' '{"position":0}' "${named[a]}"
refused "nor to a priority that is none" 400 '"param":"priority"' '{"priority":101}' "${named[a]}"
create_with "$quick" needle-3 '"priority":1.5'
expect "a create names a priority that is none" has '"param":"priority"' "$answer"
expect "all of that changed nothing" is "$(line)" "a c b urgent"

# ---- over a restart; moves and creates at once --------------------------------------------------------

stop_daemon
start_daemon "$out"
jobs=$url/v1/fine_tuning/jobs sweeps=$url/v1/fine_tuning/sweeps
expect "the long job goes on" wait_for 60 at "$long" running
expect "the order is kept over a restart" is "$(line)" "a c b urgent"
creating=()
for n in 1 2 3 4; do
    curl -s -H 'Content-Type: application/json' "$jobs" -o "$work/created-$n" \
        -d "{\"model\":\"needle-3\",\"training_file\":\"$data\",\"hyperparameters\":{$quick}}" &
    creating+=($!)
    curl -s -H 'Content-Type: application/json' "$jobs/${named[b]}/move" -o "$work/moved-$n" \
        -d "{\"position\":$((n % 2 + 1))}" &
    creating+=($!)
done
wait "${creating[@]}"
for n in 1 2 3 4; do named[new$n]=$(field id <"$work/created-$n"); done
places=$(for name in "${!named[@]}"; do of "${named[$name]}" queue_position; done | sort -n | xargs)
expect "moves beside creates leave every place once" is "$places" "1 2 3 4 5 6 7 8"
expect "and the moved ones in front of the new" has '^(a b c|b a c) urgent new' "$(line)"

# ---- a job that fails stops nobody ------------------------------------------------------------------

for name in "${!named[@]}"; do
    [ $name = a ] || [ $name = c ] || call -X POST "$jobs/${named[$name]}/cancel"
done
upload tests/fixtures/inputs/jsonl/seventeen.jsonl
create "{\"model\":\"needle-3\",\"training_file\":\"$file\",\"hyperparameters\":{$quick,\"max_len\":2},\"priority\":100}"
broken=$id
call -X POST "$jobs/$long/cancel"
follow "$broken"
expect "a job in front fails" is "$(field status <<<"$job")" failed
follow "${named[a]}"
expect "the next one runs" is "$(field status <<<"$job")" succeeded
follow "${named[c]}"
expect "and the one behind it" is "$(field status <<<"$job")" succeeded
answer=$job
expect "who has ended has no place" has '"queue_position":null' "$answer"

# ---- the rate that was measured tells the next ones ---------------------------------------------------

file=$data
create_lasting
long=$id
expect "another long job runs" wait_for 60 at "$long" running
for name in d e; do
    add $name
    expect "$name waits" wait_for 30 at "${named[$name]}" queued
done
starts() { of "${named[$1]}" estimated_start; }
later() { [ "$(starts e)" -ge "$(starts d)" ] 2>/dev/null; }
expect "both have an expected start, the second not before the first" wait_for 20 later

# ---- sweeps ---------------------------------------------------------------------------------------------

lists='"lora_rank":[2,4],"learning_rate":[0.001,0.003],"n_epochs":1,"batch_size":8'
body="{\"model\":\"needle-3\",\"training_file\":\"$data\",\"hyperparameters\":{$lists},\"suffix\":\"sw\"}"
post "$sweeps" "$body" # while the long one still runs: none of its jobs has ended by the time of the answer
expect "a create with lists is a sweep" is "$status" 200
sweep=$(field id <<<"$answer")
expect "with an id of its own and what is varied" has \
    "^{\"id\":\"ftsweep-[a-zA-Z0-9]+\",\"object\":\"fine_tuning.sweep\".*\"varied\":{\"lora_rank\":\[2,4\],\"learning_rate\":\[0.001,0.003\]}" "$answer"
expect "a job for every combination, the first list slowest" has \
    '"values":{"lora_rank":2,"learning_rate":0.001}.*{"lora_rank":2,"learning_rate":0.003}.*{"lora_rank":4,"learning_rate":0.001}.*{"lora_rank":4,"learning_rate":0.003}' \
    "$answer"
expect "nothing is best yet" has '"best_job":null,"best_by":null' "$answer"
mapfile -t members < <(grep -o '"id":"ftjob-[^"]*"' <<<"$answer" | cut -d'"' -f4)
expect "there are four" is "${#members[@]}" 4
call "$jobs?limit=4"
expect "the list of jobs has them, with their sweep" is "$(grep -o "\"sweep_id\":\"$sweep\"" <<<"$answer" | wc -l)" 4
call -X POST "$jobs/$long/cancel"
for member in "${members[@]}"; do follow "$member"; done
call "$sweeps/$sweep"
expect "a sweep that has ended has succeeded" has '"status":"succeeded"' "$answer"
expect "with every job's figures" is "$(grep -o '"full_valid_loss":[0-9.]*[0-9]' <<<"$answer" | wc -l)" 4
lowest=$(numbers_of() { grep -o "\"$1\":[0-9.e-]*" <<<"$answer" | cut -d: -f2; }
    paste <(numbers_of full_valid_loss) <(printf '%s\n' "${members[@]}") | sort -g | head -n 1 | cut -f2)
expect "the best is the one with the lowest validation loss" has "\"best_job\":\"$lowest\",\"best_by\":\"full_valid_loss\"" "$answer"
expect "it is marked in its row, and only there" has "\"id\":\"$lowest\",\"status\":\"succeeded\",\"values\":{[^}]*},\"best\":true" "$answer"
expect "once" is "$(grep -o '"best":true' <<<"$answer" | wc -l)" 1
expect "the time of each is told" is "$(grep -o '"elapsed_s":[0-9]' <<<"$answer" | wc -l)" 4
call -X POST "$sweeps/$sweep/cancel"
expect "a sweep that has ended is not cancelled" is "$status" 409

file=$lasting_file
create_with "${lasting/\"lora_rank\":4/\"lora_rank\":[2,4]}"
file=$data
expect "the call that makes jobs takes lists, too, and answers the first job" has '"object":"fine_tuning.job".*"lora_rank":2' "$answer"
second=$(of "$id" sweep_id)
expect "the first of them runs" wait_for 60 at "$id" running
call "$sweeps"
expect "sweeps are listed, the newest first" has "\"first_id\":\"$second\",\"last_id\":\"$sweep\",\"has_more\":false" "$answer"
call "$sweeps?limit=1&after=$second"
expect "by pages" has "\"first_id\":\"$sweep\"" "$answer"
call -X POST "$sweeps/$second/cancel"
expect "a sweep is cancelled as a whole" is "$status $(grep -o '"status":"cancelled"' <<<"$answer" | wc -l)" "200 3"
call -X POST "$sweeps/$second/cancel"
expect "twice is harmless" is "$status" 200
call "$sweeps/ftsweep-none"
expect "a sweep that is not there" is "$status" 404

# no_sweep NAME PARAM PATTERN BODY
no_sweep() {
    post "$sweeps" "$4"
    expect "$1 is refused by name" is "$status $(field param <<<"$answer")" "400 $2"
    expect "$1: it says why" has "$3" "$answer"
}
with() { echo "{\"model\":\"needle-3\",\"training_file\":\"$data\",\"hyperparameters\":{$1}}"; }
before=$(curl -s "$jobs?limit=1" | field first_id)
no_sweep "a sweep without lists" hyperparameters 'nothing is varied' "$(with '"lora_rank":4')"
no_sweep "an empty list" lora_rank empty "$(with '"lora_rank":[]')"
no_sweep "the same value twice" lora_rank 'twice, at 0 and 1' "$(with '"lora_rank":[4,4]')"
no_sweep "a bad value among good ones" n_epochs "51" "$(with '"n_epochs":[1,51]')"
no_sweep "a list in the list" lora_rank 'lora_rank\[0\]' "$(with '"lora_rank":[[4]]')"
no_sweep "more than 64 jobs" n_epochs 'at most 64' \
    "$(with '"lora_rank":[1,2,3,4,5,6,7,8,9],"n_epochs":[1,2,3,4,5,6,7,8]')"
expect "none of them has made a job" is "$(curl -s "$jobs?limit=1" | field first_id)" "$before"

# ---- the same from the command line -------------------------------------------------------------------------

ctl() {
    answer=$("$out/needlectl" "$@" 2>&1)
    status=$?
}
ctl sweep "$lasting_file" --set lora_alpha=8 --set n_epochs=50 --set batch_size=1 --vary lora_rank=2,4 --vary seed=1,2 --priority 3
expect "needlectl makes a sweep and shows it" has '^0 ftsweep-.*JOB +STATUS.*ftjob-.*lora_rank 2, seed 1' "$status ${answer//$'\n'/ }"
third=$(cut -d' ' -f1 <<<"$answer" | head -n 1)
list=$answer
last=$(grep -o 'ftjob-[A-Za-z0-9]*' <<<"$answer" | tail -n 1)
get "$last"
expect "with the values, settings and priority that were given" has '"lora_rank":4,.*"seed":2.*"priority":3' "$answer"
expect "the first of its jobs runs" wait_for 60 at "$(grep -o 'ftjob-[A-Za-z0-9]*' <<<"$list" | head -n 1)" running
expect "the last one waits" wait_for 30 at "$last" queued
ctl move "$last" --to front
expect "needlectl moves a job" is "$status $answer" "0 $last place 1, priority 3"
ctl jobs --limit 4
expect "the list of jobs shows its place" has "$last +queued +1 " "$answer"
ctl move "$last" --position 1 --to front
expect "the daemon's refusal is shown" has '^1 .*exactly one of' "$status $answer"
ctl sweeps
expect "sweeps are listed" has "^0 .*$third .*$sweep" "$status ${answer//$'\n'/ }"
ctl sweeps cancel "$third"
expect "and cancelled" is "$status $(grep -c ' cancelled' <<<"$answer")" "0 5"
ctl sweeps get "$sweep"
expect "the best is marked" has "\\* $lowest" "$answer"
ctl sweeps get "$sweep" --json
expect "or the record printed" has '"object":"fine_tuning.sweep"' "$answer"
ctl sweep "$data" --vary lora_rank
expect "a list without values is bad usage" has "^2 .*name=value" "$status $answer"

# ---- a retry makes no second sweep ----------------------------------------------------------------------

for _ in 1 2; do
    call -H 'Content-Type: application/json' -H 'Idempotency-Key: sweep-1' -d "$body" "$sweeps"
    kept=${kept:+$kept }$(field id <<<"$answer")
done
expect "the same key gives the same sweep" is "${kept% *}" "${kept#* }"
call -X POST "$sweeps/${kept% *}/cancel"
stop_daemon

# ---- several jobs on one device ---------------------------------------------------------------------------

if [ "$(nproc)" -ge 2 ]; then
    start_daemon "$out" --jobs-per-device 2
    jobs=$url/v1/fine_tuning/jobs
    for name in one two three; do
        create_lasting
        named[$name]=$id
    done
    both() { at "${named[one]}" running && at "${named[two]}" running; }
    expect "two jobs run side by side where it is set" wait_for 60 both
    expect "a third waits" wait_for 20 at "${named[three]}" queued
    call "$url/v1/devices"
    expect "the device names both" has "\"jobs\":\[(\"(${named[one]}|${named[two]})\",?){2}\]" "$answer"
    for name in two one three; do call -X POST "$jobs/${named[$name]}/cancel"; done
    stop_daemon
fi

# ---- fifty small jobs, several workers ----------------------------------------------------------------------

base_folder mini mini
start_daemon "$out" --jobs-per-device 4
printf '{"query":"say","tools":[],"answers":[]}\n' >"$work/one.jsonl"
upload "$work/one.jsonl"
curl -sN "$url/v1/events?stream=true&types=state,done" >"$work/states" &
reader=$!
hears() { grep -qx 'needled_event_streams 1' <<<"$(curl -s "$url/metrics")"; }
expect "a reader follows fifty jobs" wait_for 20 hears
body="{\"model\":\"mini\",\"training_file\":\"$file\",\"hyperparameters\":{\"lora_rank\":1,\"n_epochs\":1,\"batch_size\":1,\"val_split\":0}}"
for n in $(seq 50); do
    [ "$n" = 1 ] || echo next
    printf 'url = "%s"\nheader = "Content-Type: application/json"\nsilent\noutput = "%s"\ndata = "%s"\n' \
        "$url/v1/fine_tuning/jobs" "$work/made-$n" "${body//\"/\\\"}"
done >"$work/creates"
curl -K "$work/creates"
all_ended() { [ "$(grep -c '^event: done' "$work/states")" -ge 50 ]; }
expect "all end" wait_for 120 all_ended
kill $reader
made=$(cat "$work"/made-* | grep -o '"id":"ftjob-[^"]*"' | sort)
# once STATUS: how many of the made jobs were told to be in it exactly once, and how many told there are
once() {
    local told
    told=$(grep "\"type\":\"state\".*\"data\":{\"status\":\"$1\"" "$work/states" | grep -o '"fine_tuning_job_id":"[^"]*"' | cut -d'"' -f4 | sort)
    echo "$(uniq -u <<<"$told" | comm -12 - <(cut -d'"' -f4 <<<"$made") | wc -l) of $(wc -l <<<"$told")"
}
expect "each is begun exactly once" is "$(once running)" "50 of 50"
side_by_side() {
    grep -o '"type":"state".*"data":{"status":"[a-z]*' "$work/states" |
        awk -F'"' '$NF == "running" { now++; most = now > most ? now : most } $NF == "succeeded" { now-- } END { print most }'
}
expect "never more at once than there are workers: $(side_by_side)" [ "$(side_by_side)" -le 4 ]
expect "and succeeds exactly once" is "$(once succeeded)" "50 of 50"
call "$url/v1/fine_tuning/jobs?limit=50"
expect "with one attempt" is "$(grep -o '"attempts":1,' <<<"$answer" | wc -l) $(grep -o '"completed_steps":1,' <<<"$answer" | wc -l)" "50 50"
stop_daemon
