"""The search page in a real browser: typing, filters, keys, hostile documents."""

from __future__ import annotations

import importlib.util
import shutil
import time
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("selenium")

from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from binocle import Retriever

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # of selenium
    pytest.mark.skipif(not shutil.which("chromedriver"), reason="needs chromium and chromium-driver"),
]
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --window-size=1200,900"
)
HOSTILE = [
    "<script>window.ran = 1</script>",
    "<img src=x onerror='window.ran = 1'>",
    "<svg onload='window.ran = 1'>",
    "<iframe srcdoc='<script>parent.ran = 1</script>'></iframe>",
    "<a href='javascript:window.ran = 1'>click</a>",
    "<style>body { display: none }</style>",
    "</mark></li></ol><h1 id=query>stolen</h1>",
    "<base href='https://evil.example/'>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<form action='https://evil.example/'><button>send</button></form>",
    "<object data='https://evil.example/'></object>",
    "<link rel=stylesheet href='https://evil.example/x.css'>",
    "&lt;script&gt;window.ran = 1&lt;/script&gt;",
    "${window.ran = 1} {{constructor.constructor('window.ran = 1')()}}",
    "\u202egnp.exe\u202c and \u2066more",
    "\x1b]0;title\x07 and \x00 nothing",
    "__proto__ constructor toString",
    "<details open ontoggle='window.ran = 1'>",
    "<input autofocus onfocus='window.ran = 1'>",
    "data:text/html,<script>window.ran = 1</script>",
]


