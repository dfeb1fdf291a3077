#!/usr/bin/env bash
# What a client may count on, seen from outside with curl: refusals and their order, the recorded run of the
# reference, its events and checkpoints, and the README's four lines. (life.sh has queue, cancel and devices.)
#   tests/ops/contract.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
trap 'stop_daemon >/dev/null 2>&1; rm -rf "$work"' EXIT

base_folder needle-3
start_daemon "$out" || exit 1
jobs=$url/v1/fine_tuning/jobs
quick='"lora_rank":4,"lora_alpha":8,"n_epochs":1'
example=tests/fixtures/inputs/jsonl/bom.jsonl
seventeen=tests/fixtures/inputs/jsonl/seventeen.jsonl

# ---- the recorded float run, over HTTP: it trains while refusals are tried ------------------------

record=tests/fixtures/needle3/train_run_float.json
upload tests/fixtures/needle3/train.jsonl
create "{\"model\":\"needle-3\",\"training_file\":\"$file\",\"seed\":0,\"hyperparameters\":{
    \"n_epochs\":3,\"batch_size\":8,\"learning_rate\":0.003,\"lora_rank\":4,\"lora_alpha\":8.0,\"max_len\":192,
    \"val_split\":0.1,\"numerics\":\"float32\",\"data_rules\":\"as_reference\"}}"
golden=$id
expect "the recorded run is taken" is "$status" 200
golden_file=$file

# ---- health and devices --------------------------------------------------------------------------

call "$url/healthz"
expect "the health answer is ok" has '"status":"ok"' "$status $answer"
call "$url/v1/devices"
expect "the CPU is listed with its threads and memory" has \
    '"id":"cpu:0".*"memory_total_bytes":[1-9].*"threads":[1-9]' "$answer"
expect "with the level of SIMD that was checked" has '"simd_level":"[a-z0-9]*","simd_warning":null' "$answer"
expect "CUDA is missing, with its reason" has '"platform":"cuda","reason":"needled-cuda.so is not installed"' "$answer"
expect "GPU acceleration is said to be off" has '"gpu_active":false' "$answer"

# ---- values that are refused, each by its name ----------------------------------------------------

upload "$example"
expect "a data set is taken" is "$status" 200

# refused NAME STATUS PARAM PATTERN: the last answer.
refused() { [ "$status" = "$1" ] && [ "$(field param <<<"$answer")" = "$2" ] && has "$3" "$answer"; }

# bad PARAM MEMBERS [PATTERN]: hyper-parameters refused in both their places.
bad() {
    create_with "$2"
    expect "hyperparameters {$2} names $1" refused 400 "$1" "${3:-$1}"
    create "{\"model\":\"needle-3\",\"training_file\":\"$file\",
        \"method\":{\"type\":\"supervised\",\"supervised\":{\"hyperparameters\":{$2}}}}"
    expect "method.supervised.hyperparameters {$2} names $1" refused 400 "$1" "${3:-$1}"
}
bad n_epochs '"n_epochs":0'
bad n_epochs '"n_epochs":51'
bad n_epochs '"n_epochs":1.5'
bad n_epochs '"n_epochs":"three"'
bad n_epochs '"n_epochs":true'
bad batch_size '"batch_size":0'
bad batch_size '"batch_size":257'
bad learning_rate '"learning_rate":0'
bad learning_rate '"learning_rate":-1e-4'
bad learning_rate '"learning_rate":"fast"'
bad learning_rate_multiplier '"learning_rate_multiplier":0'
bad learning_rate_multiplier '"learning_rate":1e-4,"learning_rate_multiplier":1'
bad lora_rank '"lora_rank":0'
bad lora_rank '"lora_rank":{"value":16}'
bad lora_rank '"lora_rank":[16,"x"]'
bad lora_alpha '"lora_alpha":0'
bad max_len '"max_len":0'
bad max_len '"max_len":513' 'at most 512 tokens'
bad val_split '"val_split":1'
bad val_split '"val_split":-0.1'
bad numerics '"numerics":"int8"' "'w4a8', 'float32'"
bad precision '"precision":"fp16"' "'float32', 'tf32', 'bf16'"
bad overlong '"overlong":"cut"' "'refuse', 'drop', 'truncate'"
bad data_rules '"data_rules":"loose"' "'strict', 'as_reference'"
bad overlong '"data_rules":"as_reference","overlong":"drop"' "implies 'truncate'"
bad overlong '"data_rules":"as_reference","overlong":"refuse"' "implies 'truncate'"
bad n_epoch '"n_epoch":3' 'not known'

