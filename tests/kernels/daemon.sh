#!/usr/bin/env bash
# The whole daemon with the stand-in for CUDA as its plug-in: devices, jobs on several at once, a card that
# breaks. Prints "ok - what" and "not ok - what".
#   tests/kernels/daemon.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
trap 'stop_daemon >/dev/null 2>&1; rm -rf "$work"' EXIT
export NEEDLED_PLUGINS=$out/plugins OPENBLAS_NUM_THREADS=1
unset NEEDLED_PLATFORMS JAX_PLATFORMS CUDA_VISIBLE_DEVICES

mkdir -p "$work/state/models/needle-3"
cp tests/fixtures/needle3/mini/base.safetensors tests/fixtures/needle3/mini/tokenizer.model "$work/state/models/needle-3/"
"$out/tests/make_lines" 4 5 demo >"$work/data.jsonl" # the stand-in is slow
hyper='"lora_rank":2,"lora_alpha":4,"n_epochs":1,"batch_size":4,"val_split":0'

status_of() { curl -s "$url/v1/fine_tuning/jobs/$1" | field status; }
running() { [ "$(status_of "$1")" = running ]; }
submit() { create_with "$hyper" needle-3 "$1"; }

# ---- two cards and the processor -------------------------------------------------------------------

STANDIN_DEVICES=2 start_daemon "$out" || exit 1
call "$url/v1/devices"
expect "both cards and the processor are listed" has '"id":"cuda:0".*"id":"cuda:1".*"id":"cpu:0"' "$answer"
expect "with name, memory and driver" has '"name":"Stand-in 0","detail":"capability 9.0, driver CUDA 13.0' "$answer"
expect "GPU acceleration is said to be on" has '"gpu_active":true' "$answer"
upload "$work/data.jsonl"
once=$hyper
hyper=${hyper/\"n_epochs\":1/\"n_epochs\":50} # neither ends before it has been looked at
submit '"device":"cuda:0"' && first=$id
submit '"device":"cuda:1"' && second=$id
on_both() { running "$first" && running "$second"; }
expect "two jobs run at once" wait_for 60 on_both
for id in "$first" "$second"; do call -X POST "$url/v1/fine_tuning/jobs/$id/cancel"; done
hyper=$once
submit '"device":"cuda:0"' && first=$id
submit '"device":"cuda:1"' && second=$id
submit '"device":"cpu"' && third=$id
losses=()
for pair in "$first cuda:0" "$second cuda:1" "$third cpu:0"; do
    read -r id device <<<"$pair"
    follow "$id"
    expect "the job on $device succeeds" is "$(field status <<<"$job")" succeeded
    expect "there and not elsewhere" is "$(field device_used <<<"$job")" "$device"
    losses+=("$(told metrics train_loss | head -n 1)")
done
near() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0 && b > 0 && (a - b) ^ 2 < 1e-6) }'; }
expect "both cards' losses are the same" is "${losses[0]}" "${losses[1]}"
expect "and the processor's, nearly" near "${losses[0]}" "${losses[2]}"
stop_daemon

# ---- a card that breaks in the middle of a job ------------------------------------------------------

STANDIN_DEVICES=1 STANDIN_FAIL_LAUNCH=0:40 start_daemon "$out" || exit 1
upload "$work/data.jsonl"
submit '' && first=$id
follow "$first"
expect "the job goes on elsewhere and succeeds" is "$(field status <<<"$job")" succeeded
expect "on the processor" is "$(field device_used <<<"$job")" cpu:0
call "$url/v1/devices"
expect "the card is out of service and says why" has \
    '"id":"cuda:0".*"in_service":false,"reason":"[^"]*unspecified launch failure' "$answer"
submit '"device":"cuda"' && second=$id
waiting() { has 'out of service|service' "$(curl -s "$url/v1/fine_tuning/jobs/$second")"; }
expect "a job that insists on it is queued with the reason" wait_for 20 waiting
stop_daemon

# ---- a card without the memory ----------------------------------------------------------------------

STANDIN_DEVICES=1 STANDIN_MEMORY=1000000 start_daemon "$out" || exit 1
upload "$work/data.jsonl"
submit '"device":"cuda:0"' && first=$id
follow "$first"
expect "a job that does not fit fails" is "$(field status <<<"$job")" failed
expect "with needed and free bytes" has '[0-9]+ bytes of memory are needed, [0-9]+ are available' "$(error_of "$job")"
stop_daemon

# ---- the reference's run, on a card whose memory is closed to the program itself ---------------------

golden=tests/fixtures/needle3/mini
STANDIN_SEAL=1 STANDIN_DEVICES=1 start_daemon "$out" || exit 1
upload $golden/train.jsonl
create_with '"n_epochs":2,"batch_size":16,"learning_rate":0.002,"lora_rank":2,"lora_alpha":4,"max_len":128,
    "val_split":0.1,"numerics":"float32","data_rules":"as_reference"' needle-3 '"seed":3,"device":"cuda:0"'
three_steps() { [ "$(curl -s "$url/v1/fine_tuning/jobs/$id" | field completed_steps)" -ge 3 ]; }
expect "a job on cuda:0 makes the recorded run's steps" wait_for 900 three_steps # ten seconds each on an idle machine
call -X POST "$url/v1/fine_tuning/jobs/$id/cancel"
follow "$id"
expect "on that card" is "$(field device_used <<<"$job")" cuda:0
# recorded NAME: that list of the recorded run, a number a line.
recorded() { tr -d ' \n' <$golden/train_run_float.json | sed "s/.*\"$1\":\[\([^]]*\)\].*/\1/" | tr , '\n'; }
# all_near BOUND ONE OTHER: the first three numbers of both lists, as far apart as the bound at most.
all_near() {
    paste <(head -n 3 <<<"$2") <(head -n 3 <<<"$3") | awk -v bound="$1" '
        { if ($1 <= 0 || $2 <= 0 || ($1 - $2) ^ 2 > bound ^ 2) bad = 1 }
        END { exit bad || NR != 3 }'
}
# Within what two right float32 implementations differ by, as tests/support/golden.c has it.
expect "its losses are the recorded ones" all_near 2e-5 "$(told metrics train_loss)" "$(recorded loss_per_step)"
expect "and its gradients' norms" all_near 2e-5 "$(told metrics grad_norm)" "$(recorded global_grad_norm_per_step)"
stop_daemon
