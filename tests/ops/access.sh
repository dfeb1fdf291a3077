#!/usr/bin/env bash
# Who may do what, from outside: keys by needlectl over the Unix socket, webhooks, figures for Prometheus.
#   tests/ops/access.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
trap 'stop_daemon >/dev/null 2>&1; rm -rf "$work"' EXIT

base_folder needle-3
echo '{"webhook_hosts": "127.0.0.1"}' >"$work/settings.json"
start_daemon "$out" --config "$work/settings.json" || exit 1
socket=unix:$work/state/needled.sock

# ctl ARGUMENT...: needlectl over TCP; own ARGUMENT...: over the socket, as the daemon's user.
ctl() {
    answer=$("$out/needlectl" "$@" 2>"$work/err")
    status=$?
}
own() { NEEDLED_API_KEY='' ctl --server "$socket" "$@"; }

# ---- keys ----------------------------------------------------------------------------------------------

ctl jobs
expect "without any key nobody is asked for one" is "$status" 0
own key create laptop --scope submit --jobs 1
expect "a key is made over the socket and is all of standard output" has '^needle_ft_[0-9A-Za-z]{43}$' "$answer"
submit=$answer
expect "the rest is said beside it" grep -q 'shown this once' "$work/err"
own key create watcher --scope read --json
expect "as JSON it is a member" has '"key":"needle_ft_' "$answer"
read=$(field key <<<"$answer") read_id=$(field id <<<"$answer")
own key create nobody --scope root
expect "an unknown scope is refused with what there is" grep -q "'read', 'submit' or 'admin'" "$work/err"
own key create many --jobs many
expect "a limit that is no number is refused here" is "$status" 2

ctl jobs
expect "from the first key on everybody is asked" is "$status" 1
expect "and told where the key goes" grep -q NEEDLED_API_KEY "$work/err"
export NEEDLED_API_KEY=$read
ctl jobs
expect "a key of scope read reads" is "$status" 0
ctl upload tests/fixtures/inputs/jsonl/seventeen.jsonl
expect "and does not upload" grep -q "needs a key of scope 'submit'" "$work/err"
ctl key list
expect "nor see keys" grep -q "needs a key of scope 'admin'" "$work/err"
export NEEDLED_API_KEY=$submit
lasting_lines >"$work/lasting.jsonl"
ctl upload "$work/lasting.jsonl" --json
expect "a key of scope submit uploads" is "$status" 0
file=$(field id <<<"$answer")
authorized() { call -H "Authorization: Bearer $1" "${@:2}"; }
body="{\"model\":\"needle-3\",\"training_file\":\"$file\",\"hyperparameters\":{$lasting}}"
authorized "$submit" -H 'Content-Type: application/json' -d "$body" "$url/v1/fine_tuning/jobs"
expect "and makes a job" is "$status" 200
job_id=$(field id <<<"$answer")
authorized "$submit" -H 'Content-Type: application/json' -d "$body" -D "$work/headers" "$url/v1/fine_tuning/jobs"
expect "a second one is past its limit" is "$status $(field code <<<"$answer") $(field param <<<"$answer")" \
    "429 queue_limit_reached jobs"
expect "which is not asked again" grep -qi '^x-should-retry: false' "$work/headers"
own key create other
authorized "$answer" -X POST "$url/v1/fine_tuning/jobs/$job_id/cancel"
expect "another key does not cancel it" is "$status $(field code <<<"$answer")" "403 not_owner"
authorized "$submit" -X POST "$url/v1/fine_tuning/jobs/$job_id/cancel"
expect "its own does" is "$status" 200

