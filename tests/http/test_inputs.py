"""The requests of tests/fixtures/inputs/http, byte for byte over a socket, each with the outcome that manifest.json
beside them wants, and their siblings: the other way round, the next value, the other field."""

import json
import pathlib
import re
import socket
import time

import httpx
import pytest
from conftest import KEY, ROOT

INPUTS = ROOT / "tests/fixtures/inputs"
NAMES = sorted(path.name for path in (INPUTS / "http").iterdir())
tried = set()


class Answer:
    def __init__(self, text, head_only=False):
        head, _, self.rest = text.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split(" ")[1])
        self.headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
        size = 0 if head_only or self.status in (100, 204) else int(self.headers.get("content-length", len(self.rest)))
        self.body, self.rest = self.rest[:size], self.rest[size:]

    def json(self):
        return json.loads(self.body)

    def error(self):
        return self.json()["error"]


def fill(request, port, job="", key=KEY):
    """The placeholders; Content-Length stays, since none of them is in a body."""
    return request.replace(b"@PORT@", b"%d" % port).replace(b"@TOKEN@", key.encode()).replace(b"@JOB@", job.encode())


def load(name):
    tried.add(name)
    return (INPUTS / "http" / name).read_bytes()


def talk(port, request, until=None):
    """What comes back until the daemon closes, or until that has come."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(request)
        text = b""
        while piece := connection.recv(65536):
            text += piece
            if until and until in text:
                break
        return text


@pytest.fixture
def ask(guarded):
    def ask(request, head_only=False, **placeholders):
        return Answer(talk(guarded.port, fill(request, guarded.port, **placeholders)), head_only)

    return ask


@pytest.fixture
def count_jobs(guarded):
    return lambda: len(guarded.call("GET", "/v1/fine_tuning/jobs")["data"])


def with_body(request, old, new):
    """The request with another body, and its length."""
    head, _, body = request.partition(b"\r\n\r\n")
    assert old in body
    body = body.replace(old, new)
    return re.sub(rb"Content-Length: \d+", b"Content-Length: %d" % len(body), head) + b"\r\n\r\n" + body


# ---- who may ask ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["rebind.example", "127.0.0.1.rebind.example", "localhost.rebind.example", "",
                                  "localhost@rebind.example", "169.254.169.254"])
def test_host_foreign(ask, host):
    answer = ask(load("host-foreign.http").replace(b"rebind.example", host.encode()))
    assert answer.status in (400, 403, 421) if host == "" else answer.status in (403, 421)


@pytest.mark.parametrize("host", ["localhost:@PORT@", "127.0.0.1:@PORT@", "[::1]:@PORT@"])
def test_a_host_of_ours(ask, host):
    assert ask(load("host-foreign.http").replace(b"rebind.example", host.encode())).status == 200


@pytest.mark.parametrize("kind", ["text/plain", "text/plain;charset=UTF-8", "application/x-www-form-urlencoded",
                                  "multipart/form-data; boundary=x"])
@pytest.mark.parametrize("origin", ["http://evil.example", "null", None])
def test_csrf_text_plain(ask, count_jobs, kind, origin):
    request = load("csrf-text-plain.http").replace(b"text/plain", kind.encode())
    line = b"Origin: http://evil.example\r\n"
    assert line in request
    request = request.replace(line, b"Origin: %s\r\n" % origin.encode() if origin else b"")
    assert ask(request).status in (401, 403, 415)
    with_key = request.replace(b"Connection:", b"Authorization: Bearer @TOKEN@\r\nConnection:")
    assert ask(with_key).status in (403, 415)
    assert count_jobs() == 0


def test_csrf_with_json_and_a_foreign_origin(ask):
    request = load("unknown-file-job.http").replace(b"Connection:", b"Origin: http://evil.example\r\nConnection:")
    assert ask(request).status == 403


def test_no_token(ask, guarded):
    answer = ask(load("no-token.http"))
    assert answer.status == 401 and answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.error()["code"] == "invalid_api_key"
    for value in (b"Bearer", b"Bearer ", b"Basic " + KEY.encode(), KEY.encode(), b"Bearer " + KEY.encode() + b"x"):
        sibling = load("no-token.http").replace(b"Connection:", b"Authorization: " + value + b"\r\nConnection:")
        assert ask(sibling).status == 401, value
    assert KEY not in (guarded.folder / "log").read_text()


# ---- bodies --------------------------------------------------------------------------------------------


def test_expect_100(guarded):
    request = fill(load("expect-100.http"), guarded.port)
    head, _, body = request.partition(b"\r\n\r\n")
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=60) as connection:
        connection.sendall(head + b"\r\n\r\n")
        interim = connection.recv(65536)
        assert interim.startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        text = interim.partition(b"\r\n\r\n")[2]
        while piece := connection.recv(65536):
            text += piece
    answer = Answer(text)
    assert answer.status in (400, 404) and answer.error()["param"] == "training_file"


@pytest.mark.parametrize("announced", [99999999999, 2**63 - 1, 2**64, 10**30])
def test_oversize_announced(guarded, announced):
    request = fill(load("oversize-announced.http"), guarded.port).replace(b"99999999999", b"%d" % announced)
    started = time.monotonic()
    text = talk(guarded.port, request)
    assert b" 100 Continue" not in text
    answer = Answer(text)
    assert answer.status in ((413,) if announced < 2**63 else (400, 413))
    assert answer.headers.get("connection", "close").lower() == "close"
    assert time.monotonic() - started < 14  # the rest of it has 15
    assert list((guarded.folder / "state/uploads").iterdir()) == []


@pytest.mark.parametrize("name, shown", [
    ("../../../../var/needled-escape.jsonl", "needled-escape.jsonl"),
    ("/etc/needled-escape.jsonl", "needled-escape.jsonl"),
    ("..", None), (".", None), ("a/../../b.jsonl", "b.jsonl"),
])
def test_multipart_traversal(ask, guarded, name, shown):
    request = load("multipart-traversal.http")
    answer = ask(with_body(request, b"../../../../var/needled-escape.jsonl", name.encode()))
    if shown is None:
        assert answer.status in (200, 400)
    else:
        assert (answer.status, answer.json()["filename"]) == (200, shown)
    if answer.status == 200:
        file = answer.json()
        assert "/" not in file["filename"] and file["filename"] not in ("", ".", "..")
        (stored,) = (guarded.folder / "state/uploads").iterdir()
        assert stored.stat().st_size == file["bytes"] and "escape" not in stored.name
    assert not pathlib.Path("/var/needled-escape.jsonl").exists()
    assert not pathlib.Path("/etc/needled-escape.jsonl").exists()
    assert not [path for path in guarded.folder.rglob("*escape*")]


@pytest.mark.parametrize("end", [b"\r\n\r\n", b"\r\n", b"\n", b"\r\n--bnd2", b"\r\n-", b" "])
def test_multipart_crlf_end(ask, guarded, end):
    request = load("multipart-crlf-end.http")
    part = re.search(rb'a\.jsonl"\r\nContent-Type: [^\r]*\r\n\r\n(.*)\r\n--bnd2--', request, re.S).group(1)
    if end == b"\r\n--bnd2":  # nearly a boundary: it belongs to the last line, which is no JSON
        assert ask(with_body(request, part, part.rstrip(b"\r\n") + b"\r\n--bnd2x")).status == 400
        return
    content = part.rstrip(b"\r\n") + end
    answer = ask(with_body(request, part, content))
    if end == b"\r\n-":
        assert answer.status == 400 and answer.error()["param"] == "file"  # a last line "-"
        return
    assert (answer.status, answer.json()["bytes"]) == (200, len(content))
    url = f"{guarded.url}/v1/files/{answer.json()['id']}/content"
    got = httpx.get(url, headers={"Authorization": f"Bearer {KEY}"}, follow_redirects=True)
    assert got.content == content


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>.jsonl", "<script>alert(1)</script>", "a\u202eb.jsonl",
                                  "javascript:alert(1)", "&lt;b&gt;"])
def test_xss_filename(ask, name):
    answer = ask(with_body(load("xss-filename.http"), b"<img src=x onerror=alert(1)>.jsonl", name.encode()))
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.json()["filename"] == name.rpartition("/")[2]


def test_chunked_body(ask):
    answer = ask(load("chunked-body.http"))
    assert answer.status in (400, 404) and answer.error()["param"] == "training_file"
    whole = ask(load("unknown-file-job.http"))
    assert (whole.status, whole.error()) == (answer.status, answer.error())


@pytest.mark.parametrize("body", [b"zz\r\n{}\r\n0\r\n\r\n", b"-1\r\n\r\n0\r\n\r\n", b"fffffffffffffffff\r\n{}"])
def test_a_broken_chunk_is_refused(guarded, body):
    head = fill(load("chunked-body.http"), guarded.port).partition(b"\r\n\r\n")[0]
    text = talk(guarded.port, head + b"\r\n\r\n" + body)
    assert text == b"" or 400 <= Answer(text).status < 500
    assert httpx.get(guarded.url + "/healthz").status_code == 200


def test_a_length_and_chunks_at_once_are_refused(guarded):
    request = fill(load("chunked-body.http"), guarded.port).replace(b"Connection:", b"Content-Length: 4\r\nConnection:")
    text = talk(guarded.port, request)
    assert text == b"" or Answer(text).status == 400


@pytest.mark.parametrize("broken", [b'{"model":"needle","training_file":}', b'{"model":"needle",}', b'{"model"',
                                    b"{'model':'needle'}", b'{"model":"a"} {}', b"\xff\xfe", b'{"a":NaN}'])
def test_bad_json_body(ask, broken):
    request = load("bad-json-body.http")
    answer = ask(with_body(request, b'{"model":"needle","training_file":}', broken))
    assert (answer.status, answer.error()["type"]) == (400, "invalid_request_error")
    assert re.search(r"(line|byte|offset|column|col|position|char|at)\w*\W{0,3}\d+", answer.error()["message"])


def test_unknown_file_job(ask, count_jobs):
    answer = ask(load("unknown-file-job.http"))
    assert answer.status in (400, 404) and answer.error()["param"] == "training_file"
    for name in (b"", b"file-", b"../file", b"file-" + b"A" * 5000):
        sibling = with_body(load("unknown-file-job.http"), b"file-doesnotexist", name)
        assert ask(sibling).error()["param"] == "training_file"
    assert count_jobs() == 0


def test_bad_hyperparameters(ask, guarded, count_jobs):
    file = guarded.upload('{"query":"say %d","tools":[],"answers":[]}' % n for n in range(4))
    request = with_body(load("bad-hyperparameters.http"), b"file-doesnotexist", file.encode())
    answer = ask(request)
    assert answer.status in (400, 422) and answer.error()["param"] in ("n_epochs", "learning_rate_multiplier")
    answer = ask(with_body(request, b'"n_epochs":0', b'"n_epochs":"auto"'))
    assert (answer.status, answer.error()["param"]) == (400, "learning_rate_multiplier")
    answer = ask(with_body(request, b'"batch_size":"auto"', b'"batch_size":257'))
    assert (answer.status, answer.error()["param"]) == (400, "n_epochs")
    assert count_jobs() == 0


@pytest.mark.parametrize("size", [99999999999999, 0, -1, 2**63, 1e300, "1", None])
def test_reserve_oversize(ask, guarded, size):
    before = sum(path.stat().st_size for path in (guarded.folder / "state/uploads").iterdir())
    answer = ask(with_body(load("reserve-oversize.http"), b"99999999999999", json.dumps(size).encode()))
    if size == 99999999999999:
        assert answer.status == 413 and answer.error()["code"] == "request_too_large"
    else:
        assert answer.status in (400, 413)
    assert answer.error()["param"] == "bytes"
    assert sum(path.stat().st_size for path in (guarded.folder / "state/uploads").iterdir()) == before


@pytest.mark.parametrize("model", ["http://169.254.169.254/latest/", "https://127.0.0.1:@LISTEN@/", "//127.0.0.1/",
                                   "file:///etc/passwd", "../../../../etc/passwd"])
def test_webhook_metadata(ask, model):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.5)
        model = model.replace("@LISTEN@", str(listener.getsockname()[1]))
        request = with_body(load("webhook-metadata.http"), b"http://169.254.169.254/latest/", model.encode())
        request = with_body(request, b'"url":"http://169.254.169.254/"',
                            b'"url":"http://127.0.0.1:%d/"' % listener.getsockname()[1])
        answer = ask(request)
        assert answer.status in (400, 404, 422)
        assert re.search("model|integrations", answer.error()["message"])
        with pytest.raises(TimeoutError):
            listener.accept()


# ---- connections ---------------------------------------------------------------------------------------


def test_head_models(ask):
    answer = ask(load("head-models.http"), head_only=True)
    assert answer.status == 200 and answer.rest == b""
    whole = ask(load("head-models.http").replace(b"HEAD", b"GET"))
    for name in ("content-type", "content-length"):
        assert answer.headers[name] == whole.headers[name]


def test_pipelined(guarded):
    text = talk(guarded.port, fill(load("pipelined.http"), guarded.port))
    first = Answer(text)
    second = Answer(first.rest)
    assert (first.status, second.status, second.rest) == (200, 200, b"")
    assert "needle-3" in [model["id"] for model in first.json()["data"]]
    assert second.json()["data"] == []


def test_slow_header(guarded):
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=75) as connection:
        connection.sendall(fill(load("slow-header.http"), guarded.port))
        for _ in range(5):
            assert httpx.get(guarded.url + "/healthz", timeout=30).status_code == 200
        text = connection.recv(65536)
    assert text == b"" or Answer(text).status == 408
    assert time.monotonic() - started < 75


def test_sse_resume(guarded):
    job = guarded.create_job(line_count=12)
    guarded.wait_for_job(job)
    request = fill(load("sse-resume.http"), guarded.port, job)
    text = talk(guarded.port, request, until=b"event: done").decode()
    head, _, body = text.partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 ")
    headers = head.lower()
    for line in ("content-type: text/event-stream", "cache-control: no-cache", "x-accel-buffering: no"):
        assert line in headers
    ids = [int(number) for number in re.findall(r"^id: (\d+)", body, re.M)]
    assert ids == list(range(4, 4 + len(ids))) and len(ids) >= 9
    assert "event: done" in body


# one past the last event of a job that has ended is of another database: 204 would hide this one's events
@pytest.mark.parametrize("cursor, status", [("99999999", 400), ("-1", 400), ("abc", 400), ("3; DROP", 400)])
def test_a_cursor_that_is_no_event_of_the_job(ask, guarded, cursor, status):
    job = guarded.create_job()
    guarded.wait_for_job(job)
    request = load("sse-resume.http").replace(b"Last-Event-ID: 3", b"Last-Event-ID: " + cursor.encode())
    request = request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    assert ask(request, job=job).status == status


def test_every_input_was_tried():
    manifest = json.loads((INPUTS / "manifest.json").read_text())
    named = {entry["file"][5:] for entry in manifest["entries"] if entry["file"].startswith("http/")}
    assert named == set(NAMES)
    if len(tried) > 1:  # not when one test was chosen
        assert tried == named
