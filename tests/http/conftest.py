"""What the tests of tests/http share, with the daemon of tests/support/python:

    daemon, make_daemon, guarded   as tests/support/python/fixtures.py has them
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
from daemon import LASTING, LASTING_COUNT, ROOT, Daemon, lines  # noqa: E402, F401: found where the line before points to
from fixtures import KEY, daemon, guarded, make_daemon  # noqa: E402, F401


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
