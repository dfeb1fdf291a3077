"""Signing in with the key once, what a key may see, and the administrator's page."""

import httpx
from fixtures import KEY
from forms import drop, fill, labelled, look_everywhere, press, says, tab_to
from selenium.webdriver.common.keys import Keys

REFUSED = "401 (Unauthorized)"  # the browser tells each refused call to the console


def sign_in(page, key=KEY):
    fill(page, "API key", key)
    press(page, "Sign in")


def test_the_key_is_asked_for_once_and_leads_to_where_one_wanted(guarded, open_page):
    page = open_page(guarded).go("#/models")
    says(page, "This needled asks for an API key")
    sign_in(page)
    page.find("h1", "Models")
    says(page, "needle-3")
    page.go("#/settings")  # a new load has the cookie
    says(page, "Signed in")
    assert page.run("return document.cookie") == ""
    cookie = [one for one in page.driver.get_cookies() if one["name"].startswith("needled_session")][0]
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and KEY not in cookie["value"]


def test_a_wrong_key_is_told_beside_the_field(guarded, open_page):
    page = open_page(guarded).go()
    page.expected.append(REFUSED)
    sign_in(page, "not-a-key")
    says(page, "This key is none of this server's")
    assert labelled(page, "API key").get_attribute("aria-invalid") == "true"
    sign_in(page)
    page.find("h1", "Home")


def test_signing_in_needs_no_mouse(guarded, open_page):
    page = open_page(guarded).go()
    page.until("the field has the focus", lambda: page.run("return document.activeElement.id") == "key")
    page.keys(KEY, Keys.ENTER)
    page.find("h1", "Home")
    page.follow("#/settings")
    tab_to(page, "Sign out")
    page.keys(Keys.ENTER)
    says(page, "This needled asks for an API key")
    page.go("#/models")
    says(page, "This needled asks for an API key")


def test_signing_out_ends_copies_of_the_cookie_and_clears_other_tabs(guarded, open_page):
    page = open_page(guarded).go("#/new")
    sign_in(page)
    fill(page, "Name", "half-typed")
    first = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    page.driver.get(guarded.url + "/#/models")
    says(page, "needle-3")
    page.run("window.fetch = () => new Promise(() => {})")  # it hears of nothing by a call
    cookies = {one["name"]: one["value"] for one in page.driver.get_cookies()}
    assert httpx.get(guarded.url + "/v1/devices", cookies=cookies).status_code == 200
    page.driver.switch_to.window(first)
    page.follow("#/settings")
    press(page, "Sign out")
    says(page, "This needled asks for an API key")
    assert httpx.get(guarded.url + "/v1/devices", cookies=cookies).status_code == 401
    assert page.run("return Object.keys(sessionStorage)") == []
    page.driver.switch_to.window(page.driver.window_handles[-1])
    page.until("it is cleared", lambda: "needle-3" not in page.run("return document.body.textContent"))
    assert page.run("return location.hash") == "#/signin?next=%23%2Fmodels"
    page.go("#/models")  # signing in leads each tab to where it was
    page.driver.switch_to.window(first)
    sign_in(page)
    page.find("h1", "Home")
    page.driver.switch_to.window(page.driver.window_handles[-1])
    page.find("h1", "Models")


def test_what_others_made_is_shown_without_what_would_be_refused(guarded, open_page):
    model = guarded.wait_for_job(guarded.create_job())["fine_tuned_model"]
    running, waiting = [guarded.create_lasting_job() for _ in range(2)]
    key = guarded.call("POST", "/v1/keys", json={"name": "maker", "scope": "submit"})
    guarded.key = key["key"]
    own = guarded.create_job(line_count=60, n_epochs=50)
    guarded.key = KEY
    page = open_page(guarded).go()
    sign_in(page, key["key"])
    page.until("both wait", lambda: len(page.all(".queue-row")) == 2)
    page.find(".running h3")
    offered = """return [...document.querySelectorAll('main button')]
        .filter((one) => one.checkVisibility({visibilityProperty: true}))
        .map((one) => one.getAttribute('aria-label') || one.innerText)
        .filter((one) => /^(Pause|Cancel|Move|Resume|Delete)/.test(one))"""
    name = guarded.job(own)["name"]
    assert page.run(offered) == [f"{word} {name}" for word in ("Move up", "Move down", "Cancel")]
    for address, ready, wanted in ((f"#/jobs/{running}", ".badge", []), (f"#/jobs/{waiting}", ".badge", []),
                                   (f"#/jobs/{own}", ".badge", ["Pause", "Cancel"]),
                                   (f"#/models/{model}", ".digest", [])):
        page.follow(address)
        page.find(ready)
        assert page.run(offered) == wanted, address
    page.find("a", "Go on from it")


