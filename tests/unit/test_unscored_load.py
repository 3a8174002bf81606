"""A load outside of trials: one that fails states its cause; the backlog that a trial reads."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.cluster.topic_set import TopicSet
from jobs.config.loading import load
from jobs.console.events import PhaseStarted, RecordingReporter
from jobs.trials import unscored_load as module
from jobs.trials.load import GeneratorError
from jobs.trials.unscored_load import LOADS_MAX, build_backlog
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.evidence import Reason
from tests.support.contexts import run_context

TOPIC = TopicSet(("t",), 1_000, {})
RECORDS = 100_000
CONFIG = load(
    "testbed", "demo", "default",
    ["workload.consumers.groups=2", "workload.consumers.start=backlog",
     f"workload.consumers.backlog_records={RECORDS}"],
)  # fmt: skip
PATTERN = CONFIG.pattern(1_000, 4, 3)


@pytest.mark.parametrize("ends_load", ["broker 2 left the cluster", None])
def test_a_load_that_a_guard_ended_states_why(
    ends_load: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise GeneratorError("no broker 2")

    monkeypatch.setattr(module, "LoadSampler", lambda *_: nullcontext())
    settled: list[object] = []
    guards = SimpleNamespace(
        ends_load=ends_load, required=nullcontext,
        settle=lambda _, client: settled.append(client),
    )  # fmt: skip
    guards.admit = guards.require_room = lambda *_: None
    context = run_context(
        run_id="r", addresses={}, guards=guards, generator=SimpleNamespace(offer=fail),
        tables=SimpleNamespace(settle=lambda: None), config=CONFIG,
    )  # fmt: skip
    with pytest.raises(GeneratorError) as error:
        module.offer_unscored(context, TOPIC, PATTERN, "climb")
    assert str(error.value) == (ends_load or "no broker 2")
    assert settled == [None]


class Brokers:
    """Topics that grow by a share of what is offered, or a load that fails."""

    def __init__(self, held: int = 0, share: float = 1.0, error: Exception | None = None) -> None:
        self.held, self.share, self.error = held, share, error
        self.loads: list[tuple[str, TrafficPattern]] = []

    def end_offsets(self, _topics: TopicSet) -> dict[int, int]:
        return {0: self.held // 2, 1: self.held - self.held // 2}

    def offer(self, _context: Any, _topics: Any, pattern: TrafficPattern, name: str) -> None:
        if self.error is not None:
            raise self.error
        self.loads.append((name, pattern))
        self.held += int(pattern.planned_records * self.share)


def built(
    monkeypatch: pytest.MonkeyPatch, brokers: Brokers, pattern: TrafficPattern = PATTERN
) -> tuple[bool, Reason | None, list[str]]:
    monkeypatch.setattr(module, "offer_unscored", brokers.offer)
    reporter = RecordingReporter()
    context = run_context(topics=brokers, reporter=reporter)
    found = build_backlog(context, TOPIC, pattern, 7)
    return *found, [each.text for each in reporter.events if isinstance(each, PhaseStarted)]


def test_missing_records_are_written_at_the_rate_without_consumers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers(held=40_000)
    is_loaded, problem, phases = built(monkeypatch, brokers)
    assert (is_loaded, problem) == (True, None)
    ((name, pattern),) = brokers.loads
    assert name == "backlog-7-0"
    assert (pattern.consumers.groups, pattern.phases.warmup_s) == (0, 0.0)
    assert 60_000 <= pattern.planned_records <= 60_000 + 3 * pattern.records_per_s
    assert "60,000 messages" in phases[0]
    slow = Brokers(share=0.4)
    assert built(monkeypatch, slow)[:2] == (True, None)
    assert 2 < len(slow.loads) <= LOADS_MAX and slow.held >= RECORDS
    # A backlog that is there, and a workload without one.
    assert built(monkeypatch, Brokers(held=RECORDS)) == (False, None, [])
    without = load("testbed", "demo", "default").pattern(1_000, 4, 3)
    assert built(monkeypatch, Brokers(), without) == (False, None, [])


@pytest.mark.parametrize(
    ("brokers", "part", "loads"),
    [
        (Brokers(share=0.0), "0 of 100,000 messages are in the topics", 1),
        (Brokers(share=0.01), "of 100,000 messages are in the topics", LOADS_MAX),
        (Brokers(error=GeneratorError("no broker 2")), "was not built: no broker 2", 0),
    ],
)
def test_a_backlog_that_is_not_built_makes_the_trial_invalid(
    monkeypatch: pytest.MonkeyPatch, brokers: Brokers, part: str, loads: int
) -> None:
    is_loaded, problem, _ = built(monkeypatch, brokers)
    assert is_loaded and problem is not None
    assert (problem.indicator, len(brokers.loads)) == ("task_failed", loads)
    assert part in problem.text
