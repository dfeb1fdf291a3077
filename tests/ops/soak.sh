#!/usr/bin/env bash
# A simulated day of tiny jobs: the wall clock goes two steps forward and one back until 24 hours have gone by,
# readers follow meanwhile, and each job ends as it should. Memory, descriptors and threads stay flat, and
# the last jobs cost no more than the first.
#   tests/ops/soak.sh OUT [JOBS]     JOBS: 200 unless given (80 for a sanitizer's build); make soak makes 10,000
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
case $out in *asan*|*tsan*) total=${2:-80} ;; *) total=${2:-200} ;; esac
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
. tests/support/shell/clock.sh
trap 'stop_daemon >/dev/null 2>&1; rm -rf "$work"' EXIT

rounds=8 warm=4 # what comes once comes in the first rounds
[ "$total" -lt 1000 ] || rounds=40 warm=5
each=$((total / rounds))
total=$((each * rounds))

base_folder mini mini
with_clock "$out"
start_daemon "$clocked" || exit 1
printf '{"query":"say","tools":[],"answers":[]}\n' >"$work/data.jsonl"
upload "$work/data.jsonl"
body="{\"model\":\"mini\",\"training_file\":\"$file\",\"hyperparameters\":{\"n_epochs\":1,\"batch_size\":1,\"lora_rank\":1,\"lora_alpha\":1,\"val_split\":0,\"numerics\":\"float32\"}}"
for n in $(seq $each); do # one connection makes them all
    [ "$n" -eq 1 ] || echo next
    printf 'url = "%s"\nheader = "Content-Type: application/json"\nsilent\noutput = "%s"\ndata = "%s"\n' \
        "$url/v1/fine_tuning/jobs" "$work/created" "${body//\"/\\\"}"
done >"$work/creates"

count_jobs() { curl -s "$url/metrics" | sed -n "s/^needled_jobs{status=\"$1\"} //p"; }
ended() { [ "$(count_jobs succeeded)" -ge "$1" ]; }
from_status() { sed -n "s/^$1:[^0-9]*\([0-9]*\).*/\1/p" "/proc/$daemon/status"; }
descriptors() { ls "/proc/$daemon/fd" | wc -l; }
cpu_ms() { awk -v tick="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); print int(($12 + $13) * 1000 / tick) }' "/proc/$daemon/stat"; }
now_ms() { echo $(($(date +%s%N) / 1000000)); }
size_kb() { du -sk --apparent-size "$1" 2>/dev/null | cut -f1; }

curl -sN "$url/v1/events?stream=true&after=0&types=state,done" >"$work/states" &
reader=$!
curl -sN "$url/v1/events?stream=true&after=0" >"$work/all" &
follower=$!

# ---- the day -------------------------------------------------------------------------------------------

# The hours of all rounds add up to 24: every second round takes back half of what the one before it went.
hop=$((24 * 3600 * 2 / rounds))
printf '#   %7s %6s %8s %6s %6s %8s %8s %9s %8s\n' \
    jobs hours rss_kB fds threads ms/job cpu/job list_ms db_kB
measured=0 first_kb=0 first_fds=0 first_threads=0 first_cpu=0
for round in $(seq $rounds); do
    started=$(now_ms) before=$(cpu_ms)
    curl -K "$work/creates"
    set_clock $((clock + (round % 2 == 1 ? 2 * hop : -hop))) # with jobs in line and under way
    expect "round $round: $each more jobs succeed" wait_for 300 ended $((round * each)) >"$work/line"
    grep -q '^ok' "$work/line" || { cat "$work/line"; break; }
    took=$(($(now_ms) - started)) cpu=$(($(cpu_ms) - before))
    asked=$(now_ms)
    curl -s "$url/v1/fine_tuning/jobs?limit=100" >"$work/page"
    list_ms=$(($(now_ms) - asked))
    kb=$(from_status VmRSS) fds=$(descriptors) threads=$(from_status Threads)
    printf '#   %7d %6.1f %8d %6d %6d %8.1f %8.1f %9d %8d\n' $((round * each)) "$((clock / 360))e-1" "$kb" "$fds" "$threads" \
        "$((took * 10 / each))e-1" "$((cpu * 10 / each))e-1" "$list_ms" "$(size_kb "$work/state/needled.db")"
    measured=$round
    if [ "$round" -eq $warm ]; then
        first_kb=$kb first_fds=$fds first_threads=$threads
    elif [ "$round" -eq $((warm + 1)) ]; then
        first_cpu=$cpu
    fi
done
expect "all $total jobs succeed, round by round" is "$measured" "$rounds"
expect "a day has gone by" is "$clock" $((24 * 3600))
expect "none has another end" is "$(for state in failed cancelled paused queued running; do count_jobs $state; done | xargs)" "0 0 0 0 0"
flat_fds() { [ "$(descriptors)" -le $((first_fds + 2)) ]; } # one that just closes
flat_threads() { [ "$(from_status Threads)" -le "$first_threads" ]; }
expect "descriptors are flat: $first_fds, then $fds" wait_for 10 flat_fds
expect "threads are flat: $first_threads, then $threads" wait_for 10 flat_threads
case $out in
*asan*|*tsan*) echo "skip - memory stays flat: a sanitizer keeps what is freed for a while" ;;
*) expect "memory is flat: $first_kb kB, then $kb kB" [ "$kb" -le $((first_kb + 4096)) ] ;;
esac
if [ "$total" -ge 1000 ]; then # fewer are too few for their cost to be known
    expect "the last jobs cost no more than the first: $((cpu * 1000 / each)) us of the processor, before $((first_cpu * 1000 / each))" \
        [ "$cpu" -le $((first_cpu * 5 / 4)) ]