# bad_top PARAM MEMBERS [PATTERN]
bad_top() {
    create_with "$quick" needle-3 "$2"
    expect "$2 at the top names $1" refused 400 "$1" "${3:-$1}"
}
bad_top seed '"seed":-1'
bad_top seed '"seed":2147483648'
bad_top seed '"seed":"x"'
bad_top suffix '"suffix":""'
bad_top suffix "\"suffix\":\"$(printf 'x%.0s' $(seq 65))\""
bad_top suffix '"suffix":"a/b"'
bad_top epochs '"epochs":3' 'not known'
bad_top method.type '"method":{"type":"dpo"}' supervised
bad_top hyperparameters '"method":{"type":"supervised","supervised":{"hyperparameters":{"n_epochs":1}}}' twice
bad_top integrations '"integrations":[{"type":"wandb","wandb":{"project":"x"}}]'
bad_top metadata '"metadata":{"a":1}'
bad_top device '"device":"cuda"' 'needled-cuda.so is not installed'
bad_top device '"device":"cuda:1"' 'needled-cuda.so is not installed'
bad_top device '"device":"cpu:9"' 'there is auto, cpu:0'
bad_top device '"device":"tpu"' 'there is auto, cpu:0'

create '{"model":"needle-3","training_file":'
expect "a cut body is refused" is "$status $(field type <<<"$answer")" "400 invalid_request_error"
expect "and says where it is cut" has '\b(line|byte|column|position|at)\w*\W{0,3}\d' "$answer"
create '[]'
expect "a body that is no object is refused" is "$status" 400

# ---- the order of checks: hyper-parameters, files, model -------------------------------------------

create '{"model":"absent","training_file":"file-absent","hyperparameters":{"n_epochs":0}}'
expect "hyper-parameters are checked first" refused 400 n_epochs n_epochs
create '{"model":"absent","training_file":"file-absent"}'
expect "then the training file" refused 400 training_file file-absent
create "{\"model\":\"absent\",\"training_file\":\"$file\",\"validation_file\":\"file-absent\"}"
expect "then the validation file" refused 400 validation_file file-absent
create "{\"model\":\"absent\",\"training_file\":\"$file\"}"
expect "then the model, and what there is is told" refused 404 model 'there is: needle-3'
create "{\"model\":\"http://example.org/x\",\"training_file\":\"$file\"}"
expect "an address is no model" refused 400 model 'nothing is ever fetched'
create '{"model":"needle-3"}'
expect "a missing file is named" refused 400 training_file training_file
create "{\"training_file\":\"$file\"}"
expect "a missing model is named" refused 400 model model
call "$jobs"
expect "none of them made a job" is "$(grep -o '"id":"ftjob-' <<<"$answer" | wc -l)" 1

# ---- the recorded run ----------------------------------------------------------------------------

# recorded NAME: the numbers of one list, a line each.
recorded() {
    awk -v name="\"$1\": [" '
        index($0, name) { on = 1; next }
        on && /]/ { exit }
        on { gsub(/[ ,]/, ""); print }' "$record"
}
# within COUNT BOUND RECORDED TOLD: as many numbers, and none further away.
within() {
    paste <(echo "$3") <(echo "$4") | awk -v count="$1" -v bound="$2" '
        NF != 2 || $2 !~ /^-?[0-9.]+(e[-+]?[0-9]+)?$/ { bad = 1 }
        { d = $1 > $2 ? $1 - $2 : $2 - $1; if (!(d <= bound)) bad = 1; if (d > worst) worst = d }
        END { printf "#   worst difference %g of at most %g\n", worst, bound; exit bad || NR != count }'
}

follow "$golden"
answer=$job
expect "the recorded run succeeds" is "$(field status <<<"$job")" succeeded
expect "every step's loss is the recorded one" within 24 2e-5 "$(recorded loss_per_step)" "$(told metrics train_loss)"
expect "every learning rate is the recorded one" within 24 1e-9 \
    "$(recorded lr_per_step | head -n 24)" "$(told metrics learning_rate)"
expect "every validation loss is the recorded one" within 3 2e-5 \
    "$(recorded val_loss_per_epoch)" "$(told validation full_valid_loss)"
