"""Times the reference implementation's own fine-tune against ours, step by step in turn.

    against_reference.py BENCH_TRAIN BASE LINES NUMERICS BATCH MAX_LEN [OPTION...]

BASE is a folder with base.safetensors and tokenizer.model, LINES a data set of a few batches, NUMERICS
w4a8 or float32; OPTIONs are BENCH_TRAIN's. After each step of finetune_local, which then waits, BENCH_TRAIN (tests/bench) trains
on the same lines in the same order. The reference's first step, in which it compiles, does not count,
nor does ours. Real tokens are those of the lines: what the reference pads is not counted.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time
import types

import needle.model.architecture as architecture
import needle.model.finetune as finetune
import needle.model.quantize as quantize
import needle.model.tokenizer as tokenizer


def use_float32():
    """The reference has no switch for it: every rounding becomes the identity."""
    quantize.cq_ste_params = lambda params, *arguments, **options: params
    quantize.maybe_quant_query = lambda x, quant: x
    quantize.maybe_quant_kv = lambda x, quant: x
    architecture._aq = lambda x, quant: x


class Contest:
    """Alternates: each step of the reference is followed by a run of ours."""

    def __init__(self, command):
        self.command = command
        self.theirs = {}  # step: (seconds, loss)
        self.ours = []    # (step, tokens, seconds, loss)
        self.started = None

    def progress(self, message):
        words = message.split()
        if words[0] == "step":
            step = int(words[1].split("/")[0])
            self.theirs[step] = (time.monotonic() - self.started, float(words[3]))
            print(f"  reference step {step}: {self.theirs[step][0]:.1f} s", flush=True)
            self.run_ours()
        self.started = time.monotonic()

    def run_ours(self):
        output = subprocess.run(self.command, check=True, capture_output=True, text=True).stdout
        for line in output.splitlines():
            word, step, tokens, seconds, loss = line.split()
            assert word == "step", line
            self.ours.append((int(step), int(tokens), float(seconds), float(loss)))
            print(f"  ours, step {step}: {float(seconds):.2f} s", flush=True)


def tell(contest, numerics):
    tokens = {step: count for step, count, _, _ in contest.ours}
    losses = {step: loss for step, _, _, loss in contest.ours}
    timed = [step for step in contest.theirs if step > 1]
    for step in timed:
        print(f"  step {step}: {tokens[step]} real tokens; loss {contest.theirs[step][1]:.4f} and "
              f"{losses[step]:.4f}")
    theirs = statistics.median(tokens[step] / contest.theirs[step][0] for step in timed)
    ours = statistics.median(count / seconds for _, count, seconds, _ in contest.ours)
    print(f"bench reference_tokens_per_s_{numerics} {theirs:.4g} tokens/s")
    print(f"bench tokens_per_s_beside_reference_{numerics} {ours:.4g} tokens/s")
    print(f"bench reference_ratio_{numerics} {ours / theirs:.4g} times", flush=True)


def main():
    bench_train, base, lines, numerics, batch, max_len, *options = sys.argv[1:]
    if numerics == "float32":
        use_float32()
    finetune.get_tokenizer = lambda vocab_size=None: tokenizer.SANTokenizer(
        os.path.join(base, "tokenizer.model"))
    with open(lines, encoding="utf-8") as file:
        steps = -(-sum(1 for _ in file) // int(batch))
    command = [bench_train, "--brief", "--no-peak", "--base", base, "--lines", lines,
               "--numerics", numerics, "--batch", batch, "--max-len", max_len,
               "--threads", str(min(2, os.cpu_count())), "--steps", str(steps - 1), *options]
    contest = Contest(command)
    with tempfile.TemporaryDirectory() as folder:
        finetune.finetune_local(
            types.SimpleNamespace(
                jsonl_path=lines, checkpoint=os.path.join(base, "base.safetensors"), epochs=1,
                batch_size=int(batch), lr=1e-4, lora_rank=16, lora_alpha=32.0,
                max_len=int(max_len), val_split=0.0, generate=0, model=None, score=False, seed=0,
                checkpoint_dir=folder, out=os.path.join(folder, "adapter.safetensors")),
            progress=contest.progress)
    tell(contest, numerics)


main()
