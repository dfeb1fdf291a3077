"""The daemon does what its own description says: schemathesis asks every call for what it describes and for what it
does not, and holds status, headers and body of each answer to it. No 5xx, no status or member that is not described,
405 for other methods. The seed is fixed; the time is bounded."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import httpx
import pytest
from conftest import KEY

HERE = pathlib.Path(__file__).parent
SEED = int(os.environ.get("NEEDLED_SEED", "20260901"))
REQUESTS_PER_CALL = 50  # generated ones, besides those at the bounds of every field
BOUND_S = 150


def test_the_daemon_is_held_to_its_description(guarded, tmp_path):
    daemon = guarded
    job = daemon.wait_for_job(daemon.create_job())
    known = {"file_id": job["training_file"], "job_id": job["id"], "model_id": job["fine_tuned_model"], "line": 1}
    environment = dict(os.environ, NEEDLED_KNOWN=json.dumps(known), SCHEMATHESIS_HOOKS="description_hooks",
                       PYTHONPATH=str(HERE), PYTHONDONTWRITEBYTECODE="1")
    asked = subprocess.Popen(
        [sys.executable, "-m", "schemathesis.cli", "--config-file", HERE / "schemathesis.toml", "run",
         daemon.url + "/v1/openapi.json", "--url", daemon.url, "-H", f"Authorization: Bearer {KEY}",
         "--phases", "examples,coverage,fuzzing", "--seed", str(SEED),
         # in its place: refusals_say_what_is_wrong, which knows what a refusal may be about
         "--exclude-checks", "positive_data_acceptance",
         "--max-examples", str(REQUESTS_PER_CALL), "--no-color"],
        cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        said, whole = asked.communicate(timeout=BOUND_S)[0], True
    except subprocess.TimeoutExpired:
        asked.send_signal(signal.SIGINT)  # it tells what it has found so far
        said, whole = asked.communicate()[0], False
    assert "= FAILURES =" not in said and "= ERRORS =" not in said, said[-30000:]
    assert asked.returncode == 0 or not whole, said[-30000:]
    assert daemon.process.poll() is None
    assert daemon.wait_for_job(daemon.create_job())["status"] == "succeeded"
    if not whole:
        pytest.skip(f"no fault found, but {BOUND_S} s were not enough for all requests")


def test_the_description_is_had_without_a_key_and_names_this_version(daemon):
    answer = httpx.get(daemon.url + "/v1/openapi.json")
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    version = (HERE.parents[1] / "daemon/VERSION").read_text().strip()
    assert (answer.json()["openapi"], answer.json()["info"]["version"]) == ("3.1.0", version)
