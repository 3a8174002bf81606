"""The readings of a trial over time, as the report draws them."""

from __future__ import annotations

from typing import Any

from metrics.reporting.page.model import build_report
from metrics.reporting.page.page import report_page
from metrics.reporting.page.series import BROKERS_MAX, HEIGHT, WIDTH, panels_of
from tests.support.reported import summary_of_sizes, trials_of_sizes


def row(elapsed_s: float, value: float | None, broker: int = 1, **changes: Any) -> dict[str, Any]:
    return {"trial": 1, "title": "idle", "broker_id": broker, "elapsed_s": elapsed_s,
            "value": value, **changes}  # fmt: skip


def test_a_panel_reaches_from_the_warm_up_to_the_end_and_from_0_to_the_highest_value() -> None:
    rows = [row(-2.0, 0.0), row(3.0, 0.5), row(8.0, 1.0), row(4.0, 0.25, broker=2)]
    (panel,) = panels_of(rows, {1: 8.0})[1]
    assert panel.top == "1.00"
    assert panel.window == (0.2 * WIDTH, 0.8 * WIDTH)
    first, second = dict(panel.lines).items()
    assert first == (1, f"0,{HEIGHT - 2} {WIDTH / 2:.0f},{HEIGHT / 2:.0f} {WIDTH},2")
    assert second[0] == 2


def test_what_is_not_known_and_what_is_of_no_trial_is_left_out() -> None:
    rows = [row(1.0, None), row(2.0, 0.0), row(1.0, 5.0, trial=2)]
    found = panels_of(rows, {1: 8.0})
    assert list(found) == [1]
    (panel,) = found[1]
    assert panel.lines == ((1, f"{WIDTH / 4:.0f},{HEIGHT - 2}"),), "a line of zeros has its place"


def test_of_a_hundred_brokers_a_dozen_is_drawn() -> None:
    (panel,) = panels_of([row(1.0, 1.0, broker=each) for each in range(100)], {1: 8.0})[1]
    assert [broker for broker, _ in panel.lines] == list(range(BROKERS_MAX))


def test_the_page_draws_them_with_the_evidence_and_without_a_script() -> None:
    trials = trials_of_sizes([1000])
    series = panels_of([row(1.0, 0.5), row(2.0, 0.25)], {1: 8.0})
    page = report_page(build_report(summary_of_sizes([1000]), trials, {}, series=series))
    assert page.count("<polyline") == 1
    assert 'aria-label="Trial 1 over time"' in page
    assert "idle, up to 0.50" in page
    assert "<polyline" not in report_page(build_report(summary_of_sizes([1000]), trials, {}))
