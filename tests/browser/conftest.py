"""What the tests of tests/browser share: the daemon of tests/support/python and a real browser on its pages.

    daemon, make_daemon, guarded   as tests/support/python/fixtures.py has them
    page          a browser's window on `daemon`: light, a screen of 1360 by 900
    open_page     a factory: page on another daemon, dark, or a phone's

At the end of each test its pages must have asked no other origin for anything and left no error in the console.
"""

import base64
import json
import pathlib
import shutil
import sys
import time
import urllib.parse

import pytest
from axe_core_python.selenium import Axe
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support/python"))
from daemon import LASTING, LASTING_COUNT, OUT, ROOT, Daemon, lines  # noqa: E402, F401: found where the line before points to
from fixtures import daemon, guarded, make_daemon  # noqa: E402, F401

PICTURES = OUT / "screenshots"
WAIT_S = 120  # of what comes at once on a machine that does nothing else
SCREEN = {"width": 1360, "height": 900, "deviceScaleFactor": 1, "mobile": False}
PHONE = {"width": 360, "height": 640, "deviceScaleFactor": 2, "mobile": True}  # the smallest in use


@pytest.fixture(scope="session")
def driver():
    options = Options()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                     "--disable-background-networking", "--disable-component-update", "--no-first-run", "--lang=en-US",
                     "--window-size=1360,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.set_script_timeout(WAIT_S)
    yield driver
    driver.quit()


class Page:
    """A window of the browser on a daemon's pages."""

    def __init__(self, driver, daemon, dark, phone):
        self.driver = driver
        self.daemon = daemon
        self.expected = []  # parts of console errors that the test causes on purpose
        self.requested = set()
        self.window = driver.current_window_handle
        self.tool("Emulation.setDeviceMetricsOverride", PHONE if phone else SCREEN)
        self.tool("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"}]})

    def tool(self, command, arguments=None):
        return self.driver.execute_cdp_cmd(command, arguments or {})

    def go(self, address="#/"):
        """To a page, whole and anew."""
        self.driver.get("about:blank")
        self.driver.get(self.daemon.url + "/" + address)
        return self

    def follow(self, address):
        """To a page as a link leads there."""
        self.run("location.hash = arguments[0]", address)
        return self

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def all(self, css):
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def texts(self, css):
        return self.run("return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText)", css)

    def until(self, what, look, seconds=WAIT_S):
        """The first true answer of look."""
        end = time.monotonic() + seconds
        answer = None
        while time.monotonic() < end:
            try:
                answer = look()
            except StaleElementReferenceException:
                answer = None
            if answer:
                return answer
            time.sleep(0.05)
        self.picture("failed")
        raise AssertionError(f"{what}: not within {seconds} s; last {answer!r}; the page says {self.texts('body')}")

    def find(self, css, text=None):
        """The visible element, when it is there; text is a part of what it says or of its name."""
        def look():
            for element in self.all(css):
                if element.is_displayed() and (text is None or text in element.text or
                                               text in (element.get_attribute("aria-label") or "")):
                    return element
            return None
        return self.until(f"{css} {text or ''}", look)

    def click(self, css, text=None):
        def press():
            element = self.find(css, text)
            self.run("arguments[0].scrollIntoView({block: 'center'})", element)
            element.click()
            return True
        return self.until(f"click {css} {text or ''}", press)

    def gone(self, css):
        self.until(f"no {css}", lambda: not any(e.is_displayed() for e in self.all(css)))

    def keys(self, *keys):
        action = webdriver.ActionChains(self.driver)
        for key in keys:
            action.send_keys(key)
        action.perform()

    def focused(self):
        """The name of what has the focus."""
        return self.run("const e = document.activeElement;"
                        "return e.getAttribute('aria-label') || e.innerText || e.id || e.tagName")

    def picture(self, name):
        PICTURES.mkdir(parents=True, exist_ok=True)
        size = self.tool("Page.getLayoutMetrics")["cssContentSize"]
        answer = self.tool("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": {
            "x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 4000), "scale": 1}})
        (PICTURES / f"{name}.png").write_bytes(base64.b64decode(answer["data"]))

    def check_access(self):
        """axe finds nothing serious, and the page is not wider than the window."""
        found = Axe().run(self.driver, options={"resultTypes": ["violations"]})["violations"]
        bad = [f"{one['id']} ({one['impact']}): {one['help']}: {[node['html'][:200] for node in one['nodes'][:4]]}"
               for one in found if one["impact"] in ("serious", "critical")]
        assert not bad, "\n".join(bad)
        # a phone's window grows with a page that is too wide: its own width is the root's
        widths = self.run("const root = document.documentElement; return [root.scrollWidth, root.clientWidth]")
        assert widths[0] <= widths[1], f"the page is {widths[0]} wide in a window of {widths[1]}"

    def check_calm(self, css):
        """Nothing jumped while the page came up, up to what css names: once in a few times, since where the machine does
        something else, parts that come together come one by one."""
        moved = [self.moved()]
        while moved[-1] >= 0.02 and len(moved) < 6:
            self.driver.refresh()
            self.find(css)
            moved.append(self.moved())
        assert moved[-1] < 0.02, f"what was seen moved by {moved} of the window"

    def moved(self):
        return self.run("""return new Promise((resolve) => {
            let sum = 0;
            new PerformanceObserver((list) => list.getEntries().forEach((one) => {
                if (!one.hadRecentInput) sum += one.value; })).observe({type: 'layout-shift', buffered: true});
            setTimeout(() => resolve(sum), 200); })""")

    def read_requests(self):
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = urllib.parse.urlsplit(message["params"]["request"]["url"])
                self.requested.add(f"{url.scheme}://{url.netloc}")
        return self.requested

    def check_end(self):
        foreign = {one for one in self.read_requests() if one.startswith("http")} - {self.daemon.url}
        assert not foreign, f"other origins were asked: {foreign}"
        said = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        bad = [one for one in said if not any(part in one for part in self.expected)]
        assert not bad, "in the console:\n" + "\n".join(bad)


@pytest.fixture
def open_page(driver):
    """Pages of one test share the browser's one window; the last opened holds. Their ends are checked before their
    daemons stop: ask for this fixture after make_daemon's."""
    made = []

    def make(daemon, dark=False, phone=False):
        if made:
            made[-1].check_end()
        made.append(Page(driver, daemon, dark, phone))
        return made[-1]

    driver.get_log("browser"), driver.get_log("performance")
    yield make
    for handle in driver.window_handles[1:]:
        driver.switch_to.window(handle)
        driver.close()
    driver.switch_to.window(driver.window_handles[0])
    if made:
        made[-1].check_end()
        driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": made[-1].daemon.url, "storageTypes": "all"})
    driver.get("about:blank")


@pytest.fixture
def page(open_page, daemon):
    return open_page(daemon)
