"""The page in a real browser: it sorts, filters and opens a cell, alone and offline."""

import json
import pathlib
import shutil

import pytest
import records as made_up

from ffjax import records, report

webdriver = pytest.importorskip(
    "selenium.webdriver", reason="selenium is not installed"
)
from selenium.webdriver.chrome import service as chrome  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no chromium with chromedriver on this machine"
)
EVIL = "mine:<script>document.title='run'</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(flag)
    options.set_capability(
        "goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"}
    )
    driver = webdriver.Chrome(options=options, service=chrome.Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("grid")
    made = made_up.quick_grid()
    made.append(made_up.record(made_up.spec(goodness=EVIL), accuracy=85.0))
    made += [made_up.record(seed=seed, accuracy=80.0 + seed) for seed in (5, 6)]
    for one in made:
        records.write(workdir, one)
    return report.write(workdir, figures=False)


@pytest.fixture(params=[1280, 390])
def width(request):
    return request.param


@pytest.fixture
def opened(width, browser, page):
    """The page at a width; afterwards, nothing was complained of or asked for."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {
            "width": width,
            "height": 900,
            "deviceScaleFactor": 1,
            "mobile": width < 500,
        },
    )
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(page.as_uri())
    yield browser
    assert browser.get_log("browser") == []
    messages = [
        json.loads(entry["message"])["message"]
        for entry in browser.get_log("performance")
    ]
    asked = {
        message["params"]["request"]["url"].split("#")[0]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    }
    assert asked - {"data:,"} == {page.as_uri()}
    assert browser.title == "Forward-Forward: ours beside the paper's"


def _rows(browser):
    return browser.execute_script(
        "return [...document.querySelectorAll('#all tbody tr')].filter(r => !r.hidden)"
        ".map(r => [...r.cells].map(c => c.textContent.trim().replace(/\\s+/g, ' ')))"
    )


def _column(browser, name):
    heads = browser.execute_script(
        "return [...document.querySelectorAll('#all thead th')].map(h => h.innerText)"
    )
    return [head.strip(" ▲▼\n") for head in heads].index(name)


def _sort(browser, name):
    column = _column(browser, name)
    script = "document.querySelectorAll('#all .sort')[arguments[0]].click()"
    browser.execute_script(script, column)
    return [row[column] for row in _rows(browser)]


def _until(browser, check):
    """Details are unpacked a moment after the page has been read."""
    return WebDriverWait(browser, 20).until(lambda _: check())


def _open_first(browser):
    button = browser.find_element("css selector", "#all tr:not([hidden]) button.open")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    dialog = browser.find_element("id", "cell")
    _until(browser, dialog.is_displayed)
    return dialog


def test_a_column_sorts_both_ways(opened):
    def means(texts):
        return [float(text.split(" ")[0]) for text in texts]

    first = means(_sort(opened, "accuracy"))
    assert len(first) == 19
    assert first == sorted(first, reverse=True)
    second = means(_sort(opened, "accuracy"))
    assert second == sorted(second)
    names = _sort(opened, "goodness")
    assert names[0] == "burstiness"
    assert names[-1] == "top-k k = 2 %"
    # Unknown numbers come last, whichever way.
    assert _sort(opened, "paper")[-1] == "\u2013"
    assert _sort(opened, "paper")[-1] == "\u2013"


def test_the_filter_keeps_what_has_every_word(opened):
    field = opened.find_element("id", "filter")
    field.send_keys("FFCL moment")
    found = _rows(opened)
    assert len(found) == 4
    assert all(row[0].startswith("moment") and "FFCL" in row for row in found)
    assert opened.find_element("id", "count").text == "4 of 19"
    field.clear()
    field.send_keys("nothing like it")
    assert _rows(opened) == []


def test_a_cell_opens_with_its_confusion_matrix(opened):
    opened.find_element("id", "filter").send_keys("entmax standard")
    dialog = _open_first(opened)
    assert "standard, entmax alpha = 1.5, GELU" in dialog.text
    matrix = dialog.find_elements("css selector", ".confusion tbody tr")
    assert len(matrix) == 10
    assert "Pullover" in dialog.find_element("css selector", ".confusion").text
    assert len(dialog.find_elements("css selector", "svg")) == 2
    inside = "return arguments[0].scrollWidth <= arguments[0].clientWidth + 1"
    assert opened.execute_script(inside, dialog)
    opened.find_element("id", "close").click()
    assert not dialog.is_displayed()


def test_another_seed_can_be_chosen(opened):
    opened.find_element("id", "filter").send_keys("60 epochs burstiness")
    dialog = _open_first(opened)
    assert "Seed 5: 85.00" in dialog.text
    dialog.find_elements("css selector", "option")[1].click()
    assert "Seed 6: 86.00" in dialog.text


def test_a_name_with_html_is_shown_and_not_run(opened):
    opened.find_element("id", "filter").send_keys("mine")
    ((name, *_),) = _rows(opened)
    assert name == EVIL
    assert EVIL in _open_first(opened).text
    assert opened.find_elements("css selector", "img") == []


def _drawn(browser, selector):
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])]"
        ".map(f => f.querySelectorAll('svg path').length)",
        selector,
    )


def test_the_page_fits_its_width_and_draws_its_charts_when_they_are_seen(opened, width):
    wide = "return document.documentElement.scrollWidth"
    assert opened.execute_script(wide) <= width
    assert len(_drawn(opened, "details:not([open]) .chart[data-chart]")) > 0
    _until(opened, lambda: all(_drawn(opened, "details[open] .chart[data-chart]")))
    assert not any(_drawn(opened, "details:not([open]) .chart[data-chart]"))
    opened.execute_script(
        "document.querySelectorAll('details').forEach(d => d.open = 1)"
    )
    _until(opened, lambda: all(_drawn(opened, ".chart[data-chart]")))
    assert opened.execute_script(wide) <= width


def test_the_picture_has_a_dot_for_each_number(opened):
    dots = opened.find_elements("css selector", ".agreement circle")
    assert len(dots) > 3
    assert all(dot.is_displayed() for dot in dots)


def test_the_test_sees_what_it_says_it_sees(browser, tmp_path):
    """A page that does complain and does ask is caught by the checks above."""
    other = pathlib.Path(tmp_path / "other.html")
    other.write_text("<img src='missing.png'><script>console.error('x')</script>")
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(other.as_uri())
    assert browser.get_log("browser")
    assert "missing.png" in str(browser.get_log("performance"))
