"""Keys, limits, webhooks and figures as the official clients meet them: exceptions with their codes, webhooks made and
verified by the OpenAI SDK, figures read by Prometheus' own parser."""

import http.server
import json
import queue
import threading

import httpx
import openai
import pytest
from needle.platform import Platform, PlatformError
from prometheus_client.parser import text_string_to_metric_families

from conftest import KEY, LASTING, LASTING_COUNT, lines

ALL = ["fine_tuning.job.succeeded", "fine_tuning.job.failed", "fine_tuning.job.cancelled"]


@pytest.fixture
def receiver():
    """What was posted to it, as (headers, body); its address; the statuses it answers with, 200 when there are none."""
    calls, statuses = queue.Queue(), queue.Queue()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            calls.put((dict(self.headers), body))
            self.send_response(200 if statuses.empty() else statuses.get())
            self.end_headers()

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.calls, server.statuses = calls, statuses
    server.url = f"http://127.0.0.1:{server.server_port}/hook"
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def telling(make_daemon, tmp_path):
    """A daemon that may call the receiver."""
    (tmp_path / "key").write_text(KEY + "\n")
    (tmp_path / "settings.json").write_text(
        json.dumps({"api_key_file": str(tmp_path / "key"), "webhook_hosts": "127.0.0.1"}))
    daemon = make_daemon("--config", tmp_path / "settings.json")
    daemon.key = KEY
    return daemon


def make_key(daemon, **members):
    return daemon.call("POST", "/v1/keys", json={"name": "test", **members})


def sdk_with(daemon, key, **options):
    return openai.OpenAI(base_url=daemon.url + "/v1", api_key=key, **options)


def test_the_sdk_makes_and_verifies_webhooks(telling, receiver):
    client = sdk_with(telling, KEY, max_retries=0)
    assert sorted(client.webhooks.event_types.list().data) == sorted(ALL)
    made = client.webhooks.create(name="ci", url=receiver.url, event_types=ALL)
    assert made.object == "webhook_endpoint" and made.signing_secret.startswith("whsec_")
    assert made.signing_secret_hint.endswith(made.signing_secret[-4:])
    assert [hook.id for hook in client.webhooks.list()] == [made.id]
    assert not hasattr(client.webhooks.retrieve(made.id), "signing_secret")
    assert client.webhooks.update(made.id, name="renamed").name == "renamed"

    job = telling.create_job()
    assert telling.wait_for_job(job)["status"] == "succeeded"
    headers, body = receiver.calls.get(timeout=120)
    event = client.webhooks.unwrap(body, headers, secret=made.signing_secret)
    assert (event.type, event.data.id, event.object) == ("fine_tuning.job.succeeded", job, "event")
    assert event.id == headers["webhook-id"]
    with pytest.raises(openai.InvalidWebhookSignatureError):
        client.webhooks.unwrap(body + b" ", headers, secret=made.signing_secret)
    assert receiver.calls.empty()

    rotated = client.webhooks.rotate_secret(made.id, keep_old_secret_active_for_24_hours=True)
    result = client.webhooks.test(made.id, event_type="fine_tuning.job.failed")
    assert (result.status_code, result.webhook_endpoint_id) == (200, made.id)
    headers, body = receiver.calls.get(timeout=120)
    for secret in made.signing_secret, rotated.signing_secret:
        assert client.webhooks.unwrap(body, headers, secret=secret).type == "fine_tuning.job.failed"
    deleted = client.webhooks.delete(made.id)
    assert deleted.deleted and deleted.object == "webhook_endpoint.deleted"


def test_a_delivery_survives_a_kill(telling, receiver):
    client = sdk_with(telling, KEY)
    made = client.webhooks.create(name="ci", url=receiver.url, event_types=ALL)
    receiver.statuses.put(503)
    job = telling.create_job()
    telling.wait_for_job(job)
    headers, body = receiver.calls.get(timeout=120)
    telling.kill()
    telling.start()
    again, same = receiver.calls.get(timeout=120)
    assert same == body and again["webhook-id"] == headers["webhook-id"]
    assert client.webhooks.unwrap(same, again, secret=made.signing_secret).data.id == job


def test_keys_are_the_clients_exceptions(guarded):
    with pytest.raises(openai.AuthenticationError) as caught:
        sdk_with(guarded, "wrong", max_retries=0).models.list()
    assert caught.value.code == "invalid_api_key"
    for wrong in "wrong", None:
        with pytest.raises(PlatformError) as caught:
            Platform(api_key=wrong, base_url=guarded.url + "/v1").jobs()
        assert caught.value.status == 401 and caught.value.url
    assert "needlectl key create" in httpx.get(guarded.url + "/help/keys").text

    reader = make_key(guarded, scope="read")["key"]
    assert sdk_with(guarded, reader).models.list().data
    with pytest.raises(openai.PermissionDeniedError) as caught:
        sdk_with(guarded, reader, max_retries=0).files.create(purpose="fine-tune", file=b"{}")
    assert caught.value.code == "missing_scope"


def test_a_full_queue_is_said_once(guarded):
    key = make_key(guarded, jobs_max=1)["key"]
    asked = []
    client = openai.OpenAI(base_url=guarded.url + "/v1", api_key=key, http_client=openai.DefaultHttpxClient(
        event_hooks={"request": [lambda request: asked.append(request.url.path)]}))
    file = client.files.create(purpose="fine-tune", file=("a.jsonl", "\n".join(lines(LASTING_COUNT)).encode()))
    method = {"type": "supervised", "supervised": {"hyperparameters": LASTING}}
    first = client.fine_tuning.jobs.create(model="mini", training_file=file.id, method=method)
    asked.clear()
    with pytest.raises(openai.RateLimitError) as caught:
        client.fine_tuning.jobs.create(model="mini", training_file=file.id, method=method, seed=7)
    assert (caught.value.code, caught.value.param) == ("queue_limit_reached", "jobs")
    assert len(asked) == 1
    with pytest.raises(PlatformError) as caught:
        Platform(api_key=key, base_url=guarded.url + "/v1").finetune([file.id], [], [])
    assert (caught.value.code, caught.value.status) == ("queue_limit_reached", 429)
    client.fine_tuning.jobs.cancel(first.id)


def test_a_full_store_names_its_param(guarded):
    key = make_key(guarded, bytes_max=100)["key"]
    with pytest.raises(openai.APIStatusError) as caught:
        sdk_with(guarded, key).files.create(purpose="fine-tune", file=("a.jsonl", b'{"query":"say"}\n' * 20))
    assert (caught.value.status_code, caught.value.code, caught.value.param) == (402, "quota_exceeded", "bytes")


def test_figures_are_read_by_prometheus(guarded):
    job = guarded.create_job()
    guarded.wait_for_job(job)
    assert httpx.get(guarded.url + "/metrics").status_code == 401
    answer = httpx.get(guarded.url + "/metrics", headers={"Authorization": f"Bearer {KEY}"})
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    figures = {(sample.name, *sample.labels.values()): sample.value
               for family in families.values() for sample in family.samples}
    assert figures["needled_jobs", "succeeded"] == 1
    assert figures["needled_training_steps_total", "cpu:0"] == 8
    assert figures["needled_training_tokens_total", "cpu:0"] > 0
    assert figures["needled_training_step_seconds_total", "cpu:0"] > 0
    assert figures["needled_uploads_total",] == 1
    assert figures["needled_http_requests_total", "POST", "/v1/fine_tuning/jobs", "200"] == 1
    for family in families.values():
        assert family.documentation and family.type in ("counter", "gauge", "histogram"), family
    for private in job, KEY, "data.jsonl":
        assert private not in answer.text
