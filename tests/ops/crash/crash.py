#!/usr/bin/env python3
"""crash: kill -9 at random times while jobs run, are made, cancelled, paused and followed.

    crash.py OUT --kills N [--seed S] [--long-epochs N] [--small-jobs N] [--lines N] [--span SECONDS]
             [--keep]

A first daemon runs one job of each kind in peace: their adapters are what must come out. Then a daemon is
killed N times, a third of them while it starts, sometimes with the newest resume checkpoint damaged while it
is dead. All that was ever answered is held to be true after each start and at the end, jobs and events are
accounted for, and each adapter must have the bytes of the undisturbed run. Prints "ok - ..." lines and the
figures; status 1 when something does not hold.
"""
import argparse
import collections
import json
import pathlib
import random
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from client import Client, Reader, Stuck  # noqa: E402
from daemon import Daemon  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
MINI = ROOT / "tests/fixtures/needle3/mini"
FINAL = ("succeeded", "failed", "cancelled")
JOBS = "/v1/fine_tuning/jobs"
SETTINGS = {"checkpoint_steps": 20, "checkpoint_interval_s": 1, "jobs_per_device": 2, "crash_limit": 0,
            "metrics_kept": 0, "checkpoints_kept": 0}


def hyper(epochs, batch, rank):
    return {"n_epochs": epochs, "batch_size": batch, "lora_rank": rank, "lora_alpha": 2 * rank}


# The long one is there all the time, the others beside it.
KINDS = {
    "long": {"seed": 7, "hyperparameters": hyper(24, 2, 4)},
    "short": {"seed": 1, "hyperparameters": hyper(1, 8, 4)},
    "epochs": {"seed": 2, "hyperparameters": hyper(3, 4, 2)},
    "float": {"seed": 3, "hyperparameters": dict(hyper(2, 4, 4), numerics="float32", val_split=0)},
}


def lines(count):
    tools = [{"name": "set_alarm", "description": "Set an alarm",
              "parameters": {"type": "object", "properties": {"time": {"type": "string"}}}}]
    texts = []
    for number in range(count):
        clock = f"{number % 24}:{number * 7 % 60:02}"
        texts.append(json.dumps({"query": f"Wake me up at {clock}" + " please" * (number % 5), "tools": tools,
                                 "answers": [{"name": "set_alarm", "arguments": {"time": clock}}]}))
    return "\n".join(texts).encode() + b"\n"


class Job:
    """What was answered about one job; its driver is the only one who changes it."""

    def __init__(self, key, kind, role):
        self.key, self.kind, self.role = key, kind, role
        self.id = None
        self.promise = None  # a state that an answer has promised for ever, or until `until`
        self.reader = None


