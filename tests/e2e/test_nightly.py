"""Three nights on a real testbed, of which the last has a quarter of the request handlers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import RunningCommand

SUITE = """
description: a fixed load and a limit in short trials
cluster: testbed
workload: demo
goal: default
set:
  - workload.trial.warmup_s=2
  - workload.trial.measure_s=6
  - goal.search.resolution=0.15
min_effect: 0.1
noise: {cv: 0.12, weight: 8}
cases:
  - {name: load-1kB, message_bytes: 1000, np: 30, repeats: 3, noise: {cv: 0.25, weight: 8}}
  - {name: limit-1kB, limit: 1000}
"""
NIGHT_S = 600.0
"""A testbed, its warm-up and a dozen short trials, on two busy cores [s]."""
HANDLERS = "broker.config.num.io.threads"


@dataclass(frozen=True)
class Ended:
    """A night that ended: its exit code, what it printed, and its nightly.json."""

    code: int
    text: str
    summary: dict[str, Any]


def run_night(folder: Path, name: str, handlers: int) -> Ended:
    """Three brokers with so many request handlers each, in the tables of `folder`."""
    with RunningCommand(
        "nightly",
        "--suite=suite.yaml",
        f"--night={name}",
        f"--junit={name}.xml",
        f"--set=cluster.testbed.properties.num.io.threads={handlers}",
        folder=folder,
    ) as command:
        code = command.wait(deadline_s=NIGHT_S)
        text = command.text
    path = folder / "out" / f"suite-{name}" / "nightly.json"
    assert path.exists(), text
    return Ended(code, text, json.loads(path.read_text()))


@pytest.mark.long
@pytest.mark.timeout(3 * NIGHT_S + 120)
def test_a_quarter_of_the_handlers_is_a_regression_of_the_third_night(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE)
    nights = [
        run_night(tmp_path, name, handlers) for name, handlers in (("a", 4), ("b", 4), ("c", 1))
    ]
    texts = "\n\n".join(night.text for night in nights)
    assert [night.code for night in nights] == [0, 0, 4], texts
    first, second, third = nights
    assert {case["outcome"] for case in first.summary["cases"]} == {"no history"}
    assert not [case for case in second.summary["cases"] if case["outcome"] == "regression"]
    # Which case shows it depends on the disk: what it loses may be the load's or the limit's.
    found = [case for case in third.summary["cases"] if case["outcome"] == "regression"]
    assert found
    for case in found:
        assert case["nights"] == ["a", "b"]
        assert case["effect"]["high"] < 0
        assert case["effect"]["change"] < -0.3
        assert {"name": HANDLERS, "before": "4", "after": "1"} in case["changes"]
        assert f"likely cause: {HANDLERS} was 4, is 1" in case["text"]
    assert "<failure" in (tmp_path / "c.xml").read_text()
    assert "Traceback" not in texts

    again = run_night(tmp_path, "c", 1)
    assert again.code == 4
    assert "trial-started" not in again.text, "a finished night was measured again"