expect "validations are told at the end of each epoch" is "$(told validation step | xargs)" "8 16 24"
expect "what the reference skips is counted" has '"rule":"skipped","count":3' "$job"
expect "what the reference cuts is counted and listed" has \
    '"rule":"overlong","count":6,.*lines 11, 12, 34, 39, 69, 70' "$job"
expect "examples, held out and trained on" has '"training_examples":58,"validation_examples":6' "$job"

# ---- events ---------------------------------------------------------------------------------------

for name in step total_steps epoch train_loss train_mean_token_accuracy learning_rate grad_norm tokens \
    trained_tokens tokens_per_second; do
    expect "a metrics event's data hold $name, a number" is "$(told metrics $name | grep -cE '^[0-9.e+-]+$')" 24
done
expect "steps count from 1" is "$(told metrics step | xargs)" "$(seq -s ' ' 24)"
rising() { told metrics trained_tokens | awk '$1 <= last { bad = 1 } { last = $1 } END { exit bad }'; }
expect "trained tokens add up" rising
expect "to what the job reports" is "$(told metrics trained_tokens | tail -n 1)" "$(field trained_tokens <<<"$job")"
count=$(grep -c '^id: ' <<<"$events")
expect "ids count 1, 2, 3" is "$(sed -n 's/^id: //p' <<<"$events" | xargs)" "$(seq -s ' ' "$count")"
expect "the last event is done" is "$(sed -n 's/^event: //p' <<<"$events" | tail -n 1)" done
call -N -H "Last-Event-ID: $((count - 2))" "$jobs/$golden/events?stream=true"
expect "a stream goes on after Last-Event-ID" is "$(sed -n 's/^id: //p' <<<"$answer" | xargs)" "$((count - 1)) $count"
call -N -H "Last-Event-ID: $count" "$jobs/$golden/events?stream=true"
expect "who has read all of it gets 204" is "$status" 204
call -I "$jobs/$golden/events?stream=true"
for header in 'content-type: text/event-stream' 'cache-control: no-cache' 'x-accel-buffering: no'; do
    expect "a stream has the header $header" has "^$header" "$answer"
done

pages=0 after=
while :; do
    call "$jobs/$golden/events?limit=10${after:+&after=$after}"
    pages=$((pages + 1))
    numbers number "$answer" >>"$work/paged"
    after=$(grep -o '"id":"ftevent-[^"]*' <<<"$answer" | tail -n 1 | cut -d'"' -f4)
    [ "$(field has_more <<<"$answer")" = true ] && [ $pages -lt 100 ] || break
done
expect "pages hold every event once, newest first" is "$(xargs <"$work/paged")" "$(seq -s ' ' "$count" -1 1)"

# ---- checkpoints ----------------------------------------------------------------------------------

# sound FILE: as long as its header says, and that is an object.
sound() {
    local header
    header=$(od -An -tu8 -N8 "$1" | tr -d ' ')
    [ "$(head -c 9 "$1" | tail -c 1)" = "{" ] && [ "$(wc -c <"$1")" -gt $((header + 8)) ]
}
sha_of() { sha256sum <"$1" | cut -d' ' -f1; }
# fetched MODEL: its adapter is whole, and what the record says.
fetched() {
    rm -f "$work/fetched"
    curl -s -o "$work/fetched" "$url/v1/models/$1/adapter.safetensors"
    sound "$work/fetched" && is "$(sha_of "$work/fetched")" "$(curl -s "$url/v1/models/$1" | field sha256)"
}

call "$jobs/$golden/checkpoints"
expect "an epoch leaves a checkpoint, newest first" is "$(numbers step_number "$answer" | xargs)" "24 16 8"
expect "with its validation loss" is "$(grep -o '"full_valid_loss":' <<<"$answer" | wc -l)" 3
models=$(grep -o '"fine_tuned_model_checkpoint":"[^"]*' <<<"$answer" | cut -d'"' -f4)
for model in $models; do
    expect "checkpoint ${model##*:} can be downloaded" fetched "$model"
    sums+=" $(sha_of "$work/fetched")"
done
expect "each is another" is "$(xargs -n 1 <<<"$sums" | sort -u | wc -l)" 3
expect "the last is the final adapter" is "$(awk '{ print $1 }' <<<"$sums")" \
    "$(curl -s "$url/v1/models/$(field fine_tuned_model <<<"$job")" | field sha256)"
