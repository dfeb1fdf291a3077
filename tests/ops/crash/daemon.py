"""daemon: the process that is killed, and what is done to its files while it is dead."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time


class Daemon:
    def __init__(self, out, work, settings):
        self.program = os.path.join(out, "needled")
        self.work = pathlib.Path(work)
        self.state = self.work / "state"
        self.log = self.work / "needled.log"
        self.socket = str(self.state / "needled.sock")
        self.process = None
        self.settings = self.work / "settings.json"
        self.settings.write_text(json.dumps(settings))

    def make_base(self, name, source):
        folder = self.state / "models" / name
        folder.mkdir(parents=True)
        for file in ("base.safetensors", "tokenizer.model"):
            shutil.copy(pathlib.Path(source) / file, folder)

    def clear(self):
        """As new: the base alone stays."""
        for entry in self.state.iterdir():
            if entry.name != "models":
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.program, "--config", str(self.settings), "--state-dir", str(self.state), "--listen",
                 "127.0.0.1:0", "--platforms", "cpu"], stderr=log, stdout=log)

    def is_running(self):
        return self.process.poll() is None

    def kill(self):
        """False: it had ended by itself."""
        alive = self.is_running()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        return alive

    def stop(self, limit_s):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(limit_s)

    def wait_until_served(self, client, limit_s):
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            try:
                if client.once("GET", "/healthz")[0] == 200:
                    return True
            except OSError:
                pass
            if not self.is_running():
                return False
            time.sleep(0.02)
        return False

    def damage_newest(self, random):
        """Of some job with two resume checkpoints or more: flips a byte of the newest, or cuts it."""
        folders = [f for f in sorted((self.state / "checkpoints").iterdir())
                   if len(list(f.glob("resume-*.safetensors"))) >= 2]
        if not folders:
            return False
        newest = sorted(random.choice(folders).glob("resume-*.safetensors"))[-1]
        content = bytearray(newest.read_bytes())
        if random.random() < 0.5:
            content[random.randrange(len(content))] ^= 1 + random.randrange(255)
        else:
            del content[random.randrange(len(content)):]
        newest.write_bytes(content)
        return True

    def unfinished_files(self):
        """Names that only a file in the making has."""
        return [str(path) for path in self.state.rglob("*") if ".part" in path.name or path.suffix == ".tmp"]
