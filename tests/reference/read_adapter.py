"""Has the reference implementation's own read_adapter read what we wrote.

    read_adapter.py WRITTEN FIXTURES

WRITTEN holds full.safetensors and mini.safetensors: the adapters that the reference
implementation recorded in FIXTURES, read and written again by needled. Fields, names, shapes, types
and every value must come back equal. The last line is "N passed, N failed".
"""
import os
import sys

import numpy as np
from needle.model.checkpoints import read_adapter
from safetensors import safe_open


def compare(written, recorded):
    """The differences, in words."""
    found, wanted = read_adapter(written), read_adapter(recorded)
    problems = [f"{key}: {found[key]!r}, not {wanted[key]!r}"
                for key in wanted if key != "lora" and found[key] != wanted[key]]
    if sorted(found) != sorted(wanted):
        problems.append(f"fields {sorted(found)}")
    if sorted(found["lora"]) != sorted(wanted["lora"]):
        problems.append(f"groups {sorted(found['lora'])}")
        return problems
    for path, pair in wanted["lora"].items():
        for name, values in pair.items():
            mine = found["lora"][path].get(name)
            if mine is None or mine.dtype != values.dtype or mine.shape != values.shape:
                problems.append(f"{path}/{name}: missing, or of another type or shape")
            elif mine.tobytes() != values.tobytes():
                problems.append(f"{path}/{name}: {np.abs(mine - values).max()} off")
    return problems


def check_trained(path):
    """An adapter of a real job, without a recorded twin: sound and finite."""
    adapter = read_adapter(path)
    problems = [] if adapter["lora"] else ["no groups"]
    for name, pair in adapter["lora"].items():
        a, b = pair["A"], pair["B"]
        if a.shape[-1] != adapter["rank"] or b.shape[-2] != adapter["rank"]:
            problems.append(f"{name}: rank {a.shape[-1]} and {b.shape[-2]}")
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            problems.append(f"{name}: not finite")
    return problems


def check_container(path):
    """The safetensors library alone: it opens, and every metadata value is text."""
    with safe_open(path, framework="np") as handle:
        metadata = handle.metadata()
        names = list(handle.keys())
    problems = [f"metadata {key}: {value!r}" for key, value in metadata.items()
                if not isinstance(value, str)]
    return problems + ([] if names else ["no tensors"])


def main(written, fixtures):
    pairs = {"full.safetensors": "adapter.safetensors",
             "mini.safetensors": os.path.join("mini", "adapter.safetensors")}
    checks = []
    for ours, recorded in pairs.items():
        path = os.path.join(written, ours)
        checks.append((f"{ours}: the container", lambda p=path: check_container(p)))
        checks.append((f"{ours}: equal to the recorded adapter",
                       lambda p=path, r=os.path.join(fixtures, recorded): compare(p, r)))
    for name in sys.argv[3:]:
        checks.append((f"{name}: an adapter of a job", lambda p=name: check_trained(p)))
    passed = 0
    for title, check in checks:
        try:
            problems = check()
        except Exception as reason:  # a reader that refuses is the finding
            problems = [f"{type(reason).__name__}: {reason}"]
        passed += not problems
        print(f"  {'ok' if not problems else 'FAILED':<7} {title}")
        for problem in problems:
            print(f"          {problem}")
    print(f"{passed} passed, {len(checks) - passed} failed")
    return passed != len(checks)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
