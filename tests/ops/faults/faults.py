#!/usr/bin/env python3
"""faults: the nth write, sync, rename, ... of a short story fails, for every n or for some.

    faults.py OUT [--kinds write,sync,...] [--sample N --seed S] [--stride N] [--first N] [--jobs N] [--sticky]

The story: start, two uploads, a create, a job that trains with a checkpoint after each step, downloads, a
delete, a stop. A shim (tests/support/shims/faults.c) makes one call fail, or all from one on (--sticky: the
disk is full, and has room again after a while). Each request must be answered, with success or with an error
object; the daemon must not crash or hang; and after a restart without faults all that was answered must be
true: files have their bytes, a job that was made ends with the adapter of an undisturbed run, what was deleted
is gone, nothing half-made is left. Prints "ok - ..." lines and figures; status 1 when something does not hold.
"""
import argparse
import collections
import concurrent.futures
import errno
import hashlib
import http.client
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/ops/crash"))
from client import Client  # noqa: E402
from daemon import Daemon  # noqa: E402

MINI = ROOT / "tests/fixtures/needle3/mini"
KINDS = ["write", "sync", "rename", "create", "resize", "memory"]
NUMBERS = {"write": ["ENOSPC", "EIO"], "sync": ["EIO", "ENOSPC"], "rename": ["ENOSPC", "EIO"],
           "create": ["ENOSPC", "EROFS"], "resize": ["ENOSPC", "EIO"], "memory": ["ENOMEM"]}
WORDS = 6 + len(KINDS)
JOBS = "/v1/fine_tuning/jobs"
FINAL = ("succeeded", "failed", "cancelled")
HYPER = {"n_epochs": 2, "batch_size": 4, "lora_rank": 2, "lora_alpha": 4}
START_S, JOB_S, STOP_S = 60, 120, 30
SETTINGS = {"checkpoint_steps": 1, "disk_reserve_mb": 1}


class Broken(Exception):
    """A promise that does not hold."""


def lines(count):
    tools = [{"name": "set_alarm", "parameters": {"type": "object", "properties": {"time": {"type": "string"}}}}]
    return "".join(json.dumps({"query": f"Wake me up at {n}:00", "tools": tools, "answers": [
        {"name": "set_alarm", "arguments": {"time": f"{n}:00"}}]}) + "\n" for n in range(count)).encode()


class Shim:
    """The table that the process maps."""

    def __init__(self, path):
        self.path = path
        path.write_bytes(bytes(8 * WORDS))

    def word(self, at):
        with open(self.path, "rb") as file:
            file.seek(8 * at)
            return int.from_bytes(file.read(8), sys.byteorder)

    def set(self, at, number):
        with open(self.path, "r+b") as file:
            file.seek(8 * at)
            file.write(number.to_bytes(8, sys.byteorder))

    def ask(self, kind, nth, number, sticky):
        for at, word in enumerate([0, KINDS.index(kind) if kind else 99, nth, number, int(sticky)]):
            self.set(at, word)
        self.set(0, 1)

    def counts(self):
        return {kind: self.word(6 + at) for at, kind in enumerate(KINDS)}


class FaultyDaemon(Daemon):
    def __init__(self, out, work):
        super().__init__(out, work, SETTINGS)
        self.out = out
        self.shim = Shim(self.work / "shim")

    def start_with(self, with_shim):
        environment = dict(os.environ)
        if with_shim:
            before = os.path.join(self.out, "shims/faults.so")
            runtime = sanitizer_of(self.program)
            environment["LD_PRELOAD"] = f"{runtime}:{before}" if runtime else before
            environment["FAULTS_SHIM"] = str(self.shim.path)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.program, "--config", str(self.settings), "--state-dir", str(self.state), "--listen",
                 "127.0.0.1:0", "--platforms", "cpu"], stderr=log, stdout=log, env=environment)


