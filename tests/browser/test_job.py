"""A job's page: followed live, over a reload and over a restart of the daemon without a gap in its curve; paused, gone on,
cancelled, tried again; what it leaves fetched; a failure explained; a curve of 100,000 steps; several jobs over each
other; by pointer and by keyboard."""

import time
import urllib.parse

import fill
import httpx
import pytest
from selenium.webdriver import Keys
from selenium.webdriver.support.ui import Select
from test_home import LONG, create

DRAWN_S = 20  # of a long curve, which takes a second on a machine that does nothing else
STEPS = "return document.querySelector('.chart').chart.rows.map((row) => row[0])"
RANGE = "return document.querySelector('.chart').chart.graph.xAxisRange()"
WINDOW = "return document.querySelector('.chart').chart.rows.filter(([x]) => x >= arguments[0] && x <= arguments[1]).length"


@pytest.fixture
def own(make_daemon):
    return make_daemon()


def go(page, job_id):
    page.go(f"#/jobs/{job_id}")
    page.find("main h1")
    return page


def steps(page):
    return page.run("return Boolean(document.querySelector('.chart')?.chart.rows.length)") and page.run(STEPS) or []


def whole(numbers):
    """1, 2, 3 and so on."""
    return bool(numbers) and numbers == list(range(1, len(numbers) + 1))


def test_a_job_is_followed_over_a_reload_and_a_restart_without_a_gap(make_daemon, open_page):
    own = make_daemon(step_ms=20)  # else a fast machine makes all of them before the daemon is stopped
    job = create(own, "weather", line_count=30, n_epochs=40)  # 1200 steps: as many as are drawn one by one
    page = go(open_page(own), job)
    page.find("h1", "weather")
    page.until("it begins", lambda: len(steps(page)) > 20)
    page.driver.refresh()
    page.until("it goes on after a reload", lambda: len(steps(page)) > 40)
    assert whole(steps(page))
    page.expected = ["net::ERR_", "Failed to load resource"]
    own.stop()
    page.find("#banner", "needled does not answer")
    before = len(steps(page))
    assert whole(steps(page))
    own.start()
    page.gone("#banner")
    page.until("it goes on after a restart", lambda: len(steps(page)) > before + 20)
    assert whole(steps(page))
    page.find(".log", "Training goes on after step")
    own.call("POST", f"/v1/fine_tuning/jobs/{job}/cancel")
    page.find(".job-head .badge", "Cancelled")


def test_a_job_is_paused_goes_on_and_is_cancelled(own, open_page):
    job = create(own, "router", **LONG)
    page = go(open_page(own), job)
    page.until("it begins", lambda: len(steps(page)) > 5)
    page.click(".job-actions button", "Pause")
    page.find(".job-head .badge", "Paused")
    assert own.job(job)["status"] == "paused"
    page.click(".job-actions button", "Resume")
    page.until("it goes on", lambda: own.job(job)["status"] in ("queued", "running"))
    page.find(".job-head .badge", "Running")
    page.click(".job-actions button", "Cancel")
    page.find("dialog", "Cancel router?")
    page.click("dialog button", "Cancel the job")
    page.find(".job-head .badge", "Cancelled")
    assert own.job(job)["status"] == "cancelled"
    retry = page.find(".job-actions a", "Retry with changes")
    assert urllib.parse.urlsplit(retry.get_attribute("href")).fragment == f"/new?from={job}"


def test_what_a_job_leaves_is_fetched(own, open_page):
    job = create(own, "calendar", line_count=20, n_epochs=3, val_split=0.1)
    done = own.wait_for_job(job)
    assert done["status"] == "succeeded"
    page = go(open_page(own), job)
    for name, start in (("Adapter", None), ("Curve (CSV)", b"step,train_loss")):
        link = page.find(".job-actions a", name).get_attribute("href")
        answer = httpx.get(link, follow_redirects=True)
        assert answer.status_code == 200 and len(answer.content) > 100
        assert start is None or answer.content.startswith(start)
    page.until("three checkpoints", lambda: len(page.all(".checkpoints-scroll tbody tr")) == 3)
    link = page.find("[aria-label='Download the adapter of step 18']").get_attribute("href")
    assert httpx.get(link).status_code == 200
    page.until("one of them is the best", lambda: page.texts(".tag-good") == ["best"])
    page.until("curves of the end", lambda: len(steps(page)) == done["total_steps"])
    page.find(".now", f"Step {done['total_steps']} of {done['total_steps']}")
    titles = page.texts(".chart:not([hidden]) h3")
    assert titles == ["Loss", "Learning rate", "Gradient norm", "Tokens per second", "Accuracy", "Device memory"]


