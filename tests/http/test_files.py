"""Files through the two clients they are made for, unmodified: the OpenAI SDK and needle.platform.Platform."""

import sqlite3

import httpx
import openai
import pytest
from conftest import KEY, LASTING_COUNT, lines
from needle.platform import PlatformError

LINES = "".join('{"query":"say %d","tools":[],"answers":[]}\n' % n for n in range(3)).encode()


def write(folder, content=LINES, name="data.jsonl"):
    path = folder / name
    path.write_bytes(content)
    return path


# ---- the OpenAI SDK ------------------------------------------------------------------------------------


def test_sdk_uploads_waits_lists_reads_and_deletes(sdk, tmp_path):
    file = sdk.files.create(file=write(tmp_path).open("rb"), purpose="fine-tune")
    assert (file.object, file.bytes, file.filename, file.purpose) == ("file", len(LINES), "data.jsonl", "fine-tune")
    assert file.expires_at is None
    assert sdk.files.wait_for_processing(file.id).status == "processed"
    assert sdk.files.retrieve(file.id) == file
    assert sdk.files.content(file.id).read() == LINES
    assert [one.id for one in sdk.files.list(purpose="fine-tune")] == [file.id]
    gone = sdk.files.delete(file.id)
    assert (gone.id, gone.object, gone.deleted) == (file.id, "file", True)
    with pytest.raises(openai.NotFoundError) as error:
        sdk.files.retrieve(file.id)
    assert error.value.code == "not_found"


def test_sdk_walks_every_page_in_both_orders(sdk):
    made = [sdk.files.create(file=LINES, purpose="fine-tune").id for _ in range(5)]
    assert [one.id for one in sdk.files.list(limit=2, order="asc")] == made
    assert [one.id for one in sdk.files.list(limit=2)] == made[::-1]
    assert sdk.files.retrieve(made[0]).filename == "upload"  # bytes without a name


def test_sdk_lets_a_file_expire(sdk):
    after = {"anchor": "created_at", "seconds": 3600}
    file = sdk.files.create(file=LINES, purpose="fine-tune", expires_after=after)
    assert file.expires_at == file.created_at + 3600
    with pytest.raises(openai.BadRequestError) as error:
        sdk.files.create(file=LINES, purpose="fine-tune", expires_after={**after, "seconds": 5})
    assert (error.value.code, error.value.param) == ("invalid_expiry", "expires_after[seconds]")


def test_sdk_is_told_the_lines(sdk):
    with pytest.raises(openai.BadRequestError) as error:
        sdk.files.create(file=b"no json\n" + LINES, purpose="fine-tune")
    assert error.value.param == "file"
    assert error.value.body["lines"][0]["line"] == 1


def test_sdk_cannot_delete_what_a_job_needs(sdk):
    file = sdk.files.create(file="\n".join(lines(LASTING_COUNT)).encode(), purpose="fine-tune")
    job = sdk.fine_tuning.jobs.create(model="mini", training_file=file.id,
                                      hyperparameters={"n_epochs": 50, "batch_size": 1})
    with pytest.raises(openai.ConflictError) as error:
        sdk.files.delete(file.id)
    assert error.value.code == "file_in_use"
    sdk.fine_tuning.jobs.cancel(job.id)
    assert sdk.files.delete(file.id).deleted


# ---- Platform ------------------------------------------------------------------------------------------


def test_platform_uploads_in_three_calls(platform, requests_made, tmp_path):
    file = platform.upload(str(write(tmp_path, name="ä b.jsonl")))
    assert [(method, key) for method, _, key in requests_made] == [("POST", True), ("PUT", False), ("POST", True)]
    assert requests_made[0][1] == "/v1/files"
    assert requests_made[2][1].endswith("/complete")
    assert file["id"].startswith("file-") and file["id"] not in requests_made[2][1]
    assert (file["filename"], file["bytes"]) == ("ä b.jsonl", len(LINES))
    assert platform.file(file["id"]) == file


def test_platform_downloads_by_link(platform, requests_made, tmp_path):
    file = platform.upload(str(write(tmp_path)))
    target = tmp_path / "there" / "copy.jsonl"
    del requests_made[:]
    platform.download_file(file["id"], str(target))
    assert target.read_bytes() == LINES
    assert [(method, key) for method, _, key in requests_made] == [("GET", True), ("GET", False)]
    assert not list(target.parent.glob("*.part"))


def test_platform_searches_and_deletes(platform, tmp_path):
    for name in ("Alpha.jsonl", "beta.jsonl"):
        platform.upload(str(write(tmp_path, name=name)))
    (found,) = platform.files(search="alpha")
    assert found["filename"] == "Alpha.jsonl"
    assert len(platform.files()) == 2 and len(platform.files(limit=1)) == 1
    platform.delete_file(found["id"])
    assert platform.files(search="alpha") == []
    with pytest.raises(PlatformError) as error:
        platform.file(found["id"])
    assert (error.value.status, error.value.code) == (404, "not_found")


def test_platform_is_told_what_is_wrong_with_the_bytes(platform, tmp_path):
    with pytest.raises(PlatformError) as error:
        platform.upload(str(write(tmp_path, b"no json\n")))
    assert (error.value.status, error.value.code) == (400, "invalid_upload")
    assert "line 1" in str(error.value)


def reserve(guarded, size=len(LINES)):
    answer = httpx.post(guarded.url + "/v1/files", json={"name": "a.jsonl", "bytes": size},
                        headers={"Authorization": "Bearer " + KEY})
    assert answer.status_code == 201
    return answer.json()


def complete(guarded, reservation):
    return httpx.post(f"{guarded.url}/v1/files/{reservation['id']}/complete",
                      headers={"Authorization": "Bearer " + KEY})


def code(answer):
    return answer.status_code, answer.json()["error"]["code"]


def test_calls_at_a_wrong_time_have_stable_codes(guarded):
    reservation = reserve(guarded)
    assert code(complete(guarded, reservation)) == (409, "invalid_upload")
    assert code(httpx.put(reservation["url"], content=LINES[:-1])) == (400, "invalid_upload")
    assert code(httpx.put(reservation["url"], content=LINES + b"\n")) == (400, "invalid_upload")
    assert httpx.put(reservation["url"], content=LINES).status_code == 200
    assert code(httpx.put(reservation["url"], content=LINES)) == (409, "invalid_upload")
    assert complete(guarded, reservation).status_code == 201
    assert code(complete(guarded, reservation)) == (409, "invalid_upload")


def test_a_reservation_that_is_over_is_not_found(guarded):
    reservation = reserve(guarded)
    with sqlite3.connect(guarded.folder / "state/needled.db") as database:
        database.execute("UPDATE reservations SET expires_unix_s = 1")
    assert code(httpx.put(reservation["url"], content=LINES)) == (404, "not_found")
    assert code(complete(guarded, reservation)) == (404, "not_found")


def test_a_link_is_for_its_own_method_and_path(guarded):
    reservation = reserve(guarded)
    other = reserve(guarded)
    assert code(httpx.put(reservation["url"].replace(reservation["id"], other["id"]), content=LINES)) == (
        403, "invalid_link")
    assert code(httpx.put(reservation["url"].replace("size=", "size=1"), content=LINES)) == (403, "invalid_link")
    assert "signature" not in (guarded.folder / "log").read_text()
