#!/usr/bin/env bash
# The main job from end to end: starts a daemon on a free port with its state in build/demo, uploads
# generated lines, fine-tunes the small base model, streams the metrics, fetches the adapter, stops.
#   tests/demo.sh OUT
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: tests/demo.sh OUT}
work=build/demo
rm -rf "$work"
mkdir -p "$work"
. tests/support/shell/daemon.sh
trap 'stop_daemon || true' EXIT

base_folder needle-3
"$out/tests/make_lines" 240 1 demo >"$work/data.jsonl"
start_daemon "$out"
echo "needled listens on $url (log: $work/needled.log); devices:"
"$out/needlectl" devices
echo
echo "The base model is a small one with random weights: the loss will fall, the model will not be clever."
echo
"$out/needlectl" submit "$work/data.jsonl" --suffix demo --curve --set n_epochs=3 --set learning_rate=0.003 \
    --set lora_rank=8 --set lora_alpha=16
echo
job=$("$out/needlectl" jobs | awk 'NR == 2 { print $1 }')
"$out/needlectl" fetch "$job" -o "$work/adapter.safetensors"
stop_daemon
