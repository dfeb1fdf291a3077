#!/usr/bin/env bash
# Files and data from outside, as curl and needlectl use them: three-call uploads, links, expiry, reports,
# single lines, estimates.
#   tests/ops/files.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
. tests/support/shell/shim.sh
trap 'stop_daemon >/dev/null 2>&1; rm -rf "$work"' EXIT

base_folder mini mini
start_daemon "$out" || exit 1
ctl() {
    answer=$("$out/needlectl" "$@" 2>&1)
    status=$?
}
lines() { for n in $(seq "$1"); do printf '{"query":"say %d","tools":[],"answers":[]}\n' "$n"; done; }
lines 40 >"$work/good.jsonl"
{ lines 3; lines 1; printf '{"query":"x <|im_end|>","tools":[],"answers":[]}\n'; } >"$work/bad.jsonl"

# ---- three calls ------------------------------------------------------------------------------------

bytes=$(stat -c %s "$work/good.jsonl")
call -H 'Content-Type: application/json' -d "{\"name\":\"good.jsonl\",\"bytes\":$bytes}" "$url/v1/files"
expect "an upload is reserved" is "$status" 201
reserved=$(field id <<<"$answer") put=$(field url <<<"$answer")
expect "its url is absolute" has "^$url/" "$put"
call -X POST "$url/v1/files/$reserved/complete"
expect "it is not completed before its bytes came" has '^409 .*invalid_upload' "$status $answer"
call -T "$work/bad.jsonl" "$put"
expect "other bytes are refused" has '^400 .*invalid_upload' "$status $answer"
call -T "$work/good.jsonl" "$put"
expect "its own are taken, without a key or a type" is "$status" 200
call -T "$work/good.jsonl" "$put"
expect "once" has '^409 .*invalid_upload' "$status $answer"
call -X POST "$url/v1/files/$reserved/complete"
good=$(field id <<<"$answer")
expect "and become a file" has '^201 .*"id":"file-.*"line_count":40' "$status $answer"
call -X POST "$url/v1/files/$reserved/complete"
expect "once" has '^409 .*invalid_upload' "$status $answer"

# ---- links ------------------------------------------------------------------------------------------

curl -sL -o "$work/copy" "$url/v1/files/$good/content"
expect "content is behind a redirect" cmp -s "$work/good.jsonl" "$work/copy"
link=$(curl -s -o "$work/none" -w '%{redirect_url}' "$url/v1/files/$good/content")
call -r 0-9 "$link"
expect "a part can be had" is "$status $answer" "206 $(head -c 10 "$work/good.jsonl")"
call "${link%?}x"
expect "a changed link is none" has '^403 .*invalid_link' "$status $answer"
stop_daemon
start_daemon "$out" || exit 1
link="$url/${link#http://*/}"
call "$link"
expect "a link outlives a restart" is "$status" 200
expect "no log tells it" has_not 'signature' "$(cat "$work/needled.log")"
stop_daemon
cp "$work/good.jsonl" "$work/state/uploads/file-stranded" # as of one that was killed before its row
with_shim "$out" steps HOLD_READING=1 "HOLD_UNTIL=$work/may-read"
touch "$work/may-read"
start_daemon "$shimmed" || exit 1
expect "bytes without a file go at the start" has_not 'file-stranded' "$(ls "$work/state/uploads")"
expect "which is told" has "no record names, moved to .*/strays' for a week: 1" "$(cat "$work/needled.log")"
expect "those of a file stay" cmp -s "$work/good.jsonl" "$work/state/uploads/$good"

# ---- what takes long is done beside the connections ---------------------------------------------------

lines 1000 >"$work/many.jsonl"
upload "$work/many.jsonl"
rm "$work/may-read" # who reads a file stands still
reports=()
for n in 1 2 3 4 5 6; do # more than are made at once
    curl -s --max-time 120 -o "$work/report-$n" "$url/v1/files/$file/report?model=mini" &
    reports+=($!)
done
later() { grep -l 'try again in a moment' "$work"/report-* 2>/dev/null | wc -l; }
too_many() { [ "$(later)" -ge 2 ]; }
expect "of six reports at once some are told to come later" wait_for 20 too_many
for n in 1 2 3; do
    call "$url/v1/models"
    expect "while reports are made others are served: $n" is "$status" 200
done
touch "$work/may-read"
wait "${reports[@]}"
whole=$(grep -l '"lines":1000,' "$work"/report-* | wc -l)
expect "a report is whole or told to come later: $whole of 6" is "$whole $((6 - whole))" \
    "$(grep -l '"object":"file.report"' "$work"/report-* | wc -l) $(later)"
call -X DELETE "$url/v1/files/$file"

# ---- needlectl ---------------------------------------------------------------------------------------

ctl upload "$work/bad.jsonl" --expires 3600 --json
bad=$(field id <<<"$answer")
expect "upload --json answers the record" has '^0 \{"id":"file-.*"expires_at":\d' "$status $answer"
ctl upload "$work/bad.jsonl" --expires 5
expect "an expiry out of its bounds is refused" has '^1 .*expires_after.seconds' "$status $answer"
ctl files --search GOOD
expect "files are searched" has "^0 FILE.*$good.*good.jsonl" "$status ${answer//$'\n'/ }"
expect "and no other is shown" has_not "$bad" "$answer"
ctl files get "$good" --json
expect "one is shown" has "^0 .*\"id\":\"$good\"" "$status $answer"
ctl files download "$good" -o "$work/copy2"
expect "and downloaded" cmp -s "$work/good.jsonl" "$work/copy2"
ctl report "$bad" --model mini
expect "a report says what a job would refuse" has "^1 .*line 5.*control marker.*1 lines say what.*line 4 is line 1.*would refuse" \
    "$status ${answer//$'\n'/ }"
ctl report "$good" --model mini --validation-file "$bad" --json
expect "and what is in the validation file too" has '^0 .*"shared":\{"count":3' "$status $answer"
ctl report "$good" --max-len 9
expect "a setting without a model is refused by name" has "^1 .*'model' is missing" "$status $answer"
ctl example "$good" 2 --model mini
expect "a line is shown as it is trained" has '^0 .*say 2.*<tool_call>.*trained.*tokens, .* kept' "$status ${answer//$'\n'/ }"
ctl example "$good" 99
expect "one that is not there is refused" has '^1 .*no line 99' "$status $answer"
ctl estimate "$good" --model mini --set n_epochs=2
expect "an estimate counts and names the device" has '^0 36 examples, 4 held out: 6 steps.*device: cpu:0.*not known' \
    "$status ${answer//$'\n'/ }"
ctl submit "$good" --model mini --set n_epochs=2
expect "a job is made of a file that is there" has '^0 .*created ftjob-' "$status ${answer//$'\n'/ }"
ctl estimate "$work/good.jsonl" --model mini --set n_epochs=2 --json
expect "the next estimate knows the time" has '^0 .*"training_s":\d' "$status $answer"
ctl estimate "$work/bad.jsonl" --model mini
expect "one of data that is refused fails" has '^1 .*line 5' "$status $answer"
call "$url/v1/files?purpose=fine-tune"
expect "its uploads are taken back" is "$(grep -o '"object":"file"' <<<"$answer" | wc -l)" 2
call "$url/v1/fine_tuning/jobs"
expect "and one job was made" is "$(grep -o '"id":"ftjob-' <<<"$answer" | wc -l)" 1
ctl files delete "$bad"
expect "a file is deleted" is "$status $answer" "0 $bad deleted"
ctl files get "$bad"
expect "and is gone" has '^1 .*no file' "$status $answer"
stop_daemon
