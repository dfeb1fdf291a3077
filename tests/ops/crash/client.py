"""client: HTTP over the daemon's Unix socket, and readers of its event streams.

Every call goes on until it has an answer, over as many deaths of the daemon as there are; how often it was
tried again is counted. A stream reader comes back with Last-Event-ID and keeps what it was told.
"""
import collections
import hashlib
import http.client
import json
import socket
import threading
import time
import urllib.parse

GIVE_UP_S = 120  # without an answer: the daemon is stuck
READ_S = 60  # a stream says something more often


class Stuck(Exception):
    """No answer for so long that it counts as none ever."""


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Client:
    def __init__(self, socket_path):
        self.socket_path = socket_path
        self.counts = collections.Counter()
        self.lock = threading.Lock()

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def once(self, method, path, body=None, headers=None):
        """One try: (status, bytes); OSError or HTTPException when the daemon died meanwhile."""
        connection = UnixConnection(self.socket_path, 30)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            content = answer.read()
            if answer.status in (302, 307):  # to a signed link
                link = urllib.parse.urlsplit(answer.getheader("Location"))
                connection.request("GET", f"{link.path}?{link.query}")
                answer = connection.getresponse()
                content = answer.read()
            return answer.status, content
        finally:
            connection.close()

    def call(self, method, path, body=None, headers=None):
        """Until answered: (status, bytes, whether an earlier try may have been heard)."""
        deadline = time.monotonic() + GIVE_UP_S
        repeated = False
        while time.monotonic() < deadline:
            try:
                status, content = self.once(method, path, body, headers)
                if status != 503:
                    self.count("answered")
                    return status, content, repeated
            except (OSError, http.client.HTTPException):
                repeated = True
                self.count("tried again")
            time.sleep(0.02)
        raise Stuck(f"{method} {path}: no answer in {GIVE_UP_S} s")

    def json(self, method, path, body=None, headers=None):
        headers = dict(headers or {})
        text = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            text = json.dumps(body)
        status, content, repeated = self.call(method, path, text, headers)
        return status, json.loads(content), repeated

    def get(self, path):
        status, answer, _ = self.json("GET", path)
        if status != 200:
            raise AssertionError(f"GET {path}: {status} {answer}")
        return answer

    def pages(self, path):
        """All records of a listing."""
        records, after = [], ""
        while True:
            page = self.get(f"{path}{'&' if '?' in path else '?'}limit=100{after}")
            records += page["data"]
            if not page["has_more"]:
                return records
            last = "&after=" + records[-1]["id"]
            if last == after:
                raise AssertionError(f"GET {path}: the page after {last} is the same again")
            after = last

    def upload(self, content, name):
        """Until one is acknowledged; an unheard answer leaves a file that nobody knows."""
        line = "crash-boundary"
        body = (f'--{line}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nfine-tune\r\n'
                f'--{line}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
                ).encode() + content + f"\r\n--{line}--\r\n".encode()
        status, answer, _ = self.call("POST", "/v1/files", body,
                                      {"Content-Type": f"multipart/form-data; boundary={line}"})
        if status != 200:
            raise AssertionError(f"upload: {status} {answer}")
        return json.loads(answer)["id"]

    def sha256(self, path):
        status, content, _ = self.call("GET", path)
        return hashlib.sha256(content).hexdigest() if status == 200 else f"status {status}"


class Reader(threading.Thread):
    """Follows one stream to its `done`, or until told to stop; faults are what it must not have seen."""

    def __init__(self, client, path, stopped):
        super().__init__(daemon=True)
        self.client, self.path, self.stopped = client, path, stopped
        self.events = []  # (id, event object)
        self.faults = []
        self.connections = 0
        self.last_id = 0
        self.done = False

    def run(self):
        while not self.done and not self.stopped.is_set():
            try:
                self.follow()
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.02)

    def follow(self):
        connection = UnixConnection(self.client.socket_path, READ_S)
        try:
            headers = {"Last-Event-ID": str(self.last_id)} if self.last_id else {}
            connection.request("GET", self.path, headers=headers)
            answer = connection.getresponse()
            if answer.status == 204:
                self.done = True
                return
            if answer.status != 200:
                answer.read()
                return
            self.connections += 1
            self.read(answer)
        finally:
            connection.close()

    def read(self, answer):
        """Blocks of lines; one that is cut off is thrown away, as the standard has it."""
        block = {}
        while not self.stopped.is_set():
            line = answer.readline()
            if not line.endswith(b"\n"):
                return
            line = line.rstrip(b"\r\n").decode()
            if line:
                name, _, value = line.partition(": ")
                block[name] = value
                continue
            if "data" in block and "id" in block:
                self.take(int(block["id"]), json.loads(block["data"]))
            if block.get("event") == "done" and "/jobs/" in self.path:
                self.done = True
                return
            block = {}

    def take(self, event_id, event):
        if event_id <= self.last_id:
            self.faults.append(f"event {event_id} came after {self.last_id}")
        self.last_id = event_id
        self.events.append((event_id, event))
