"""Jobs, models and errors through the OpenAI SDK, unmodified."""

import asyncio
import csv
import io
import time

import httpx
import openai
import pytest
from conftest import KEY, LASTING, LASTING_COUNT

QUICK = {"n_epochs": 2, "batch_size": 4, "lora_rank": 4, "lora_alpha": 8, "val_split": 0}


def lines(count, start=0):
    return "".join('{"query":"say %d","tools":[],"answers":[]}\n' % n for n in range(start, start + count)).encode()


def upload(sdk, count=12, start=0):
    return sdk.files.create(file=("data.jsonl", lines(count, start)), purpose="fine-tune").id


def create(sdk, hyperparameters=QUICK, count=12, **more):
    method = {"type": "supervised", "supervised": {"hyperparameters": hyperparameters}}
    arguments = {"model": "mini", "training_file": more.pop("training_file", None) or upload(sdk, count), **more}
    return sdk.fine_tuning.jobs.create(method=method, **arguments)


def wait(guarded, job):
    return guarded.wait_for_job(job.id)


@pytest.fixture
def sent():
    return []


@pytest.fixture
def watched(guarded, sent):
    """The SDK with its own retries; what it sends is noted."""
    hooks = {"request": [lambda request: sent.append((request.method, request.url.path, request.headers))]}
    with openai.OpenAI(base_url=guarded.url + "/v1", api_key=KEY,
                       http_client=openai.DefaultHttpxClient(event_hooks=hooks)) as client:
        yield client


# ---- a job's life --------------------------------------------------------------------------------------


def test_a_job_from_its_files_to_its_model(sdk, guarded):
    validation = upload(sdk, 4, start=100)
    made = create(sdk, validation_file=validation, suffix="lights", seed=7, metadata={"room": "hall", "try": "1"})
    assert made.object == "fine_tuning.job" and made.id.startswith("ftjob-")
    assert made.status in ("validating_files", "queued", "running")
    assert (made.model, made.seed, made.validation_file) == ("mini", 7, validation)
    assert (made.finished_at, made.fine_tuned_model, made.error, made.result_files) == (None, None, None, [])
    assert made.metadata == {"room": "hall", "try": "1"} and made.user_provided_suffix == "lights"
    assert made.method.type == "supervised" and made.method.supervised.hyperparameters.n_epochs == 2
    assert made.integrations in (None, []) and isinstance(made.organization_id, str)

    wait(guarded, made)
    job = sdk.fine_tuning.jobs.retrieve(made.id)
    assert (job.status, job.error, job.estimated_finish) == ("succeeded", None, None)
    assert job.finished_at >= job.created_at and job.trained_tokens > 0
    assert (job.hyperparameters.n_epochs, job.hyperparameters.batch_size) == (2, 4)
    assert job.fine_tuned_model.startswith("ft:mini:") and ":lights:" in job.fine_tuned_model

    model = sdk.models.retrieve(job.fine_tuned_model)
    assert (model.id, model.object, model.owned_by) == (job.fine_tuned_model, "model", "user")
    assert model.created >= job.created_at
    listed = [one.id for one in sdk.models.list()]
    assert job.fine_tuned_model in listed and "mini" in listed
    gone = sdk.models.delete(job.fine_tuned_model)
    assert (gone.id, gone.object, gone.deleted) == (job.fine_tuned_model, "model", True)
    with pytest.raises(openai.NotFoundError):
        sdk.models.retrieve(job.fine_tuned_model)


def test_auto_is_a_value_and_is_resolved(sdk, guarded):
    job = create(sdk, {"n_epochs": 1, "batch_size": "auto", "learning_rate_multiplier": "auto"})
    done = sdk.fine_tuning.jobs.retrieve(wait(guarded, job)["id"])
    assert done.status == "succeeded"
    assert isinstance(done.hyperparameters.batch_size, int)
    assert done.hyperparameters.learning_rate_multiplier > 0


def test_the_deprecated_place_of_hyperparameters(sdk, guarded):
    job = sdk.fine_tuning.jobs.create(model="mini", training_file=upload(sdk),
                                      hyperparameters={"n_epochs": 1, "batch_size": 4})
    done = sdk.fine_tuning.jobs.retrieve(wait(guarded, job)["id"])
    assert (done.status, done.hyperparameters.n_epochs, done.hyperparameters.batch_size) == ("succeeded", 1, 4)


