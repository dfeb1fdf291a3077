"""Home: what runs, waits and has ended, followed live; the queue put into another order by pointer and by keyboard; a
thousand finished jobs; seven tabs in a browser that opens six connections; the daemon gone and back."""

import time

import fill
import pytest
from conftest import LASTING_COUNT, lines
from selenium.webdriver import ActionChains, Keys

LONG = {"line_count": LASTING_COUNT, "n_epochs": 50}  # it runs until the test ends it
PAINT_MS = 1500  # under 200 on a machine that does nothing else
NAMES = ["first", "second", "third", "fourth"]


def create(daemon, name, **hyperparameters):
    file = daemon.upload(lines(hyperparameters.pop("line_count", 8)))
    quick = {"n_epochs": 1, "batch_size": 1, "lora_rank": 4, "lora_alpha": 8, "val_split": 0}
    return daemon.call("POST", "/v1/fine_tuning/jobs", json={
        "model": "mini", "training_file": file, "suffix": name, "hyperparameters": {**quick, **hyperparameters}})["id"]


@pytest.fixture
def busy(make_daemon):
    """One job runs, four wait."""
    daemon = make_daemon()
    daemon.running = create(daemon, "long-runner", **LONG)
    for name in NAMES:
        create(daemon, name, **LONG)
    return daemon


@pytest.fixture
def filled(make_daemon):
    """A thousand jobs have ended, one of them with the name of an attack."""
    daemon = make_daemon()
    pattern = daemon.create_job()
    daemon.wait_for_job(pattern)
    daemon.stop()
    fill.fill_jobs(daemon, pattern, 1000)
    fill.rename(daemon, pattern, "<img src=x onerror=alert(1)>")
    daemon.start()
    return daemon


def waiting(daemon):
    jobs = daemon.call("GET", "/v1/fine_tuning/jobs?status=queued,validating_files&limit=100")["data"]
    return [job["name"] for job in sorted(jobs, key=lambda job: job["queue_position"])]


def shown(page):
    return page.texts(".queue-name")


def looks_good(open_page, daemon, name, ready):
    """axe and a picture in light, in dark and on a phone."""
    for kind in ({}, {"dark": True}, {"phone": True}):
        page = open_page(daemon, **kind).go("#/")
        page.find(*ready)
        page.gone(".skeleton")
        page.picture(f"{name}-{next(iter(kind), 'light')}")
        page.check_access()


def test_an_empty_daemon_says_what_to_do_first(make_daemon, open_page):
    daemon = make_daemon()
    page = open_page(daemon)
    paints = []
    while not paints or min(paints) >= PAINT_MS and len(paints) < 10:  # the machine may do something else
        page.go()
        page.find(".connection", "Live")
        paints.append(page.run("return performance.getEntriesByName('first-contentful-paint')[0].startTime"))
    print(f"first paint after {min(paints):.0f} ms")
    assert min(paints) < PAINT_MS
    assert page.find(".first-steps h2").text == "Train your first model"
    assert "needlectl submit" in page.find(".command code").text
    looks_good(open_page, daemon, "home-empty", (".first-steps",))


def test_what_runs_is_followed_live(busy, open_page):
    page = open_page(busy).go()
    page.find(".running h3", "long-runner")
    first = page.find(".running .spread", "Step").text
    page.until("the steps count on", lambda: page.texts(".running .spread")[0] != first)
    assert page.find(".spark").get_attribute("aria-label").startswith("Training loss")
    page.until("the device is busy", lambda: "Busy" in page.texts(".device .tag"))
    page.find(".device-jobs", "long-runner")
    page.find(".missing", "cuda")
    page.check_calm(".missing")
    looks_good(open_page, busy, "home-busy", (".queue-row",))


def test_the_queue_is_put_into_another_order_by_keyboard(busy, open_page):
    page = open_page(busy).go()
    page.until("all wait", lambda: shown(page) == NAMES)
    page.run("document.querySelector('[aria-label=\"Move up third\"]').focus()")
    page.keys(Keys.ENTER)
    page.until("third is second", lambda: waiting(busy) == ["first", "third", "second", "fourth"])
    page.until("it is said", lambda: "third is now number 2 of 4" in page.run(
        "return document.getElementById('announcements').textContent"))
    page.until("its button keeps the focus", lambda: page.focused() == "Move up third")
    page.keys(Keys.SPACE)
    page.until("third is first", lambda: waiting(busy) == ["third", "first", "second", "fourth"])
    page.until("and shown so", lambda: shown(page) == waiting(busy))


