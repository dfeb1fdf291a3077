"""A new job: the file, what is found in it, what the model sees, the settings, the estimate, other ways to ask."""

import json
import re
import shutil
import subprocess

import pytest
from conftest import OUT
from forms import choose, drop, fill, labelled, look_everywhere, press, says, tab_to
from selenium.webdriver.common.keys import Keys

CALL = '{"query":"is it cold in town %d","tools":[{"name":"get_weather"}],"answers":[{"name":"get_weather","arguments":{"city":"Bern"}}]}'
EVIL = "<img src=x onerror=window.broken=1>.jsonl"


def lines(count, start=0):
    return "".join(CALL % n + "\n" for n in range(start, start + count))


@pytest.fixture(scope="module")
def file(daemon):
    return daemon.upload((CALL % n for n in range(40)), "towns.jsonl")


def on_form(page, file):
    page.go(f"#/new?file={file}&model=mini")
    page.until("the estimate", lambda: steps(page))
    return page


def steps(page):
    """Of the estimate, or None while there is none."""
    found = re.search(r"^([\d,]+), [\d,]+ an epoch$", page.run("return document.body.innerText"), re.M)
    return int(found[1].replace(",", "")) if found else None


def newest_jobs(daemon, count=1):
    return daemon.call("GET", f"/v1/fine_tuning/jobs?limit={count}")["data"]


def test_a_dropped_file_is_read_and_shown(page):
    page.go("#/new")
    says(page, "Choose a file first.")
    drop(page, ".drop", EVIL, lines(30))
    says(page, "A job takes this file.")
    says(page, "Lines by their length in tokens")
    learned = page.until("the target", lambda: page.run(
        "return [...document.querySelectorAll('.run-learned')].map((one) => one.textContent).join('')"))
    assert '<tool_call>[{"name":"get_weather","arguments":{"city":"Bern"}}]' in learned
    assert "town 0" in "".join(page.texts(".run-read"))
    press(page, "The next line")
    page.until("the second line", lambda: "town 1" in "".join(page.texts(".run-read")))
    assert EVIL in page.run("return document.getElementById('new-file').textContent")
    assert not page.all("main img") and page.run("return window.broken === undefined")


def test_lines_that_no_rules_take_are_named(page):
    page.expected.append("400 (Bad Request)")
    page.go("#/new")
    says(page, "Choose a file first.")
    drop(page, ".drop", "bad.jsonl", lines(2) + "not JSON\n" + lines(1) + '{"query": 1,\n')
    page.find(".drop ~ div .notice")
    table = page.texts(".drop ~ div .table tbody tr")
    assert [row.split()[0] for row in table] == ["3", "5"]


def test_lines_that_strict_rules_refuse_are_named_in_the_report(page):
    page.go("#/new")
    says(page, "Choose a file first.")
    drop(page, ".drop", "half.jsonl", lines(2) + '{"tools":[],"answers":[]}\n')
    says(page, "A job would refuse this file.")
    assert page.find(".problems tbody tr").text.startswith("3")
    says(page, "see what is in it")
    assert not labelled(page, "Start the job").is_enabled()


def test_the_estimate_follows_the_settings(daemon, file, page):
    on_form(page, file)
    assert steps(page) == 9  # 36 of 40 lines, 12 fours an epoch by 16
    fill(page, "Epochs", "5")
    page.until("more epochs, more steps", lambda: steps(page) == 15)
    fill(page, "Batch size", "1")
    page.until("smaller batches, more steps", lambda: steps(page) == 180)


def test_a_setting_that_cannot_be_is_told_at_its_field(file, page):
    on_form(page, file)
    fill(page, "Epochs", "0")
    says(page, '"0" is not a whole number from 1 to 50')
    assert not labelled(page, "Start the job").is_enabled()
    fill(page, "Epochs", "2")
    fill(page, "Name", "<img src=x onerror=window.broken=1>")
    says(page, "make a name")
    assert not labelled(page, "Start the job").is_enabled() and not page.all("main img")


