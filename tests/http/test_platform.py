"""Jobs, models and what is not here through needle.platform.Platform, unmodified. Its files are in test_files.py."""

import socket
import threading

import pytest
from needle.platform import Platform, PlatformError
from conftest import KEY, LASTING_COUNT, lines

LINES = {
    name: "".join('{"query":"%s %d","tools":[],"answers":[]}\n' % (name, n) for n in range(count))
    for name, count in (("train", 12), ("valid", 4), ("test", 3))
}


@pytest.fixture
def paths(tmp_path):
    made = []
    for name, text in LINES.items():
        (tmp_path / f"{name}.jsonl").write_text(text)
        made.append(str(tmp_path / f"{name}.jsonl"))
    return made


def write_lasting(path):
    """So many lines that a job of them does not end before it is cancelled."""
    with open(path, "w") as handle:
        handle.write("\n".join(lines(LASTING_COUNT)))


def test_a_fine_tune_asks_for_the_base_uploads_and_creates(platform, requests_made, paths):
    job = platform.finetune(*paths, suffix="lights")
    assert requests_made[0][:2] == ("GET", "/v1/models/needle-3")
    assert [made[0] for made in requests_made[1:-1]] == ["POST", "PUT", "POST"] * 3
    assert all(key for method, _, key in requests_made if method != "PUT")
    assert requests_made[-1][:2] == ("POST", "/v1/fine_tuning/jobs")
    depth = platform.model("needle-3")["depth"]
    assert isinstance(depth, int) and job["max_depth"] == depth
    assert job["id"].startswith("ftjob-") and job["object"] == "fine_tuning.job"
    assert {"status", "name", "max_depth", "created_at", "completed_steps", "total_steps", "fine_tuned_model", "error",
            "evaluations"} <= set(job)
    assert job["fine_tuned_model"] is None and job["error"] is None

    seen = []
    done = platform.wait(job, poll=0.05, on_update=lambda record: seen.append(record["status"]))
    assert done["status"] == seen[-1] == "succeeded"
    order = ["validating_files", "queued", "running", "succeeded"]
    assert [order.index(status) for status in seen] == sorted(order.index(status) for status in seen)
    assert done["completed_steps"] == done["total_steps"] > 0
    assert done["id"] in [record["id"] for record in platform.jobs(limit=5)]
    model = platform.model(done["fine_tuned_model"])
    assert {"id", "name", "depth", "object", "owned_by", "variants"} <= set(model)
    assert "/" not in model["name"] and model["variants"] == []
    assert [one["id"] for one in platform.models(search="LIGHTS")][0].startswith("ft:needle-3")
    assert platform.delete_model(model["id"])["deleted"] is True
    with pytest.raises(PlatformError) as error:
        platform.model(model["id"])
    assert (error.value.status, error.value.code[-9:]) == (404, "not_found")


@pytest.mark.parametrize("depth", [2, 3])
def test_a_depth_is_recorded(platform, paths, depth):
    job = platform.finetune(*paths, max_depth=depth)
    assert job["max_depth"] == platform.job(job["id"])["max_depth"] == depth


@pytest.mark.parametrize("depth", [0, 1, 99])
def test_another_depth_is_refused_by_name(platform, paths, depth):
    with pytest.raises(PlatformError) as error:
        platform.finetune(*paths, max_depth=depth)
    assert (error.value.status, error.value.param) == (400, "max_depth")


def test_the_adapter_is_downloaded_by_a_link(platform, paths, requests_made, tmp_path, guarded):
    done = platform.wait(platform.finetune(*paths), poll=0.05)
    model = platform.model(done["fine_tuned_model"])
    del requests_made[:]
    (saved,) = platform.download(model["id"], out=str(tmp_path / "out"))
    assert [(made[0], made[2]) for made in requests_made] == [("GET", True), ("GET", True), ("GET", False)]
    with open(saved, "rb") as handle:
        assert len(handle.read()) == model["bytes"]


def test_a_failed_job_raises_with_its_own_code(platform, tmp_path, paths):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"query":"a","query":"b","tools":[],"answers":[]}\n')
    job = platform.finetune(str(bad), paths[1], paths[2])
    with pytest.raises(PlatformError) as error:
        platform.wait(job, poll=0.05)
    record = platform.job(job["id"])
    assert record["status"] == "failed"
    assert error.value.code == record["error"]["code"] != "failed"
    assert "line 1" in str(error.value)


