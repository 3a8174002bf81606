"""`redline plan`: from a run's folder, or a known limit, to brokers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from jobs.plan import plan
from metrics.common.errors import ConfigError
from metrics.reporting.summary import RunSummary, write_summary
from metrics.tables.boundary import make_boundary
from metrics.traffic.axes import NP
from metrics.windows.resource import Resource
from search.model import Bracket
from tests.support.frozen import lost_keys
from tests.support.rows import traffic

POINT = make_boundary(
    Bracket(720, 756),
    NP,
    traffic(1, 1_000, 250.0, brokers=3),
    trials=4,
    limited_by=Resource.DISK,
)
SUMMARY = RunSummary(
    "run-1", "a", "b", "c", "w", "strict", (replace(POINT, goal="strict"),), 3,
    caveat="a small cluster", replication_factor=3,
)  # fmt: skip


def _run(*options: str) -> Result:
    return CliRunner().invoke(plan, options, standalone_mode=False, catch_exceptions=False)


def _planned(folder: Path, summary: RunSummary, *more: str) -> dict[str, Any]:
    write_summary(summary, folder / "summary.json")
    answer = folder / "plan.json"
    options = ("--run", str(folder), "--mb-per-s", "600", "--message-bytes", "1000")
    _run(*options, "--json", str(answer), *more)
    read: dict[str, Any] = json.loads(answer.read_text())
    assert not lost_keys("plan.json", read)
    return read


def test_the_limits_of_a_run_give_the_number_of_brokers(tmp_path: Path) -> None:
    found = _planned(tmp_path, SUMMARY, "--offline", "0.2")
    assert found["answer"]["limit_mb_per_s_per_broker"] == pytest.approx(60.0)
    assert found["answer"]["brokers"] == 13
    assert found["answer"]["binds_first"] == "disk"
    assert found["caveat"] == "a small cluster"


def test_a_plan_uses_the_lower_end_and_states_it(tmp_path: Path) -> None:
    sure = replace(SUMMARY.boundaries[0], load_low=600.0, load_high=750.0, interval_max=0.1)
    wide = replace(SUMMARY, boundaries=(sure,))
    found = _planned(tmp_path, wide, "--offline", "0.2")["answer"]
    assert (found["brokers"], found["brokers_for_limit"]) == (15, 13)
    assert found["limit_mb_per_s_per_broker"] == pytest.approx(60.0)
    assert found["low_mb_per_s_per_broker"] == pytest.approx(50.0)
    options = ("--mb-per-s", "600", "--message-bytes", "1000", "--offline", "0.2")
    printed = _run("--run", str(tmp_path), *options).output
    assert re.search(r"brokers to buy +15\n.*for the limit itself +13\n", printed)
    assert re.search(r"its lower end at 90 % +50.0 MB/s", printed)
    assert "interval, 50.0 MB/s per broker; the limit itself, 60.0 MB/s per broker" in printed
    assert "the limit is doubtful: its 90 % interval, 600 to 750 producers, is 20 % wide" in printed


def test_a_plan_can_use_a_known_limit() -> None:
    printed = _run("--limit", "60", "--mb-per-s", "600", "--message-bytes", "1000").output
    assert "brokers to buy" in printed
    assert "10" in printed


@pytest.mark.parametrize(
    "options",
    [
        ("--limit", "1e-300", "--mb-per-s", "600"),
        ("--limit", "5e-324", "--mb-per-s", "600", "--headroom", "0.9"),
        ("--limit", "60", "--mb-per-s", "1e308", "--growth", "10"),
        ("--limit", "60", "--mb-per-s", "60000061"),
        ("--limit", "60", "--mb-per-s", "600", "--link-mbit-per-s", "1e-9"),
    ],
)
def test_a_plan_of_more_than_a_million_brokers_is_refused(options: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="more than 1,000,000 brokers") as error:
        _run(*options, "--message-bytes", "1000")
    assert len(str(error.value)) < 300
    assert "correct the demand, the limit per broker or the margins" in str(error.value)


def test_a_plan_of_a_million_brokers_is_printed() -> None:
    options = ("--limit", "60", "--mb-per-s", "60000000", "--message-bytes", "1000")
    assert re.search(r"brokers to buy +1000000\n", _run(*options).output)


@pytest.mark.parametrize(
    ("summary", "options", "message"),
    [
        (SUMMARY, ("--goal", "tolerant"), "has the goals strict"),
        (replace(SUMMARY, boundaries=()), (), "has the goals none"),
        (replace(SUMMARY, replication_factor=0), (), "older version"),
        (
            replace(SUMMARY, boundaries=(replace(SUMMARY.boundaries[0], gave_up="cap"),)),
            (),
            "no closed bracket",
        ),
        (SUMMARY, ("--limit", "60"), "--run, --limit"),
    ],
)
def test_a_run_or_a_demand_that_no_plan_can_use_is_refused(
    tmp_path: Path, summary: RunSummary, options: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        _planned(tmp_path, summary, *options)


def test_a_missing_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        _run("--run", str(tmp_path), "--mb-per-s", "1", "--message-bytes", "1")
