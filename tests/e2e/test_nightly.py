"""Nights on real testbeds: with fewer request handlers, and after an upgrade."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import ended

SUITE = """
description: a fixed load and a limit on one broker whose handlers wait a stated time
cluster: calibrated
workload: calibrated
goal: default
set:
  - cluster.testbed.brokers=1
  - cluster.warm_up_max_s=5
  - workload.trial.warmup_s=2
  - workload.trial.measure_s=6
  - goal.search.resolution=0.15
min_effect: 0.1
noise: {cv: 0.12, weight: 8}
cases:
  - {name: load-1kB, message_bytes: 1000, np: 5, repeats: 2, noise: {cv: 0.25, weight: 8}}
  - {name: limit-1kB, limit: 1000}
"""
UPGRADE_SUITE = """
description: a fixed load on one broker whose handlers wait a stated time
cluster: calibrated
workload: calibrated
goal: default
set:
  - cluster.testbed.brokers=1
  - cluster.warm_up_max_s=5
  - workload.topic.replication_factor=1
  - workload.trial.warmup_s=1
  - workload.trial.measure_s=5
min_effect: 0.1
noise: {cv: 0.1, weight: 8}
cases:
  - {name: load-1kB, message_bytes: 1000, np: 8, repeats: 3}
"""
NIGHT_S = 600.0
"""Deadline for a testbed, its warm-up and a dozen short trials, on two busy cores [s]."""
HANDLERS = "broker.config.num.io.threads"


@dataclass(frozen=True)
class Ended:
    """A finished night: its exit code, its output, and its nightly.json."""

    code: int
    text: str
    summary: dict[str, Any]


def run_night(folder: Path, name: str, *settings: str) -> Ended:
    """Run a night with these settings of the testbed, and the tables of `folder`."""
    options = (f"--set=cluster.testbed.{each}" for each in settings)
    names = ("--suite=suite.yaml", f"--night={name}", f"--junit={name}.xml")
    code, text = ended("nightly", *names, *options, folder=folder, deadline_s=NIGHT_S)
    path = folder / "out" / f"suite-{name}" / "nightly.json"
    assert path.exists(), text
    return Ended(code, text, json.loads(path.read_text()))


@pytest.mark.long
@pytest.mark.timeout(3 * NIGHT_S + 120)
def test_fewer_handlers_in_the_third_night_are_a_regression(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE)
    nights = [
        run_night(tmp_path, name, f"properties.num.io.threads={handlers}")
        for name, handlers in (("a", 4), ("b", 4), ("c", 1))
    ]
    texts = "\n\n".join(night.text for night in nights)
    assert [night.code for night in nights] == [0, 0, 4], texts
    first, second, third = nights
    assert {case["outcome"] for case in first.summary["cases"]} == {"no history"}
    assert not [case for case in second.summary["cases"] if case["outcome"] == "regression"]
    # The handlers' time per MB is that of all handlers together: each request takes more of it.
    found = [case for case in third.summary["cases"] if case["outcome"] == "regression"]
    assert [case["case"] for case in found] == ["load-1kB", "limit-1kB"]
    for case in found:
        assert case["nights"] == ["a", "b"]
        assert case["effect"]["high"] < 0
        assert case["effect"]["change"] < -0.3
        assert {"name": HANDLERS, "before": "4", "after": "1"} in case["changes"]
        assert f"likely cause: {HANDLERS} was 4, is 1" in case["text"]
    assert "<failure" in (tmp_path / "c.xml").read_text()

    again = run_night(tmp_path, "c", "properties.num.io.threads=1")
    assert again.code == 4
    assert "trial-started" not in again.text, "a finished night was measured again"


@pytest.mark.long
@pytest.mark.timeout(2 * NIGHT_S + 120)
def test_a_loss_after_an_upgrade_names_release_and_metadata(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(UPGRADE_SUITE)
    first, second = (
        run_night(tmp_path, name, f"kafka_version={version}", f"properties.produce_handler_ms={ms}")
        for name, version, ms in (("a", "3.6.2", 60), ("b", "4.1.2", 120))
    )
    assert (first.code, second.code) == (0, 4), f"{first.text}\n\n{second.text}"
    (before,), (after,) = first.summary["cases"], second.summary["cases"]
    assert before["outcome"] == "no history"
    assert (before["release"], before["release_before"]) == ("Kafka 3.6.2 with ZooKeeper", "")
    assert after["outcome"] == "regression"
    assert after["nights"] == ["a"]
    assert after["left_out"] == []
    assert after["release"] == "Kafka 4.1.2 with KRaft"
    assert after["release_before"] == before["release"]
    reasons = "the brokers were Kafka 3.6.2 with ZooKeeper, are Kafka 4.1.2 with KRaft"
    assert f"possible reasons: {reasons}, " in after["text"]
    assert "planted.handler_ms was 60, is 120" in after["text"]
    assert reasons in second.text