def test_a_number_that_the_daemon_would_refuse_is_told_in_its_terms(file, page):
    on_form(page, file)
    for name, wrong, words in (("Learning rate", "1e31", '"1e31" is not a number above 0 and at most 1e30'),
                               ("Learning rate", "1e-3x", '"1e-3x" is not a number: write it as 0.001 or 1e-3'),
                               ("Epochs", "0x10", '"0x10" is not a whole number: write it as 16'),
                               ("Epochs", "51", '"51" is not a whole number from 1 to 50')):
        fill(page, name, wrong)
        says(page, words)
        assert not labelled(page, "Start the job").is_enabled()
        fill(page, name, "1")
        page.until("it is right", lambda: words not in page.texts("body")[0])


def test_what_was_typed_is_kept_until_it_is_sent(daemon, file, page):
    on_form(page, file)
    fill(page, "Name", "kept")
    fill(page, "Epochs", "1, 2")
    page.follow("#/models")
    page.find("h1", "Models")
    page.run("history.back()")
    says(page, "This is what you entered before.")
    values = "return ['new-suffix', 'hyper-n_epochs', 'new-file'].map((id) => document.getElementById(id)?.value)"
    assert page.run(values) == ["kept", "1, 2", file]
    page.driver.refresh()
    says(page, "Start 2 jobs")
    assert page.run(values) == ["kept", "1, 2", file]
    fill(page, "Epochs", "1")
    page.until("one job", lambda: steps(page) == 3)
    press(page, "Start the job")
    page.find("h1", "kept")
    page.run("history.back()")
    page.until("a new form", lambda: page.run(values) == ["", "", file])


def test_an_upload_goes_on_in_sight_and_can_be_cancelled(daemon, page):
    def speed(bytes_per_s):
        page.tool("Network.emulateNetworkConditions", {"offline": False, "latency": 0, "downloadThroughput": -1,
                                                       "uploadThroughput": bytes_per_s})
    page.go("#/new")
    says(page, "Choose a file first.")
    before = len(daemon.call("GET", "/v1/files?limit=100")["data"])
    speed(20_000)
    drop(page, ".drop", "slow.jsonl", lines(8000))
    says(page, "Cancel the upload")
    page.check_access()
    page.follow("#/models")
    page.find(".transfer", "slow.jsonl: ")
    page.check_access()
    page.picture("upload-light")
    page.click(".transfer button", "Cancel the upload")
    page.gone(".transfer")
    speed(100_000)
    page.follow("#/new")
    says(page, "Choose a file first.")
    drop(page, ".drop", "away.jsonl", lines(800))
    page.follow("#/models")
    page.find(".transfer", "away.jsonl")
    speed(-1)
    page.find(".transfer", "away.jsonl is uploaded.")
    page.click(".transfer a", "Make a job of it")
    page.until("it is chosen", lambda: "away.jsonl" in page.run(
        "return document.getElementById('new-file')?.selectedOptions[0]?.textContent || ''"))
    page.gone(".transfer")
    assert len(daemon.call("GET", "/v1/files?limit=100")["data"]) == before + 1


def test_a_list_that_is_still_typed_is_no_mistake(file, page):
    on_form(page, file)
    fill(page, "Epochs", "1, 2,")
    says(page, "Start 2 jobs")
    fill(page, "Epochs", ",")
    says(page, "is not a whole number")


def test_a_priority_that_cannot_be_is_told_at_its_field(file, page):
    on_form(page, file)
    press(page, "Where and when")
    for wrong in ("101", "1.5"):
        fill(page, "Priority", wrong)
        says(page, "A whole number from -100 to 100 is needed.")
        page.until("it is not started", lambda: not labelled(page, "Start the job").is_enabled())
    fill(page, "Priority", "5")
    page.until("it can be started", lambda: labelled(page, "Start the job").is_enabled())