def sanitizer_of(program):
    """Its library, which wants to come first; None without."""
    text = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for line in text.splitlines():
        if "libasan" in line or "libtsan" in line:
            return line.split("=>")[1].split()[0]
    return None


class Story:
    def __init__(self, out, kind, nth, number, sticky):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="needled-faults-"))
        self.daemon = FaultyDaemon(out, self.work)
        self.daemon.make_base("mini", MINI)
        self.client = Client(self.daemon.socket)
        self.fault = (kind, nth, number, sticky)
        self.files = {}  # id: content that was acknowledged
        self.deleted = []
        self.job = None
        self.refused = []
        self.started = False

    # ---- with the fault ----------------------------------------------------------------------------

    def ask(self, method, path, body=None, headers=None, tries=1):
        """(status, bytes): every answer is a success or has an error object."""
        for left in reversed(range(tries)):
            try:
                status, content = self.client.once(method, path, body, headers)
                break
            except (OSError, http.client.HTTPException) as error:
                if self.daemon.process.poll() is not None:
                    raise Broken(f"{method} {path}: the daemon ended, {self.daemon.process.returncode}") from error
                # without memory there may be nothing to answer with but the end of the connection
                if not left and self.fault[0] != "memory":
                    raise Broken(f"{method} {path}: no answer ({error!r})") from error
                status, content = 0, b""
        if status >= 400:
            try:
                code = json.loads(content)["error"]["code"]
            except (ValueError, KeyError, TypeError) as error:
                raise Broken(f"{method} {path}: {status} without an error object: {content[:200]}") from error
            self.refused.append(f"{method} {status} {code}")
        elif status == 0:
            self.refused.append(f"{method} no answer")
        return status, content

    def upload(self, content):
        line = "faults-boundary"
        body = (f'--{line}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nfine-tune\r\n'
                f'--{line}\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n'
                ).encode() + content + f"\r\n--{line}--\r\n".encode()
        status, answer = self.ask("POST", "/v1/files", body,
                                  {"Content-Type": f"multipart/form-data; boundary={line}"})
        if status != 200:
            return None
        name = json.loads(answer)["id"]
        self.files[name] = content
        return name

    def create(self, name):
        body = json.dumps({"model": "mini", "training_file": name, "seed": 3, "hyperparameters": HYPER})
        status, answer = self.ask("POST", JOBS, body, {"Content-Type": "application/json"})
        if status == 200:
            self.job = json.loads(answer)["id"]

    def record(self):
        status, content = self.ask("GET", f"{JOBS}/{self.job}", tries=3)
        if status == 404:
            raise Broken("a job that was made is not there")
        return json.loads(content) if status == 200 else {}

    def wait_for_job(self, mend_after_s):
        deadline = time.monotonic() + JOB_S
        mend = time.monotonic() + mend_after_s
        while time.monotonic() < deadline:
            record = self.record()
            if record.get("status") in FINAL:
                return record
            if time.monotonic() > mend:
                self.daemon.shim.set(0, 0)  # there is room again
            time.sleep(0.05)
        raise Broken(f"the job is {record.get('status')} ({record.get('status_reason')}) after {JOB_S} s")

    def download(self, path, wanted):
        status, content = self.ask("GET", path)
        if status == 200 and hashlib.sha256(content).hexdigest() != wanted:
            raise Broken(f"GET {path}: other bytes than were kept")

    def tell(self, wanted):
        kind, nth, number, sticky = self.fault
        self.daemon.shim.ask(kind, nth, number, sticky)
        self.daemon.start_with(True)
        self.started = self.daemon.wait_until_served(self.client, START_S)
        if not self.started:
            if self.daemon.is_running():
                raise Broken("the start hangs")
            if self.daemon.process.returncode not in (1, 2):
                raise Broken(f"the start ended with {self.daemon.process.returncode}")
            if "cannot start" not in self.daemon.log.read_text() and kind != "memory":
                raise Broken("the start ended without a word")
            return
        first = self.upload(lines(24))
        second = self.upload(lines(8))
        if first:
            self.create(first)
        if self.job:
            record = self.wait_for_job(1.0 if sticky else JOB_S)
            self.check_end(record, wanted)
            if record.get("fine_tuned_model"):
                self.download(f"/v1/models/{record['fine_tuned_model']}/content", wanted or self.adapter())
        if second and self.ask("DELETE", f"/v1/files/{second}")[0] == 200:
            self.deleted.append(second)
        self.ask("GET", "/v1/files")
        if self.daemon.stop(STOP_S) != 0:
            raise Broken(f"the stop ended with {self.daemon.process.returncode}")

    def check_end(self, record, wanted):
        if record["status"] == "succeeded":
            if wanted and self.adapter() not in (wanted, None):
                raise Broken("the adapter is not that of the undisturbed run")
            return
        error = (record.get("error") or {}).get("message", "")
        if self.fault[0] != "memory" or "memory" not in error:
            raise Broken(f"the job is {record['status']}: {error}")

    def adapter(self):
        """Its digest; None where it cannot be had just now."""
        record = self.record()
        if not record.get("fine_tuned_model"):
            return None
        status, content = self.ask("GET", f"/v1/models/{record['fine_tuned_model']}")
        return json.loads(content)["sha256"] if status == 200 else None

    # ---- afterwards ----------------------------------------------------------------------------------

    def check_truth(self, wanted):
        self.daemon.start_with(False)
        if not self.daemon.wait_until_served(self.client, START_S):
            raise Broken("it does not start again")
        self.refused_before, self.refused = self.refused, []
        for name, content in self.files.items():
            status, found = self.ask("GET", f"/v1/files/{name}/content")
            if name in self.deleted:
                if status != 404:
                    raise Broken(f"a deleted file is there: {status}")
            elif status != 200 and not (status == 404 and "DELETE" in " ".join(self.refused_before)):
                raise Broken(f"an upload that was acknowledged: {status}")
            elif status == 200 and found != content:
                raise Broken("an upload has other bytes")
        if self.job:
            record = self.wait_for_job(0)
            self.check_end(record, wanted)
            if record["status"] == "succeeded":
                status, content = self.ask("GET", f"/v1/models/{record['fine_tuned_model']}/content")
                if status != 200 or (wanted and hashlib.sha256(content).hexdigest() != wanted):
                    raise Broken(f"the model's bytes: {status}")
                self.check_epochs()
        if self.daemon.stop(STOP_S) != 0:
            raise Broken(f"the last stop ended with {self.daemon.process.returncode}")
        left = self.daemon.unfinished_files()
        if left:
            raise Broken(f"half-made files stay: {left[:3]}")
        uploads = {path.name for path in (self.daemon.state / "uploads").iterdir()}
        kept = set(self.files) - set(self.deleted)
        results = {name for name in uploads if self.job and name.endswith(self.job.split("-", 1)[1])}
        strangers = uploads - kept - results
        if len(strangers) > len([r for r in self.refused_before if r.startswith("POST")]):
            raise Broken(f"files that nobody knows: {strangers}")

    def check_epochs(self):
        """Each has its checkpoint, with the bytes of its record; the steps are told once, and in the file."""
        listed = self.client.get(f"{JOBS}/{self.job}/checkpoints")["data"]
        if len(listed) != HYPER["n_epochs"] or not all(checkpoint["available"] for checkpoint in listed):
            raise Broken(f"{len(listed)} checkpoints of {HYPER['n_epochs']} epochs")
        for checkpoint in listed:
            model = checkpoint["fine_tuned_model_checkpoint"]
            sha256 = self.client.get(f"/v1/models/{model}")["sha256"]
            if self.client.sha256(f"/v1/models/{model}/content") != sha256:
                raise Broken(f"the checkpoint '{model}' has other bytes than its record says")
        record = self.record()
        steps = [event["data"]["step"] for event in self.client.pages(f"{JOBS}/{self.job}/events")
                 if event["type"] == "metrics"]
        if sorted(steps) != list(range(1, record["total_steps"] + 1)):
            raise Broken(f"the steps that were told: {sorted(steps)}")
        rows = self.client.once("GET", f"/v1/files/{record['result_files'][0]}/content")[1].splitlines()
        if len(rows) < record["total_steps"] + 1:
            raise Broken(f"the result file has {len(rows)} lines of {record['total_steps']} steps")

    def was_ended_by_protobuf(self):
        """Below the tokenizer: where an allocation of its fails midway it ends the process, or frees what it
        never had. What was answered must be true all the same."""
        log = self.daemon.log.read_text(errors="replace")
        return (self.fault[0] == "memory" and self.daemon.process.poll() == -6
                and ("libprotobuf FATAL" in log or "free(): invalid pointer" in log))

    def close(self):
        if self.daemon.process and self.daemon.is_running():
            self.daemon.kill()
        shutil.rmtree(self.work, ignore_errors=True)


