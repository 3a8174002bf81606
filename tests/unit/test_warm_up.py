"""The warm-up of cold brokers until more load makes them no faster, with a bound on its repeats."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.cluster.topic_set import TopicSet
from jobs.config.loading import load
from jobs.console.events import PhaseProgress, PhaseStarted, RecordingReporter
from jobs.trials import warm_up as module
from jobs.trials.context import TrialHistory
from jobs.trials.load import GeneratorError
from jobs.trials.running_load import RunningLoad
from jobs.trials.series_proof import SeriesProof
from jobs.trials.unscored_load import UnscoredLoad
from jobs.trials.warm_up import (
    FAILED_MAX,
    LOOK_S,
    LOOKS_MAX,
    SHORT_S,
    AtRest,
    FirstLoads,
    costs_between,
    is_steady,
    is_warm,
)
from metrics.judging.thresholds import Validity
from metrics.sources.sample import BrokerSample
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.client import ClientWindow, Counts
from tests.support.contexts import run_context
from tests.support.evidence import START_S, broker, busy_samples
from tests.support.patterns import pattern
from tests.support.running_loads import SentChannel, running
from tests.support.scripted_source import ScriptedSource

TOPIC = cast(TopicSet, SimpleNamespace(names=("t",), message_bytes=1_000))
CONFIG = load("calibrated", "calibrated", "default")
START = CONFIG.goal.search.load_start_max // 2


class Loads:
    """A replacement of loads, with the length [s] or the error of each in turn; at the load
    `capacity` the handlers have no idle time left."""

    def __init__(self, *ends: float | Exception, capacity: float = 1e9) -> None:
        self.ends = iter(ends)
        self.names: list[str] = []
        self.patterns: list[TrafficPattern] = []
        self.proven: list[float] = []
        self._capacity = capacity

    @property
    def loads(self) -> list[int]:
        """The offered loads."""
        return [each.producers for each in self.patterns]

    def offer(
        self, _context: Any, _topics: Any, pattern: TrafficPattern, name: str, *_: Any
    ) -> UnscoredLoad:
        """Offer a load, which lasts as planned or as its turn says."""
        self.names.append(name)
        self.patterns.append(pattern)
        end = next(self.ends, pattern.phases.measure_s)
        if isinstance(end, Exception):
            raise end
        idle = max(0.0, 1.0 - pattern.producers / self._capacity)
        client = ClientWindow(START_S, START_S + min(end, pattern.phases.measure_s))
        return UnscoredLoad((broker(1, handler_idle=idle),), client)

    def _prove(self, _polls: object, client: ClientWindow, *_: object) -> None:
        self.proven.append(client.duration_s)

    def warm(self, monkeypatch: pytest.MonkeyPatch, load_max_s: float = 60.0) -> list[str]:
        """The phases that a warm-up by these loads reports."""
        reporter = RecordingReporter()
        monkeypatch.setattr(module, "can_climb", lambda *_: False)
        monkeypatch.setattr(module, "offer_unscored", self.offer)
        monkeypatch.setattr(SeriesProof, "examine", self._prove)
        self.history = TrialHistory()
        context = run_context(
            reporter=reporter, config=CONFIG, history=self.history, source=ScriptedSource(),
            addresses={1: ("a", 1), 2: ("b", 1), 3: ("c", 1)},
            guards=SimpleNamespace(cap_violation=lambda _: None),
        )  # fmt: skip
        FirstLoads(context, load_max_s).warm(TOPIC, AtRest())
        return [event.text for event in reporter.events if isinstance(event, PhaseStarted)]


def test_a_load_whose_executor_is_lost_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = Loads(GeneratorError("task 1 was lost"), GeneratorError("no broker 2"), 20.0)
    assert loads.warm(monkeypatch)[1:] == [
        "warming up the brokers again: task 1 was lost",
        "warming up the brokers again: no broker 2",
    ]
    assert loads.names == ["warm-up-1", "warm-up-2", "warm-up-3"]
    assert loads.proven == [20.0], "the first load that succeeds proves the exporters' series"
    hopeless = Loads(*[GeneratorError("task 1 was lost")] * (FAILED_MAX + 1))
    with pytest.raises(GeneratorError, match="task 1 was lost"):
        hopeless.warm(monkeypatch)
    assert len(hopeless.names) == FAILED_MAX + 1


def test_without_idle_time_lower_loads_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = Loads(20.0, capacity=0.4 * START)
    loads.warm(monkeypatch)
    assert loads.loads == [START, START // 2, START // 4]
    assert loads.patterns[0].phases.warmup_s == 0.0
    assert all(each.phases.measure_s == LOOK_S for each in loads.patterns[1:])
    last = loads.history.warm_up
    assert last.load == START // 4
    assert last.handler_idle == pytest.approx(1 - 0.25 / 0.4, abs=0.01)
    for capacity, count in ((0.01, 1 + LOOKS_MAX), (1.1 * START, 1)):
        other = Loads(20.0, capacity=capacity)
        other.warm(monkeypatch)
        assert len(other.loads) == count


def test_a_short_warm_up_offers_a_load_that_leaves_idle_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for load_max_s, load_s in ((19.0, SHORT_S), (16.0, SHORT_S), (12.0, 6.0), (6.0, 3.0)):
        readable = Loads(capacity=0.6 * START)
        readable.warm(monkeypatch, load_max_s)
        assert readable.loads == [START // 2]
        saturated = Loads(capacity=0.4 * START)
        saturated.warm(monkeypatch, load_max_s)
        assert saturated.patterns[0].phases.measure_s == load_s
        assert saturated.loads[1:] == ([START // 4] if load_max_s >= 12.0 else [])


def test_readings_fit_into_the_remaining_time_and_a_failed_one_does_not_end_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    never_warm = Loads(capacity=0.01)
    never_warm.warm(monkeypatch, load_max_s=30.0)
    assert never_warm.loads == [START, START // 2], "the load leaves time for one reading"
    lost = Loads(20.0, GeneratorError("no broker 2"), capacity=0.01)
    assert lost.warm(monkeypatch)[1:] == ["the warm-up ends without its last reading: no broker 2"]


DISK_BOUND = (
    *(4.12, 3.47, 3.05, 2.06, 2.06, 2.22, 2.33, 2.16, 1.91, 1.93, 2.45, 2.06, 2.07, 2.17, 2.08),
    *(2.22, 2.20, 2.30, 1.99, 2.05, 2.01, 2.00, 2.04, 2.26, 2.08, 2.09, 2.35, 2.39, 2.20, 1.96),
)
WITH_C2 = (
    *(0.92, 0.50, 0.25, 0.34, 0.21, 0.21, 0.26, 0.16, 0.17, 0.18, 0.11, 0.14, 0.12, 0.13, 0.08),
    *(0.19, 0.11, 0.11, 0.13, 0.15, 0.08, 0.07, 0.10, 0.06, 0.55, 0.31, 0.84, 0.30, 0.17, 0.16),
)
"""Costs of a request on the brokers of a testbed in the seconds after their start, on two cores
[ms]."""


def test_brokers_are_warm_once_the_cost_of_a_request_is_steady() -> None:
    falling = [0.99**second for second in range(60)]  # by a tenth in 10 s
    for costs, warm_s in ((DISK_BOUND, 15), (WITH_C2, 25), (falling, None)):
        steady = (number for number in range(len(costs)) if is_steady(costs[:number], 1.0))
        assert next(steady, None) == warm_s
    assert is_steady([0.996**second for second in range(12)], 1.0)
    assert is_steady([0.0] * 12, 1.0), "brokers with hardly any load"
    assert not is_steady([2.0] * 3, 5.0), "samples that are far apart need four costs"
    assert is_steady([2.0] * 4, 5.0)
    assert not is_steady([2.0, 1.9, 1.8, 1.7], 5.0)


def of_both(seconds: int, idle: float = 0.5) -> list[BrokerSample]:
    first = busy_samples(seconds, idle)
    return [*first, *(replace(each, broker_id=2) for each in busy_samples(seconds, idle / 2))]


def test_the_cost_is_a_mean_of_the_brokers_between_samples() -> None:
    both = of_both(5)  # 2.5 ms and 3.75 ms, the first sample a second before the load
    assert costs_between(both, (1, 2), START_S) == pytest.approx([3.125] * 3)
    assert costs_between(both[:-1], (1, 2), START_S) == pytest.approx([3.125] * 2)
    assert costs_between(both, (1, 2, 3), START_S) == [], "broker 3 has no samples yet"
    idle = [replace(each, values={**each.values, "produce_total_ms_count": 9.0}) for each in both]
    assert costs_between(idle, (1, 2), START_S) == []


def test_a_load_ends_once_the_cost_is_steady() -> None:
    reporter = RecordingReporter()
    phases = replace(CONFIG.workload.trial, measure_s=54.0, sample_interval_s=1.0)
    context = run_context(config=CONFIG, reporter=reporter, source=ScriptedSource((1, 2)))

    def loaded(samples: list[BrokerSample]) -> RunningLoad:
        return running(pattern().with_phases(phases), SentChannel(START_S), context, samples)

    assert not is_warm(loaded(of_both(13)), START_S + 11.1, START_S)
    assert is_warm(loaded(of_both(14)), START_S + 12.1, START_S)
    last = reporter.events[-1]
    assert isinstance(last, PhaseProgress)
    assert last.detail == "12 s of load, 3.12 ms a request"
    for after_s, is_over in ((SHORT_S - 0.1, False), (SHORT_S, True)):
        assert is_warm(loaded([]), START_S + after_s, START_S) is is_over, "no cost is shown"


def test_the_busiest_task_shows_what_the_generator_can_offer() -> None:
    """A load that grew sent less than its last step."""
    ten = pattern(producers=10)
    for busy, share, load_ in ((0.475, 1, 20), (0.475, 0.5, 10), (0.95, 0.9, 9), (0.1, 1, None)):
        sent = round(share * ten.records_per_s * 20.0)
        seen = ClientWindow(100.0, 120.0, counts=Counts(sent_records=sent, loop_busy=busy))
        assert module.generator_load(ten, seen, Validity()) == load_