fi

# ---- what was told -------------------------------------------------------------------------------------

ids() { sed -n 's/^id: //p' "$1" | tr -d '\r'; }
all_told() { [ "$(grep -c '^event: done' "$work/all")" -ge "$total" ]; }
expect "a reader of everything hears of every end" wait_for 60 all_told
expect "each event once and in order" cmp -s <(ids "$work/all") <(seq "$(ids "$work/all" | tail -n 1)")
expect "a reader of some hears of the same" is "$(grep -c '^event: done' "$work/states")" "$total"
kill $reader $follower

after= seen=0 odd=0
while :; do
    curl -s "$url/v1/fine_tuning/jobs?limit=1000${after:+&after=$after}" >"$work/page"
    # a record a line
    sed 's/{"id":"ftjob-/\n&/g' "$work/page" | grep '^{"id":"ftjob-' >"$work/records"
    seen=$((seen + $(wc -l <"$work/records")))
    odd=$((odd + $(awk '{
        match($0, /"created_at":[0-9]+/); created = substr($0, RSTART + 13, RLENGTH - 13)
        match($0, /"started_at":[0-9]+/); started = substr($0, RSTART + 13, RLENGTH - 13)
        match($0, /"finished_at":[0-9]+/); finished = substr($0, RSTART + 14, RLENGTH - 14)
        if (!(created + 0 <= started + 0 && started + 0 <= finished + 0 && created > 0) || !/"attempts":1,/ ||
            !/"completed_steps":1,/) odd++ }
        END { print odd + 0 }' "$work/records")))
    after=$(tail -n 1 "$work/records" | field id)
    [ "$(field has_more <"$work/page")" = true ] || break
done
expect "the list, by pages, has them all" is "$seen" "$total"
expect "each with one attempt and dates that rise" is "$odd" 0
expect "no request took less than nothing" has_not ' -[0-9]+ ms' "$(<"$work/needled.log")"
told_twice() { grep -a 'level=\(warn\|error\)' "$work/needled.log" | grep -v 'not on a GPU\|cuda is not'; }
expect "the log warns of nothing else" is "$(told_twice | head -n 3)" ""
expect "no checkpoint of a job that has ended is left" is "$(find "$work/state/checkpoints" -type f | wc -l)" 0
expect "the write-ahead log has a bound" [ "$(size_kb "$work/state/needled.db-wal")" -lt 65536 ]
stop_daemon
expect "the daemon ends in order" is "$?" 0

# ---- a start with all of them ----------------------------------------------------------------------------

started=$(now_ms)
start_daemon "$clocked" || exit 1
expect "it starts with $total jobs behind it, in $(($(now_ms) - started)) ms, $(from_status VmRSS) kB" \
    is "$(count_jobs succeeded)" "$total"
upload "$work/data.jsonl"
create "${body/\"training_file\":\"*\",\"hyper/\"training_file\":\"$file\",\"hyper}"
follow "$id"
expect "and goes on" is "$(field status <<<"$job")" succeeded
stop_daemon
