"""The report in a browser: light and dark, wide and narrow."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from metrics.reporting.boundary_chart import boundary_spec, chart_page
from metrics.reporting.report_page import build_report, report_page
from metrics.windows.use import Resource
from tests.support.processes import PATIENCE_S
from tests.support.report_rows import summary_of_sizes, trials_of_sizes

pytestmark = pytest.mark.together
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SIZES = (100, 1000, 10_000)
WIDE, MIDDLE, NARROW = 1280, 1000, 390  # [px]
A4 = 718  # 210 mm less Chromium's margins of 10 mm [px]
PATIENCE_MS = 1_000 * PATIENCE_S
AXIS_TITLE = "#chart-0 .role-axis-title text"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = [path for name in BROWSERS if (path := shutil.which(name))]
    if not found:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed; on Debian: apt install chromium")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found[0], timeout=PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report for two goals."""
    strict, default = (summary_of_sizes(SIZES, goal) for goal in ("strict", "default"))
    cpu = [replace(each, limited_by=Resource.CPU.value) for each in strict.boundaries]
    both = replace(default, goal="strict,default", boundaries=(*cpu, *default.boundaries))
    path = tmp_path_factory.mktemp("report") / "report.html"
    report = build_report(both, trials_of_sizes(SIZES), {"workload": {"name": "demo"}})
    path.write_text(report_page(report), encoding="utf-8")
    return path


@dataclass
class Opened:
    """An open page, with its console messages and its requests."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@cache
def opened(browser: Browser, path: Path, width: int = WIDE, *, dark: bool = False) -> Opened:
    """A page, which tests that read it share, as each takes seconds of CPU time to draw."""
    scheme = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
    )
    scheme.set_default_timeout(PATIENCE_MS)
    shown = Opened(scheme.new_page())
    shown.page.on("console", lambda message: shown.complaints.append(message.text))
    shown.page.on("pageerror", lambda error: shown.complaints.append(str(error)))
    shown.page.on("request", lambda request: shown.requests.append(request.url))
    shown.page.goto(path.as_uri())
    expect(shown.page.locator("#chart-0 svg.marks")).to_be_visible()
    return shown


def test_the_report_draws_its_charts_without_a_request(browser: Browser, page_file: Path) -> None:
    shown = opened(browser, page_file)
    expect(shown.page.locator("#chart-1 svg.marks")).to_be_visible()
    trials = shown.page.locator("#chart-2 .mark-symbol path[aria-label*='Produce latency p99']")
    assert trials.count() == 2 * len(SIZES)
    points = shown.page.locator("#chart-0 .mark-symbol path[aria-label*='per broker']")
    assert points.count() == 2 * len(SIZES)
    points.first.hover()
    tooltip = shown.page.locator("#vg-tooltip-element.visible")
    expect(tooltip).to_contain_text("58 producers sustained, 63 overloaded")
    expect(tooltip).to_contain_text("100 B")
    evidence = tooltip.locator("tr", has_text="evidence").locator("td.value")
    assert evidence.evaluate("each => each.scrollHeight <= each.clientHeight"), "no text is cut"
    assert shown.complaints == []
    assert shown.requests == [page_file.as_uri()]
    assert page_file.stat().st_size < 2_000_000


def test_trials_sort_and_open(browser: Browser, page_file: Path) -> None:
    page = opened(browser, page_file).page
    numbers = page.locator("table.trials > tbody > tr:first-child > td:first-child")
    load = page.get_by_role("columnheader", name="Producers").get_by_role("button")
    assert numbers.all_inner_texts() == ["1", "2", "3", "4", "5", "6"]
    load.click()
    assert numbers.all_inner_texts() == ["2", "4", "6", "1", "3", "5"]
    load.click()
    assert numbers.all_inner_texts() == ["1", "3", "5", "2", "4", "6"]
    evidence = page.get_by_role("region", name="Brokers in trial 1")
    expect(evidence).to_be_hidden()
    page.get_by_role("button", name="Evidence of trial 1").click()
    expect(evidence).to_be_visible()
    around = page.get_by_role("region", name="Trials")
    assert around.evaluate("each => each.scrollWidth <= each.clientWidth"), "the reason is visible"


def test_on_a_phone_the_evidence_needs_no_scrolling(browser: Browser, page_file: Path) -> None:
    page = opened(browser, page_file, NARROW).page
    page.get_by_role("button", name="Evidence of trial 1").click()
    for text in page.locator(".open .evidence li").all():
        box = text.bounding_box()
        assert box is not None
        assert box["x"] >= 0 and box["x"] + box["width"] <= NARROW
        assert text.evaluate("each => each.scrollWidth <= each.clientWidth"), "no word is cut"


def test_a_printed_table_is_no_wider_than_its_page(browser: Browser, page_file: Path) -> None:
    page = opened(browser, page_file, A4).page
    page.emulate_media(media="print")
    for table in page.locator("#answer table, #line table, #bound table, table.trials").all():
        box = table.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= A4


def test_the_dark_page_has_no_light_part(browser: Browser, page_file: Path) -> None:
    light, dark = (opened(browser, page_file, MIDDLE, dark=dark).page for dark in (False, True))
    for what, style in (("body", "backgroundColor"), (AXIS_TITLE, "fill")):
        read = f"each => getComputedStyle(each).{style}"
        colors = [page.locator(what).first.evaluate(read) for page in (light, dark)]
        assert colors[0] != colors[1], what
    light.emulate_media(color_scheme="dark")
    expect(light.locator(AXIS_TITLE).first).to_have_css("fill", colors[1])


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_no_element_is_wider_than_the_window(browser: Browser, page_file: Path, width: int) -> None:
    page = opened(browser, page_file, width).page
    assert page.evaluate("document.documentElement.scrollWidth") == width
    titles = ("Payload per broker (whole cluster) [MB/s]", "Messages per second, whole cluster")
    first, second = (
        page.locator("#chart-0").get_by_text(title, exact=True).bounding_box() for title in titles
    )
    assert first is not None
    assert second is not None
    assert (second["x"] > first["x"] + 200) == (width == WIDE)
    assert (second["y"] > first["y"] + 200) == (width == NARROW)


def test_the_separate_chart_is_drawn(browser: Browser, tmp_path: Path) -> None:
    summary = summary_of_sizes(SIZES)
    path = tmp_path / "boundary.html"
    path.write_text(chart_page(summary, boundary_spec(summary)), encoding="utf-8")
    shown = opened(browser, path)
    expect(shown.page.get_by_role("heading")).to_have_text("Throughput limit of testbed with demo")
    assert shown.complaints == []
    assert shown.requests == [path.as_uri()]
