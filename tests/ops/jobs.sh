#!/usr/bin/env bash
# Jobs and models as two kinds of clients see them, over curl: both shapes of a create, a create made once,
# going on from a model, pause and resume, lists and their filters, the result file, a model's content, and
# what is not available. (contract.sh has the fields one by one, life.sh the queue and kill -9.)
#   tests/ops/jobs.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
trap 'stop_daemon >/dev/null 2>&1; rm -rf "$work"' EXIT

base_folder needle-3
start_daemon "$out" || exit 1
jobs=$url/v1/fine_tuning/jobs
models=$url/v1/models
quick='"lora_rank":4,"lora_alpha":8,"n_epochs":1,"max_len":192,"data_rules":"as_reference"'
lines=tests/fixtures/inputs/jsonl

# send BODY [CURL-ARGUMENT...]: a create; status, answer, head and id of the job.
send() {
    local body=$1
    shift
    call -D "$work/head" -H 'Content-Type: application/json' "$@" -d "$body" "$jobs"
    head=$(tr -d '\r' <"$work/head")
    id=$(field id <<<"$answer")
}
# refused STATUS PARAM PATTERN: the last answer.
refused() { [ "$status" = "$1" ] && [ "$(field param <<<"$answer")" = "$2" ] && has "$3" "$answer"; }
count_jobs() { grep -o '"id":"ftjob-' <<<"$answer" | wc -l; }

upload $lines/seventeen.jsonl
seventeen=$file
upload $lines/bom.jsonl
two=$file
upload $lines/one-example.jsonl
one=$file
upload $lines/missing-query.jsonl
bad=$file

# ---- the platform's shape -------------------------------------------------------------------------

call "$models/needle-3"
expect "the base has an integer depth, for a client that asks before it creates" has '"depth":[1-9]\d*,' "$answer"
depth=$(field depth <<<"$answer")
platform="\"model\":\"needle-3\",\"hyperparameters\":{$quick},\"suffix\":\"mine\""
send "{$platform,\"training_files\":[\"$seventeen\",\"$two\"],\"validation_files\":[\"$one\"],\"test_files\":[\"$one\"],\"max_depth\":2}"
expect "a create of the platform's shape is answered 201" is "$status" 201
expect "with its record" has '"name":"mine","training_files":\["file-\w+","file-\w+"\],"validation_files":\["file-\w+"\],"test_files":\["file-\w+"\],"max_depth":2,"evaluations":\[\]' "$answer"
expect "which is OpenAI's as well" has "\"training_file\":\"$seventeen\",\"validation_file\":\"$one\"" "$answer"
several=$id
follow "$id"
expect "it succeeds" is "$(field status <<<"$job")" succeeded
expect "trained on the lines of all its files" has '"training_examples":19,"validation_examples":1' "$job"
expect "its steps are counted for progress lines" is "$(field completed_steps <<<"$job")" "$(field total_steps <<<"$job")"
call "$jobs/$id/events?types=metrics"
expect "and say how much of the device's memory is in use" has '"memory_used_bytes":[1-9]' "$answer"
answer=$job
expect "a running or ended job is one record" has '"fine_tuned_model":"ft:needle-3:local:mine:\w{8}".*"name":"mine"' "$job"
several_model=$(field fine_tuned_model <<<"$job")

mixed() {
    send "{\"model\":\"needle-3\",$2}"
    expect "{$2} is refused for $1" refused 400 "$1" "$1"
}
mixed training_file "\"training_files\":[\"$one\"],\"training_file\":\"$one\""
mixed training_file "\"training_file\":\"$one\",\"max_depth\":2"
mixed validation_file "\"training_files\":[\"$one\"],\"validation_file\":\"$one\""
mixed method "\"training_files\":[\"$one\"],\"method\":{\"type\":\"supervised\"}"
mixed training_files '"training_files":[]'
mixed training_files '"training_files":["file-absent"]'
mixed test_files "\"training_files\":[\"$one\"],\"test_files\":[\"file-absent\"]"
mixed max_depth "\"training_files\":[\"$one\"],\"max_depth\":$((depth + 1))"
mixed max_depth "\"training_files\":[\"$one\"],\"max_depth\":1"
mixed method.type "\"training_file\":\"$one\",\"method\":{\"type\":\"dpo\",\"dpo\":{}}"
mixed method.type "\"training_file\":\"$one\",\"method\":{\"type\":\"reinforcement\"}"