def test_the_queue_is_put_into_another_order_by_dragging(busy, open_page):
    page = open_page(busy).go()
    page.until("all wait", lambda: shown(page) == NAMES)
    rows = page.all(".queue-row")
    grip = page.all(".queue-row .grip")[3]
    distance = rows[0].rect["y"] - rows[3].rect["y"]
    drag = ActionChains(page.driver).click_and_hold(grip)
    for _ in range(4):
        drag = drag.move_by_offset(0, int(distance / 4) - 2)
    drag.release().perform()
    page.until("the last is first", lambda: waiting(busy) == ["fourth", "first", "second", "third"])
    page.until("and shown so", lambda: shown(page) == waiting(busy))
    # Escape puts it back.
    grip = page.all(".queue-row .grip")[0]
    ActionChains(page.driver).click_and_hold(grip).move_by_offset(0, 150).send_keys(Keys.ESCAPE).release().perform()
    time.sleep(0.3)  # nothing may come of it
    assert waiting(busy) == ["fourth", "first", "second", "third"]
    assert shown(page) == waiting(busy)


def test_a_job_is_cancelled_after_a_question(busy, open_page):
    page = open_page(busy).go()
    page.click("[aria-label='Cancel second']")
    page.find("dialog", "Cancel second?")
    page.keys(Keys.ESCAPE)
    page.gone("dialog")
    assert waiting(busy) == NAMES
    page.click("[aria-label='Cancel second']")
    page.click("dialog button", "Cancel the job")
    page.until("it is cancelled", lambda: waiting(busy) == ["first", "third", "fourth"])
    page.find(".finished-name", "second")


def test_everything_is_reached_by_keyboard_alone(busy, open_page):
    page = open_page(busy).go()
    page.until("all wait", lambda: shown(page) == NAMES)
    seen = []
    for _ in range(60):
        page.keys(Keys.TAB)
        seen.append(page.focused())
        assert page.run("return getComputedStyle(document.activeElement).outlineStyle") != "none" or \
            page.run("return document.activeElement.matches('input[type=radio]')"), f"{seen[-1]} shows no focus"
        if seen[-1] == "Search finished jobs":
            break
    for wanted in ("Skip to the content", "New job", "Pause long-runner", "Cancel long-runner", "Move down first",
                   "Cancel fourth", "Search finished jobs"):
        assert wanted in seen, f"{wanted} is not reached: {seen}"
    assert "BODY" not in seen


def test_a_thousand_finished_jobs_are_paged_filtered_and_searched(filled, open_page):
    page = open_page(filled).go()
    page.until("the newest", lambda: len(page.texts(".finished-name")) == 20)
    assert page.texts(".finished-name a")[0] == "<img src=x onerror=alert(1)>"
    assert not page.all("main img")
    assert page.texts(".finished-name a")[1] == "run-999"
    page.click(".section nav button", "Older")
    page.until("older ones", lambda: page.texts(".finished-name a")[0] == "run-980")
    page.click(".section nav button", "Newer")
    page.until("the newest again", lambda: page.texts(".finished-name a")[1] == "run-999")
    page.click(".choice label", "Failed")
    page.until("failed ones", lambda: set(page.texts("td .badge")) == {"Failed"})
    page.find(".finished-name", "line 7: the field 'answers' is missing")
    field = page.find("[aria-label='Search finished jobs']")
    field.send_keys("RUN-12")
    page.until("those with that name", lambda: page.texts(".finished-name a") == ["run-128", "run-123"])
    field.send_keys("zz")
    page.find(".empty", "No job like that")
    field.clear()
    field.send_keys("run-12")
    page.until("them again", lambda: page.texts(".finished-name a") == ["run-128", "run-123"])
    page.click(".choice label", "All")
    page.until("of every state", lambda: len(page.texts(".finished-name a")) == 11)
    assert page.texts("#finished .count") == ["11"]
    # What is shown is in the address: a way back, a reload and whom it is sent to see the same.
    address = page.run("return location.hash")
    assert address == "#/?search=run-12"
    page.click(".finished-name a", "run-128")
    page.find("h1", "run-128")
    page.run("history.back()")
    page.until("the same jobs", lambda: len(page.texts(".finished-name a")) == 11)
    page.run("history.back()")
    page.until("the state before", lambda: page.texts(".finished-name a") == ["run-128", "run-123"])
    page.go("#/")
    for first in ("run-980", "run-960"):
        page.click(".section nav button", "Older")
        page.until("older ones", lambda: page.texts(".finished-name a")[0] == first)
    page.go(page.run("return location.hash"))
    page.find(".section nav", "41–60 of 1,001")
    assert page.texts(".finished-name a")[0] == "run-960"
    page.click(".section nav button", "Newer")
    page.until("the page before", lambda: page.texts(".finished-name a")[0] == "run-980")
    page.run("history.back()")
    page.until("and back", lambda: page.texts(".finished-name a")[0] == "run-960")
    page.go("#/?page=3&after=ftjob-that-never-was")
    page.until("the first page", lambda: page.texts(".finished-name a")[:2][-1:] == ["run-999"])
    page.expected.append("400 (Bad Request)")
    # However many there are, the page holds a page of them and answers at once.
    assert page.run("return document.querySelectorAll('*').length") < 2000
    looks_good(open_page, filled, "home-filled", (".finished-name",))