def test_a_cancelled_job_raises(platform, paths):
    write_lasting(paths[0])
    job = platform.finetune(*paths)
    assert platform.cancel(job["id"])["status"] == "cancelled"
    with pytest.raises(PlatformError) as error:
        platform.wait(job, poll=0.05)
    assert error.value.code == "cancelled"


def test_an_unknown_file_is_refused_by_its_field(platform, paths):
    with pytest.raises(PlatformError) as error:
        platform.finetune("file-absent", paths[1], paths[2])
    assert (error.value.status, error.value.param) == (400, "training_files")


def test_an_unknown_job_falls_through_to_generations(platform):
    for call in (platform.job, platform.generation):
        with pytest.raises(PlatformError) as error:
            call("ftjob-absent")
        assert (error.value.status, error.value.code) == (404, "not_found")


def test_plans_and_billing_tell_the_local_limits(guarded, platform):
    assert Platform(api_key="", base_url=guarded.url + "/v1").plans()["data"][0]["id"] == "local"
    billing = platform.billing()
    assert billing["plan"] == "local" and set(billing["limits"]) == set(billing["usage"]) >= {"jobs", "examples"}


def test_what_is_not_here_says_so(platform):
    tools = [{"name": "f", "description": "", "parameters": {}}]
    for call in (lambda: platform.generate(tools, 100), platform.generations,
                 lambda: platform.cancel_generation("gen-1"), lambda: platform.tool_schemas("a lamp")):
        with pytest.raises(PlatformError) as error:
            call()
        assert (error.value.status, error.value.code) == (501, "not_available")


def test_no_key_and_a_wrong_one_are_401_with_a_page(guarded):
    for key in ("wrong", ""):
        with pytest.raises(PlatformError) as error:
            Platform(api_key=key, base_url=guarded.url + "/v1").jobs()
        assert (error.value.status, error.value.code) == (401, "invalid_api_key")
        assert error.value.url.startswith(guarded.url)


def limited(guarded, **limits):
    """Platform with a key of its own that has limits."""
    key = guarded.call("POST", "/v1/keys", json={"name": "limited", **limits})["key"]
    return Platform(api_key=key, base_url=guarded.url + "/v1", retries=3)


def test_a_full_queue_is_told_at_once(guarded, platform, paths, requests_made):
    client = limited(guarded, jobs_max=1)
    write_lasting(paths[0])
    ids = [client.upload(path)["id"] for path in paths]
    job = client.finetune([ids[0]], [ids[1]], [ids[2]])
    del requests_made[:]
    with pytest.raises(PlatformError) as error:
        client.finetune([ids[0]], [ids[1]], [ids[2]])
    assert (error.value.status, error.value.code) == (429, "queue_limit_reached")
    assert [made[0] for made in requests_made] == ["GET", "POST"]  # not tried again
    client.cancel(job["id"])


def test_more_bytes_than_a_key_may_store_are_refused(guarded, paths):
    client = limited(guarded, bytes_max=10)
    with pytest.raises(PlatformError) as error:
        client.upload(paths[0])
    assert (error.value.status, error.value.code) == (402, "quota_exceeded")
    assert error.value.param == "bytes"


def test_a_delete_with_and_without_a_body_succeeds(platform, paths):
    assert platform.delete_file(platform.upload(paths[0])["id"])["deleted"] is True


def cut_after(port, bytes_to_client):
    """A way to the daemon that breaks after so many bytes of its answers; returns its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        left = bytes_to_client
        while left > 0:
            client, _ = listener.accept()
            with client, socket.create_connection(("127.0.0.1", port)) as server:
                server.sendall(client.recv(65536))
                while left > 0 and (piece := server.recv(4096)):
                    client.sendall(piece[:left])
                    left -= len(piece)
        listener.close()

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]


def test_a_cut_download_leaves_the_file_that_was_there(guarded, platform, paths, tmp_path):
    with open(paths[0], "w") as handle:
        handle.write("".join('{"query":"many %d","tools":[],"answers":[]}\n' % n for n in range(20000)))
    file = platform.upload(paths[0])
    target = tmp_path / "there" / "copy.jsonl"
    target.parent.mkdir()
    target.write_text("as it was")
    port = cut_after(guarded.port, 100000)
    with pytest.raises(PlatformError) as error:
        Platform(api_key=KEY, base_url=f"http://127.0.0.1:{port}/v1").download_file(file["id"], str(target))
    assert error.value.code == "network_error"
    assert target.read_text() == "as it was"
    assert [path.name for path in target.parent.iterdir()] == ["copy.jsonl"]
    platform.download_file(file["id"], str(target))
    assert target.stat().st_size == file["bytes"]
