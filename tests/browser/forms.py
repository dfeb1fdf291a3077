"""What the tests of forms share: controls by the names that people see, keys, files dropped and saved."""

import time

from conftest import WAIT_S
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

NAMES = """const names = (one) => [...(one.labels || [])].map((label) => label.textContent.trim())
    .concat(one.getAttribute('aria-label') || '', one.textContent.trim());"""


def labelled(page, name):
    """The control whose label, aria-label or text that is."""
    return page.until(f"a control '{name}'", lambda: page.run(
        NAMES + """return [...document.querySelectorAll('input, select, textarea, button, a, summary')]
            .find((one) => one.checkVisibility() && names(one).includes(arguments[0]))""", name))


def fill(page, name, value):
    control = labelled(page, name)
    control.send_keys(Keys.CONTROL, "a")
    control.send_keys(Keys.DELETE)
    control.send_keys(value)


def choose(page, name, words):
    """The option of a select that says so."""
    def look():
        for option in labelled(page, name).find_elements(By.TAG_NAME, "option"):
            if words in option.text:
                option.click()
                return True
        return False
    page.until(f"'{words}' in '{name}'", look)


def press(page, name):
    def push():
        control = labelled(page, name)
        page.run("arguments[0].scrollIntoView({block: 'center'})", control)
        control.click()
        return True
    page.until(f"press '{name}'", push)


def says(page, words, seconds=WAIT_S):
    page.until(f"'{words}'", lambda: words in page.run("return document.body.innerText"), seconds)


def tab_to(page, name, limit=120):
    """Tab, until the focus is on the control of that name."""
    for _ in range(limit):
        page.keys(Keys.TAB)
        if page.run(NAMES + "return names(document.activeElement).includes(arguments[0])", name):
            return
    raise AssertionError(f"Tab does not come to '{name}'; it is at {page.focused()}")


def drop(page, css, name, text):
    """A file let go over an element, as from a folder's window."""
    page.run("""const transfer = new DataTransfer();
        transfer.items.add(new File([arguments[2]], arguments[1], {type: 'application/jsonl'}));
        const zone = document.querySelector(arguments[0]);
        for (const kind of ['dragenter', 'dragover', 'drop'])
            zone.dispatchEvent(new DragEvent(kind, {bubbles: true, cancelable: true, dataTransfer: transfer}));""",
             css, name, text)


def keep_downloads(page, folder):
    folder.mkdir(exist_ok=True)
    page.tool("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})


def downloaded(page, folder, name):
    def look():
        return (folder / name).exists() and not list(folder.glob("*.crdownload"))
    page.until(f"the file {name}", look)
    time.sleep(0.05)
    return (folder / name).read_bytes()


def look_everywhere(open_page, daemon, address, words, name):
    """The page in light, in dark and on a phone: axe finds nothing serious; pictures are made."""
    for dark, phone in ((False, False), (True, False), (False, True), (True, True)):
        page = open_page(daemon, dark=dark, phone=phone).go(address)
        says(page, words)
        page.until("nothing is on its way", lambda: not page.all("[aria-busy=true]"))
        page.check_access()
        if not (dark and phone):
            page.picture(f"{name}-{'dark' if dark else 'light'}{'-phone' if phone else ''}")
