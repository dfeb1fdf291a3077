"""story: what is asked of a daemon whose calls fail, and what must be true of it afterwards.

The story touches every table of the store: a start, uploads, keys, a webhook, an estimate, a job that trains with
a checkpoint after each step, of whose epochs not all stay, one that is cancelled, one that is paused, listings,
downloads, a backup, deletes, a restart, and a resume, a cancel and a delete after it.

Each request is answered, with success or an error object of the server's (5xx; without memory the connection may
end instead), and works when it is made again; the daemon neither ends by itself nor hangs. Afterwards, started
without faults, all that was acknowledged is true: files have their bytes, a job that was made ends with the
adapter of an undisturbed run, what was deleted is gone, and nothing half-made is left.
"""
import hashlib
import http.client
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/ops/crash"))
from client import Client  # noqa: E402
from daemon import Daemon  # noqa: E402
from shim import STAGE, Shim, environment_for  # noqa: E402

MINI = ROOT / "tests/fixtures/needle3/mini"
JOBS = "/v1/fine_tuning/jobs"
HOOKS = "/v1/webhook_endpoints"
FINAL = ("succeeded", "failed", "cancelled")
HYPER = {"n_epochs": 3, "batch_size": 8, "lora_rank": 2, "lora_alpha": 4}
START_S, JOB_S, STOP_S, ROOM_S = 120, 240, 30, 30
TRIES = 6  # of a request or a start: several faults may come to it
SETTINGS = {"checkpoint_steps": 1, "disk_reserve_mb": 1, "checkpoints_kept": 1, "webhook_hosts": "127.0.0.1"}
JSON = {"Content-Type": "application/json"}


class Broken(Exception):
    """A promise that does not hold."""


def lines(count):
    tools = [{"name": "set_alarm", "parameters": {"type": "object", "properties": {"time": {"type": "string"}}}}]
    return "".join(json.dumps({"query": f"Wake me up at {n}:00", "tools": tools, "answers": [
        {"name": "set_alarm", "arguments": {"time": f"{n}:00"}}]}) + "\n" for n in range(count)).encode()


class Listener(http.server.ThreadingHTTPServer):
    """Takes what webhooks are told."""
    daemon_threads = True

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    def __init__(self):
        super().__init__(("127.0.0.1", 0), self.Handler)
        threading.Thread(target=self.serve_forever, args=[0.1], daemon=True).start()


class FaultyDaemon(Daemon):
    def __init__(self, out, work):
        super().__init__(out, work, SETTINGS)
        self.out = out
        self.shim = Shim(self.work / "shim")

    def start_with(self, with_shim):
        environment = environment_for(self.out, self.program, self.shim) if with_shim else None
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.program, "--config", str(self.settings), "--state-dir", str(self.state), "--listen",
                 "127.0.0.1:0", "--platforms", "cpu"], stderr=log, stdout=log, env=environment)