class Run:
    def __init__(self, arguments):
        self.arguments = arguments
        self.random = random.Random(arguments.seed)
        self.work = tempfile.TemporaryDirectory(prefix="needled-crash-")
        self.daemon = Daemon(arguments.out, self.work.name, dict(SETTINGS, **arguments.settings))
        self.daemon.make_base("mini", MINI)
        self.client = Client(self.daemon.socket)
        self.file_content = lines(arguments.lines)
        self.files = {}  # id: content that was acknowledged
        self.jobs = []
        self.actions = []  # threads that cancel or pause a job; added by the one that submits
        self.lock = threading.Lock()  # guards jobs and files
        self.faults = []
        self.figures = collections.Counter()
        self.wanted = {}
        self.ending = threading.Event()  # no further jobs
        self.readers_end = threading.Event()

    def fault(self, text):
        with self.lock:
            self.faults.append(text)

    # ---- the undisturbed run ---------------------------------------------------------------------

    def models_of(self, job_id):
        """Digests of a job's adapters as they come over HTTP, by step; 0: the final one."""
        found = {}
        for model in self.client.get("/v1/models")["data"]:
            if model.get("fine_tuning_job_id") == job_id:
                step = model.get("step_number", 0)
                if step in found:
                    self.fault(f"{job_id}: two models of step {step}")
                found[step] = self.client.sha256(f"/v1/models/{model['id']}/adapter.safetensors")
        return found

    def body(self, kind, file_id):
        return dict(KINDS[kind], model="mini", training_file=file_id)

    def run_in_peace(self):
        self.daemon.start()
        if not self.daemon.wait_until_served(self.client, 60):
            raise Stuck("the daemon does not start")
        file_id = self.client.upload(self.file_content, "data.jsonl")
        started = time.monotonic()
        ids = {}
        for kind in KINDS:
            _, answer, _ = self.client.json("POST", JOBS, self.body(kind, file_id))
            ids[kind] = answer["id"]
        for kind, job_id in ids.items():
            record = self.wait_for(job_id, FINAL, 300)
            if record["status"] != "succeeded":
                raise AssertionError(f"undisturbed, a job has {record['status']}: {record['error']}")
            self.wanted[kind] = (record["total_steps"], self.models_of(job_id))
        self.figures["undisturbed ms"] = int((time.monotonic() - started) * 1000)
        self.daemon.stop(30)
        self.daemon.clear()

    def wait_for(self, job_id, states, limit_s):
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            record = self.client.get(f"{JOBS}/{job_id}")
            if record["status"] in states:
                return record
            time.sleep(0.05)
        raise Stuck(f"{job_id} is {record['status']} ({record['status_reason']}) after {limit_s} s")

    # ---- load ------------------------------------------------------------------------------------

    def create(self, kind, role, reader):
        """The same key until it is answered: whatever was heard before, one job is made."""
        with self.lock:
            number = len(self.jobs)
            job = Job(f"crash-{number}", kind, role)
            self.jobs.append(job)
            file_id = self.random.choice(sorted(self.files))
        status, answer, _ = self.client.json("POST", JOBS, self.body(kind, file_id), {"Idempotency-Key": job.key})
        if status != 200:
            self.fault(f"create {job.key}: {status} {answer}")
            return job
        job.id = answer["id"]
        if reader:
            job.reader = Reader(self.client, f"{JOBS}/{job.id}/events?stream=true", self.readers_end)
            job.reader.start()
        return job

    def drive(self, body):
        try:
            body()
        except Stuck as stuck:
            self.fault(str(stuck))
        except Exception as error:  # a driver that died would check nothing more
            self.fault(f"{body.__name__}: {error!r}")

    def keep_long(self):
        while not self.ending.is_set():
            job = self.create("long", "plain", True)
            while job.id and not self.ending.is_set():
                if self.client.get(f"{JOBS}/{job.id}")["status"] in FINAL:
                    break
                time.sleep(0.2)

    def submit(self):
        kinds = [kind for kind in KINDS if kind != "long"]
        while not self.ending.is_set():
            with self.lock:
                open_jobs = [job for job in self.jobs if job.id and job.kind != "long" and not job.promise]
                kind = self.random.choice(kinds)
                role = self.random.choice(["plain", "plain", "cancel", "pause"])
                reader = self.random.random() < 0.5
            unfinished = [job for job in open_jobs
                          if self.client.get(f"{JOBS}/{job.id}")["status"] not in FINAL]
            if len(unfinished) >= self.arguments.small_jobs:
                time.sleep(0.1)
                continue
            job = self.create(kind, role, reader)
            if job.id and role != "plain":
                action = self.cancel_later if role == "cancel" else self.pause_later
                driver = threading.Thread(target=self.drive, daemon=True,
                                          args=(lambda job=job, action=action: action(job),))
                driver.start()
                self.actions.append(driver)
            time.sleep(0.05)

    def upload(self):
        while not self.ending.is_set():
            file_id = self.client.upload(self.file_content, "data.jsonl")
            with self.lock:
                self.files[file_id] = self.file_content
            time.sleep(0.3)

    def change(self, job, what):
        """POST .../cancel, pause or resume: 200, or 409 where the job has moved on."""
        status, answer, _ = self.client.json("POST", f"{JOBS}/{job.id}/{what}")
        if status not in (200, 409):
            self.fault(f"{what} {job.id}: {status} {answer}")
        return status == 200

    def cancel_later(self, job):
        time.sleep(self.random.uniform(0, 1.5))
        if self.change(job, "cancel"):
            job.promise = "cancelled"
            self.figures["cancelled"] += 1

    def pause_later(self, job):
        time.sleep(self.random.uniform(0, 0.8))
        if not self.change(job, "pause"):
            return
        self.figures["paused"] += 1
        job.promise = "paused"
        time.sleep(self.random.uniform(0.1, 2))
        record = self.client.get(f"{JOBS}/{job.id}")
        if record["status"] != "paused":
            self.fault(f"{job.id} was paused and is {record['status']}")
        job.promise = None
        if not self.change(job, "resume"):
            self.fault(f"{job.id}: cannot be resumed")

    # ---- kills -----------------------------------------------------------------------------------

    def check_answers(self):
        """What was answered is true after a start too."""
        with self.lock:
            known = [(job, job.promise) for job in self.jobs if job.id]
            files = list(self.files)
        states = {record["id"]: record["status"] for record in self.client.pages(JOBS)}
        listed = {record["id"] for record in self.client.pages("/v1/files")}
        for job, promise in known:
            if job.id not in states:
                self.fault(f"{job.id} was acknowledged and is lost")
            elif promise and promise == job.promise and states[job.id] != promise:
                self.fault(f"{job.id} was answered as {promise} and is {states[job.id]}")
        for file_id in files:
            if file_id not in listed:
                self.fault(f"{file_id} was acknowledged and is lost")

    def kill_all(self):
        """Returns with a daemon that runs."""
        for number in range(self.arguments.kills):
            early = self.random.random() < 0.33
            if early:
                time.sleep(self.random.uniform(0, 0.15))
            else:
                if not self.daemon.wait_until_served(self.client, 60):
                    self.fault(f"before kill {number} the daemon did not serve: see its log")
                    return
                if self.random.random() < 0.2:
                    self.check_answers()
                time.sleep(self.random.uniform(0, self.arguments.span))
            if not self.daemon.kill():
                self.fault(f"before kill {number} the daemon had ended with status {self.daemon.process.returncode}")
                return
            self.figures["kills"] += 1
            self.figures["kills at a start"] += early
            if self.random.random() < 0.15 and self.daemon.damage_newest(self.random):
                self.figures["checkpoints damaged"] += 1
            self.daemon.start()
        if not self.daemon.wait_until_served(self.client, 60):
            self.fault("after the last kill the daemon does not serve")

    def run_killed(self):
        self.daemon.start()
        if not self.daemon.wait_until_served(self.client, 60):
            raise Stuck("the daemon does not start")
        file_id = self.client.upload(self.file_content, "data.jsonl")
        self.files[file_id] = self.file_content
        everything = Reader(self.client, "/v1/events?stream=true&after=0", self.readers_end)
        everything.start()
        drivers = [threading.Thread(target=self.drive, args=(body,), daemon=True)
                   for body in (self.keep_long, self.submit, self.upload)]
        for driver in drivers:
            driver.start()
        self.kill_all()
        self.ending.set()
        for driver in drivers:
            driver.join(150)
        for driver in self.actions:  # else a job is let go under the one that paused it
            driver.join(150)
        return everything

    # ---- the account -----------------------------------------------------------------------------

    def check_job(self, job):
        record = self.wait_for(job.id, FINAL, 240)
        events = list(reversed(self.client.pages(f"{JOBS}/{job.id}/events")))
        self.check_history(job, record, events)
        self.figures[record["status"]] += job.promise != "cancelled"
        if record["status"] != "succeeded":
            if record["status"] == "failed":
                self.fault(f"{job.id} ({job.kind}, {job.role}) has failed: {record['error']}")
            return
        steps, models = self.wanted[job.kind]
        told = [event["data"]["step"] for event in events if event["type"] == "metrics"]
        if told != list(range(1, steps + 1)):
            self.fault(f"{job.id}: steps told are not 1 to {steps}, each once: {len(told)}, "
                       f"of 1 to {steps} not {sorted(set(range(1, steps + 1)) - set(told))}")
        found = self.models_of(job.id)
        if found != models:
            self.fault(f"{job.id} ({job.kind}): models by step {found}, undisturbed {models}")
        self.figures["adapters compared"] += len(models)

    def check_history(self, job, record, events):
        """Runs follow one another, with the queue between them, and there is one end."""
        if [event["number"] for event in events] != list(range(1, len(events) + 1)):
            self.fault(f"{job.id}: events are not numbered 1 to {len(events)}")
        states = [event["data"]["status"] for event in events if event["type"] == "state"]
        for before, after in zip(states, states[1:]):
            if after == "running" and before != "queued" or before in FINAL:
                self.fault(f"{job.id} went from {before} to {after}")
        if states[-1] != record["status"] or events[-1]["type"] != "done":
            self.fault(f"{job.id} is {record['status']}, its events end with {states[-1]}, {events[-1]['type']}")
        if states.count("running") != record["attempts"]:
            self.fault(f"{job.id}: {record['attempts']} attempts, {states.count('running')} starts")
        if job.promise and record["status"] != job.promise:
            self.fault(f"{job.id} was answered as {job.promise} and has {record['status']}")
        self.figures["resumed from a checkpoint"] += sum("goes on after step" in event["message"] for event in events)
        self.figures["checkpoints passed over"] += sum("passed over" in event["message"] for event in events)
        self.figures["starts of jobs"] += states.count("running")
        if job.reader:
            self.check_reader(job, events)

    def check_reader(self, job, events):
        job.reader.join(60)
        if not job.reader.done:
            self.fault(f"{job.id}: its reader has not seen the end")
        for fault in job.reader.faults:
            self.fault(f"{job.id}: {fault}")
        if job.reader.events != [(event["number"], event) for event in events]:
            seen = [number for number, _ in job.reader.events]
            self.fault(f"{job.id}: its reader saw {len(seen)} events, there are {len(events)}")
        self.figures["events read"] += len(job.reader.events)
        self.figures["streams"] += job.reader.connections

    def check_everything(self, reader):
        """The stream of all jobs: each event once, each job's numbers in order."""
        newest = self.client.get("/v1/events?limit=1")["data"]
        last = int(newest[0]["id"].removeprefix("ftevent-")) if newest else 0
        deadline = time.monotonic() + 60
        while reader.last_id < last and time.monotonic() < deadline:
            time.sleep(0.05)
        numbers = collections.defaultdict(list)
        for _, event in reader.events:
            numbers[event["fine_tuning_job_id"]].append(event["number"])
        for job_id, seen in numbers.items():
            if seen != list(range(1, len(seen) + 1)):
                self.fault(f"all jobs' stream: of {job_id} came {seen}")
        for fault in reader.faults:
            self.fault(f"all jobs' stream: {fault}")
        if reader.last_id != last:
            self.fault(f"all jobs' stream ends with {reader.last_id}, not {last}")
        self.figures["events read"] += len(reader.events)
        self.figures["streams"] += reader.connections

    def check_all(self, everything):
        made = self.client.pages(JOBS)
        with self.lock:
            jobs = [job for job in self.jobs if job.id]
            files = list(self.files)
        if len(made) != len(jobs):
            self.fault(f"{len(jobs)} creates were acknowledged, there are {len(made)} jobs")
        for job in jobs:
            if job.promise == "paused":  # its driver gave up
                self.client.json("POST", f"{JOBS}/{job.id}/resume")
        for job in jobs:
            self.check_job(job)
        for file_id in files:
            status, content, _ = self.client.call("GET", f"/v1/files/{file_id}/content")
            if status != 200 or content != self.file_content:
                self.fault(f"{file_id} was acknowledged; its content is another ({status})")
        self.check_everything(everything)
        self.figures["jobs"] = len(jobs)
        self.figures["uploads"] = len(files)

    def check_end(self):
        """Stopped in order, a daemon leaves whole files, and none that only a job's going on needs."""
        status = self.daemon.stop(30)
        if status != 0:
            self.fault(f"the last daemon ended with status {status}")
        self.daemon.start()  # which removes what the killed ones were writing
        if not self.daemon.wait_until_served(self.client, 60) or self.daemon.stop(30) != 0:
            self.fault("the last daemon does not start or stop in order")
        for path in self.daemon.unfinished_files():
            self.fault(f"a file in the making is left: {path}")
        for path in (self.daemon.state / "checkpoints").rglob("resume-*"):
            self.fault(f"a resume checkpoint is left: {path}")