def test_a_failure_is_explained_with_its_lines(own, open_page):
    file = own.upload(['{"query":"say","tools":[],"answers":[]}', '{"query":"say","tools":[]}',
                       '{"query":"<b>say</b>","tools":[],"answers":[],"answers":[]}'], name="<img src=x onerror=alert(1)>.jsonl")
    job = own.call("POST", "/v1/fine_tuning/jobs", json={"model": "mini", "training_file": file, "metadata": {
        "<img src=x onerror=alert(1)>": "<script>alert(1)</script>"}})["id"]
    assert own.wait_for_job(job)["status"] == "failed"
    for kind in ({}, {"dark": True}, {"phone": True}):
        page = go(open_page(own, **kind), job)
        page.find(".notice[data-kind=error]", "It failed.")
        page.until("each bad line", lambda: len(page.all(".notice tbody tr")) == 2)
        page.find(".facts", "<img src=x onerror=alert(1)>.jsonl")
        page.find(".facts", "<script>alert(1)</script>")
        assert not page.all("main img, main script, main b")
        page.picture(f"job-failed-{next(iter(kind), 'light')}")
        page.check_access()


def test_jobs_are_laid_over_each_other_and_looked_at_closely(own, open_page):
    jobs = {name: create(own, name, line_count=20, n_epochs=5, val_split=0.1, learning_rate=rate)
            for name, rate in (("slow", 0.0005), ("fast", 0.005))}
    for job in jobs.values():
        own.wait_for_job(job)
    page = go(open_page(own), jobs["slow"])
    page.until("its curve", lambda: len(steps(page)) == 90)
    choice = page.find("[aria-label='Lay another job over it']")
    choice.click()
    page.until("the other job is offered", lambda: len(Select(choice).options) == 2)
    Select(choice).select_by_value(jobs["fast"])
    page.find(".chip", "fast")
    page.until("both are named", lambda: "fast, training" in page.texts(".chart .legend")[0])
    names = page.run("return document.querySelector('.chart').chart.series.map((one) => one.name)")
    assert names == ["slow, training", "slow, validation", "fast, training", "fast, validation"]
    page.click("[aria-label='Take fast away']")
    page.gone(".chip")

    last = "return document.querySelector('.chart').chart.rows.map((row) => row[1]).at(-1)"
    raw = page.run(last)
    page.run("const s = document.getElementById('smoothing'); s.value = 0.9; s.dispatchEvent(new Event('input'))")
    page.until("it is smoothed over what it was", lambda: page.run(
        "return document.querySelector('.chart').chart.series.map((one) => one.name)")[:2] ==
        ["training, as it is", "training"])
    smoothed = page.run("return document.querySelector('.chart').chart.rows.map((row) => row[2]).at(-1)")
    assert page.run(last) == raw and smoothed != raw
    page.click("label[for=logscale]")
    page.until("it is logarithmic", lambda: page.run(
        "return document.querySelector('.chart').chart.graph.getOption('logscale')"))

    # By keyboard: nearer, further to the right, everything again.
    page.run("document.querySelector('.chart-place').focus()")
    whole_range = page.run(RANGE)
    page.keys("+", "+", Keys.ARROW_RIGHT)
    near = page.run(RANGE)
    assert near[1] - near[0] < (whole_range[1] - whole_range[0]) / 2
    other = page.run("return [...document.querySelectorAll('.chart')][1].chart.graph.xAxisRange()")
    assert other == near, "all charts show the same steps"
    page.find("button", "Show all steps")
    page.keys("0")
    page.gone(".tools button")