def test_a_key_that_only_reads_is_offered_nothing_else(guarded, open_page):
    guarded.wait_for_job(guarded.create_job())
    running, waiting = [guarded.create_lasting_job() for _ in range(2)]
    key = guarded.call("POST", "/v1/keys", json={"name": "viewer", "scope": "read"})
    page = open_page(guarded).go()
    sign_in(page, key["key"])
    page.find(".queue-row")
    page.check_access()
    page.picture("home-read-only")
    looks = ("Newer", "Older", "Adapter", "Curve (CSV)", "Download", "Copy")
    for address, ready in (("#/", ".queue-row"), (f"#/jobs/{running}", ".badge"), (f"#/jobs/{waiting}", ".badge"),
                           ("#/models", ".base"), ("#/models/mini", ".facts")):
        page.follow(address)
        page.find(ready)
        offered = page.run("""return [...document.querySelectorAll('main button, main a.button, .nav a')]
            .filter((one) => one.checkVisibility({visibilityProperty: true}))
            .map((one) => one.getAttribute('aria-label') || one.innerText)""")
        assert not [one for one in offered if one not in ("Home", "Models", "Settings") and
                    not one.startswith(looks)], (address, offered)
    assert not [one for one in page.all(".grip") if one.is_displayed()]


def test_an_upload_without_a_session_leads_to_signing_in(guarded, open_page):
    page = open_page(guarded).go("#/new")
    page.expected.append(REFUSED)
    sign_in(page)
    says(page, "Data and base")
    page.driver.delete_all_cookies()
    drop(page, ".drop", "data.jsonl", '{"query":"a","tools":[],"answers":[]}\n')
    says(page, "This needled asks for an API key")


def test_a_revoked_key_ends_its_session(guarded, open_page):
    key = guarded.call("POST", "/v1/keys", json={"name": "laptop", "scope": "read"})
    page = open_page(guarded).go()
    page.expected.append(REFUSED)
    sign_in(page, key["key"])
    page.find("h1", "Home")
    page.follow("#/new")
    says(page, "it looks at everything and makes no jobs")
    guarded.call("DELETE", f"/v1/keys/{key['id']}")
    page.follow("#/models")
    says(page, "This needled asks for an API key")


def test_a_page_of_another_origin_changes_nothing_with_the_cookie(guarded, open_page):
    page = open_page(guarded).go()
    sign_in(page)
    page.find("h1", "Home")
    cookies = {one["name"]: one["value"] for one in page.driver.get_cookies()}
    for headers in ({}, {"X-Needled-Request": "1", "Origin": "http://127.0.0.1:1"}):
        answer = httpx.post(guarded.url + "/v1/keys", json={"name": "x"}, cookies=cookies, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "origin_not_allowed")


def test_an_administrator_makes_and_revokes_keys(guarded, open_page):
    page = open_page(guarded).go("#/settings")
    sign_in(page)
    says(page, "No key yet.")
    fill(page, "Name of the new key", "<img src=x onerror=alert(1)>")
    press(page, "Make a key")
    secret = page.find("#new-key").text
    assert secret.startswith("needle_ft_")
    assert httpx.get(guarded.url + "/v1/devices", headers={"Authorization": f"Bearer {secret}"}).status_code == 200
    assert not page.all("main img")
    press(page, "Revoke the key <img src=x onerror=alert(1)>")
    page.click("dialog button", "Revoke")
    page.find(".table .tag", "revoked")
    assert httpx.get(guarded.url + "/v1/devices", headers={"Authorization": f"Bearer {secret}"}).status_code == 401


def test_the_first_key_closes_the_daemon_and_this_browser_goes_on(make_daemon, open_page):
    daemon = make_daemon()
    page = open_page(daemon).go("#/settings")
    says(page, "No API key has been made yet")
    fill(page, "Name of the new key", "mine")
    press(page, "Make a key")
    says(page, "This browser is signed in with this one")
    assert httpx.get(daemon.url + "/v1/devices").status_code == 401
    page.follow("#/models")
    says(page, "needle-3")


def test_signin_and_settings_can_be_read_by_everybody(guarded, open_page):
    look_everywhere(open_page, guarded, "#/signin", "No key yet?", "signin")
    page = open_page(guarded).go()
    sign_in(page)
    page.find("h1", "Home")
    for name in ("laptop", "a-key-with-a-long-name-" + 70 * "w"):
        guarded.call("POST", "/v1/keys", json={"name": name, "scope": "submit", "jobs_max": 3, "bytes_max": 5 * 10**9})
    look_everywhere(open_page, guarded, "#/settings", "laptop", "settings")
