"""The built daemon in a process of its own, on a free port, with the small base model under the names `mini` and
`needle-3` and a state folder that goes with it.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import httpx

ROOT = pathlib.Path(__file__).resolve().parents[3]
OUT = ROOT / os.environ.get("NEEDLED_OUT", "build/release")
START_S = END_S = 120  # ample where nothing else runs is a tenth of it
MINI = ROOT / "tests/fixtures/needle3/mini"
# A job of these lines runs until the test ends it: 500,000 steps, half a minute at 17,000 a second.
LASTING = {"n_epochs": 50, "batch_size": 1, "lora_rank": 4, "lora_alpha": 8, "val_split": 0}
LASTING_COUNT = 10000


def lines(count, start=0):
    return ['{"query":"say %d","tools":[],"answers":[]}' % n for n in range(start, start + count)]


class Daemon:
    def __init__(self, folder, *options, step_ms=None):
        """step_ms: each step of a job takes so much longer (tests/support/shims/steps.c)."""
        self.folder = pathlib.Path(folder)
        self.options = options
        self.key = None
        self.environment = dict(os.environ, NEEDLED_PLUGINS=str(folder))  # no cards here
        if step_ms is not None:
            self.environment.update(STEP_MS=str(step_ms), LD_PRELOAD=str(OUT / "shims/steps.so"))
        self.process = None
        self.port = 0
        for base in ("mini", "needle-3"):
            models = self.folder / "state/models" / base
            models.mkdir(parents=True)
            for name in ("base.safetensors", "tokenizer.model"):
                shutil.copy(MINI / name, models / name)
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        """On a free port; on the same one when it is started again."""
        log = self.folder / "log"
        with log.open("wb") as target:
            self.process = subprocess.Popen(
                [OUT / "needled", "--state-dir", self.folder / "state", "--listen", f"127.0.0.1:{self.port}",
                 *self.options], stderr=target, env=self.environment)
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            found = re.search(r'port (\d+)"', log.read_text())
            if found:
                self.port = int(found.group(1))
                return
            assert self.process.poll() is None, log.read_text()
            time.sleep(0.02)
        raise AssertionError(f"the daemon does not listen: {log.read_text()}")

    def stop(self):
        """SIGTERM; returns the exit status."""
        return self.end(signal.SIGTERM)

    def kill(self):
        return self.end(signal.SIGKILL)

    def end(self, number):
        if self.process is None:
            return None
        self.process.send_signal(number)
        status = self.process.wait(END_S)
        self.process = None
        return status

    def call(self, method, path, **arguments):
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        answer = httpx.request(method, self.url + path, timeout=60, headers=headers, **arguments)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def upload(self, texts, name="data.jsonl"):
        text = "".join(line + "\n" for line in texts)
        return self.call("POST", "/v1/files", data={"purpose": "fine-tune"}, files={"file": (name, text)})["id"]

    def create_job(self, line_count=8, **hyperparameters):
        """A quick job: a step is a line, an epoch is line_count steps."""
        file = self.upload(lines(line_count))
        quick = {"n_epochs": 1, "batch_size": 1, "lora_rank": 4, "lora_alpha": 8, "val_split": 0}
        return self.call("POST", "/v1/fine_tuning/jobs",
                         json={"model": "mini", "training_file": file,
                               "hyperparameters": {**quick, **hyperparameters}})["id"]

    def create_lasting_job(self, **members):
        """One that runs until the test ends it."""
        return self.call("POST", "/v1/fine_tuning/jobs",
                         json={"model": "mini", "training_file": self.upload(lines(LASTING_COUNT)),
                               "hyperparameters": LASTING, **members})["id"]

    def job(self, job_id):
        return self.call("GET", f"/v1/fine_tuning/jobs/{job_id}")

    def wait_for_job(self, job_id, seconds=300):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            job = self.job(job_id)
            if job["status"] in ("succeeded", "failed", "cancelled"):
                return job
            time.sleep(0.1)
        raise AssertionError(f"job {job_id} does not end: {job}")
