"""summary.json: the contract, and the numbers that people read."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from metrics.common.errors import ConfigError
from metrics.reporting.files import write_atomic
from metrics.reporting.summary import (
    RunSummary,
    load_summary,
    schema_text,
    summary_schema,
    trial_document,
    write_summary,
)
from metrics.tables.boundary import Boundary, make_boundary
from metrics.traffic.axes import AXES, NP, Axis
from metrics.trial.evidence import Reason
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
from metrics.windows.use import Resource
from search.model import Bracket, Interval
from tests.support.commands import ROOT
from tests.support.report_rows import summary_of_sizes
from tests.support.rows import traffic, trial

IDLE = Reason("request_handler_idle", "broker 2 idle 0.12, below 0.20", 0.12, 0.2, 2, Resource.DISK)


def boundary(sustained: int = 95, overloaded: int | None = 100, size: int = 1000) -> Boundary:
    return make_boundary(
        Bracket(sustained, overloaded),
        NP,
        traffic(1, size, 250.0, brokers=3),
        trials=6,
        reasons=[IDLE] if overloaded else [],
        limited_by=Resource.DISK if overloaded else None,
        gave_up=None if overloaded else "load_cap reached",
    )


def along(axis: Axis, interval: Interval, bracket: Bracket | None = None) -> Boundary:
    pattern = traffic(1, 1000, 250.0, brokers=3)
    return make_boundary(bracket or Bracket(95, 100), axis, pattern, trials=6, interval=interval)


def summary(*boundaries: Boundary) -> RunSummary:
    return replace(summary_of_sizes([]), boundaries=boundaries)


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
    unclosed = boundary(95, None)
    assert unclosed.relative_width is None
    assert unclosed.mb_per_s_overloaded is None
    assert unclosed.mb_per_s_per_broker_overloaded is None


def test_an_interval_has_the_load_the_producers_and_the_payload() -> None:
    interval = Interval(90.0, 99.0)
    found = along(NP, interval)
    assert (found.load_low, found.load_high) == (found.np_low, found.np_high) == (90.0, 99.0)
    assert (found.mb_per_s_low, found.mb_per_s_high) == pytest.approx((22.5, 24.75))
    each = (found.mb_per_s_per_broker_low, found.mb_per_s_per_broker_high)
    assert each == pytest.approx((7.5, 8.25)) and found.interval == interval
    rate = along(AXES["rate"], interval)
    assert (rate.load_low, rate.np_low, rate.np_high) == (90.0, None, None)
    assert rate.mb_per_s_low == pytest.approx(90 * 1000 / 1e6)
    fixed = along(AXES["partitions"], interval)
    assert (fixed.load_high, fixed.mb_per_s_low, fixed.mb_per_s_high) == (99.0, None, None)
    # Without a sustained load the payload follows the overload.
    assert along(NP, Interval(0.4, 0.9), Bracket(0, 1)).mb_per_s_low == pytest.approx(0.4 * 0.25)
    assert along(NP, Interval(0.4, 0.9), Bracket(0, None)).mb_per_s_low is None


def test_a_limit_is_doubtful_by_its_interval_or_else_by_its_confidence() -> None:
    for low, widest, confidence, doubtful in (
        (80.0, 0.2, None, False),
        (79.0, 0.2, None, True),
        (10.0, None, None, False),
        (80.0, 0.2, 0.1, False),
        (None, 0.2, 0.49, True),
        (None, 0.2, 0.5, False),
    ):
        found = replace(boundary(), load_low=low, load_high=low and 100.0)
        found = replace(found, interval_max=widest, confidence=confidence)
        assert found.doubtful is doubtful, (low, widest, confidence)


def test_a_written_summary_follows_the_schema_and_is_read_back(tmp_path: Path) -> None:
    sure = replace(along(NP, Interval(90.0, 99.5)), interval_max=0.2, latency_p99_ms=12.5)
    found = (boundary(), boundary(0, 1, 10_000), boundary(95, None), sure)
    whole = replace(summary(*found), trials=(trial_document(trial()),))
    path, schema = tmp_path / "run" / "summary.json", summary_schema()
    write_summary(whole, path)
    assert load_summary(path) == whole
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validate(document, schema)
    kept = (ROOT / "docs" / "reference" / "summary.schema.json").read_text(encoding="utf-8")
    due = "renew it: python -m metrics.reporting.summary docs/reference/summary.schema.json"
    assert kept == schema_text(), due
    first, *_, last = document["boundaries"]
    assert (first["bpm"], first["np_low"], first["mps"]) == (1000, None, 23750.0)
    assert (last["np_low"], last["np_high"], last["latency_p99_ms"]) == (90.0, 99.5, 12.5)
    wrong = document | {"boundaries": [first | {"np_sustained": "many"}]}
    bad: dict[str, object]
    for bad in (wrong, {}, document | {"schema_version": 2}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, schema)
    first["later"] = document["later"] = 1
    path.write_text(json.dumps(document), encoding="utf-8")
    jsonschema.validate(document, schema)
    assert load_summary(path) == whole, "fields of a newer version are ignored"


def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disk_full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "summary.json"
    write_summary(summary(boundary()), path)
    before = path.read_bytes()
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON compliant"):
            write_summary(summary(replace(boundary(), mps=bad)), path)
        assert path.read_bytes() == before
    monkeypatch.setattr("os.fsync", disk_full)
    with pytest.raises(OSError, match="No space left"):
        write_summary(summary(), path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["summary.json"]


def test_a_file_that_is_no_summary_is_a_configuration_error(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    with pytest.raises(ConfigError, match=r"OUT/RUN_ID/summary\.json"):
        load_summary(path)
    for content in ("", "[]", "{}", '{"boundaries": [1]}', '{"boundaries": []}'):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(ConfigError, match="is not the summary of a run"):
            load_summary(path)


WORDS: list[tuple[Callable[..., str], dict[Any, str]]] = [
    (format_size, {
        0: "0 B", 100: "100 B", 999: "999 B", 1000: "1 kB", 1024: "1.024 kB", 1500: "1.5 kB",
        10_000: "10 kB", 999_999: "1 MB", 1_048_576: "1.049 MB", 10_000_000: "10 MB",
    }),
    (format_duration, {
        None: "?", math.nan: "?", -1: "0 s", 0.4: "0 s", 59.4: "59 s", 59.6: "1 min",
        65: "1 min 05 s", 80: "1 min 20 s", 3599.7: "1 h 00 min", 7500: "2 h 05 min",
    }),
    (format_mb_per_s, {
        None: "?", math.inf: "?", 0: "0", 0.0001: "<0.001", 0.1234: "0.123", 0.9996: "1.00",
        1.234: "1.23", 9.996: "10.0", 12.34: "12.3", 999.96: "1,000", 1234.5: "1,234",
    }),
    (lambda ends: format_span(*ends), {
        (44.2, 49.1): "44 to 50", (44.0, 50.0): "44 to 50", (1.63, 2.81): "1.6 to 2.9",
        (46.999999999, 50.000000001): "47 to 50", (9.97, 10.2): "9 to 11",
        (1234.5, 1300.0): "1,234 to 1,300", (0.0, 0.95): "0 to 1",
    }),
    (format_ratio, {
        None: "?", 0: "0 %", 0.0473: "4.7 %", 0.05: "5 %", 0.0999: "10 %", 0.123: "12 %",
        0.5: "50 %", 1: "100 %",
    }),
    (format_count, {12_000: "12,000"}),
    (format_volume, {12_345_678_900: "12 GB", 999_600: "1 MB"}),
    (iso_utc, {0: "1970-01-01T00:00:00Z"}),
]  # fmt: skip


def test_numbers_in_words() -> None:
    for function, expected in WORDS:
        assert {value: function(value) for value in expected} == expected


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
