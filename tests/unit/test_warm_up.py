"""The warm-up of cold brokers until more load makes them no faster, with a bound on its repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.cluster.topic_set import TopicSet
from jobs.config.loading import load
from jobs.console.events import PhaseProgress, PhaseStarted, RecordingReporter
from jobs.trials import warm_up as module
from jobs.trials.context import RunContext, TrialHistory
from jobs.trials.control_server import TaskChannel
from jobs.trials.early_end import NOTICE_S
from jobs.trials.load import GeneratorError, StageFailedError
from jobs.trials.series_proof import SeriesProof
from jobs.trials.unscored_load import UnscoredLoad
from jobs.trials.warm_up import (
    FAILED_MAX,
    LOOK_S,
    LOOKS_MAX,
    SHORT_S,
    FirstLoads,
    SteadyCostWatch,
    costs_between,
    is_steady,
)
from metrics.judging.thresholds import Validity
from metrics.sources.beans import Role
from metrics.sources.sample import BrokerSample
from metrics.traffic.pattern import TrafficPattern
from metrics.trial.client import ClientWindow, Counts
from metrics.trial.trial import WarmUp
from tests.support.evidence import START_S, busy_samples
from tests.support.patterns import pattern

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
        self._capacity = capacity

    @property
    def loads(self) -> list[int]:
        """The offered loads."""
        return [each.producers for each in self.patterns]

    def offer(
        self, first: FirstLoads, _: object, pattern: TrafficPattern, name: str, watch: Any = None
    ) -> None:
        """Offer a load; the one that is watched lasts until the cost is steady."""
        end = next(self.ends, pattern.phases.measure_s) if watch is not None else 0.0
        if isinstance(end, Exception):
            self.names.append(name)
            self.patterns.append(pattern)
            raise end
        self.look(first.context, pattern, name)
        if watch is not None:
            watch.__self__.loaded_s = min(end, pattern.phases.measure_s)

    def look(self, context: RunContext, pattern: TrafficPattern, name: str) -> None:
        """A load that succeeds."""
        self.names.append(name)
        self.patterns.append(pattern)
        idle = max(0.0, 1.0 - pattern.producers / self._capacity)
        context.history.warm_up = WarmUp(pattern.producers, idle)


def warmed(monkeypatch: pytest.MonkeyPatch, loads: Loads, load_max_s: float = 60.0) -> list[str]:
    """The phases that a warm-up by these loads reports."""
    reporter = RecordingReporter()
    monkeypatch.setattr(module, "can_climb", lambda *_: False)

    def offer(first: FirstLoads, *given: Any) -> None:
        loads.offer(first, *given)

    monkeypatch.setattr(FirstLoads, "_offer", offer)
    context = SimpleNamespace(
        reporter=reporter, config=CONFIG, workload=CONFIG.workload, history=TrialHistory(),
        pattern=lambda message_bytes, load: CONFIG.pattern(message_bytes, load, 3),
        guards=SimpleNamespace(cap_violation=lambda _: None),
    )  # fmt: skip
    FirstLoads(cast(RunContext, context), cast(SeriesProof, None), load_max_s).warm(TOPIC)
    return [event.text for event in reporter.events if isinstance(event, PhaseStarted)]


def test_a_load_whose_executor_is_lost_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = Loads(StageFailedError("task 1 was lost"), GeneratorError("no broker 2"), 20.0)
    phases = warmed(monkeypatch, loads)
    assert loads.names == ["warm-up-1", "warm-up-2", "warm-up-3"]
    assert phases[1:] == [
        "warming up the brokers again: task 1 was lost",
        "warming up the brokers again: no broker 2",
    ]
    hopeless = Loads(*[StageFailedError("task 1 was lost")] * (FAILED_MAX + 1))
    with pytest.raises(StageFailedError, match="task 1 was lost"):
        warmed(monkeypatch, hopeless)
    assert len(hopeless.names) == FAILED_MAX + 1


def test_the_first_load_proves_the_exporters_series(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    class Proof:
        def poll(self) -> str:
            calls.append("poll")
            return "before"

        def examine(self, before: str, client: ClientWindow, *_: object) -> None:
            calls.append(f"{before}, {client.duration_s:g} s")

    def offer(*_: object) -> UnscoredLoad:
        calls.append("load")
        return UnscoredLoad((), ClientWindow(START_S, START_S + 12.0))

    monkeypatch.setattr(module, "offer_unscored", offer)
    context = cast(RunContext, SimpleNamespace(config=CONFIG, history=TrialHistory()))
    first = FirstLoads(context, cast(SeriesProof, Proof()), 60.0)
    first._offer(TOPIC, CONFIG.pattern(1_000, 4, 3), "warm-up-1")
    assert calls == ["poll", "load", "before, 12 s"]


def test_without_idle_time_lower_loads_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = Loads(20.0, capacity=0.4 * START)
    warmed(monkeypatch, loads)
    assert loads.loads == [START, START // 2, START // 4]
    assert loads.patterns[0].phases.warmup_s == 0.0
    assert all(each.phases.measure_s == LOOK_S for each in loads.patterns[1:])
    hopeless = Loads(20.0, capacity=0.01)
    warmed(monkeypatch, hopeless)
    assert len(hopeless.loads) == 1 + LOOKS_MAX
    readable = Loads(20.0, capacity=1.1 * START)
    warmed(monkeypatch, readable)
    assert readable.loads == [START]


def test_a_short_warm_up_offers_a_load_that_leaves_idle_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for load_max_s, load_s in ((19.0, SHORT_S), (16.0, SHORT_S), (12.0, 6.0), (6.0, 3.0)):
        readable = Loads(capacity=0.6 * START)
        warmed(monkeypatch, readable, load_max_s)
        assert readable.loads == [START // 2]
        saturated = Loads(capacity=0.4 * START)
        warmed(monkeypatch, saturated, load_max_s)
        assert saturated.patterns[0].phases.measure_s == load_s
        assert saturated.loads[1:] == ([START // 4] if load_max_s >= 12.0 else [])


def test_readings_fit_into_the_remaining_time_and_a_failed_one_does_not_end_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    never_warm = Loads(capacity=0.01)
    warmed(monkeypatch, never_warm, load_max_s=30.0)
    assert never_warm.loads == [START, START // 2], "the load leaves time for one reading"
    lost = Loads(20.0, capacity=0.01)
    look = lost.look

    def fail_second(*given: Any) -> None:
        if lost.names:
            raise GeneratorError("no broker 2")
        look(*given)

    monkeypatch.setattr(lost, "look", fail_second)
    assert warmed(monkeypatch, lost)[1:] == [
        "the warm-up ends without its last reading: no broker 2"
    ]


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


class Line:
    """The channel to the tasks of a load that began at `START_S`."""

    start_s: float | None = START_S

    def __init__(self) -> None:
        self.ends_s: list[float] = []

    def end_after(self, window_s: float) -> None:
        self.ends_s.append(window_s)


class Warmed:
    """A load on brokers 1 and 2, of at most 54 s."""

    def __init__(self) -> None:
        self.channel, self.reporter = Line(), RecordingReporter()
        broker = SimpleNamespace(roles=[Role.BROKER])
        source = SimpleNamespace(nodes={1: broker, 2: broker})
        context = SimpleNamespace(reporter=self.reporter, source=source)
        phases = replace(CONFIG.workload.trial, measure_s=54.0, sample_interval_s=1.0)
        pattern = cast(TrafficPattern, SimpleNamespace(phases=phases))
        self.warming = SteadyCostWatch(cast(RunContext, context), pattern)

    def has_ended(self, samples: Sequence[BrokerSample], after_s: float) -> bool:
        channel = cast(TaskChannel, self.channel)
        return self.warming.has_ended(channel, samples, START_S + after_s)


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
    warmed = Warmed()
    assert not warmed.has_ended(of_both(13), 11.1)
    assert warmed.has_ended(of_both(14), 12.1)
    assert warmed.channel.ends_s == [pytest.approx(12.1 + NOTICE_S)] == [warmed.warming.loaded_s]
    last = warmed.reporter.events[-1]
    assert isinstance(last, PhaseProgress)
    assert last.detail == "12 s of load, 3.12 ms a request"
    late = Warmed()
    assert late.has_ended(of_both(55), 53.5)
    assert (late.channel.ends_s, late.warming.loaded_s) == ([], 54.0), "it is about to end"
    blind = Warmed()  # without a metric of the cost a short load is all
    assert not blind.has_ended([], SHORT_S - 0.1)
    assert blind.has_ended([], SHORT_S)
    assert blind.channel.ends_s == [SHORT_S + NOTICE_S]
    waiting = Warmed()
    assert not waiting.has_ended(of_both(14), -1.0)
    waiting.channel.start_s = None
    assert not waiting.has_ended(of_both(14), 12.1)
    assert waiting.reporter.events == [], "the load has not begun"


def test_the_busiest_task_shows_what_the_generator_can_offer() -> None:
    """A load that grew sent less than its last step."""
    ten = pattern(producers=10)
    for busy, share, load_ in ((0.475, 1, 20), (0.475, 0.5, 10), (0.95, 0.9, 9), (0.1, 1, None)):
        sent = round(share * ten.records_per_s * 20.0)
        seen = ClientWindow(100.0, 120.0, counts=Counts(sent_records=sent, loop_busy=busy))
        assert module.generator_load(ten, seen, Validity()) == load_