def test_events_are_walked_to_the_end(sdk, guarded):
    job = create(sdk)
    wait(guarded, job)
    events = list(sdk.fine_tuning.jobs.list_events(job.id, limit=3))
    numbers = [event.number for event in events]
    assert numbers == sorted(numbers, reverse=True) and len(set(numbers)) == len(numbers)
    assert numbers[-1] == 1
    assert {event.object for event in events} == {"fine_tuning.job.event"}
    assert all(event.id.startswith("ftevent-") and event.level in ("info", "warn", "error") for event in events)
    metrics = [event.data for event in events if event.type == "metrics"]
    assert [data["step"] for data in metrics] == [6, 5, 4, 3, 2, 1]
    for data in metrics:
        assert data["total_steps"] == 6 and data["train_loss"] > 0 and 0 <= data["train_mean_token_accuracy"] <= 1


def test_curves_are_what_the_events_say(sdk, guarded):
    job = wait(guarded, create(sdk))
    events = sdk.fine_tuning.jobs.list_events(job["id"], limit=100)
    told = {event.data["step"]: event.data for event in events if event.type == "metrics"}
    curves = guarded.call("GET", f"/v1/fine_tuning/jobs/{job['id']}/metrics")
    assert curves["columns"]["step"] == sorted(told) and curves["step_count"] == len(told)
    for name in ("train_loss", "learning_rate", "grad_norm", "time"):
        assert curves["columns"][name] == [told[step][name] for step in sorted(told)]
    thin = guarded.call("GET", f"/v1/fine_tuning/jobs/{job['id']}/metrics?points=1")
    assert 1 <= thin["point_count"] < len(told)


def test_checkpoints_are_models_and_bases(sdk, guarded):
    job = create(sdk)
    done = wait(guarded, job)
    checkpoints = list(sdk.fine_tuning.jobs.checkpoints.list(job.id, limit=1))
    assert [one.step_number for one in checkpoints] == sorted((one.step_number for one in checkpoints), reverse=True)
    assert len(checkpoints) == 2
    first = checkpoints[-1]
    assert first.object == "fine_tuning.job.checkpoint" and first.id.startswith("ftckpt_")
    assert first.fine_tuning_job_id == job.id and first.step_number == 3 and first.metrics.train_loss > 0
    assert first.fine_tuned_model_checkpoint == f"{done['fine_tuned_model']}:ckpt-step-3"
    assert sdk.models.retrieve(first.fine_tuned_model_checkpoint).id == first.fine_tuned_model_checkpoint
    for start in (first.fine_tuned_model_checkpoint, done["fine_tuned_model"]):
        following = create(sdk, {"n_epochs": 1, "batch_size": 4, "val_split": 0}, model=start)
        assert wait(guarded, following)["status"] == "succeeded"


def test_the_result_file_is_plain_csv(sdk, guarded):
    job = create(sdk, {**QUICK, "val_split": 0.25})
    wait(guarded, job)
    (result,) = sdk.fine_tuning.jobs.retrieve(job.id).result_files
    record = sdk.files.retrieve(result)
    assert (record.purpose, record.status) == ("fine-tune-results", "processed")
    content = sdk.files.content(result)
    rows = list(csv.DictReader(io.StringIO(content.text)))
    assert {"step", "train_loss", "train_accuracy", "valid_loss", "valid_mean_token_accuracy"} <= set(rows[0])
    assert [int(row["step"]) for row in rows] == list(range(1, len(rows) + 1))
    assert len(rows) == len([e for e in sdk.fine_tuning.jobs.list_events(job.id, limit=50) if e.type == "metrics"])
    assert all(float(row["train_loss"]) > 0 for row in rows)
    assert [one.id for one in sdk.files.list(purpose="fine-tune-results")] == [result]


def test_lists_are_walked_and_filtered(sdk, guarded):
    file = upload(sdk)
    made = [create(sdk, training_file=file, metadata={"n": str(n), "even": "yes" if n % 2 == 0 else ""}).id
            for n in range(5)]
    plain = create(sdk, training_file=file).id
    jobs = sdk.fine_tuning.jobs
    assert [job.id for job in jobs.list(limit=2)] == [plain, *made[::-1]]
    page = jobs.list(limit=2, after=made[3])
    assert ([job.id for job in page.data], page.has_more) == ([made[2], made[1]], True)
    assert page.has_next_page() and not page.get_next_page().has_next_page()
    assert [job.id for job in jobs.list(metadata={"even": "yes"})] == [made[4], made[2], made[0]]
    assert [job.id for job in jobs.list(metadata={"even": "yes", "n": "2"})] == [made[2]]
    assert [job.id for job in jobs.list(metadata={"even": ""})] == [made[3], made[1]]
    assert [job.id for job in jobs.list(extra_query={"metadata": "null"})] == [plain]
    with pytest.raises(openai.BadRequestError) as error:
        jobs.list(after="ftjob-unknown")
    assert error.value.param == "after"


