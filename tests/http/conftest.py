"""What the tests of tests/http share, with the daemon of tests/support/python:

    daemon         one for the whole session, for tests that leave it running
    make_daemon    a factory: a daemon of the test's own, to stop, kill and start again
    guarded        one of the test's own that wants a key, so that a call without one is seen
    sdk, platform  the clients, on guarded
    requests_made  what Platform's urllib sends
"""

import os
import pathlib
import sys
import urllib.request

os.environ["NEEDLE_TELEMETRY"] = "0"  # before the import of needle: it sends nothing from here

import openai
import pytest
from needle.platform import Platform

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support/python"))
from daemon import ROOT, Daemon  # noqa: E402, F401: found where the line before points to

KEY = "a-key-of-the-tests"


@pytest.fixture(scope="session")
def daemon(tmp_path_factory):
    daemon = Daemon(tmp_path_factory.mktemp("daemon"))
    yield daemon
    assert daemon.stop() == 0


@pytest.fixture
def make_daemon(tmp_path):
    made = []

    def make(*options):
        folder = tmp_path / f"daemon{len(made)}"
        folder.mkdir()
        made.append(Daemon(folder, *options))
        return made[-1]

    yield make
    for daemon in made:
        daemon.stop()


@pytest.fixture
def guarded(make_daemon, tmp_path):
    (tmp_path / "key").write_text(KEY + "\n")
    (tmp_path / "settings.json").write_text('{"api_key_file": "%s"}' % (tmp_path / "key"))
    daemon = make_daemon("--config", tmp_path / "settings.json")
    daemon.key = KEY
    return daemon


@pytest.fixture
def sdk(guarded):
    with openai.OpenAI(base_url=guarded.url + "/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
def platform(guarded):
    return Platform(api_key=KEY, base_url=guarded.url + "/v1")


@pytest.fixture
def requests_made(monkeypatch):
    """(method, path, whether Authorization went along) of each request that urllib opens."""
    made = []
    send = urllib.request.AbstractHTTPHandler.do_open

    def record(handler, connection, request, **arguments):
        made.append((request.get_method(), request.selector.partition("?")[0], request.has_header("Authorization")))
        return send(handler, connection, request, **arguments)

    monkeypatch.setattr(urllib.request.AbstractHTTPHandler, "do_open", record)
    return made
