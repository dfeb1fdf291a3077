"""The whole story: a file is dropped, a job made of it and followed, and its adapter saved. Two of its pictures stand in
the README."""

import hashlib
import json

from forms import downloaded, drop, fill, keep_downloads, press, says

TOWNS = ("Bern", "Oslo", "Lima", "Rome", "Kyiv", "Cairo", "Paris", "Lagos", "Quito", "Delhi")


def line(n):
    town = TOWNS[n % len(TOWNS)]
    tools = [{"name": "get_weather", "parameters": {"city": "string"}}, {"name": "set_alarm", "parameters": {"time": "string"}}]
    wakes = n % 3 == 2
    return json.dumps({"query": f"wake me at {n % 24}" if wakes else f"is it cold in {town} today {n}", "tools": tools, "answers": [
        {"name": "set_alarm", "arguments": {"time": f"{n % 24}:00"}} if wakes else {"name": "get_weather", "arguments": {"city": town}}]}) + "\n"


def test_from_a_file_to_an_adapter(daemon, open_page, tmp_path):
    page = open_page(daemon)
    keep_downloads(page, tmp_path)
    page.go("#/")
    page.click("a", "New job")
    says(page, "Choose a file first.")
    drop(page, ".drop", "weather-and-alarms.jsonl", "".join(line(n) for n in range(80)))
    says(page, "A job takes this file.")
    fill(page, "Name", "story")
    for name, value in (("Epochs", "8"), ("Batch size", "8"), ("Learning rate", "0.01")):
        fill(page, name, value)
    says(page, "72, 9 an epoch")
    page.run("window.scrollTo(0, 0)")
    page.picture("story-new")
    press(page, "Start the job")
    page.find("h1", "story")
    page.find(".badge[data-state=succeeded]")
    job = page.run("return location.hash")

    page.follow("#/models")
    page.click(".model-name a", "story")
    page.click("a[download]", "adapter.safetensors")
    saved = downloaded(page, tmp_path, "adapter.safetensors")
    model = [one for one in daemon.call("GET", "/v1/models")["data"] if one["name"] == "story"][0]
    assert hashlib.sha256(saved).hexdigest() == model["sha256"]

    page = open_page(daemon, dark=True).go(job)
    says(page, "Device memory")
    page.until("curves are drawn", lambda: len(page.all("canvas")) > 4)
    page.picture("story-job")