def tell(out, kind, nth, name, sticky, wanted):
    """(outcome, text): unreached, as if nothing was, refused, broken."""
    story = Story(out, kind, nth, getattr(errno, name) if name else 0, sticky)
    try:
        ended = False
        try:
            story.tell(wanted)
        except Broken:
            ended = story.was_ended_by_protobuf()
            if not ended:
                raise
        fired = story.daemon.shim.word(5)
        refused = story.refused
        story.check_truth(wanted)
        if ended:
            return "ended by protobuf", ""
        if not fired:
            return "not reached", ""
        if not story.started:
            return "start refused", ""
        return ("request refused", ", ".join(sorted(set(refused)))) if refused else ("mended", "")
    except Broken as error:
        log = story.daemon.log.read_text(errors="replace").splitlines()[-12:]
        return "BROKEN", f"{error}\n" + "\n".join("    " + line for line in log)
    finally:
        story.close()


def points(arguments, counts):
    chosen = []
    for kind in arguments.kinds:
        last = counts[kind]
        for nth in range(arguments.first, last + 1, arguments.stride):
            names = NUMBERS[kind]
            chosen.append((kind, nth, names[nth % len(names)]))
    if arguments.sample:
        some = []
        chance = random.Random(arguments.seed)
        for kind in arguments.kinds:
            own = [point for point in chosen if point[0] == kind]
            some += chance.sample(own, min(len(own), max(1, arguments.sample // len(arguments.kinds))))
        chosen = some
    return chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=KINDS[:-1])
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--sticky", action="store_true")
    arguments = parser.parse_args()

    story = Story(arguments.out, None, 0, 0, False)
    try:
        story.tell(None)
        counts = story.daemon.shim.counts()
        story.check_truth(None)
        story.daemon.start_with(False)
        story.daemon.wait_until_served(story.client, START_S)
        wanted = story.adapter()
    finally:
        story.close()
    print("# calls in an undisturbed story: " + ", ".join(f"{kind} {n}" for kind, n in counts.items()))
    if not wanted:
        print("not ok - the undisturbed story")
        return 1
    outcomes = collections.defaultdict(collections.Counter)
    broken = []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        todo = points(arguments, counts)
        tasks = [pool.submit(tell, arguments.out, *point, arguments.sticky, wanted) for point in todo]
        for point, task in zip(todo, tasks):
            outcome, text = task.result()
            outcomes[point[0]][outcome] += 1
            if outcome == "BROKEN":
                broken.append(point)
                print(f"# {point[0]} {point[1]} {point[2]}: {text}", flush=True)
    for kind, tally in outcomes.items():
        print(f"# {kind}: {sum(tally.values())} points, " + ", ".join(f"{n} {o}" for o, n in sorted(tally.items())))
        print(f"{'not ok' if tally['BROKEN'] else 'ok'} - after a failed {kind} all that was answered is true")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
