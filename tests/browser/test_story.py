"""The whole story: a file is dropped, a job made of it and followed, and its adapter saved."""

import hashlib

from forms import downloaded, drop, fill, keep_downloads, press, says
from test_new import lines


def test_from_a_file_to_an_adapter(daemon, page, tmp_path):
    keep_downloads(page, tmp_path)
    page.go("#/")
    page.click("a", "New job")
    says(page, "Choose a file first.")
    drop(page, ".drop", "story.jsonl", lines(24))
    says(page, "A job takes this file.")
    fill(page, "Name", "story")
    fill(page, "Epochs", "2")
    fill(page, "Batch size", "4")
    page.until("it may start", lambda: page.find(".new-submit").is_enabled())
    says(page, "an epoch")
    press(page, "Start the job")
    page.find("h1", "story")
    page.find(".badge[data-state=succeeded]")
    page.follow("#/models")
    page.click(".model-name a", "story")
    page.click("a[download]", "adapter.safetensors")
    saved = downloaded(page, tmp_path, "adapter.safetensors")
    model = [one for one in daemon.call("GET", "/v1/models")["data"] if one["name"] == "story"][0]
    assert hashlib.sha256(saved).hexdigest() == model["sha256"]