call "$jobs/$golden/checkpoints?limit=2"
expect "a page of them says that there are more" has '"has_more":true' "$answer"

# ---- the README's lines, word for word ------------------------------------------------------------

defaults='"n_epochs":3,"batch_size":16,"learning_rate_multiplier":1,"learning_rate":0.0001,'
defaults+='"lora_rank":16,"lora_alpha":32,"max_len":512,"val_split":0.1'
cp "$seventeen" "$work/data.jsonl"
mkdir "$work/here"
cd "$work"
uploaded=$(curl -s -F purpose=fine-tune -F file=@data.jsonl $url/v1/files)
file=$(field id <<<"$uploaded")
expect "curl -F uploads" has \
    '"object":"file",.*"filename":"data.jsonl","purpose":"fine-tune","status":"processed"' "$uploaded"
created=$(curl -s -H 'Content-Type: application/json' -d '{"model":"needle-3","training_file":"'$file'"}' \
    $url/v1/fine_tuning/jobs)
id=$(field id <<<"$created")
expect "curl -d creates" has '"object":"fine_tuning.job".*"status":"(validating_files|queued|running)"' "$created"
expect "the defaults are the reference's" has "$defaults,\"numerics\":\"w4a8\",\"precision\":\"float32\",\"overlong\":\"refuse\",\"data_rules\":\"strict\"" "$created"
expect "seed is 0, the device is any" is "$(field seed <<<"$created") $(field device <<<"$created")" "0 auto"
events=$(curl -s -N $url/v1/fine_tuning/jobs/$id/events?stream=true)
expect "curl -N streams to the end" has '"status":"succeeded"' "$(tail -n 3 <<<"$events")"
expect "three epochs of one batch are three steps" is "$(told metrics step | xargs)" "1 2 3"
job=$(curl -s "$jobs/$id")
model=$(field fine_tuned_model <<<"$job")
expect "the model is named after its base" has '^ft:needle-3:local::\w{8}$' "$model"
cd here
curl -s -OJL $url/v1/models/$model/adapter.safetensors
expect "curl -OJL saves adapter.safetensors" is "$(ls)" adapter.safetensors
expect "whole, as the model's record says" is "$(sha_of adapter.safetensors)" "$(curl -s "$url/v1/models/$model" | field sha256)"
cd "$root"

# ---- settings that are taken -----------------------------------------------------------------------

file=$golden_file
# set_to WORDS BODY-MEMBERS: the job is taken, reports the words, and is cancelled again.
set_to() {
    create "{\"model\":\"needle-3\",\"training_file\":\"$file\",$2}"
    expect "${2:0:90} is taken" has "^200 .*$1" "$status $answer"
    call -X POST "$jobs/$id/cancel"
}
auto=$(sed -E 's/:[0-9.]+/:"auto"/g' <<<"$defaults")
set_to "$defaults" "\"hyperparameters\":{$auto}"
set_to '"n_epochs":2,"batch_size":4,' \
    '"method":{"type":"supervised","supervised":{"hyperparameters":{"n_epochs":2,"batch_size":4}}}'
set_to '"n_epochs":2,"batch_size":4,' '"hyperparameters":{"n_epochs":2,"batch_size":4}'
set_to '"supervised":{"hyperparameters":{"n_epochs":50,"batch_size":256,' \
    '"hyperparameters":{"n_epochs":50,"batch_size":256}'
set_to '"learning_rate":0.0002' '"hyperparameters":{"learning_rate_multiplier":2}'
set_to '"overlong":"truncate","data_rules":"as_reference"' '"hyperparameters":{"data_rules":"as_reference"}'
set_to '"overlong":"truncate","data_rules":"as_reference"' \
    '"hyperparameters":{"data_rules":"as_reference","overlong":"truncate"}'
set_to '"max_len":512' '"hyperparameters":{"max_len":512}'
set_to '"seed":2147483647' '"seed":2147483647'
set_to '"seed":0' '"seed":null,"suffix":null,"validation_file":null,"metadata":null,"integrations":null'
set_to '"metadata":{"team":"a","run":"7"}' '"metadata":{"team":"a","run":"7"}'
set_to '"user_provided_suffix":"mine-1"' '"suffix":"mine-1"'
set_to '"device":"cpu"' '"device":"cpu"'
set_to '"device":"cpu:0"' '"device":"cpu:0"'

stop_daemon
expect "the daemon ends in order" is $? 0
