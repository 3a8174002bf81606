"""summary.json: the contract, and the numbers that people read."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from metrics.common.errors import ConfigError
from metrics.reporting.files import write_atomic
from metrics.reporting.summary import RunSummary, load_summary, trial_document, write_summary
from metrics.reporting.summary_schema import schema_text, summary_schema
from metrics.tables.boundary import Boundary, make_boundary
from metrics.traffic.axes import AXES, NP, Axis
from metrics.trial.judgement import Reason
from metrics.units import (
    format_count,
    format_duration,
    format_mb_per_s,
    format_ratio,
    format_size,
    format_span,
    format_volume,
    iso_utc,
)
from metrics.windows.resource import Resource
from search.interval import Interval
from search.model import Bracket
from tests.support.commands import ROOT
from tests.support.report_rows import summary_of_sizes
from tests.support.rows import traffic, trial

IDLE = Reason("request_handler_idle", "broker 2 idle 0.12, below 0.20", 0.12, 0.2, 2, Resource.DISK)


def boundary(
    sustained: int = 95, overloaded: int | None = 100, message_bytes: int = 1000
) -> Boundary:
    return make_boundary(
        Bracket(sustained, overloaded),
        NP,
        traffic(1, message_bytes, 250.0, brokers=3),
        trials=6,
        reasons=[IDLE] if overloaded else [],
        limited_by=Resource.DISK if overloaded else None,
        gave_up=None if overloaded else "load_cap reached",
    )


def along(axis: Axis, interval: Interval, bracket: Bracket | None = None) -> Boundary:
    pattern = traffic(1, 1000, 250.0, brokers=3)
    return make_boundary(bracket or Bracket(95, 100), axis, pattern, trials=6, interval=interval)


def summary(*boundaries: Boundary) -> RunSummary:
    return RunSummary(
        run_id="20261121-114632-6f2a",
        started_at="2026-11-21T11:46:32Z",
        finished_at="2026-11-21T11:51:40Z",
        cluster="testbed-3",
        workload="100B-to-10kB",
        goal="default",
        boundaries=boundaries,
        brokers=3,
        caveat="A small disk-bound testbed.",
    )


def test_a_boundary_is_its_sustained_side() -> None:
    found = boundary()
    assert (found.np_sustained, found.np_overloaded) == (95, 100)
    assert found.mps == 95 * 250.0
    assert found.mb_per_s == pytest.approx(23.75)
    assert found.mb_per_s_per_broker == pytest.approx(23.75 / 3)
    assert found.mb_per_s_overloaded == pytest.approx(25.0)
    assert found.mb_per_s_per_broker_overloaded == pytest.approx(25.0 / 3)
    assert found.relative_width == pytest.approx(0.05)
    assert found.overload_reasons == ("request_handler_idle: broker 2 idle 0.12, below 0.20",)
    assert found.limited_by == "disk"


def test_an_interval_has_the_load_the_producers_and_the_payload() -> None:
    found = along(NP, Interval(90.0, 99.0))
    assert (found.load_low, found.load_high) == (90.0, 99.0)
    assert (found.np_low, found.np_high) == (90.0, 99.0)
    assert (found.mb_per_s_low, found.mb_per_s_high) == pytest.approx((22.5, 24.75))
    assert found.mb_per_s_per_broker_low == pytest.approx(7.5)
    assert found.mb_per_s_per_broker_high == pytest.approx(8.25)
    assert found.interval == Interval(90.0, 99.0)


def test_along_another_axis_there_is_no_interval_of_producers() -> None:
    rate = along(AXES["rate"], Interval(90.0, 99.0))
    assert (rate.load_low, rate.np_low, rate.np_high) == (90.0, None, None)
    assert rate.mb_per_s_low == pytest.approx(90 * 1000 / 1e6)
    fixed = along(AXES["partitions"], Interval(90.0, 99.0))
    assert (fixed.load_high, fixed.mb_per_s_low, fixed.mb_per_s_high) == (99.0, None, None)


def test_without_a_sustained_load_the_payload_of_the_interval_follows_the_overload() -> None:
    found = along(NP, Interval(0.4, 0.9), Bracket(0, 1))
    assert found.mb_per_s_low == pytest.approx(0.4 * 0.25)
    assert along(NP, Interval(0.4, 0.9), Bracket(0, None)).mb_per_s_low is None


@pytest.mark.parametrize(
    ("changes", "doubtful"),
    [
        ({"load_low": 80.0, "load_high": 100.0, "interval_max": 0.2}, False),
        ({"load_low": 79.0, "load_high": 100.0, "interval_max": 0.2}, True),
        ({"load_low": 10.0, "load_high": 100.0, "interval_max": None}, False),
        ({"load_low": 80.0, "load_high": 100.0, "interval_max": 0.2, "confidence": 0.1}, False),
        ({"interval_max": 0.2, "confidence": 0.49}, True),
        ({"interval_max": 0.2, "confidence": 0.5}, False),
        ({"interval_max": 0.2}, False),
    ],
)
def test_a_limit_is_doubtful_by_its_interval_or_else_by_its_confidence(
    changes: dict[str, float], doubtful: bool
) -> None:
    assert replace(boundary(), **changes).doubtful is doubtful  # type: ignore[arg-type]


def test_an_open_bracket_has_no_width_and_no_upper_side() -> None:
    found = boundary(95, None)
    assert found.relative_width is None
    assert found.mb_per_s_overloaded is None
    assert found.mb_per_s_per_broker_overloaded is None


def test_the_file_holds_the_contract(tmp_path: Path) -> None:
    path = tmp_path / "run" / "summary.json"
    write_summary(summary(boundary(), boundary(95, None)), path)
    document = json.loads(path.read_text(encoding="utf-8"))
    contract = {"run_id", "started_at", "finished_at", "cluster", "workload", "goal", "boundaries"}
    assert contract <= document.keys()
    closed, unclosed = document["boundaries"]
    assert {
        "bpm": 1000,
        "np_sustained": 95,
        "np_overloaded": 100,
        "mps": 23750.0,
        "mb_per_s": 23.75,
        "mb_per_s_per_broker": 23.75 / 3,
        "overload_reasons": ["request_handler_idle: broker 2 idle 0.12, below 0.20"],
        "limited_by": "disk",
        "trials": 6,
    }.items() <= closed.items()
    sure = {"np_low", "np_high", "mb_per_s_low", "mb_per_s_high", "doubtful"}
    sure |= {"latency_p50_ms", "latency_p99_ms", "latency_p999_ms"}
    assert {name: closed[name] for name in sure - {"doubtful"}} == dict.fromkeys(
        sure - {"doubtful"}
    )
    assert (unclosed.keys() >= sure, unclosed["doubtful"]) == (True, False)
    assert unclosed["np_overloaded"] is None
    assert unclosed["relative_width"] is None
    assert unclosed["overload_reasons"] == []


def test_a_written_summary_is_read_back(tmp_path: Path) -> None:
    sure = replace(along(NP, Interval(90.0, 99.5)), interval_max=0.2, latency_p99_ms=12.5)
    written = summary(boundary(), boundary(0, 1, 10_000), boundary(95, None), sure)
    path = tmp_path / "summary.json"
    write_summary(written, path)
    assert load_summary(path) == written
    *_, last = json.loads(path.read_text(encoding="utf-8"))["boundaries"]
    assert (last["np_low"], last["np_high"], last["latency_p99_ms"]) == (
        90.0,
        99.5,
        12.5,
    )
    assert last["mb_per_s_low"] == pytest.approx(22.5)


def test_fields_of_a_newer_version_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_summary(summary(boundary()), path)
    document = json.loads(path.read_text(encoding="utf-8")) | {"later": 1}
    document["boundaries"][0]["later"] = 1
    path.write_text(json.dumps(document), encoding="utf-8")
    assert load_summary(path) == summary(boundary())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_number_without_json_keeps_the_old_file(tmp_path: Path, bad: float) -> None:
    path = tmp_path / "summary.json"
    write_summary(summary(boundary()), path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="JSON compliant"):
        write_summary(summary(replace(boundary(), mps=bad)), path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["summary.json"]


def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "summary.json"
    write_summary(summary(boundary()), path)
    before = path.read_bytes()

    def disk_full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", disk_full)
    with pytest.raises(OSError, match="No space left"):
        write_summary(summary(), path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["summary.json"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"boundaries": [1]}', '{"boundaries": []}'])
def test_a_file_that_is_no_summary_is_a_configuration_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "summary.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match="is not the summary of a run"):
        load_summary(path)


def test_the_error_for_a_missing_summary_names_the_expected_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"OUT/RUN_ID/summary\.json"):
        load_summary(tmp_path / "summary.json")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (100, "100 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1024, "1.024 kB"),
        (1500, "1.5 kB"),
        (10_000, "10 kB"),
        (1_048_576, "1.049 MB"),
        (10_000_000, "10 MB"),
        (999_999, "1 MB"),
    ],
)
def test_sizes(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [
        (None, "?"),
        (float("nan"), "?"),
        (-1, "0 s"),
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (80, "1 min 20 s"),
        (65, "1 min 05 s"),
        (3599.7, "1 h 00 min"),
        (7500, "2 h 05 min"),
    ],
)
def test_durations(duration_s: float | None, text: str) -> None:
    assert format_duration(duration_s) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (None, "?"),
        (float("inf"), "?"),
        (0, "0"),
        (0.0001, "<0.001"),
        (0.1234, "0.123"),
        (0.9996, "1.00"),
        (1.234, "1.23"),
        (12.34, "12.3"),
        (999.96, "1,000"),
        (1234.5, "1,234"),
    ],
)
def test_rates(rate: float | None, text: str) -> None:
    assert format_mb_per_s(rate) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (44.2, 49.1, "44 to 50"),
        (44.0, 50.0, "44 to 50"),
        (1.63, 2.81, "1.6 to 2.9"),
        (46.999999999, 50.000000001, "47 to 50"),
        (9.97, 10.2, "9 to 11"),
        (1234.5, 1300.0, "1,234 to 1,300"),
        (0.0, 0.95, "0 to 1"),
    ],
)
def test_intervals_are_rounded_outwards(low: float, high: float, text: str) -> None:
    assert format_span(low, high) == text


def test_ratios_counts_volumes_and_times() -> None:
    assert [format_ratio(x) for x in (None, 0, 0.0473, 0.05, 0.0999, 0.5, 1)] == [
        "?",
        "0 %",
        "4.7 %",
        "5 %",
        "10 %",
        "50 %",
        "100 %",
    ]
    assert format_count(12_000) == "12,000"
    assert format_volume(12_345_678_900) == "12 GB"
    assert format_volume(999_600) == "1 MB"
    assert iso_utc(0) == "1970-01-01T00:00:00Z"


# --- its schema -------------------------------------------------------------------------


def test_the_schema_in_the_docs_is_that_of_the_code() -> None:
    kept = (ROOT / "docs" / "summary.schema.json").read_text(encoding="utf-8")
    due = "renew it: python -m metrics.reporting.summary_schema docs/summary.schema.json"
    assert kept == schema_text(), due


def test_the_summary_of_a_run_follows_the_schema(tmp_path: Path) -> None:
    summary = replace(summary_of_sizes([100, 1000]), trials=(trial_document(trial()),))
    write_summary(summary, tmp_path / "summary.json")
    document = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    schema = summary_schema()
    jsonschema.validate(document, schema)
    jsonschema.validate(document | {"of a newer version": 1}, schema)
    wrong = document | {"boundaries": [document["boundaries"][0] | {"np_sustained": "many"}]}
    bad: dict[str, object]
    for bad in (wrong, {}, document | {"schema_version": 2}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, schema)


def test_a_device_or_a_link_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe, target, link = tmp_path / "pipe", tmp_path / "target", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(target)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomic(pipe, "text")
        assert os.read(reader, 10) == b"text"
    finally:
        os.close(reader)
    write_atomic(link, "text")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert link.is_symlink() and target.read_text() == "text"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "pipe", "target"]
