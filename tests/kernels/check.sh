#!/usr/bin/env bash
# The check of a card before its first job, over the stand-in: what is remembered, what is shown, and what
# becomes of a card with one wrong kernel. Prints "ok - what" and "not ok - what".
#   tests/kernels/check.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
trap 'stop_daemon >/dev/null 2>&1; rm -rf "$work"' EXIT
export NEEDLED_PLUGINS=$out/plugins OPENBLAS_NUM_THREADS=1
unset NEEDLED_PLATFORMS JAX_PLATFORMS CUDA_VISIBLE_DEVICES NEEDLED_CUBLAS

# ---- by hand: needled --devices --check ---------------------------------------------------------------

# table PATTERN STATUS VARIABLE=VALUE...
table() {
    local pattern=$1 status=$2 said
    shift 2
    said=$(env "$@" "$out/needled" --devices --check 2>&1)
    [ $? -eq "$status" ] && has "$pattern" "${said//$'\n'/ }" || { echo "$said"; false; }
}
result "a card and each level of the processor agree" table 'cuda:0 .* agrees.*cpu:0 +plain .* agrees' 0 A=1
result "a card whose kernel is wrong is named with the op, and the others still agree" \
    table 'cuda:0 .* DIFFERS: rmsnorm, size .*normalised squared error.*cpu:0 +plain .* agrees' 1 STANDIN_SKIP=gpu_rmsnorm_forward
result "also without cuBLAS, whose products are then our own" \
    table 'cuda:0 .* DIFFERS: matmul, ' 1 NEEDLED_CUBLAS=none STANDIN_SKIP=gpu_matmul NEEDLED_PLATFORMS=cuda
# Which products of it are wrong: every matrix is right in float32.
for precision in tf32 bf16; do
    result "a card whose $precision products have the wrong sign is named with the precision" \
        table "cuda:0 .* DIFFERS: a tiny job.*\\($precision\\)" 1 STANDIN_NEGATE=$precision NEEDLED_PLATFORMS=cuda
done
result "a card that breaks is not checked" table 'cuda:0 .* not checked: .*unspecified launch failure' 1 \
    STANDIN_FAIL_LAUNCH=0:100 NEEDLED_PLATFORMS=cuda
result "nor is one that is too old" table 'cuda:0 .* not checked: .*capability 7.0, needed is 7.5' 1 \
    STANDIN_OLD=0
result "and a platform of which that is all is not there, when it is asked for" \
    table "platform 'cuda' in NEEDLED_PLATFORMS is not available; available: cpu; not: cuda \(.*capability 7.0" 3 \
    STANDIN_OLD=0 NEEDLED_PLATFORMS=cuda
result "--check goes with --devices" \
    test "$("$out/needled" --check 2>&1)" = "needled: option '--check' goes with --devices"

lists() { has "$1" "$("$out/needled" --state-dir "$work/state" --platforms cuda --devices)"; }
result "a card that was not checked says so" lists '^cuda:0 +not checked yet with this driver'

# ---- by the daemon, before the first job --------------------------------------------------------------

mkdir -p "$work/state/models/needle-3"
cp tests/fixtures/needle3/mini/base.safetensors tests/fixtures/needle3/mini/tokenizer.model "$work/state/models/needle-3/"
"$out/tests/make_lines" 4 5 demo >"$work/data.jsonl" # the stand-in is slow
hyper='"lora_rank":2,"lora_alpha":4,"n_epochs":1,"batch_size":4,"val_split":0'
submit() { create_with "$hyper" needle-3 "$1"; }
remembered=$work/state/device-checks/GPU-01000000-0000-0000-0000-000000000000.json

waiting='' other=''
shown() { has "$1" "$(curl -s "$url/v1/devices")"; }
verdict() { shown "\"id\":\"cuda:0\".*\"self_check\":{\"verdict\":\"$1\".*\"id\":\"cpu:0\""; }

start_daemon "$out" --platforms cuda,cpu || exit 1
result "HTTP answers while the card is being checked" test "$(curl -s -o /dev/null -w '%{http_code}' "$url/v1/devices")" = 200
result "a card passes its check at the first start" wait_for 120 verdict passed
result "which --devices shows too" lists '^cuda:0 +checked on 20[0-9-]+: [0-9]+ ops and a tiny job agree'
result "which is shown with op, error and date" shown \
    '"self_check":\{"verdict":"passed","checked_at":[0-9]{10},"remembered":false,"ops":[0-9]+,"worst_op":"[a-z_: ]+","worst_share":0\.[0-9]+,"reason":null\}'
result "and told in the log" has 'device=cuda:0 msg="checked in ' "$(cat "$work/needled.log")"
result "with what the card is" shown \
    '"name":"Stand-in 0".*"uuid":"GPU-0100.*"capability":"9.0","driver":"CUDA 13.0","library":"cuBLAS 13.0.0","library_warning":null,"precisions":\["float32","tf32","bf16"\]'
result "and what it does now: memory, and null where nobody knows" shown \
    '"memory_total_bytes":[0-9]+,"memory_free_bytes":[0-9]+,"temperature_celsius":null,"power_watts":null,"read_at":[0-9]{10}'
stop_daemon

