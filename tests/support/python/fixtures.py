"""Fixtures of the tests that talk to a daemon.

    daemon        one for the whole session, for tests that leave it running
    make_daemon   a factory: a daemon of the test's own, to fill, stop, kill and start again
    guarded       one of the test's own that wants KEY
"""

import pytest
from daemon import Daemon

KEY = "a-key-of-the-tests"


@pytest.fixture(scope="session")
def daemon(tmp_path_factory):
    daemon = Daemon(tmp_path_factory.mktemp("daemon"))
    yield daemon
    assert daemon.stop() == 0


@pytest.fixture
def make_daemon(tmp_path):
    made = []

    def make(*options, **more):
        folder = tmp_path / f"daemon{len(made)}"
        folder.mkdir()
        made.append(Daemon(folder, *options, **more))
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