def test_pause_resume_cancel(sdk, guarded):
    job = create(sdk, LASTING, count=LASTING_COUNT)
    for event in sdk.fine_tuning.jobs.list_events(job.id):
        assert event.fine_tuning_job_id == job.id
    while sdk.fine_tuning.jobs.retrieve(job.id).status == "validating_files":
        time.sleep(0.02)
    paused = sdk.fine_tuning.jobs.pause(job.id)
    assert paused.status == "paused" and paused.finished_at is None
    assert sdk.fine_tuning.jobs.pause(job.id).status == "paused"
    resumed = sdk.fine_tuning.jobs.resume(job.id)
    assert resumed.status in ("queued", "running")
    cancelled = sdk.fine_tuning.jobs.cancel(job.id)
    assert cancelled.status == "cancelled"
    again = sdk.fine_tuning.jobs.cancel(job.id)
    assert (again.status, again.id) == ("cancelled", job.id)
    assert sdk.fine_tuning.jobs.retrieve(job.id).status == "cancelled"


def test_a_job_whose_data_is_bad_fails_with_the_field(sdk, guarded):
    file = sdk.files.create(file=b'{"query":"a","query":"b","tools":[],"answers":[]}\n' + lines(3), purpose="fine-tune")
    job = create(sdk, training_file=file.id)
    wait(guarded, job)
    job = sdk.fine_tuning.jobs.retrieve(job.id)
    assert job.status == "failed" and job.fine_tuned_model is None
    assert job.error.param == "training_file" and job.error.code and "line 1" in job.error.message


# ---- errors --------------------------------------------------------------------------------------------


def test_errors_are_of_their_class_and_name_the_field(sdk, guarded):
    file = upload(sdk)
    cases = [
        (openai.BadRequestError, "n_epochs", lambda: create(sdk, {"n_epochs": 0}, training_file=file)),
        (openai.BadRequestError, "learning_rate_multiplier",
         lambda: create(sdk, {"learning_rate_multiplier": -1}, training_file=file)),
        (openai.BadRequestError, "training_file", lambda: create(sdk, training_file="file-absent")),
        (openai.BadRequestError, "validation_file",
         lambda: create(sdk, training_file=file, validation_file="file-absent")),
        (openai.BadRequestError, "suffix", lambda: create(sdk, training_file=file, suffix="x" * 65)),
        (openai.BadRequestError, "seed", lambda: create(sdk, training_file=file, seed=-1)),
        (openai.BadRequestError, "metadata", lambda: create(sdk, training_file=file, metadata={"k" * 65: "v"})),
        (openai.BadRequestError, "integrations",
         lambda: create(sdk, training_file=file, integrations=[{"type": "wandb", "wandb": {"project": "p"}}])),
        (openai.BadRequestError, "method.type",
         lambda: sdk.fine_tuning.jobs.create(model="mini", training_file=file, method={"type": "dpo", "dpo": {}})),
        (openai.BadRequestError, "method.type",
         lambda: sdk.fine_tuning.jobs.create(model="mini", training_file=file,
                                             method={"type": "reinforcement", "reinforcement": {"grader": {}}})),
        (openai.BadRequestError, "limit", lambda: sdk.fine_tuning.jobs.list(limit=0)),
        (openai.NotFoundError, None, lambda: sdk.fine_tuning.jobs.retrieve("ftjob-absent")),
        (openai.NotFoundError, None, lambda: sdk.fine_tuning.jobs.cancel("ftjob-absent")),
        (openai.NotFoundError, None, lambda: sdk.fine_tuning.jobs.list_events("ftjob-absent")),
        (openai.NotFoundError, None, lambda: sdk.models.retrieve("ft:mini:org:s/x:abc:ckpt-step-10")),
        (openai.NotFoundError, None, lambda: sdk.files.content("file-absent")),
    ]
    for number, (kind, param, call) in enumerate(cases):
        with pytest.raises(kind) as error:
            call()
        assert param is None or error.value.param == param, (number, error.value)
        assert error.value.code and error.value.type and error.value.message, number
        assert error.value.request_id == error.value.response.headers["x-request-id"], number
    assert list(sdk.fine_tuning.jobs.list()) == []


def test_an_unknown_model_is_named(sdk):
    with pytest.raises((openai.BadRequestError, openai.NotFoundError)) as error:
        create(sdk, model="gpt-4o-mini")
    assert (error.value.code, error.value.param) == ("model_not_found", "model")
    assert "gpt-4o-mini" in error.value.message