LD_LIBRARY_PATH=$out/fakes start_daemon "$out" --platforms cuda,cpu || exit 1
result "with the management library, temperature and power" wait_for 20 shown '"temperature_celsius":41,"power_watts":120'
result "another driver: it is checked again" wait_for 120 verdict passed
result "and not from memory" shown '"id":"cuda:0".*"remembered":false.*"id":"cpu:0"'
stop_daemon

LD_LIBRARY_PATH=$out/fakes start_daemon "$out" --platforms cuda,cpu || exit 1
result "the next start remembers" wait_for 10 shown '"verdict":"passed","checked_at":[0-9]{10},"remembered":true'
result "and says so" has 'was checked before with this driver' "$(cat "$work/needled.log")"
stop_daemon

STANDIN_SKIP=gpu_rmsnorm_forward LD_LIBRARY_PATH=$out/fakes "$out/needled" --state-dir "$work/state" --platforms cuda \
    --devices --check >"$work/table"
result "when --check finds the card wrong the earlier pass is forgotten" \
    eval 'has "cuda:0 .* DIFFERS: rmsnorm" "$(cat "$work/table")" && [ ! -e "$remembered" ]'
LD_LIBRARY_PATH=$out/fakes STANDIN_NEGATE=bf16 start_daemon "$out" --platforms cuda,cpu || exit 1
result "and the daemon does not take it: here for its bf16 products" wait_for 120 shown \
    '"id":"cuda:0".*"in_service":false,"reason":"its check failed: a tiny job[^"]*\(bf16\)'
stop_daemon
LD_LIBRARY_PATH=$out/fakes start_daemon "$out" --platforms cuda,cpu || exit 1
result "it passes again" wait_for 120 verdict passed
stop_daemon

printf '%s' "$(head -c 100 "$remembered")" >"$remembered"
LD_LIBRARY_PATH=$out/fakes start_daemon "$out" --platforms cuda,cpu || exit 1
result "a damaged memory is none" wait_for 120 shown '"id":"cuda:0".*"verdict":"passed".*"remembered":false.*"id":"cpu:0"'
stop_daemon

# ---- a card with one wrong kernel -----------------------------------------------------------------------

rm -f "$remembered"
STANDIN_SKIP=gpu_rmsnorm_forward start_daemon "$out" --platforms cuda,cpu || exit 1
upload "$work/data.jsonl"
result "a wrong kernel takes the card out of service" wait_for 120 shown \
    '"id":"cuda:0".*"in_service":false,"reason":"its check failed: rmsnorm, .*normalised squared error'
result "it is in the log" has 'level=error device=cuda:0 msg="out of service: its check failed: rmsnorm' "$(cat "$work/needled.log")"
result "GPU acceleration is not on then" shown '"gpu_active":false'
submit '"device":"cuda:0"' && waiting=$id
waits() { has 'its check failed: rmsnorm' "$(curl -s "$url/v1/fine_tuning/jobs/$waiting")"; }
result "a job that insists on it waits, with the op as its reason" wait_for 30 waits
submit '' && other=$id
follow "$other"
result "one that does not runs on the processor" test "$(field device_used <<<"$job")" = cpu:0
result "a failure is not remembered" test ! -e "$remembered"
stop_daemon

start_daemon "$out" --platforms cuda,cpu || exit 1
follow "$waiting"
result "at the next start the card is tried again, and the job runs there" test "$(field device_used <<<"$job")" = cuda:0
result "and what it was told is remembered" test -s "$remembered"
stop_daemon

# ---- a card without memory for the check ----------------------------------------------------------------

rm -f "$remembered"
STANDIN_MEMORY=20000 start_daemon "$out" --platforms cuda,cpu || exit 1
result "a card too full to be checked is out of service for the time being" wait_for 60 shown \
    '"id":"cuda:0".*"in_service":false,"reason":"its check cannot be made yet: check of the ops: .*no memory for .* of [0-9]+ bytes'
stop_daemon

rm -f "$remembered"
touch "$work/closed"
STANDIN_CLOSED_FILE="0:$work/closed" start_daemon "$out" --platforms cuda || exit 1
result "one too full to be opened is no reason not to start" wait_for 30 shown \
    '"id":"cuda:0".*"in_service":false,"reason":"it cannot be opened yet: .*out of memory'
rm "$work/closed"
result "and is in service once there is room" wait_for 60 shown '"id":"cuda:0".*"verdict":"passed".*"in_service":true'
stop_daemon

# ---- a stop during the check --------------------------------------------------------------------------

rm -f "$remembered"
start_daemon "$out" --platforms cuda || exit 1
verdict_of_one() { shown "\"id\":\"cuda:0\".*\"self_check\":{\"verdict\":\"$1\""; }
result "while a card is being checked" wait_for 30 verdict_of_one running
stop_daemon
result "a stop is nothing that is wrong with it" has_not 'level=(error|warn)' "$(cat "$work/needled.log")"
result "and no pass" test ! -e "$remembered"

# ---- cards that do not answer hide no other -------------------------------------------------------------

STANDIN_DEVICES=2 STANDIN_MUTE=0 start_daemon "$out" --platforms cuda,cpu || exit 1
result "a card that does not answer says so" wait_for 60 shown \
    '"id":"cuda:0".*"in_service":false,"reason":"the device does not answer: .*"id":"cuda:1"'
result "and the other one works" wait_for 120 shown '"id":"cuda:1".*"verdict":"passed".*"in_service":true.*"id":"cpu:0"'
stop_daemon