own key list
expect "keys are listed with their last use" has "^$read_id +read +\S+ +20\d\d-" "$answer"
expect "never with their secret" has_not "needle_ft_" "$answer"
curl -sN -H "Authorization: Bearer $read" "$url/v1/events?stream=true" >"$work/stream" &
reader=$!
streaming() { grep -qx 'needled_event_streams 1' <<<"$(curl -s -H "Authorization: Bearer $read" "$url/metrics")"; }
expect "a reader of events is counted" wait_for 10 streaming
own key revoke "$read_id"
expect "a key is revoked" is "$answer" "$read_id revoked"
authorized "$read" "$url/v1/models"
expect "and over at once" is "$status $(field code <<<"$answer")" "401 invalid_api_key"
gone() { ! kill -0 $reader 2>/dev/null; }
expect "also for its open streams" wait_for 10 gone
call -X POST "$url/v1/files?api_key=$submit"
expect "a key in an address is none" is "$status $(field code <<<"$answer")" "401 invalid_api_key"
expect "no secret is in the log" has_not "needle_ft_|Bearer" "$(cat "$work/needled.log")"

# ---- a key file that everybody can read -----------------------------------------------------------------

echo sk-file >"$work/key"
chmod 644 "$work/key"
echo "{\"api_key_file\": \"$work/key\"}" >"$work/open.json"
told=$("$out/needled" --config "$work/open.json" --check-config --state-dir "$work/s")
expect "a key file that every user can read is told" has 'api_key +set \(its file can be read by every user' "$told"
chmod 600 "$work/key"
told=$("$out/needled" --config "$work/open.json" --check-config --state-dir "$work/s")
expect "one that only its owner can read is not" has 'api_key +set$' "$told"

# ---- webhooks ------------------------------------------------------------------------------------------

export NEEDLED_API_KEY=$submit
ctl webhook create http://example.com/hook
expect "a host that is not listed is refused" grep -q "webhook_hosts does not list it" "$work/err"
ctl webhook create http://127.0.0.1:9/hook --types fine_tuning.job.cancelled --name mine --json
expect "one that is listed is taken, with its secret" has '"signing_secret":"whsec_' "$answer"
hook=$(field id <<<"$answer")
ctl webhook list
expect "it is listed" has "^$hook +yes +own +http://127.0.0.1:9/hook \(mine\)" "$answer"
ctl webhook test "$hook"
expect "a receiver that is not there is told" grep -q 'no answer came' "$work/err"
ctl webhook rotate "$hook" --keep-old
expect "its secret is changed" has '^whsec_' "$answer"
authorized "$submit" -H 'Content-Type: application/json' -d "$body" "$url/v1/fine_tuning/jobs"
job_id=$(field id <<<"$answer")
authorized "$submit" -X POST "$url/v1/fine_tuning/jobs/$job_id/cancel"
told_of() {
    ctl webhook deliveries "$hook"
    has "waiting +[1-9] +fine_tuning.job.cancelled +$job_id" "$answer"
}
expect "what it did not take waits, with the reason" wait_for 20 told_of
ctl webhook delete "$hook"
expect "it is removed" is "$answer" "$hook deleted"

# ---- figures -------------------------------------------------------------------------------------------

authorized "$submit" "$url/metrics"
printf '%s\n' "$answer" >"$work/metrics"
expect "figures are read with a key" is "$status" 200
call "$url/metrics"
expect "and not without" is "$status" 401
expect "jobs are counted by status" grep -qx 'needled_jobs{status="cancelled"} 2' "$work/metrics"
expect "so are refusals" grep -q 'needled_http_requests_total{method="POST",route="/v1/fine_tuning/jobs",code="429"} 1' \
    "$work/metrics"
if command -v promtool >/dev/null; then
    lint=$(promtool check metrics <"$work/metrics" 2>&1)
    expect "promtool finds nothing" is "$lint" ""
else
    echo "skip - promtool does not look at the figures: it is not installed (Debian: prometheus)"
fi

# ---- an address that is not loopback --------------------------------------------------------------------

stop_daemon
start_daemon "$out" --listen 0.0.0.0:0
started=$?
expect "with a key in the database another address is served" is "$started" 0
authorized "$submit" "$url/v1/models"
expect "with that key" is "$status" 200
call "$url/v1/models"
expect "and not without" is "$status" 401
