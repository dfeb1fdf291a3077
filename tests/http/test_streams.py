"""Event streams through stock clients: httpx-sse and sseclient-py."""

import json
import threading
import time

import httpx
import pytest
import requests
import sseclient
from httpx_sse import connect_sse

KEEPALIVE_S = 10


def path_of(job_id):
    return f"/v1/fine_tuning/jobs/{job_id}/events?stream=true"


def with_httpx(url, last_id=None):
    """Yields (id, type, data, retry)."""
    headers = {"Last-Event-ID": last_id} if last_id else {}
    with httpx.Client(timeout=120) as client, connect_sse(client, "GET", url, headers=headers) as source:
        source.response.raise_for_status()
        for event in source.iter_sse():
            yield event.id, event.event, event.data, event.retry


def with_sseclient(url, last_id=None):
    headers = {"Accept": "text/event-stream"}
    if last_id:
        headers["Last-Event-ID"] = last_id
    with requests.get(url, stream=True, headers=headers, timeout=120) as answer:
        answer.raise_for_status()
        for event in sseclient.SSEClient(answer).events():
            yield event.id, event.event, event.data, event.retry


readers = pytest.mark.parametrize("read", [with_httpx, with_sseclient])


def check_job_events(events, job_id, first=1):
    """Whole, in order, once each, each one JSON object of that job."""
    assert [int(event[0]) for event in events] == list(range(first, first + len(events)))
    for number, kind, data, _ in events:
        event = json.loads(data)
        assert event["number"] == int(number) and event["type"] == kind
        assert event["fine_tuning_job_id"] == job_id


@readers
def test_a_job_is_followed_to_its_end(daemon, read):
    job = daemon.create_job()
    events = list(read(daemon.url + path_of(job)))  # ends by itself
    check_job_events(events, job)
    assert [event[1] for event in events].count("metrics") == 8
    assert events[-1][1] == "done"
    assert daemon.job(job)["status"] == "succeeded"


def test_the_first_event_says_how_long_to_wait_before_coming_back(daemon):
    job = daemon.create_job()
    events = list(with_httpx(daemon.url + path_of(job)))
    assert 2000 <= events[0][3] < 4000
    assert all(event[3] is None for event in events[1:])


@readers
def test_a_reader_that_comes_back_goes_on_where_it_was(daemon, read):
    job = daemon.create_job(line_count=30)
    events, last = [], None
    while not events or events[-1][1] != "done":
        for event in read(daemon.url + path_of(job), last):
            events.append(event)
            last = event[0]
            if len(events) % 7 == 0:
                break  # and is gone
    check_job_events(events, job)


def test_who_has_read_all_of_it_is_sent_home(daemon):
    job = daemon.create_job()
    last = list(with_sseclient(daemon.url + path_of(job)))[-1][0]
    assert httpx.get(daemon.url + path_of(job), headers={"Last-Event-ID": last}).status_code == 204


@readers
def test_one_stream_tells_of_all_jobs(daemon, read):
    newest = daemon.call("GET", "/v1/events?limit=1")["data"]
    start = newest[0]["id"] if newest else "0"
    jobs = [daemon.create_job(), daemon.create_job()]
    events, done = [], set()
    for event in read(f"{daemon.url}/v1/events?stream=true&after={start}"):
        events.append(event)
        if event[1] == "done":
            done.add(json.loads(event[2])["fine_tuning_job_id"])
        if done >= set(jobs):
            break
    rows = [int(event[0]) for event in events]
    assert rows == sorted(set(rows))
    for event in events:
        assert json.loads(event[2])["id"] == f"ftevent-{event[0]}"
    for job in jobs:
        own = [json.loads(event[2]) for event in events if json.loads(event[2])["fine_tuning_job_id"] == job]
        assert [event["number"] for event in own] == list(range(1, len(own) + 1))


@readers
def test_silence_brings_no_events(daemon, read):
    """Keep-alives come after an event with an id, which is when they are taken for events by mistake."""
    seen, created = [], []

    def create():
        created.append(daemon.create_job())

    daemon.wait_for_job(daemon.create_job())
    newest = daemon.call("GET", "/v1/events?limit=2")["data"][-1]["id"]
    later = threading.Timer(KEEPALIVE_S + 3, create)
    later.start()
    started = time.monotonic()
    for event in read(f"{daemon.url}/v1/events?stream=true&after={newest}"):
        seen.append(event)
        if len(seen) == 2:
            break
    later.join()
    assert time.monotonic() - started > KEEPALIVE_S
    assert seen[0][1] == "done"
    assert json.loads(seen[1][2])["fine_tuning_job_id"] == created[0] and seen[1][1] == "state"
    daemon.wait_for_job(created[0])


@readers
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_restart_in_the_middle_loses_and_repeats_nothing(make_daemon, read, end):
    daemon = make_daemon()
    job = daemon.create_lasting_job()
    events, last = [], None

    def listen(until):
        nonlocal last
        for event in read(daemon.url + path_of(job), last):
            events.append(event)
            last = event[0]
            if until is not None and len(events) == until:
                getattr(daemon, end)()
                until = None

    if end == "stop":
        listen(12)  # a stopped daemon ends the stream as a stream ends
    else:
        with pytest.raises((httpx.HTTPError, requests.RequestException)):
            listen(12)
    assert len(events) >= 12 and events[-1][1] != "done"
    daemon.start()
    assert daemon.job(job)["status"] != "cancelled"
    httpx.post(f"{daemon.url}/v1/fine_tuning/jobs/{job}/cancel").raise_for_status()
    listen(None)
    check_job_events(events, job)
    assert events[-1][1] == "done"