def test_a_file_let_go_beside_its_place_opens_nothing(page):
    page.go("#/new")
    says(page, "drop it here")
    assert page.run("""const transfer = new DataTransfer();
        transfer.items.add(new File(['{}'], 'data.jsonl'));
        return ['dragover', 'drop'].map((kind) => document.querySelector('main h1').dispatchEvent(
            new DragEvent(kind, {bubbles: true, cancelable: true, dataTransfer: transfer})))""") == [False, False]


def test_several_values_are_a_sweep(daemon, file, page):
    on_form(page, file)
    fill(page, "Epochs", "1, 2")
    fill(page, "LoRA rank", "2, 4")
    press(page, "Start 4 jobs")
    page.find("h1", "Home")
    made = newest_jobs(daemon, 4)
    assert sorted((job["hyperparameters"]["n_epochs"], job["hyperparameters"]["lora_rank"]) for job in made) == [
        (1, 2), (1, 4), (2, 2), (2, 4)]
    assert len({job["sweep_id"] for job in made}) == 1


def test_a_job_is_made_by_keyboard_alone(daemon, file, page):
    page.go(f"#/new?model=mini")
    says(page, "Choose a file first.")
    tab_to(page, "Uploaded file")
    page.keys("towns")  # a select goes to the option that begins so
    says(page, "A job takes this file.")
    tab_to(page, "Name")
    page.keys("by-keys")
    tab_to(page, "Epochs")
    page.keys("1")
    page.until("the estimate", lambda: steps(page) == 3)
    tab_to(page, "Start the job")
    page.keys(Keys.ENTER)
    page.find("h1", "by-keys")
    assert newest_jobs(daemon)[0]["user_provided_suffix"] == "by-keys"


def test_the_same_job_from_a_shell(daemon, file, page, tmp_path):
    on_form(page, file)
    fill(page, "Name", "as-shown")
    fill(page, "Epochs", "1")
    fill(page, "Learning rate", "0.0003")
    press(page, "The same from a shell")
    snippet = lambda: page.run("return document.querySelector('.snippet code').textContent")
    page.until("the command has the settings", lambda: "0.0003" in snippet())
    (tmp_path / "needlectl").symlink_to(OUT / "needlectl")
    for kind in ("curl", "needlectl"):
        page.click(".snippets label", kind)
        command = page.until(kind, lambda: snippet() if kind in snippet() else None)
        before = newest_jobs(daemon)[0]["id"]
        told = subprocess.run(["timeout", "60", "bash", "-c", command], capture_output=True, text=True,
                              env={"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)})
        job = newest_jobs(daemon)[0]
        assert job["id"] != before, told.stdout + told.stderr
        assert (job["user_provided_suffix"], job["hyperparameters"]["n_epochs"], job["hyperparameters"]["learning_rate"],
                job["model"], job["training_file"]) == ("as-shown", 1, 0.0003, "mini", file)
    page.click(".snippets label", "Python")
    code = page.until("Python", lambda: snippet() if "import openai" in snippet() else None)
    compile(code, "snippet", "exec")
    assert '"n_epochs": 1' in code and 'suffix="as-shown"' in code
    assert shutil.which("curl")


def test_a_job_is_made_again_with_its_values(daemon, page):
    job = daemon.job(daemon.create_job(8, n_epochs=4, learning_rate=0.0002))
    page.go(f"#/new?from={job['id']}")
    page.until("its epochs", lambda: page.run("return document.getElementById('hyper-n_epochs')?.value") == "4")
    assert page.run("return document.getElementById('new-file').value") == job["training_file"]
    assert float(page.run("return document.getElementById('hyper-learning_rate').value")) == 0.0002
    page.until("the estimate", lambda: steps(page) == 32)


def test_the_form_can_be_used_by_everybody(daemon, file, open_page):
    look_everywhere(open_page, daemon, f"#/new?file={file}&model=mini", "an epoch", "new")
    look_everywhere(open_page, daemon, "#/new", "Choose a file first.", "new-empty")