class Story:
    """memory: calls fail for want of it; sticky: they fail until the disk has room again."""

    def __init__(self, out, listener, memory=False, sticky=False):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="needled-faults-"))
        self.daemon = FaultyDaemon(out, self.work)
        self.daemon.make_base("mini", MINI)
        self.shim = self.daemon.shim
        self.client = Client(self.daemon.socket)
        self.listener = listener
        self.memory, self.sticky = memory, sticky
        self.stage = 0
        self.tries = TRIES  # of a request: more where several calls in a row fail
        self.at_start = 0  # so many of the shim's targets, its first ones, are places of the start
        self.refused = []
        # what was acknowledged
        self.files, self.deleted = {}, []  # id: content
        self.keys, self.hooks = {}, {}  # id: whether it is still to be there
        self.job = self.cancelled = self.paused = None
        self.states = {}  # of the other jobs
        self.told = False  # the webhook was there before the job ended

    # ---- requests ------------------------------------------------------------------------------------

    def once(self, method, path, body, headers):
        """(status, content); 0 where without memory there was nothing to answer with."""
        try:
            return self.client.once(method, path, body, headers)
        except (OSError, http.client.HTTPException) as error:
            for _ in range(50):
                if self.daemon.process.poll() is not None:
                    raise Broken(f"{method} {path}: the daemon ended, {self.daemon.process.returncode}") from error
                time.sleep(0.01)
            if not self.memory:
                raise Broken(f"{method} {path}: no answer ({error!r})") from error
            return 0, b""

    def ask(self, method, path, body=None, headers=None, gone=(), fine=()):
        """The content, None when refused; statuses that are as good: of who asks again for what was done, of all."""
        if isinstance(body, dict):
            body, headers = json.dumps(body), JSON
        patience = time.monotonic() + ROOM_S
        attempt = -1
        while attempt < self.tries:
            attempt += 1
            status, content = self.once(method, path, body, headers)
            if 200 <= status < 300 or status in fine or (attempt > 0 and status in gone):
                return content
            name = f"{method} {path.split('/')[2] if path.startswith('/v1') else path}"
            if status == 0:
                self.refused.append(f"{name}: no answer")
                continue
            try:
                code = json.loads(content)["error"]["code"]
            except (ValueError, KeyError, TypeError) as error:
                raise Broken(f"{method} {path}: {status} without an error object: {content[:200]}") from error
            if status < 500:
                raise Broken(f"{method} {path}: {status} {content[:300]}")
            self.refused.append(f"{name}: {status} {code}")
            if self.sticky:
                return None
            if code in ("disk_full", "disk_error") and time.monotonic() < patience:  # until it is looked at again
                attempt = 0
                time.sleep(0.05)
        raise Broken(f"{method} {path}: {self.refused[-1]}, again and again")

    def get(self, path):
        content = self.ask("GET", path)
        return json.loads(content) if content is not None else None

    def post(self, path, body, gone=()):
        content = self.ask("POST", path, body, gone=gone)
        return json.loads(content) if content is not None else None

    def upload(self, content):
        line = "faults-boundary"
        body = (f'--{line}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nfine-tune\r\n'
                f'--{line}\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n'
                ).encode() + content + f"\r\n--{line}--\r\n".encode()
        answer = self.ask("POST", "/v1/files", body, {"Content-Type": f"multipart/form-data; boundary={line}"})
        if answer is None:
            return None
        name = json.loads(answer)["id"]
        self.files[name] = content
        return name

    def create(self, name, hyper):
        """Under a key of its own: asked again it is one job."""
        body = json.dumps({"model": "mini", "training_file": name, "seed": 3, "hyperparameters": hyper})
        answer = self.ask("POST", JOBS, body, dict(JSON, **{"Idempotency-Key": f"faults-{self.stage}"}))
        return json.loads(answer)["id"] if answer is not None else None

    def act(self, job, verb, state=None):
        """state: which it keeps from then on. 409: the first try had done it, or the job had ended."""
        if job and self.ask("POST", f"{JOBS}/{job}/{verb}", fine=(409,)) is not None:
            record = self.get(f"{JOBS}/{job}")
            if record and state and record["status"] not in (state, *FINAL):
                raise Broken(f"a job that was told to {verb} is {record['status']}")
            if record and record["status"] == state:
                self.states[job] = state

    def remove(self, path):
        return self.ask("DELETE", path, gone=(404, 410)) is not None

    def wait_for(self, job, mend_after_s=JOB_S):
        deadline = time.monotonic() + JOB_S
        mend = time.monotonic() + mend_after_s
        while time.monotonic() < deadline:
            record = self.get(f"{JOBS}/{job}") or {}
            if record.get("status") in FINAL:
                return record
            if time.monotonic() > mend:
                self.shim.disarm()  # there is room again
            time.sleep(0.02)
        raise Broken(f"the job is {record.get('status')} ({record.get('status_reason')}) after {JOB_S} s")

    # ---- the story -----------------------------------------------------------------------------------

    def next_stage(self):
        self.stage += 1
        self.shim.set(STAGE, self.stage)

    def start(self):
        """As long as faults that are meant for the start come to it."""
        for _ in range(1 if self.sticky else TRIES + 2 * self.at_start):
            fired = self.shim.fired()
            if not self.start_once():
                self.refused.append("start")
            elif self.shim.fired() == fired or all(self.shim.targets_fired()[:self.at_start]):
                return True
            else:
                self.stop()
        if not self.sticky:
            raise Broken("it does not start, again and again")
        return False

    def start_once(self):
        told = len(self.daemon.log.read_bytes()) if self.daemon.log.exists() else 0
        self.daemon.start_with(True)
        if self.daemon.wait_until_served(self.client, START_S):
            return True
        if self.daemon.is_running():
            raise Broken("the start hangs")
        if self.daemon.process.returncode not in (1, 2):
            raise Broken(f"the start ended with {self.daemon.process.returncode}")
        log = self.daemon.log.read_bytes()[told:].decode(errors="replace")
        if "cannot start" not in log and not log.startswith("needled: "):
            raise Broken(f"the start ended with the words '{log}'")
        return False

    def stop(self):
        if self.daemon.stop(STOP_S) != 0:
            raise Broken(f"the stop ended with {self.daemon.process.returncode}")

    def tell(self, wanted):
        """wanted: the adapter's digest; None to find it out."""
        self.shim.arm()
        if not self.start():
            return
        for chapter in (self.bring_files, self.make_keys, self.make_hook, self.make_jobs):
            self.next_stage()
            chapter()
        self.next_stage()
        if self.job:
            self.follow(wanted)
        for chapter in (self.look_around, self.back_up, self.delete_file, self.start_again, self.look_back):
            self.next_stage()
            chapter()
        self.next_stage()
        self.stop()

    def bring_files(self):
        self.first, self.second = self.upload(lines(24)), self.upload(lines(8))
        if self.first:
            self.get(f"/v1/files/{self.first}/report?model=mini")

    def make_keys(self):
        for name in ("kept", "revoked"):
            key = self.post("/v1/keys", {"name": name, "scope": "read"})
            if key:
                self.keys[key["id"]] = True
            self.next_stage()
        if key and self.remove(f"/v1/keys/{key['id']}"):
            self.keys[key["id"]] = False
        self.get("/v1/keys")

    def make_hook(self):
        address = f"http://127.0.0.1:{self.listener.server_address[1]}/"
        hook = self.post(HOOKS, {"name": "faults", "url": address, "event_types": ["fine_tuning.job.succeeded"]})
        if hook:
            self.hooks[hook["id"]] = True
            self.told = True

    def make_jobs(self):
        if not self.first:
            return
        self.post("/v1/fine_tuning/estimate", {"model": "mini", "training_file": self.first, "seed": 3,
                                               "hyperparameters": HYPER})
        self.next_stage()
        self.job = self.create(self.first, HYPER)
        self.next_stage()
        self.cancelled = self.create(self.first, dict(HYPER, n_epochs=2))
        self.next_stage()
        self.paused = self.create(self.first, dict(HYPER, n_epochs=4))
        self.next_stage()
        self.act(self.cancelled, "cancel", "cancelled")
        if self.paused:
            self.pause()

    def pause(self):
        """Not while its files are read; it may have ended by then."""
        deadline = time.monotonic() + JOB_S
        while time.monotonic() < deadline:
            record = self.get(f"{JOBS}/{self.paused}")
            if record is None or record["status"] != "validating_files":
                break
            time.sleep(0.02)
        self.next_stage()
        if record and record["status"] not in FINAL:
            self.act(self.paused, "pause", "paused")

    def follow(self, wanted):
        record = self.wait_for(self.job, 1.0 if self.sticky else JOB_S)
        self.check_end(record, wanted)
        self.next_stage()
        self.get(f"{JOBS}/{self.job}/events?limit=50")
        self.get(f"{JOBS}/{self.job}/checkpoints")
        self.get(f"{JOBS}/{self.job}/metrics")
        if record.get("fine_tuned_model"):
            model = self.get(f"/v1/models/{record['fine_tuned_model']}")
            content = self.ask("GET", f"/v1/models/{record['fine_tuned_model']}/content")
            if model and content is not None and hashlib.sha256(content).hexdigest() != model["sha256"]:
                raise Broken("a model has other bytes than its record says")

    def look_around(self):
        for path in ("/v1/files", "/v1/models", HOOKS, f"{JOBS}?limit=10", "/v1/events?limit=20", "/v1/devices"):
            self.get(path)
        self.next_stage()
        for hook in self.hooks:
            self.get(f"{HOOKS}/{hook}/deliveries")
        self.ask("GET", "/metrics")

    def back_up(self):
        content = self.ask("GET", "/v1/backup")
        if content is not None and not content.startswith(b"SQLite format 3\0"):
            raise Broken("a backup is no database")

    def delete_file(self):
        if self.second and self.remove(f"/v1/files/{self.second}"):
            self.deleted.append(self.second)

    def start_again(self):
        self.stop()
        self.next_stage()
        if not self.start():
            raise Broken("it does not start a second time")

    def look_back(self):
        self.act(self.paused if self.states.get(self.paused) else None, "resume")
        self.states.pop(self.paused, None)
        self.next_stage()
        self.act(self.paused, "cancel", "cancelled")
        self.next_stage()
        for hook in self.hooks:
            if self.remove(f"{HOOKS}/{hook}"):
                self.hooks[hook] = False
        self.get("/v1/files")

    def check_end(self, record, wanted):
        if record["status"] == "succeeded":
            if wanted and self.adapter() not in (wanted, None):
                raise Broken("the adapter is not that of the undisturbed run")
            return
        error = (record.get("error") or {}).get("message", "")
        if not self.memory or "memory" not in error:
            raise Broken(f"the job is {record['status']}: {error}")
        self.refused.append(f"job failed: {error}")

    def adapter(self):
        """Its digest; None where it cannot be had just now."""
        record = self.get(f"{JOBS}/{self.job}")
        if not record or not record.get("fine_tuned_model"):
            return None
        model = self.get(f"/v1/models/{record['fine_tuned_model']}")
        return model["sha256"] if model else None

    # ---- afterwards ----------------------------------------------------------------------------------

    def check_truth(self, wanted):
        self.shim.disarm()
        self.daemon.start_with(False)
        if not self.daemon.wait_until_served(self.client, START_S):
            raise Broken("it does not start again")
        self.refused_before, self.refused, self.memory_before = self.refused, [], self.memory
        self.check_files()
        self.check_records()
        if self.job:
            record = self.wait_for(self.job)
            self.check_end(record, wanted)
            if record["status"] == "succeeded":
                self.check_model(record, wanted)
                self.check_epochs(record)
                self.check_told()
        for job, state in self.states.items():
            found = self.get(f"{JOBS}/{job}")["status"]
            if found != state:
                raise Broken(f"a job that was {state} is {found}")
        self.stop()
        self.check_folders()

    def look(self, path):
        """The status alone."""
        return self.client.once("GET", path)

    def check_files(self):
        for name, content in self.files.items():
            status, found = self.look(f"/v1/files/{name}/content")
            if name in self.deleted:
                if status != 404:
                    raise Broken(f"a deleted file is there: {status}")
            elif status != 200 and not (status == 404 and "DELETE files" in " ".join(self.refused_before)):
                raise Broken(f"an upload that was acknowledged: {status}")
            elif status == 200 and found != content:
                raise Broken("an upload has other bytes")

    def check_records(self):
        for key, is_kept in self.keys.items():
            status, content = self.look(f"/v1/keys/{key}")
            revoked = status == 404 or json.loads(content).get("revoked_at") is not None
            if revoked == is_kept and not (revoked and "DELETE keys" in " ".join(self.refused_before)):
                raise Broken(f"a key that is {'there' if is_kept else 'revoked'}: {status} {content[:200]}")
        for hook, is_kept in self.hooks.items():
            status, content = self.look(f"{HOOKS}/{hook}")
            if (status == 200) != is_kept and not (is_kept and "DELETE webhook" in " ".join(self.refused_before)):
                raise Broken(f"a webhook that is {'there' if is_kept else 'deleted'}: {status} {content[:200]}")

    def check_model(self, record, wanted):
        status, content = self.look(f"/v1/models/{record['fine_tuned_model']}/content")
        if status != 200 or (wanted and hashlib.sha256(content).hexdigest() != wanted):
            raise Broken(f"the model's bytes: {status}")

    def check_epochs(self, record):
        """The newest has its checkpoint, with the bytes of its record; the steps are told once, and in the file."""
        listed = self.client.get(f"{JOBS}/{self.job}/checkpoints")["data"]
        if len(listed) != HYPER["n_epochs"] or not listed[0]["available"]:
            raise Broken(f"{len(listed)} checkpoints of {HYPER['n_epochs']} epochs: {listed}")
        for checkpoint in listed:
            if not checkpoint["available"]:
                continue
            model = checkpoint["fine_tuned_model_checkpoint"]
            sha256 = self.client.get(f"/v1/models/{model}")["sha256"]
            if self.client.sha256(f"/v1/models/{model}/content") != sha256:
                raise Broken(f"the checkpoint '{model}' has other bytes than its record says")
        steps = [event["data"]["step"] for event in self.client.pages(f"{JOBS}/{self.job}/events")
                 if event["type"] == "metrics"]
        if sorted(steps) != list(range(1, record["total_steps"] + 1)):
            raise Broken(f"the steps that were told, of {record['total_steps']}: {sorted(steps)}")
        if not record["result_files"]:
            if "no result file" in str(record["warnings"]):
                return
            raise Broken("the job has no result file, which is not told")
        rows = self.look(f"/v1/files/{record['result_files'][0]}/content")[1].splitlines()
        if len(rows) < record["total_steps"] + 1:
            raise Broken(f"the result file has {len(rows)} lines of {record['total_steps']} steps")

    def check_told(self):
        """The webhook's telling was kept with the job's end."""
        for hook, is_kept in self.hooks.items():
            if is_kept and self.told and self.job not in str(self.client.get(f"{HOOKS}/{hook}/deliveries")):
                raise Broken("the webhook is not to be told of the job's end")

    def check_folders(self):
        left = self.daemon.unfinished_files()
        if left:
            raise Broken(f"half-made files stay: {left[:3]}")
        jobs = [job.split("-", 1)[1] for job in (self.job, self.cancelled, self.paused) if job]
        uploads = {path.name for path in (self.daemon.state / "uploads").iterdir()}
        results = {name for name in uploads if any(name.endswith(job) for job in jobs)}
        strangers = uploads - (set(self.files) - set(self.deleted)) - results
        if len(strangers) > len([r for r in self.refused_before if r.startswith("POST files")]):
            raise Broken(f"files that nobody knows: {strangers}")

    def close(self):
        if self.daemon.process and self.daemon.is_running():
            self.daemon.kill()
        self.shim.close()
        shutil.rmtree(self.work, ignore_errors=True)
