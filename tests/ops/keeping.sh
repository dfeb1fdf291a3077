#!/usr/bin/env bash
# What stays in the state folder: limits on uploads and checkpoints, files that no record names, records whose
# file is gone, and links that somebody has put there.
#   tests/ops/keeping.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
trap 'stop_daemon >/dev/null 2>&1; rm -rf "$work"' EXIT

state=$work/state
mkdir -p "$state/models/mini"
cp tests/fixtures/needle3/mini/base.safetensors tests/fixtures/needle3/mini/tokenizer.model "$state/models/mini/"
for i in $(seq 24); do
    printf '{"query":"Wake me up at %d","tools":[{"name":"a","parameters":{}}],"answers":[]}\n' "$i"
done >"$work/data.jsonl"
head -c 40 /dev/zero | tr '\0' x | sed 's/.*/{"query":"&","tools":[{"name":"a","parameters":{}}],"answers":[]}/' >"$work/small.jsonl"

hyper='"n_epochs":6,"batch_size":8,"learning_rate":0.001,"lora_rank":2,"lora_alpha":4'
epochs() { ls "$state"/checkpoints/*/ | grep -c '^epoch-'; }
few_epochs() { [ "$(epochs)" -le 3 ]; } # the newest two and the best

# ---- limits
printf '{"checkpoints_kept":2}\n' >"$work/settings.json"
start_daemon "$out" --config "$work/settings.json"
upload "$work/small.jsonl"
small=$file
upload "$work/data.jsonl"
data=$file
create_with "$hyper" mini
follow "$id"
expect "a job of six epochs succeeds" has '"status":"succeeded"' "$job"
model=$(field fine_tuned_model <<<"$job")
expect "of its epoch checkpoints the newest two and the best stay" wait_for 90 few_epochs
first=$(curl -s "$url/v1/fine_tuning/jobs/$id/checkpoints?limit=10" | grep -o 'ft:mini:[^"]*:ckpt-step-[0-9]*' | sort -t- -k3n | head -n 1)
removed() { call "$url/v1/models/$1" && [ "$status" = 410 ]; }
wait_for 20 removed "$first"
expect "what was removed is answered 410, with when and why" is "$status $(field code <<<"$answer")" "410 gone"
expect "in words" has 'was removed at 2.*epoch checkpoints are kept the newest 2' "$answer"
call "$url/v1/fine_tuning/jobs/$id/checkpoints?limit=10"
expect "its figures are still listed" is "$(grep -o '"step_number"' <<<"$answer" | wc -l)" 6
expect "the log tells it" wait_for 20 grep -q "removed model .*$first" "$work/needled.log"
call "$url/v1/models/$model"
expect "the model itself stays" is "$status" 200
stop_daemon

printf '{"uploads_kept_mb":1,"uploads_kept_days":1}\n' >"$work/settings.json"
start_daemon "$out" --config "$work/settings.json"
head -c 1100000 /dev/zero | tr '\0' ' ' >"$work/large.jsonl"
cat "$work/small.jsonl" >>"$work/large.jsonl"
upload "$work/large.jsonl"
large=$file
gone() { call "$url/v1/files/$1"; [ "$status" = 410 ]; }
expect "uploads together stay below their limit: the oldest goes" wait_for 90 gone "$small"
expect "its bytes go with it" wait_for 20 [ ! -e "$state/uploads/$small" ]
stop_daemon

# ---- what nobody names, and what is not there
printf '{}\n' >"$work/settings.json"
echo stray >"$state/artifacts/ftjob-nobody.safetensors"
echo part >"$state/artifacts/ftjob-x.safetensors.abc.tmp"
mkdir -p "$state/checkpoints/ftjob-nobody"
echo stray >"$state/checkpoints/ftjob-nobody/resume-0000000001-000000.safetensors"
echo mine >"$state/artifacts/notes.txt"
mkdir -p "$state/strays"
echo older >"$state/strays/checkpoints-ftjob-nobody-resume-0000000001-000000.safetensors"
mkdir "$state/ballast-77"
touch -d '8 days ago' "$state/strays/artifacts-old"
touch -d '6 days ago' "$state/strays/artifacts-newer"
start_daemon "$out" --config "$work/settings.json"
upload "$work/small.jsonl"
kept=$file
upload "$work/data.jsonl"
data=$file
expect "at the start, adapters that no record names are moved aside" is "$(cat "$state/strays/artifacts-ftjob-nobody.safetensors") $(ls "$state/artifacts" | grep -c nobody)" "stray 0"
aside=$state/strays/checkpoints-ftjob-nobody-resume-0000000001-000000.safetensors
expect "beside one of the same name, which stays" is "$(cat "$aside" "$aside.2" | xargs)" "older stray"
expect "what is called as the ballast and is none is told" grep -q "'ballast-77' in the state folder is none of the ballast" "$work/needled.log"
expect "what lay aside for a week is removed" is "$(cd "$state/strays" && ls | grep -v nobody)" artifacts-newer
expect "and what was half written" [ ! -e "$state/artifacts/ftjob-x.safetensors.abc.tmp" ]
expect "and the folder of a job that is not there" [ ! -e "$state/checkpoints/ftjob-nobody" ]
expect "the model's adapter stays" test -n "$(ls "$state"/artifacts/ftjob-*.safetensors)"
expect "a file that is not ours is told" grep -q "notes.txt' is no file of ours: it is left alone" "$work/needled.log"
expect "and left alone" [ -e "$state/artifacts/notes.txt" ]
stop_daemon

# ---- links
echo '{"secret": "of another program"}' >"$work/elsewhere"
rm "$state/uploads/$kept" "$state/uploads/$data"
ln -s "$work/elsewhere" "$state/uploads/$kept"
before=$(stat -c '%Y %s' "$work/elsewhere")
start_daemon "$out" --config "$work/settings.json"
expect "a record without its file is told" grep -q "file '$data' cannot be read: its file is gone" "$work/needled.log"
call -L "$url/v1/files/$data/content"
expect "and answered 410" is "$status $(field code <<<"$answer")" "410 gone"
expect "a link in a file's place is told" grep -q "file '$kept' cannot be read: .* is a symbolic link: it is not followed" "$work/needled.log"
call -L "$url/v1/files/$kept/content"
expect "it is not followed for reading" has_not secret "$answer"
file=$kept create_with "$hyper" mini
follow "$id"
expect "a job on it fails with the reason" has 'is a symbolic link: it is not followed' "$(error_of "$job")"
call -X DELETE "$url/v1/files/$kept"
expect "deleting it removes the link" is "$status $(ls "$state/uploads/$kept" 2>/dev/null)" "200 "
expect "and not what it leads to" is "$(stat -c '%Y %s' "$work/elsewhere")" "$before"
stop_daemon

mv "$state/artifacts" "$work/artifacts"
ln -s "$work/artifacts" "$state/artifacts"
refuses_link() { ! "$out/needled" --state-dir "$state" --listen 127.0.0.1:0 2>"$work/refused" && grep -q "artifacts' is a symbolic link, which is not followed" "$work/refused"; }
expect "a folder of the state that is a link is refused at the start" refuses_link
rm "$state/artifacts"
mv "$work/artifacts" "$state/artifacts"
if [ "$(id -u)" = 0 ]; then
    chown 12345 "$state/uploads"
    refuses_owner() { ! "$out/needled" --state-dir "$state" --listen 127.0.0.1:0 2>"$work/refused" && grep -q "uploads' belongs to user 12345" "$work/refused"; }
    expect "and so is one of another user" refuses_owner
else
    echo "skip - a folder of another user: only root makes one"
fi
