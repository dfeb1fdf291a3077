# Sourced after daemon.sh: the calls of a job's life, as curl makes them.
# Sets: status and answer of the last call; job (its record) and events (its stream) of the last follow.

# call CURL-ARGUMENT...: status and answer.
call() {
    answer=$(curl -s --max-time 120 -w '\n%{http_code}' "$@")
    status=${answer##*$'\n'} answer=${answer%$'\n'*}
}

# upload FILE: sets file to its id, or to nothing.
upload() {
    call -F purpose=fine-tune -F "file=@$1" "$url/v1/files"
    file=
    [ "$status" = 200 ] && file=$(field id <<<"$answer")
}

# create BODY: sets id to the job's, or to nothing.
create() {
    call -H 'Content-Type: application/json' -d "$1" "$url/v1/fine_tuning/jobs"
    id=
    [ "$status" = 200 ] && id=$(field id <<<"$answer")
}

# create_with HYPER [MODEL [TOP]]: a job on the last upload; HYPER and TOP are lists of members.
create_with() {
    create "{\"model\":\"${2:-needle-3}\",\"training_file\":\"$file\",\"hyperparameters\":{$1}${3:+,$3}}"
}

# A job that runs until the test ends it: 500,000 steps of one line, half a minute at 17,000 steps a second. (The daemon
# wants half a GB of disk for it.)
# lasting_lines are its data, lasting its hyper-parameters, for who makes it in another way.
lasting='"n_epochs":50,"batch_size":1,"lora_rank":4,"lora_alpha":8,"val_split":0'
lasting_lines() { seq -f '{"query":"say %.0f","tools":[],"answers":[]}' 10000; }
# create_lasting [MODEL [TOP]]: sets id, and lasting_file to its upload; the last upload stays the last.
create_lasting() {
    local before=${file:-}
    [ -e "$work/lasting.jsonl" ] || lasting_lines >"$work/lasting.jsonl"
    upload "$work/lasting.jsonl"
    lasting_file=$file
    create_with "$lasting" "${1:-needle-3}" "${2:-}"
    file=$before
}

# follow ID: returns when the job has ended.
follow() {
    events=$(curl -sN --max-time 300 "$url/v1/fine_tuning/jobs/$1/events?stream=true")
    job=$(curl -s "$url/v1/fine_tuning/jobs/$1")
}

# error_of JOB: the error object of a job's record.
error_of() { sed -n 's/.*"error":\({.*}\),"seed":.*/\1/p' <<<"$1"; }
# warnings_of JOB: the last member of the record.
warnings_of() { sed -n 's/.*"warnings":\(\[.*\]\)}$/\1/p' <<<"$1"; }
# line_numbers TEXT: the lines named in a list of findings, once each.
line_numbers() { numbers line "$1" | sort -nu | xargs; }

# numbers FIELD TEXT: that field's numbers, each on a line.
numbers() { grep -o "\"$1\":[0-9][0-9]*" <<<"$2" | cut -d: -f2; }
# told TYPE FIELD: the field in the data of each event of that type in the last stream.
told() { grep "\"type\":\"$1\"" <<<"$events" | sed -n "s/.*\"data\":{.*\"$2\":\([^,}]*\).*/\1/p"; }

# has PATTERN TEXT: a Perl pattern, in any case of letters.
has() { grep -Piq -- "$1" <<<"$2"; }
has_not() { ! has "$@"; }
is() { [ "$1" = "$2" ]; }

# expect NAME CONDITION...: as result; a failure shows the condition and the last answer.
expect() {
    local name=$1 shown
    shift
    if "$@"; then
        echo "ok - $name"
    else
        echo "not ok - $name"
        shown="$* // last answer $status: $answer"
        printf '#   %.2000s\n' "${shown//$'\n'/ }"
    fi
}