def test_seven_tabs_all_work(busy, open_page):
    page = open_page(busy).go()
    page.find(".running h3", "long-runner")
    for _ in range(6):
        page.driver.switch_to.new_window("tab")
        page.driver.get(busy.url + "/#/")
    seen = []
    for handle in page.driver.window_handles:
        page.driver.switch_to.window(handle)
        page.find(".running h3", "long-runner")
        seen.append(page.until("its connection", lambda: connection(page)))
        before = page.find(".running .spread", "Step").text
        page.until("the steps count on", lambda: page.texts(".running .spread")[0] != before)
    assert set(seen) <= {"live", "polling"}
    assert 1 <= seen.count("live") <= 3, seen


def connection(page):
    return page.run("const s = document.getElementById('connection').dataset.state; return s !== 'connecting' && s")


def test_tabs_share_streams_where_the_browser_has_no_locks(busy, open_page):
    """As over plain HTTP to another host. Each tab counts as looked at, or it would let go after a while."""
    page = open_page(busy)
    seen, scripts = [], []
    for n in range(4):
        if n:
            page.driver.switch_to.new_window("tab")
        scripts.append(page.tool("Page.addScriptToEvaluateOnNewDocument", {"source": """
            Object.defineProperty(Navigator.prototype, 'locks', {get: () => undefined});
            Object.defineProperty(Document.prototype, 'hidden', {get: () => false});
            window.addEventListener('visibilitychange', (event) => event.stopImmediatePropagation(), true)"""})["identifier"])
        page.driver.get(busy.url + "/#/")
        page.find(".running h3", "long-runner")
        seen.append(page.until("its connection", lambda: connection(page)))
    assert page.run("return navigator.locks === undefined")
    assert seen == ["live"] * 3 + ["polling"]
    before = page.find(".running .spread", "Step").text
    page.until("the steps count on", lambda: page.texts(".running .spread")[0] != before)
    # One that leaves gives its place to who looks for one next.
    page.driver.switch_to.window(page.driver.window_handles[0])
    page.tool("Page.removeScriptToEvaluateOnNewDocument", {"identifier": scripts[0]})
    page.driver.get("about:blank")
    page.driver.switch_to.window(page.driver.window_handles[-1])
    page.driver.refresh()
    page.find(".connection", "Live")


def test_a_daemon_that_goes_and_comes_back_is_told(busy, open_page):
    page = open_page(busy).go()
    page.find(".connection", "Live")
    page.expected = ["net::ERR_", "Failed to load resource"]
    busy.stop()
    page.find("#banner", "needled does not answer")
    page.picture("home-gone")
    page.click("#banner button", "Try now")
    page.find("#banner", "needled does not answer")
    busy.start()
    page.gone("#banner")
    page.find(".connection", "Live")
    first = page.find(".running .spread", "Step").text
    page.until("the steps count on", lambda: page.texts(".running .spread")[0] != first)


def test_a_page_opened_without_an_answer_comes_with_the_answer(busy, open_page):
    page = open_page(busy).go()
    page.find(".connection", "Live")
    page.expected = ["net::ERR_", "Failed to load resource"]
    busy.stop()
    page.find("#banner", "needled does not answer")
    page.follow("#/models")
    page.find("main .notice", "needled does not answer")
    assert "import" not in page.texts("main")[0]
    busy.start()
    page.find("main .base", "mini")
    page.gone("main .notice")


def test_light_and_dark_are_chosen_and_kept(page):
    page.go()
    ground = "return getComputedStyle(document.documentElement).backgroundColor"
    light = page.run(ground)
    button = page.find("#theme")
    assert button.get_attribute("aria-label") == "Theme: as the system"
    button.click()
    button.click()
    assert page.find("#theme").get_attribute("aria-label") == "Theme: dark"
    dark = page.run(ground)
    assert dark != light
    page.go()
    assert page.run(ground) == dark


def test_an_address_that_leads_nowhere_says_so(page):
    page.go("#/nonsense")
    page.find("h1", "No such page")
    page.click("main a", "Go to the home page")
    page.find("h1", "Home")
