"""The answer of a search for the scale of a mix, on terminals, on pages and for programs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import jsonschema
import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.config.loading import load, load_workload
from jobs.console.printing import point_words, trial_header
from jobs.runs.estimate import mean_replicas, payload_rate, plan_of
from jobs.trials.calibration import Calibration, calibration_table
from jobs.trials.context import RunContext
from metrics.planning.planted import HandlerTime, PlantedRates, planted_scale
from metrics.reporting.limit_answer import answer_of
from metrics.reporting.report_page import build_report, report_page
from metrics.reporting.summary import load_summary, summary_schema, write_summary
from metrics.tables.boundary import Boundary, make_boundary
from metrics.traffic.axes import SCALE, Axis
from metrics.windows.use import Resource
from search.model import Bracket, Interval
from tests.support.mixes import MIX
from tests.support.mixes import WHOLE as PATTERN
from tests.support.report_rows import IDLE, overloaded, summary_of_sizes, sustained
from tests.support.rows import trial


def limit(axis: Axis = SCALE) -> Boundary:
    found = make_boundary(
        Bracket(270, 283), axis, PATTERN, trials=5, reasons=[IDLE],
        limited_by=Resource.REQUEST_HANDLERS, interval=Interval(263.0, 279.0, 271.0),
    )  # fmt: skip
    evidence = "request handlers: broker 3: 88% of their time busy, while the disk did little"
    return replace(found, goal="default", evidence=evidence, confidence=0.95)


def test_the_terminal_states_it_first(snapshot: SnapshotAssertion) -> None:
    answer = answer_of(limit())
    assert "\n".join([*answer.lines, "Why", *answer.why]) == snapshot
    assert ": 2.7 times the mix, 7.56 MB/s" in point_words(limit())
    assert "% of mix" in trial_header("scale")[0]


def test_the_report_of_a_mix_is_a_page() -> None:
    summary = replace(summary_of_sizes([1_000]), boundaries=(limit(),))
    trials = [
        trial(n, summary.run_id, pattern=SCALE.apply(PATTERN, at), judgements={"default": judged})
        for n, (at, judged) in enumerate(((283, overloaded()), (270, sustained())), 1)
    ]
    page = report_page(build_report(summary, trials, {}))
    assert "2.63 to 2.79 times the mix at 90 %" in page and "images (5 ×" in page


def test_the_summary_has_the_scale_and_the_parts(tmp_path: Path) -> None:
    summary = replace(summary_of_sizes([1_000]), boundaries=(limit(),))
    write_summary(summary, tmp_path / "summary.json")
    document = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    jsonschema.validate(document, summary_schema())
    (boundary,) = document["boundaries"]
    scales = [boundary[f"scale_{each}"] for each in ("sustained", "low", "high")]
    assert scales == [2.7, 2.63, 2.79]
    assert boundary["bpm"] == PATTERN.message_bytes
    assert [each["part"] for each in boundary["parts"]] == ["orders", "clicks", "images"]
    assert load_summary(tmp_path / "summary.json").boundaries[0].parts == limit().parts


# --- forecasts --------------------------------------------------------------------------


def test_a_plan_describes_each_part_and_adds_up_their_bytes() -> None:
    config = load("testbed", MIX, "default")
    plan = plan_of(config)
    assert all(f"{name}: " in plan.producer for name in ("orders", "clicks", "images"))
    assert len([note for note in plan.notes if note.startswith("part ")]) == 3
    assert mean_replicas(config.workload) == pytest.approx(5.4 / 2.8)
    assert payload_rate(config.workload, config.goal).bytes(1) * 100 == pytest.approx(2.8e6)
    config = load("testbed", MIX, "default", ["goal.search.axis=scale.orders"])
    start = config.goal.search.load_start_max
    expected = 1e6 * (2.5 * start / 100 + 0.3)
    assert payload_rate(config.workload, config.goal).bytes(1) * start == pytest.approx(expected)


# --- the planted limit ------------------------------------------------------------------


def test_the_planted_limit_of_a_mix_follows_from_the_requests_of_all_parts() -> None:
    mix = load_workload(str(Path(MIX).with_name("calibrated.yaml"))).pattern(1, 3)
    per_s = sum(each.producers / each.producer.batch_interval_s for each in mix.parts)
    assert per_s == pytest.approx(15 * 31_250 / 14_600 + 11 * 31_250 / 16_000 + 7.8, rel=0.02)
    times = [HandlerTime(60.0, handlers=4)] * 3
    assert planted_scale(times, mix, 0.2) == pytest.approx(3 * 0.8 * 4 / 0.06 / per_s)


def test_a_run_shows_the_planted_limit_beside_the_one_found(snapshot: SnapshotAssertion) -> None:
    table = calibration_table([replace(limit(), scale_planted=2.75)])
    assert table is not None
    assert (table.columns, table.rows) == snapshot


def test_the_planted_limit_of_disks_and_a_link_adds_up_the_bytes_of_all_parts() -> None:
    """Each part alone fills them at a number of producers; together, their shares add up."""
    disks = PlantedRates(disk_bytes_per_s=5e6)
    for rates in (disks, PlantedRates(link_bytes_per_s=20e6)):
        used = sum(1 / (rates.scale(each, 3) or 0.0) for each in PATTERN.parts)
        assert rates.scale(PATTERN, 3) == pytest.approx(1 / used)
    both = PlantedRates(disk_bytes_per_s=5e6, link_bytes_per_s=1e9)
    assert both.scale(PATTERN, 3) == disks.scale(PATTERN, 3)
    assert PlantedRates().scale(PATTERN, 3) is None


def test_a_run_states_the_lowest_of_its_planted_limits() -> None:
    times = (HandlerTime(60.0, handlers=4),) * 3
    disks = PlantedRates(disk_bytes_per_s=5e6).scale(PATTERN, 3)
    handlers, slow = planted_scale(times, PATTERN, 0.2), {"disk.write_rate": "5MB/s"}
    indicators = SimpleNamespace(request_handler_idle_min=0.2)
    cases: list[tuple[dict[str, str], tuple[HandlerTime, ...], float | None]] = [
        ({}, (), None), (slow, (), disks), ({}, times, handlers), (slow, times, handlers),
    ]  # fmt: skip
    for environment, known, planted in cases:
        context = SimpleNamespace(
            config=SimpleNamespace(axis=SCALE),
            environment=environment,
            addresses={1: "a", 2: "b", 3: "c"},
            thresholds={"default": SimpleNamespace(indicators=indicators)},
            pattern=lambda size, load: SCALE.apply(PATTERN, load),
        )
        calibration = Calibration()
        calibration._times = known
        found = calibration.complete(limit(), cast(RunContext, context), "default")
        assert found.scale_planted == (planted and pytest.approx(planted))