@pytest.fixture
def browser(tmp_path):
    options = webdriver.ChromeOptions()
    for flag in [*FLAGS.split(), f"--user-data-dir={tmp_path / 'profile'}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    yield driver
    driver.quit()


def until(value, seconds=20):
    """Wait for something to be true, and return it."""
    end = time.monotonic() + seconds
    while not (result := value()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return result


def hits(browser):
    return browser.execute_script(
        "return [...document.querySelectorAll('#hits .cite button')].map(node => node.innerText)"
    )


def type_query(browser, text):
    browser.find_element(By.ID, "query").clear()
    browser.find_element(By.ID, "query").send_keys(text)


def press(browser, *keys):
    for key in keys:
        browser.switch_to.active_element.send_keys(key)


def test_results_come_as_one_types_and_the_address_has_the_state(browser, serving, retriever):
    expected = [hit.path for hit in retriever.search("cancel a task", 20)]
    with serving(retriever) as address:
        browser.get(address)
        type_query(browser, "cancel a task")
        until(lambda: hits(browser) == expected)
        marks = {mark.text.lower() for mark in browser.find_elements(By.CSS_SELECTOR, "#hits mark")}
        assert {"cancel", "task"} <= marks
        assert browser.current_url.endswith("?q=cancel+a+task")
        browser.get(browser.current_url)  # as someone else opens it
        assert until(lambda: hits(browser)) == expected
        chip = until(lambda: [c for c in browser.find_elements(By.CSS_SELECTOR, "button.chip") if "csv 1" in c.text])[0]
        chip.click()
        until(lambda: set(hits(browser)) == {"data/prices.csv"})
        assert "type=csv" in browser.current_url and chip.get_attribute("aria-pressed") == "true"
        browser.back()
        until(lambda: hits(browser) == expected)
        assert browser.get_log("browser") == []


def test_the_keyboard_alone_is_enough(browser, serving, retriever):
    with serving(retriever) as address:
        browser.get(address)
        type_query(browser, "cancel a task")
        until(lambda: hits(browser))
        press(browser, Keys.ARROW_DOWN, "w")
        assert "by meaning" in browser.find_element(By.CSS_SELECTOR, "#hits li:first-child dl").text
        press(browser, Keys.ENTER)
        until(lambda: "Timeouts" in browser.find_element(By.ID, "reader-text").text)
        assert "cancel()" in browser.find_element(By.CSS_SELECTOR, "#reader-text mark").text
        press(browser, Keys.ESCAPE)
        until(lambda: not browser.find_element(By.ID, "reader").is_displayed())
        first = hits(browser)[0]
        press(browser, "s")
        until(
            lambda: (
                "similar=" in browser.current_url
                and f"Passages like {first}" in browser.find_element(By.ID, "note").text
            )
        )
        press(browser, "/")
        assert browser.switch_to.active_element.get_attribute("id") == "query"
        assert browser.get_log("browser") == []


def test_hostile_documents_run_nothing_and_load_nothing(browser, serving, tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "hostile", model=tiny_model)
    retriever.add(
        [
            {"id": f"{number}{text[:40]}", "title": text, "text": f"# {text}\n\nship {text}"}
            for number, text in enumerate(HOSTILE)
        ]
    )
    with serving(retriever) as address:
        browser.get(f"{address}/?q=ship&map=1")
        shown = until(lambda: hits(browser))
        assert len(shown) >= 10
        until(lambda: browser.find_elements(By.CSS_SELECTOR, "#folders .chip"))
        browser.execute_script("spots.forEach((_, number) => goTo(number))")
        for number in range(len(shown)):
            node = browser.find_elements(By.CSS_SELECTOR, "#hits li")[number]
            node.find_element(By.CSS_SELECTOR, "[data-act=why]").click()
            node.find_element(By.CSS_SELECTOR, "[data-act=open]").click()
            until(lambda: len(browser.find_element(By.ID, "reader-text").text) > 3)
            browser.find_element(By.ID, "close").click()
        assert browser.execute_script("return window.ran") is None
        elements = browser.execute_script(
            "return [...document.querySelectorAll('#hits *, #reader *, #map *')].map(node => node.tagName.toLowerCase())"
        )
        assert set(elements) <= set("li div button span mark dl dt dd h2 pre canvas p ul".split())
        requests = browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
        assert all(name.startswith(address) for name in requests)
        assert not {"\u202e", "\u2066", "\x1b"} & set(browser.find_element(By.ID, "hits").text)
        assert browser.get_log("browser") == []


def test_the_map_lights_up_hits_and_opens_passages_by_keyboard_and_pointer(browser, serving, retriever):
    count = len(retriever.snapshot().sorted_ids)
    with serving(retriever) as address:
        browser.get(address)
        type_query(browser, "cancel a task")
        until(lambda: hits(browser))
        browser.find_element(By.ID, "map-on").click()
        until(lambda: browser.execute_script("return shown.some(hit => hit.position)"))
        assert "map=1" in browser.current_url
        chart = browser.find_element(By.ID, "chart")
        label = until(lambda: chart.get_attribute("aria-label"))
        assert label.startswith(f"{count} passages, near ones of like meaning; {len(hits(browser))} found ones")
        dots = browser.execute_script(
            "const box = $('chart'), pen = box.getContext('2d').getImageData(0, 0, box.width, box.height).data;"
            "return new Set(Array.from({length: pen.length / 4}, (_, n) => pen.slice(4 * n, 4 * n + 3).join())).size"
        )
        assert dots > 3
        spot = browser.find_element(By.ID, "spot")
        browser.execute_script("$('chart').focus()")
        press(browser, Keys.ARROW_DOWN)
        assert spot.text.startswith(f"Found at rank 1: {hits(browser)[0]}:")
        before = spot.text
        press(browser, Keys.ARROW_LEFT, Keys.ARROW_RIGHT, Keys.ARROW_UP)
        assert spot.text != before
        press(browser, Keys.HOME, Keys.ENTER)
        until(
            lambda: "cancel()" in "".join(m.text for m in browser.find_elements(By.CSS_SELECTOR, "#reader-text mark"))
        )
        press(browser, Keys.ESCAPE)
        until(lambda: not browser.find_element(By.ID, "reader").is_displayed())
        press(browser, Keys.HOME)
        x, y, path = browser.execute_script("return [...spots.at(-1).at, spots.at(-1).hit.path]")
        box = chart.rect
        ActionChains(browser).move_to_element_with_offset(
            chart, round(x - box["width"] / 2), round(y - box["height"] / 2)
        ).click().perform()
        until(lambda: path in browser.find_element(By.ID, "reader-title").text)
        press(browser, Keys.ESCAPE)
        folder = next(
            each for each in browser.find_elements(By.CSS_SELECTOR, "#folders button") if "notes" in each.text
        )
        folder.click()
        until(lambda: all(path.startswith("notes/") for path in hits(browser)))
        assert browser.find_element(By.CSS_SELECTOR, "#folders [aria-pressed=true]").text.startswith("notes")
        assert browser.get_log("browser") == []


@pytest.mark.parametrize("width", [1200, 360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_state_of_the_page_passes_axe(scheme, width, browser, serving, retriever):
    package = importlib.util.find_spec("axe_playwright_python")
    if package is None:
        pytest.skip("needs pip install --no-deps axe-playwright-python, which contains axe-core")
    axe = Path(package.origin).with_name("axe.min.js").read_text("utf-8")
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)

    def violations():
        result = browser.execute_async_script("axe.run().then(arguments[0])")
        assert len(result["passes"]) > 10
        return [(rule["id"], node["html"]) for rule in result["violations"] for node in rule["nodes"]]

    with serving(retriever) as address:
        browser.get(address)
        browser.execute_script(axe)
        assert violations() == []
        type_query(browser, "cancel a task")
        until(lambda: hits(browser))
        press(browser, Keys.ARROW_DOWN, "w")  # with its stages
        assert violations() == []
        press(browser, Keys.ENTER)
        until(lambda: "Timeouts" in browser.find_element(By.ID, "reader-text").text)
        assert violations() == []
        press(browser, Keys.ESCAPE)
        browser.find_element(By.ID, "map-on").click()
        until(lambda: browser.find_element(By.ID, "chart").get_attribute("aria-label"))
        assert violations() == []
        type_query(browser, "asdfqwerzxcv blorptang")
        until(lambda: not browser.find_elements(By.CSS_SELECTOR, "#hits mark") and hits(browser))
        assert violations() == []


def test_the_page_works_below_a_path_of_another_application(browser, serving, retriever):
    fastapi = pytest.importorskip("fastapi")
    app = fastapi.FastAPI()
    with serving(retriever, inside=(app, "/inner")) as address:
        browser.get(f"{address}/inner/?q=bread&index=notes")
        until(lambda: hits(browser))
        assert browser.current_url.startswith(f"{address}/inner/?q=bread")
        assert browser.get_log("browser") == []


def test_a_token_is_asked_for_where_one_is_needed(browser, serving, retriever):
    import hashlib

    from binocle.retriever.servers.http.access import Access, Token

    rules = Access(tokens=(Token(hashlib.sha256(b"a-long-enough-token").digest()),))
    with serving(retriever, access=rules) as address:
        browser.get(f"{address}/?q=bread")
        until(lambda: browser.find_element(By.ID, "key").is_displayed())
        browser.find_element(By.ID, "token").send_keys("a-long-enough-token", Keys.ENTER)
        assert until(lambda: hits(browser))
        assert "token" not in browser.current_url


def test_a_passage_of_a_pdf_has_a_link_that_opens_the_file_at_its_page(
    browser, tmp_path, tiny_model, serving, pdf_file
):
    (tmp_path / "docs/a b").mkdir(parents=True)
    (tmp_path / "docs/a b/ship #1.pdf").write_bytes(pdf_file("The ship sails at night."))
    (tmp_path / "docs/ship.md").write_text("The ship sails at day.\n")
    retriever = Retriever.open(tmp_path / "docs", model=tiny_model)
    retriever.sync()
    with serving(retriever) as address:
        browser.get(f"{address}/?q=ship")
        (link,) = until(lambda: browser.find_elements(By.CSS_SELECTOR, "#hits .cite a"))
        assert link.text == "PDF, page 1"
        assert link.get_attribute("href") == f"{address}/files/a%20b/ship%20%231.pdf#page=1"
        kind = browser.execute_script(
            "return fetch(arguments[0]).then(answer => answer.headers.get('Content-Type'))", link.get_attribute("href")
        )
        assert kind == "application/pdf"
