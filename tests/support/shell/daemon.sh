# Sourced by the demo and the scripts of tests/ops and tests/http: a daemon on a free port.
# Sets: work (a folder that is removed at exit), daemon (its process id), url.

work=${work:-$(mktemp -d)}
daemon=

# base_folder NAME [mini]: the small base model under that name, or the smallest.
base_folder() {
    local from=tests/fixtures/needle3${2:+/$2}
    mkdir -p "$work/state/models/$1"
    cp "$from/base.safetensors" "$from/tokenizer.model" "$work/state/models/$1/"
}

# is_up: it has said its port, or has ended.
is_up() {
    port=$(sed -n 's/.*port \([0-9]*\)"$/\1/p' "$work/needled.log" | tail -n 1)
    [ -n "$port" ] || ! kill -0 "$daemon" 2>/dev/null
}

# start_daemon OUT [OPTION...]: returns when it answers.
start_daemon() {
    local out=$1
    shift
    : >"$work/needled.log" # else the port of an earlier one may be read
    "$out/needled" --state-dir "$work/state" --listen 127.0.0.1:0 "$@" 2>"$work/needled.log" &
    daemon=$!
    port=
    wait_for 40 is_up
    if [ -z "${port:-}" ]; then
        cat "$work/needled.log"
        return 1
    fi
    url=http://127.0.0.1:$port
    export NEEDLED_URL=$url
}

# stop_daemon: SIGTERM; its exit status is returned.
stop_daemon() {
    local status=0
    [ -n "$daemon" ] || return 0
    kill -TERM "$daemon" 2>/dev/null
    wait "$daemon" || status=$?
    daemon=
    return $status
}

# field NAME: the first value of that key in the JSON on standard input (flat texts and numbers).
field() {
    grep -o "\"$1\":\(\"[^\"]*\"\|[^,}]*\)" | head -n 1 | sed "s/^\"$1\"://; s/^\"//; s/\"\$//"
}

# result NAME CONDITION...: prints "ok - NAME" or "not ok - NAME".
result() {
    local name=$1
    shift
    if "$@"; then
        echo "ok - $name"
    else
        echo "not ok - $name"
    fi
}

# wait_for SECONDS COMMAND...: until the command succeeds. The seconds are ample on a machine that does nothing else;
# one that is slow or shared has three times as many.
wait_for() {
    local end=$((SECONDS + 3 * $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.1
    done
}
