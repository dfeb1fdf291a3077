"""The models: what there is, where one comes from, its file, and going on from it."""

import hashlib

import httpx
import pytest
from forms import downloaded, fill, keep_downloads, look_everywhere, press, says

LINE = '{"query":"say %d","tools":[],"answers":[]}'
QUICK = {"n_epochs": 2, "batch_size": 4, "lora_rank": 4, "lora_alpha": 8, "val_split": 0.25}


def train(daemon, suffix, model="mini", **more):
    file = daemon.upload((LINE % n for n in range(8)), f"{suffix}.jsonl")
    body = {"model": model, "training_file": file, "suffix": suffix, "hyperparameters": QUICK, **more}
    return daemon.wait_for_job(daemon.call("POST", "/v1/fine_tuning/jobs", json=body)["id"])


@pytest.fixture(scope="module")
def trained(daemon):
    """A model and one that went on from it."""
    first = train(daemon, "first")
    second = train(daemon, "second-with-a-name-as-long-as-names-may-be-which-is-sixty-four--",
                   first["fine_tuned_model"])
    return first, second


def test_models_are_found_and_checkpoints_shown_when_asked_for(trained, page):
    page.go("#/models")
    page.find(".model-name a", "first")
    assert not [one for one in page.texts(".model-name a") if "-step-" in one]
    press(page, "With checkpoints")
    page.find(".model-name a", "first-step-")
    fill(page, "Search models", "second")
    page.until("only the second", lambda: all("second" in one for one in page.texts(".model-name a")))
    fill(page, "Search models", "no such thing")
    says(page, "Nothing found")


def test_a_model_tells_its_origin_and_gives_its_file(trained, daemon, page, tmp_path):
    first, second = trained
    keep_downloads(page, tmp_path)
    page.go(f"#/models/{second['fine_tuned_model']}")
    page.find("h1", "second")
    assert page.texts(".chain li")[:2] == ["mini", first["fine_tuned_model"]]
    digest = daemon.call("GET", f"/v1/files/{second['training_files'][0]}")["sha256"]
    model = daemon.call("GET", f"/v1/models/{second['fine_tuned_model']}")
    assert page.run("return [...document.querySelectorAll('.digest')].map((one) => one.textContent)") == [
        digest, model["sha256"]]
    page.click("a[download]", "adapter.safetensors")
    assert hashlib.sha256(downloaded(page, tmp_path, "adapter.safetensors")).hexdigest() == model["sha256"]
    page.click("a", "Go on from it")
    page.find("h1", "New job")
    chosen = page.until("the model is chosen", lambda: page.run("return document.getElementById('new-model')?.value"))
    assert chosen == second["fine_tuned_model"]


def test_a_model_is_deleted_after_a_question(daemon, page):
    job = train(daemon, "doomed")
    page.go(f"#/models/{job['fine_tuned_model']}")
    press(page, "Delete")
    page.click("dialog button", "Back")
    assert httpx.get(f"{daemon.url}/v1/models/{job['fine_tuned_model']}").status_code == 200
    press(page, "Delete")
    page.click("dialog button", "Delete")
    page.find("h1", "Models")
    assert httpx.get(f"{daemon.url}/v1/models/{job['fine_tuned_model']}").status_code == 404


def test_a_model_that_is_gone_is_said(daemon, page):
    page.expected.append("404 (Not Found)")
    page.go("#/models/ft:none")
    page.find("h1", "No such model")


def test_models_can_be_read_by_everybody(trained, daemon, open_page):
    look_everywhere(open_page, daemon, "#/models", "second", "models")
    page = open_page(daemon, phone=True).go("#/models")
    says(page, "second")
    assert page.run("const t = document.querySelector('.models-table .table-scroll'); return t.scrollWidth <= t.clientWidth")
    look_everywhere(open_page, daemon, f"#/models/{trained[1]['fine_tuned_model']}", "Where it comes from", "model")