def read_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--kills", type=int, required=True)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--long-epochs", type=int, default=24, help="of the job that is there all the time")
    parser.add_argument("--small-jobs", type=int, default=6, help="at most, unfinished, beside it")
    parser.add_argument("--lines", type=int, default=96, help="of the data set")
    parser.add_argument("--span", type=float, default=1.2, help="the longest life after a start")
    parser.add_argument("--keep", action="store_true", help="leave the state folder when something fails")
    arguments = parser.parse_args()
    arguments.settings = {}
    KINDS["long"]["hyperparameters"]["n_epochs"] = arguments.long_epochs
    return arguments


def main():
    arguments = read_arguments()
    print(f"# seed {arguments.seed}, {arguments.kills} kills", flush=True)
    run = Run(arguments)
    started = time.monotonic()
    try:
        run.run_in_peace()
        everything = run.run_killed()
        run.check_all(everything)
        run.check_end()
    except (Stuck, AssertionError) as error:
        run.fault(str(error))
    finally:
        run.readers_end.set()
        if run.daemon.process and run.daemon.is_running():
            run.daemon.kill()
    for what, count in sorted(run.figures.items()) + sorted(run.client.counts.items()):
        print(f"# {what}: {count}")
    print(f"# seconds: {time.monotonic() - started:.0f}")
    for fault in run.faults[:40]:
        print(f"# fault: {fault}"[:2000])
    print(f"{'not ok' if run.faults else 'ok'} - {arguments.kills} kills: nothing is lost, run twice, stuck or "
          f"untrue, and adapters are those of the undisturbed run")
    if run.faults and arguments.keep:
        run.work._finalizer.detach()
        print(f"# kept: {run.work.name}")
    return 1 if run.faults else 0


if __name__ == "__main__":
    sys.exit(main())