@pytest.mark.parametrize("key", ["wrong", KEY[:-1], KEY + "x", "needle_ft_" + "A" * 43])
def test_a_wrong_key_is_401(guarded, key):
    with openai.OpenAI(base_url=guarded.url + "/v1", api_key=key, max_retries=2) as client:
        with pytest.raises(openai.AuthenticationError) as error:
            client.models.list()
    assert (error.value.code, error.value.type) == ("invalid_api_key", "authentication_error")
    assert error.value.body["url"].startswith("http")
    assert "www-authenticate" in error.value.response.headers


def test_a_conflict_costs_one_request(watched, sent, guarded):
    job = create(watched)
    wait(guarded, job)
    del sent[:]
    with pytest.raises(openai.ConflictError) as error:
        watched.fine_tuning.jobs.pause(job.id)
    assert error.value.response.headers["x-should-retry"] == "false"
    assert len(sent) == 1
    for call in (watched.fine_tuning.jobs.resume, watched.fine_tuning.jobs.cancel):
        del sent[:]
        with pytest.raises(openai.ConflictError):
            call(job.id)
        assert len(sent) == 1


def test_empty_bodies_and_deletes_as_the_sdk_sends_them(watched, sent, guarded):
    job = create(watched, LASTING, count=LASTING_COUNT)
    del sent[:]
    watched.fine_tuning.jobs.cancel(job.id)
    ((method, path, headers),) = sent
    assert (method, path) == ("POST", f"/v1/fine_tuning/jobs/{job.id}/cancel")
    assert (headers["content-type"], headers["content-length"]) == ("application/json", "0")


# ---- an answer that is lost ------------------------------------------------------------------------------


class Losing(httpx.HTTPTransport):
    """Does what it is asked, and loses the first answer to a POST of a job."""

    def __init__(self):
        super().__init__()
        self.lost = 0

    def handle_request(self, request):
        answer = super().handle_request(request)
        if request.url.path.endswith("/fine_tuning/jobs") and request.method == "POST" and self.lost == 0:
            self.lost += 1
            answer.read()
            answer.close()
            raise httpx.ReadError("the answer was lost", request=request)
        return answer


def test_a_create_whose_answer_was_lost_makes_one_job(guarded, sdk):
    transport = Losing()
    with openai.OpenAI(base_url=guarded.url + "/v1", api_key=KEY,
                       http_client=httpx.Client(transport=transport)) as client:
        job = create(client, training_file=upload(sdk))
    assert transport.lost == 1
    assert [one.id for one in sdk.fine_tuning.jobs.list()] == [job.id]


def test_two_creates_alike_make_two_jobs(sdk):
    file = upload(sdk)
    assert create(sdk, training_file=file).id != create(sdk, training_file=file).id


def test_an_idempotency_key_makes_one_job_over_a_restart(sdk, guarded):
    file = upload(sdk)
    headers = {"Idempotency-Key": "once"}
    first = create(sdk, training_file=file, extra_headers=headers)
    assert create(sdk, training_file=file, extra_headers=headers).id == first.id
    assert guarded.stop() == 0
    guarded.start()
    assert create(sdk, training_file=file, extra_headers=headers).id == first.id
    with pytest.raises(openai.APIStatusError) as error:
        create(sdk, {**QUICK, "n_epochs": 1}, training_file=file, extra_headers=headers)
    assert error.value.code == "idempotency_key_reused"
    assert error.value.response.headers["x-should-retry"] == "false"
    assert [one.id for one in sdk.fine_tuning.jobs.list()] == [first.id]


# ---- raw and streamed answers, and the async client ---------------------------------------------------------


def test_raw_answers_have_their_headers(sdk):
    file = upload(sdk)
    raw = sdk.files.with_raw_response.retrieve(file)
    assert raw.headers["content-type"].startswith("application/json") and raw.headers["x-request-id"]
    parsed = raw.parse()
    assert parsed.id == file and parsed._request_id == raw.headers["x-request-id"]


def test_content_is_streamed(sdk, tmp_path):
    data = lines(20000)
    file = sdk.files.create(file=("large.jsonl", data), purpose="fine-tune")
    with sdk.files.with_streaming_response.content(file.id) as answer:
        assert b"".join(answer.iter_bytes(4096)) == data
    with sdk.files.with_streaming_response.content(file.id) as answer:
        answer.stream_to_file(tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == data


def test_the_async_client_too(guarded, sdk):
    file = upload(sdk)
    made = [create(sdk, training_file=file).id for _ in range(3)]

    async def walk():
        async with openai.AsyncOpenAI(base_url=guarded.url + "/v1", api_key=KEY) as client:
            jobs = [job.id async for job in client.fine_tuning.jobs.list(limit=2)]
            content = await client.files.content(file)
            models = [model.id async for model in client.models.list()]
            return jobs, content.content, models

    jobs, content, models = asyncio.run(walk())
    assert (jobs, content) == (made[::-1], lines(12)) and "mini" in models