def test_a_curve_of_100000_steps_is_drawn_at_once_and_whole_where_one_looks(own, open_page):
    job = own.create_job()
    own.wait_for_job(job)
    own.stop()
    fill.fill_steps(own, job, 100_000)
    own.start()
    page = open_page(own)
    times = []
    while not times or min(times) >= DRAWN_S and len(times) < 5:  # the machine may do something else
        began = time.monotonic()
        go(page, job)
        numbers = page.until("the curve", lambda: steps(page))
        times.append(time.monotonic() - began)
    print(f"the curve of 100,000 steps after {min(times):.2f} s, of {len(numbers)} points")
    assert min(times) < DRAWN_S
    assert len(numbers) <= 4000 and numbers[0] == 1 and numbers[-1] > 99_000
    page.picture("job-long-light")
    page.run("document.querySelector('.chart').chart.group.zoom([50000, 50400])")
    page.until("every step where one looks", lambda: page.run(WINDOW, 50000, 50400) == 401)
    page.click("button", "Show all steps")
    page.until("thin again", lambda: page.run(WINDOW, 50000, 50400) < 50)
    spent = page.run("""const chart = document.querySelector('.chart').chart; const times = [];
        for (let i = 0; i < 10; i++) {
            const t = performance.now();
            chart.graph.updateOptions({file: chart.rows});
            times.push(performance.now() - t);
        }
        return Math.min(...times)""")
    print(f"drawn anew in {spent:.1f} ms")
    assert spent < 500


def test_the_page_looks_good_and_is_read_aloud(own, open_page):
    job = create(own, "a-name-as-long-as-a-name-may-be-so-that-it-shows-where-it-breaks", **LONG)
    own.running = job
    for kind in ({}, {"dark": True}, {"phone": True}):
        page = go(open_page(own, **kind), job)
        page.until("its curve", lambda: len(steps(page)) > 30)
        page.picture(f"job-running-{next(iter(kind), 'light')}")
        page.check_calm(".chart")
        page.check_access()
    page.until("the chart says what it shows", lambda: "steps" in (
        page.find(".chart-place").get_attribute("aria-label") or ""))


def test_the_jobs_of_a_sweep_stand_side_by_side(own, open_page):
    file = own.upload('{"query":"say %d","tools":[],"answers":[]}' % n for n in range(20))
    sweep = own.call("POST", "/v1/fine_tuning/sweeps", json={"model": "mini", "training_file": file, "hyperparameters": {
        "n_epochs": 1, "batch_size": 4, "lora_rank": [2, 4], "learning_rate": [0.001, 0.01]}})
    for job in sweep["jobs"]:
        own.wait_for_job(job["id"])
    page = go(open_page(own), sweep["jobs"][1]["id"])
    page.until("each of them", lambda: len(page.all("section[aria-labelledby=sweep] tbody tr")) == 4)
    assert page.texts("section[aria-labelledby=sweep] .is-this td")[:3] == ["This job", "2", "0.01"]
    page.until("one of them is the best", lambda: page.texts("section[aria-labelledby=sweep] .tag-good") == ["best"])
    page.check_access()
    page.picture("job-sweep-light")


def test_a_job_that_is_not_there_says_so(page):
    page.expected = ["status of 404"]
    page.go("#/jobs/ftjob-none")
    page.find("h1", "No such job")
    page.find(".notice", "ftjob-none")
    page.find("a", "All jobs")


def test_an_address_that_no_name_makes_leads_nowhere(page):
    page.go("#/jobs/%")
    page.find("h1", "No such page")


def test_warnings_of_lines_name_their_lines(own, open_page):
    file = own.upload(['{"query":"ok","tools":[],"answers":[]}', '{"query":"","tools":[],"answers":[]}'] * 4)
    job = own.call("POST", "/v1/fine_tuning/jobs", json={"model": "mini", "training_file": file, "hyperparameters": {
        "n_epochs": 1, "batch_size": 4, "lora_rank": 4, "val_split": 0}})["id"]
    own.wait_for_job(job)
    page = go(open_page(own), job)
    page.find(".notice[data-kind=warn]", "the query is empty")
    assert page.texts(".notice[data-kind=warn] tbody td:first-child") == ["2", "4", "6", "8"]
    page.check_access()
