#!/usr/bin/env bash
# The main job from end to end: starts a daemon on a free port with its state in build/demo, uploads
# generated lines, fine-tunes the small base model, streams the metrics, fetches the adapter, stops.
#   tests/demo.sh OUT
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: tests/demo.sh OUT}
demo=build/demo
port=$((20000 + RANDOM % 20000))

rm -rf "$demo"
mkdir -p "$demo/state/models/needle-3"
cp tests/fixtures/needle3/base.safetensors tests/fixtures/needle3/tokenizer.model "$demo/state/models/needle-3/"
"$out/tests/make_lines" 240 1 demo >"$demo/data.jsonl"

"$out/needled" --state-dir "$demo/state" --listen "127.0.0.1:$port" 2>"$demo/needled.log" &
daemon=$!
trap 'kill "$daemon" 2>/dev/null || true; wait "$daemon" 2>/dev/null || true' EXIT
export NEEDLED_URL=http://127.0.0.1:$port

for _ in $(seq 100); do
    "$out/needlectl" devices >/dev/null 2>&1 && break
    kill -0 "$daemon" 2>/dev/null || { cat "$demo/needled.log"; exit 1; }
    sleep 0.1
done

echo "needled listens on $NEEDLED_URL (log: $demo/needled.log); devices:"
"$out/needlectl" devices
echo
echo "The base model is a small one with random weights: the loss will fall, the model will not be clever."
echo
"$out/needlectl" submit "$demo/data.jsonl" --suffix demo --curve --set n_epochs=3 --set learning_rate=0.003 \
    --set lora_rank=8 --set lora_alpha=16
echo
job=$("$out/needlectl" jobs | awk 'NR == 2 { print $1 }')
"$out/needlectl" fetch "$job" -o "$demo/adapter.safetensors"
kill "$daemon"
wait "$daemon"
trap - EXIT