send "{\"model\":\"needle-3\",\"training_files\":[\"$one\",\"$bad\"]}"
follow "$id"
expect "a bad file among several fails the job by its field" has '"param":"training_files"' "$(error_of "$job")"
expect "and its line by its name" has '"file":"missing-query.jsonl"' "$(error_of "$job")"
expect "a failed job has a code and a message for wait()" has '"code":"invalid_training_files","message":"file 2 of 2, line' "$(error_of "$job")"

# ---- multi-turn, weight --------------------------------------------------------------------------

cat >"$work/turns.jsonl" <<'EOF'
{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"},{"role":"assistant","content":"d"}]}
EOF
upload "$work/turns.jsonl"
send "{\"model\":\"needle-3\",\"training_file\":\"$file\"}"
follow "$id"
expect "several turns are refused by name" has 'line 1.*(multi.?turn|turns)' "$(error_of "$job")"
cat >"$work/weight.jsonl" <<'EOF'
{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","weight":1}]}
{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","weight":0}]}
EOF
upload "$work/weight.jsonl"
send "{\"model\":\"needle-3\",\"training_file\":\"$file\"}"
follow "$id"
expect "weight 0 with nothing else to train is refused by name" has 'line 2.*weight' "$(error_of "$job")"

# ---- made once -----------------------------------------------------------------------------------

body="{\"model\":\"needle-3\",\"training_file\":\"$seventeen\",\"seed\":11,\"hyperparameters\":{$quick}}"
other=${body/11/12}
send "$body" -H 'Idempotency-Key: once'
first=$id
expect "a create under a key is taken" is "$status" 200
expect "and is no repeat" has_not 'idempotent-replayed' "$head"
send "$body" -H 'Idempotency-Key: once'
expect "sent again it is the job that it made" is "$status $id" "200 $first"
expect "and says so" has '^idempotent-replayed: true' "$head"
send "${body/,/ , }" -H 'Idempotency-Key: once'
expect "white space makes no other body" is "$id" "$first"
send "$other" -H 'Idempotency-Key: once'
expect "another body under the key is refused" refused 422 Idempotency-Key '"code":"idempotency_key_reused"'
expect "and is not to be tried again" has '^x-should-retry: false' "$head"
send "$body" -H "Idempotency-Key: $(printf 'k%.0s' $(seq 256))"
expect "a key of 256 characters is refused" refused 400 Idempotency-Key 256

# The answer is lost: the connection is closed before it is read. The client sends the same again.
lost="{\"model\":\"needle-3\",\"training_file\":\"$seventeen\",\"seed\":13,\"hyperparameters\":{$quick}}"
exec 9<>"/dev/tcp/127.0.0.1/$port"
printf 'POST /v1/fine_tuning/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nx-stainless-retry-count: 0\r\nContent-Length: %d\r\n\r\n%s' \
    "${#lost}" "$lost" >&9
made() { call "$jobs?limit=1" && has '"seed":13,' "$answer"; }
expect "a create whose client is gone makes its job" wait_for 30 made
exec 9>&-
kept=$(field id <<<"$answer")
send "$lost" -H 'x-stainless-retry-count: 1'
expect "a create whose answer was lost makes no second job" is "$status $id" "200 $kept"
expect "and says that it is a repeat" has '^idempotent-replayed: true' "$head"
send "$lost" -H 'x-stainless-retry-count: 0'
expect "asked for the first time, it is another job" [ "$id" != "$kept" ]
call -X POST "$jobs/$id/cancel"
call -X POST "$jobs/$kept/cancel"
follow "$first"

# ---- going on from a model -----------------------------------------------------------------------

go_on() { send "{\"model\":\"$1\",\"training_file\":\"$two\",\"hyperparameters\":{\"n_epochs\":2,\"max_len\":192$2}}"; }
create_lasting # has the device: the next one waits
holder=$id
runs() { [ "$(curl -s "$jobs/$1" | field completed_steps)" -gt 0 ] 2>/dev/null; }
expect "a job has the device" wait_for 60 runs "$holder"
go_on "$several_model" ""
child=$id
expect "a job goes on from a model" has "^200.*\"model\":\"$several_model\"" "$status $answer"
expect "with its rank and alpha" has '"lora_rank":4,"lora_alpha":8,' "$answer"
expect "it names base and parent" has "\"base_model\":\"needle-3\",\"parent_model\":\"$several_model\"" "$answer"
call -D "$work/head" -X DELETE "$models/$several_model"
expect "its parent cannot be deleted meanwhile" is "$status $(field code <<<"$answer")" "409 model_in_use"
expect "which is not to be tried again" has '^x-should-retry: false' "$(tr -d '\r' <"$work/head")"
call -X POST "$jobs/$holder/cancel"
follow "$child"
expect "it succeeds" is "$(field status <<<"$job")" succeeded
child_model=$(field fine_tuned_model <<<"$job")
call "$jobs/$child/checkpoints"
checkpoint=$(field id <<<"$answer") checkpoint_model=$(field fine_tuned_model_checkpoint <<<"$answer")
go_on "$checkpoint" ',"lora_rank":8'
expect "another rank is refused by name" refused 400 lora_rank 'its own, 4'
go_on "ft:needle-3:local::absent00" ''
expect "a model that is not there is 404" refused 404 model model_not_found
go_on "$checkpoint" ''
expect "a job goes on from a checkpoint's id" has "^200.*\"parent_model\":\"$checkpoint_model\"" "$status $answer"
call -X POST "$jobs/$id/cancel"
call -X DELETE "$models/$several_model"
expect "with nothing going on from it, the parent is deleted" is "$status $(field deleted <<<"$answer")" "200 true"
call "$models/$child_model"
expect "where a model came from stays known" has "\"parent_model\":\"$several_model\"" "$answer"

# ---- pause and resume ----------------------------------------------------------------------------

upload tests/fixtures/needle3/train.jsonl
send "{\"model\":\"needle-3\",\"training_file\":\"$file\",\"hyperparameters\":{$quick,\"n_epochs\":50,\"batch_size\":2}}"
expect "a long job is refused with twice the same name" is "$status" 400
create_lasting
long_job=$id
expect "a long job runs" wait_for 60 runs "$long_job"
call -X POST -H 'Content-Type: application/json' -H 'Content-Length: 0' "$jobs/$long_job/pause"
expect "a running job is paused, with the empty body that the SDK sends" is "$status $(field status <<<"$answer")" "200 paused"
call -X POST "$jobs/$long_job/pause"
expect "a second pause is harmless" is "$status" 200
call "$jobs?status=paused"
expect "it is found by its status" is "$(count_jobs) $(field id <<<"$answer")" "1 $long_job"
send "{\"model\":\"needle-3\",\"training_file\":\"$two\",\"hyperparameters\":{$quick}}"
follow "$id"
expect "others run meanwhile" is "$(field status <<<"$job")" succeeded
stop_daemon
start_daemon "$out" || exit 1
jobs=$url/v1/fine_tuning/jobs models=$url/v1/models
call "$jobs/$long_job"
expect "over a restart it stays paused" is "$(field status <<<"$answer")" paused
paused_at=$(field completed_steps <<<"$answer")
call -X POST "$jobs/$long_job/resume"
expect "it is resumed" is "$status" 200
expect "to a state that goes on" has 'queued|running' "$(field status <<<"$answer")"
goes_on() { call "$jobs/$long_job" && [ "$(field completed_steps <<<"$answer")" -gt "$paused_at" ]; }
expect "and goes on after its step" wait_for 60 goes_on
call "$jobs/$long_job/events?limit=1000&types=message"
expect "saying so" has "Training goes on after step $paused_at of" "$answer"
call -X POST "$jobs/$long_job/resume"
expect "to resume a running job is harmless" is "$status" 200
call -X POST "$jobs/$long_job/cancel"
for action in pause resume; do
    call -D "$work/head" -X POST "$jobs/$long_job/$action"
    expect "a cancelled job is 409 to $action" is "$status" 409
    expect "and no client asks three times" has '^x-should-retry: false' "$(tr -d '\r' <"$work/head")"
    call -X POST "$jobs/ftjob-none/$action"
    expect "a job that is not there is 404 to $action" is "$status" 404
done

# ---- lists ---------------------------------------------------------------------------------------

create_lasting # else one might have succeeded before it is cancelled
holder=$id
expect "a job has the device meanwhile" wait_for 60 runs "$holder"
marked() { send "{\"model\":\"needle-3\",\"training_file\":\"$two\",\"metadata\":$1,\"hyperparameters\":{$quick}}" && call -X POST "$jobs/$id/cancel"; }
marked '{"team":"a","run":"7"}'
marked '{"team":"a b&c","run":""}'
marked '{"team":"a"}'
listed() {
    call -g "$jobs?limit=100&$2"
    expect "$2 finds $1" is "$status $(count_jobs)" "200 $1"
}
call -X POST "$jobs/$holder/cancel"
listed 2 'metadata%5Bteam%5D=a'
listed 2 'metadata[team]=a'
listed 1 'metadata%5Bteam%5D=a&metadata%5Brun%5D=7'
listed 1 'metadata%5Bteam%5D=a+b%26c'
listed 1 'metadata%5Brun%5D='
listed 0 'metadata%5Bteam%5D=A'
call "$jobs?limit=100"
all=$(count_jobs)
listed $((all - 3)) 'metadata=null'
listed 0 'metadata=null&status=queued'
listed $((all - 3)) 'metadata=null&status=queued,running,succeeded,failed,cancelled,paused,validating_files,queued'
listed 0 'search=no-such-name'
listed $all "search=NEEDLE-3"
bad_list() {
    call -g "$jobs?$2"
    expect "$2 is refused for $1" refused 400 "$1" "$1"
}
bad_list metadata 'metadata=x'
bad_list metadata 'metadata[team'
bad_list metadata 'metadata[]=a'
bad_list metadata 'metadata[][]=a'
bad_list metadata 'metadata[team][run]=a'
bad_list metadata 'metadata[team]=a&metadata[team]=b'
bad_list metadata 'metadata=null&metadata[team]=a'
bad_list status 'status=done'
bad_list status 'status=queued,'
bad_list status 'status='
bad_list limit 'limit=0'
bad_list limit 'limit=1001'
bad_list limit 'limit=x'
bad_list after 'after=ftjob-none'
walked=0 after=
while :; do
    call -g "$jobs?limit=1&metadata[team]=a${after:+&after=$after}"
    [ "$(count_jobs)" = 1 ] && walked=$((walked + 1))
    after=$(field id <<<"$answer")
    [ "$(field has_more <<<"$answer")" = true ] && [ $walked -lt 10 ] || break
done
expect "a filtered list is walked to its end" is "$walked" 2

# ---- the result file -----------------------------------------------------------------------------

call "$jobs/$child"
results=$(sed -n 's/.*"result_files":\["\([^"]*\)"\].*/\1/p' <<<"$answer")
expect "a job that has succeeded has a result file" has '^file-' "$results"
call "$url/v1/files/$results"
expect "of its purpose" has '"filename":"step_metrics.csv","purpose":"fine-tune-results"' "$answer"
call "$url/v1/files?purpose=fine-tune-results"
expect "which lists it" has "\"$results\"" "$answer"
curl -sL -o "$work/steps.csv" "$url/v1/files/$results/content"
expect "its first line names the columns" is "$(head -n 1 "$work/steps.csv")" \
    step,train_loss,train_accuracy,valid_loss,valid_mean_token_accuracy,train_mean_token_accuracy,validation_mean_token_accuracy,full_valid_loss,full_valid_mean_token_accuracy
steps=$(curl -s "$jobs/$child" | field total_steps)
expect "then a row a step" is "$(tail -n +2 "$work/steps.csv" | cut -d, -f1 | xargs)" "$(seq -s ' ' "$steps")"
expect "of nine cells" is "$(awk -F, '{ print NF }' "$work/steps.csv" | sort -u)" 9
send "{\"model\":\"needle-3\",\"training_file\":\"$results\"}"
expect "nothing is trained on it" refused 400 training_file fine-tune-results
call -X DELETE "$url/v1/files/$results"
expect "it is deleted as any file" is "$status" 200
call "$jobs/$child"
expect "and then is its job's no more" has '"result_files":\[\]' "$answer"
call "$jobs/$long_job"
expect "a cancelled job has none" has '"result_files":\[\]' "$answer"

# ---- models --------------------------------------------------------------------------------------

call "$models?search=NEEDLE-3&limit=1"
expect "models are searched in either case, up to a limit" has '"data":\[\{"id":"needle-3".*"has_more":true' "$answer"
call "$models?search=no-such-model"
expect "what is nowhere is an empty list" is "$status $(grep -c '"data":\[\]' <<<"$answer")" "200 1"
call "$models?limit=0"
expect "a limit of 0 is refused" refused 400 limit limit
for model in "$child_model" "$checkpoint_model"; do
    call "$models/$model"
    expect "${model##*:} has the fields of both services" has \
        "\"object\":\"model\",\"created\":\d+,\"owned_by\":\"user\",\"name\":\"[\w.-]+\",\"depth\":$depth,\"variants\":\[\]" "$answer"
    sha256=$(field sha256 <<<"$answer")
    call -D "$work/head" "$models/$model/content"
    location=$(tr -d '\r' <"$work/head" | sed -n 's/^location: //Ip')
    expect "its content is a redirect to an absolute link" has "^307 $url/v1/models/" "$status $location"
    curl -s -o "$work/adapter" "$location"
    expect "which gives the adapter without a key" is "$(sha256sum <"$work/adapter" | cut -d' ' -f1)" "$sha256"
    curl -s -r 0-7 -o "$work/part" "$location"
    expect "or a range of it" cmp -s "$work/part" <(head -c 8 "$work/adapter")
done
call "${location%?}x" # no digit: it may end with any
expect "a link that was changed is refused" is "$status" 403
call "$models/$child_model/content?format=cact"
expect "archives are not available yet" is "$status $(field code <<<"$answer")" "501 not_available"
call "$models/needle-3/content"
expect "a base is not downloaded" refused 400 model base
call -X DELETE "$models/needle-3"
expect "nor deleted" refused 400 model base
call "$models/absent/content"
expect "a model that is not there is 404" is "$status $(field code <<<"$answer")" "404 model_not_found"

# ---- plans, billing, and what is not available ---------------------------------------------------

call "$url/v1/plans"
expect "there is one plan" has '"data":\[\{"id":"local","object":"plan"' "$answer"
call "$url/v1/billing"
expect "billing tells the limits and their use" has \
    '"plan":"local","limits":\{"jobs":null,"bytes":null,"examples":0\},"usage":\{"jobs":0,"bytes":[1-9]\d*,"examples":0\},"period_end":null' "$answer"
unavailable() {
    call -D "$work/head" "$@"
    expect "$* is 501" is "$status $(field code <<<"$answer")" "501 not_available"
    expect "and is not to be tried again" has '^x-should-retry: false' "$(tr -d '\r' <"$work/head")"
}
unavailable -H 'Content-Type: application/json' -d '{"tools":[],"examples":100}' "$url/v1/generations"
unavailable "$url/v1/generations?limit=20"
unavailable -X POST "$url/v1/generations/gen-1/cancel"
unavailable -H 'Content-Type: application/json' -d '{"description":"x"}' "$url/v1/tool_schemas"
call "$jobs/ftjob-none"
expect "an unknown job is 404, and a client looks among the generations" is "$status $(field code <<<"$answer")" "404 not_found"
call "$url/v1/generations/ftjob-none"
expect "where it is told that there is neither" has '^404 .*no job and no generation' "$status $answer"

# ---- the same from the command line --------------------------------------------------------------

ctl() {
    answer=$("$out/needlectl" "$@" 2>&1)
    status=$?
}
ctl jobs --metadata team=a --metadata run=7 --status cancelled
expect "jobs are listed by metadata and status" is "$status $(grep -c ftjob- <<<"$answer")" "0 1"
ctl jobs --metadata 'team=a b&c' --json
expect "whatever its characters" is "$status $(count_jobs)" "0 1"
ctl jobs --metadata null --json --limit 100
expect "or those that have none" is "$status $(count_jobs)" "0 $((all - 3))"
ctl jobs --metadata team
expect "a pair without a value is bad usage" has "^2 .*NAME=VALUE" "$status $answer"
ctl jobs --status done
expect "a status that is none is refused" has "^1 .*validating_files" "$status $answer"
ctl jobs get "$child"
expect "a job's record is shown" has '^name +needle-3-\w{8}$' "$answer"
ctl checkpoints "$child"
expect "its checkpoints are listed" is "$status $(grep -c ftckpt_ <<<"$answer")" "0 2"
ctl result "$child" -o "$work/no.csv"
expect "a result file that was deleted is missed" has "^1 .*no result file" "$status $answer"
ctl result "$several" -o "$work/several.csv"
expect "another is saved" is "$status $(head -c 5 "$work/several.csv")" "0 step,"
ctl models --search mine
expect "models are searched" is "$status $(grep -c '^ft:' <<<"$answer")" "0 1"
ctl models get "$child_model"
expect "a model's record is shown" has "^0 $child_model +$depth " "$status $answer"
ctl models delete "$child_model"
expect "a model is deleted" is "$status $answer" "0 $child_model deleted"
ctl models delete "$child_model"
expect "once" has "^1 .*no model" "$status $answer"
ctl billing
expect "limits are shown" has '^0 jobs +0, no limit' "$status $answer"
create_lasting
ctl pause "$id"
wait_until_queued() { [ "$status" = 0 ] || ctl pause "$id"; [ "$status" = 0 ]; }
expect "a job is paused" wait_for 30 wait_until_queued
expect "and says so" is "$answer" "$id paused"
ctl resume "$id"
expect "a job is resumed" has "^0 $id (queued|running)" "$status $answer"
ctl cancel "$id"
ctl resume "$id"
expect "one that has ended is refused" has "^1 .*cannot be resumed" "$status $answer"

stop_daemon
expect "the daemon ends in order" is $? 0
