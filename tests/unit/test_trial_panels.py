"""The readings of a trial over time, as the report draws them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from metrics.reporting.page.model import build_report
from metrics.reporting.page.page import report_page
from metrics.reporting.page.series import BROKERS_MAX, HEIGHT, LATENCY, WIDTH, panels_of
from metrics.trial.client import ClientWindow
from metrics.trial.over_time import LatencySlice
from metrics.windows.series import SeriesPoint
from tests.support.evidence import START_S, client
from tests.support.report_rows import summary_of_sizes, trials_of_sizes


def point(elapsed_s: float, value: float, broker: int = 1) -> SeriesPoint:
    return SeriesPoint("idle", broker, elapsed_s, value)


def seen(*slices: LatencySlice) -> dict[int, ClientWindow]:
    """The window of trial 1, of 8 s."""
    return {1: replace(client(), end_s=START_S + 8, latency_over_time=slices)}


def test_a_panel_reaches_from_the_warm_up_to_the_end_and_from_0_to_the_highest_value() -> None:
    points = [point(-2.0, 0.0), point(3.0, 0.5), point(8.0, 1.0), point(4.0, 0.25, broker=2)]
    (panel,) = panels_of({1: points}, seen())[1]
    assert panel.top == "1.00"
    assert panel.window == (0.2 * WIDTH, 0.8 * WIDTH)
    first, second = dict(panel.lines).items()
    assert first == ("broker 1", f"0,{HEIGHT - 2} {WIDTH / 2:.0f},{HEIGHT / 2:.0f} {WIDTH},2")
    assert second[0] == "broker 2"


def test_points_without_a_trial_are_left_out() -> None:
    found = panels_of({1: [point(2.0, 0.0)], 2: [point(1.0, 5.0)]}, seen())
    assert list(found) == [1]
    (panel,) = found[1]
    assert panel.lines == (("broker 1", f"{WIDTH / 4:.0f},{HEIGHT - 2}"),), (
        "a line of zeros has its place"
    )


def test_a_dozen_of_a_hundred_brokers_is_drawn() -> None:
    (panel,) = panels_of({1: [point(1.0, 1.0, broker=each) for each in range(100)]}, seen())[1]
    assert list(panel.names) == [f"broker {each}" for each in range(BROKERS_MAX)]


def test_latency_comes_before_the_brokers_readings_over_the_same_time() -> None:
    slices = (
        LatencySlice(0.0, 4.0, 10, 5.0, 10.0, 12.0),
        LatencySlice(4.0, 4.0, 9, 10.0, 20.0, 25.0),
    )
    latency, idle = panels_of({1: [point(-2.0, 0.5), point(8.0, 0.5)]}, seen(*slices))[1]
    assert (latency.title, latency.top, latency.names) == (LATENCY, "20.00", ("p99", "p50"))
    assert latency.window == idle.window == (0.2 * WIDTH, 0.8 * WIDTH)
    p99, p50 = dict(latency.lines).values()
    assert p99 == f"{0.4 * WIDTH:.0f},{HEIGHT / 2:.0f} {0.8 * WIDTH:.0f},2", (
        "in the slices' middles"
    )
    assert p50.endswith(f"{HEIGHT / 2:.0f}")
    (alone,) = panels_of({}, seen(*slices))[1]
    assert alone.title == LATENCY, "also where no broker showed metrics"


@pytest.mark.computes
def test_the_page_draws_them_with_the_evidence_and_without_a_script() -> None:
    trials = trials_of_sizes([1000])
    series = panels_of({1: [point(1.0, 0.5), point(2.0, 0.25)]}, seen())
    page = report_page(build_report(summary_of_sizes([1000]), trials, {}, series=series))
    assert page.count("<polyline") == 1
    assert 'aria-label="Trial 1 over time"' in page
    assert "idle, up to 0.50" in page
    assert '<span class="line-0 round-0">broker 1</span>' in page, "the broker of each line"
    assert "<polyline" not in report_page(build_report(summary_of_sizes([1000]), trials, {}))
