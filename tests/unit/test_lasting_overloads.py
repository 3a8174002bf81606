"""A load that keeps brokers of others overloaded ends, whichever indicator shows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jobs.runs.steady import SteadyAnswer
from jobs.trials import measure, running_load, unscored_load
from jobs.trials.context import RunContext
from jobs.trials.early_end import overload_lasts
from jobs.trials.measure import Rig, SearchProgress, TrialMeasurer
from jobs.trials.running_load import RunningLoad
from jobs.trials.sampling import Samples
from metrics.judging.thresholds import Indicators, Thresholds
from metrics.judging.verdict import judge
from metrics.sources.beans import HANDLER_IDLE_NS
from metrics.sources.sample import BrokerSample
from metrics.traffic.pattern import Phases, TrafficPattern
from metrics.traffic.profile import Climb, RateProfile
from metrics.trial.evidence import ClusterFacts, Judgement, ReplicaEnds
from search.model import Verdict
from tests.support.contexts import run_context
from tests.support.evidence import evidence
from tests.support.patterns import pattern
from tests.support.running_loads import START_S, running
from tests.support.scripted_source import ScriptedSource
from tests.support.steady_trials import at, limit

LOAD = pattern(producers=10)
LIMITS = Indicators(produce_response_ms_max=20.0, request_queue_max=50.0)
CALM = {"idle": 0.5, "short": 0.0, "lag": 0.0, "queue": 3.0, "took_ms": 5.0, "shrinks": 0.0}
CALM |= {"under_replicated": 2.0}
"""A load that is sustained, on brokers of which some partitions lack replicas at rest."""


class Seen:
    """What is known of a load after some seconds: it changes after a while, and begins at rest."""

    def __init__(self, load_s: float, later_s: float = 0.0, **later: float) -> None:
        self.start_s: float | None = START_S
        self.now_s = START_S + load_s
        self.ended_s: float | None = None
        seconds = range(-3, int(load_s) + 1)
        total = dict.fromkeys(("idle_ns", "shrinks", "count", "sum"), 0.0)
        written = copied = acked = 0
        self._acked: list[tuple[float, int]] = []
        nodes, replicas = [], []
        for second in seconds:
            now = CALM | (later if second > later_s else {})
            total["idle_ns"] += now["idle"] * 1e9
            total["shrinks"] += now["shrinks"]
            total["count"] += 100.0
            total["sum"] += 100.0 * now["took_ms"]
            values = {
                HANDLER_IDLE_NS: total["idle_ns"],
                "isr_shrinks": total["shrinks"],
                "under_replicated_partitions": now["under_replicated"],
                "request_queue_size": now["queue"],
                "produce_total_ms_count": total["count"],
                "produce_total_ms_mean": total["sum"] / total["count"],
            }
            nodes += [BrokerSample(each, START_S + second, values) for each in (1, 2)]
            if second > 0:
                written += 10_000
                acked += round(LOAD.records_per_s * (1.0 - now["short"]))
                copied += round(10_000 * (1.0 - now["lag"]))
                self._acked.append((float(second), acked))
            ends = {1: written, 2: written}, {1: copied, 2: copied}
            replicas.append(ReplicaEnds(START_S + second, 0.01, *ends))
        self.samples = Samples(nodes, (), replicas)

    def acked(self) -> list[tuple[float, int]]:
        return self._acked

    def phases_now(self, phases: Phases) -> Phases:
        return phases

    def fail(self, why: Exception) -> None:
        raise why

    def end_now(self) -> None:
        self.ended_s = self.now_s

    def end_after(self, window_s: float) -> None:
        self.ended_s = window_s

    def take_window(self, _number: int) -> None:
        """No window has ended."""


FACTS = ClusterFacts(followers=1, under_replicated_at_rest={1: 2.0, 2: 2.0})


def context(is_exclusive: bool = False, **parts: Any) -> RunContext:
    search = SimpleNamespace(overload_max_s=10.0)
    thresholds = Thresholds(indicators=LIMITS)
    goal = SimpleNamespace(name="default", search=search, indicators=LIMITS, thresholds=thresholds)
    cluster = SimpleNamespace(is_exclusive=is_exclusive)
    workload = SimpleNamespace(trial=LOAD.phases)
    config = SimpleNamespace(cluster=cluster, goal=goal, goals=(goal,), workload=workload)
    given = {"source": ScriptedSource((1, 2)), "config": config}
    return run_context(**given | {"facts": FACTS} | parts)


def running_as(seen: Seen, load: TrafficPattern = LOAD, **of_load: Any) -> RunningLoad:
    given = of_load.pop("context", None) or context()
    return running(load, seen, given, samples=lambda: seen.samples, facts=FACTS, **of_load)


def lasts(seen: Seen, load: TrafficPattern = LOAD, **of_load: Any) -> bool:
    return overload_lasts(running_as(seen, load, **of_load), seen.now_s)


OVERLOADS = [
    {"idle": 0.17},
    {"short": 0.08},
    {"lag": 0.5},
    {"queue": 80.0},
    {"took_ms": 40.0},
    {"shrinks": 1.0},
    {"under_replicated": 3.0},
]


def test_an_overload_lasts_by_each_indicator() -> None:
    assert not lasts(Seen(60.0))
    for over in OVERLOADS:
        assert lasts(Seen(60.0, 45.0, **over)), over
        assert not lasts(Seen(60.0, 58.0, **over)), "a moment"
        assert not lasts(Seen(5.0, 0.0, **over)), "too early"


def test_an_uneven_load_does_not_fall_short() -> None:
    short, busy = Seen(60.0, 45.0, short=0.2), Seen(60.0, 45.0, idle=0.1)
    profile = replace(LOAD, profile=RateProfile("day", ((0.0, 0.5), (60.0, 1.0))))
    uneven: tuple[tuple[TrafficPattern, Climb | None], ...] = (
        (profile, None), (LOAD, Climb(1, 2.0)), (pattern(arrivals="poisson"), None)
    )  # fmt: skip
    for load, climb in uneven:
        assert lasts(busy, load, climb=climb)
        assert not lasts(short, load, climb=climb)


# --- what follows from it ---------------------------------------------------------------


@pytest.mark.parametrize("kept_s", [0.0, 10.0])
def test_a_hold_that_turns_overloaded_late_did_not_last(kept_s: float) -> None:
    """Its whole window, or its disks, look sustained."""
    seen = replace(evidence(), kept_overloaded_s=kept_s)
    judged = judge(seen, Thresholds())
    held = at(64, seconds=45.0, evidence=seen, steady=True, judgements={"default": judged})
    found = SteadyAnswer(limit(), (held,)).complete(limit(), held.pattern)
    if not kept_s:
        assert (judged.verdict, found.lasted) == (Verdict.SUSTAINED, None)
        return
    assert judged.reasons[0].text == (
        "the brokers were overloaded for the last 10 s, so the load was stopped"
    )
    assert (judged.verdict, found.lasted, found.answer_load) == (Verdict.OVERLOADED, False, 0.0)


def test_a_window_of_a_hold_that_an_overload_ended_is_followed_by_rest() -> None:
    none, waited = cast(Any, None), []

    def await_recovery() -> SimpleNamespace:
        waited.append(True)
        return SimpleNamespace(since_s=None)

    gates = cast(Any, SimpleNamespace(await_recovery=await_recovery))
    over = {"default": Judgement(Verdict.OVERLOADED, ())}
    for kept_s, waits in ((0.0, 0), (10.0, 1)):
        measurer = TrialMeasurer(Rig(context(), none, gates), 100, SearchProgress(), held=64)
        seen = replace(evidence(), kept_overloaded_s=kept_s)
        measurer._with_recovery(at(64, evidence=seen, held=True, judgements=over))
        assert len(waited) == waits
        assert measurer.held == (None if waits else 64), "whether the next one passes all gates"


# --- where it is looked for -------------------------------------------------------------


class Guards(SimpleNamespace):
    """Guards that keep why the run stops."""

    def __init__(self) -> None:
        self.stopped: list[str] = []
        none, context = (lambda *_: None), (lambda *_: nullcontext())
        super().__init__(
            ends_load=None, stop=self.stopped.append, watch=context, required=context,
            admit=none, require_room=none, settle=none,
        )  # fmt: skip


@pytest.mark.parametrize("is_exclusive", [False, True], ids=["of others", "testbed"])
@pytest.mark.parametrize("over", [{}, *OVERLOADS], ids=lambda over: next(iter(over), "calm"))
def test_a_load_without_a_gap_stops_the_run(
    over: dict[str, float], is_exclusive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, guards, none = Seen(60.0, 45.0, **over), Guards(), cast(Any, None)
    nothing = SimpleNamespace(watch=nullcontext)
    monkeypatch.setattr(measure, "OthersHarm", lambda *_: nothing)
    monkeypatch.setattr(measure, "progress_reported", lambda _: nullcontext())
    monkeypatch.setattr(measure, "time", SimpleNamespace(time=lambda: seen.now_s))
    cluster = SimpleNamespace(broker_control=None)
    gates = SimpleNamespace(level=None, under_replicated_at_rest=FACTS.under_replicated_at_rest)
    given = context(is_exclusive, guards=guards, cluster=cluster)
    measurer = TrialMeasurer(Rig(given, none, cast(Any, gates)), 100, SearchProgress())
    load = running_as(seen, context=given, windows=3)
    with measurer._watched_windows(measure._Loading(load.load, 1), [], load):
        pass  # the look at the end is the only one
    expected = (
        "the load was an overload for 10 s; offer a smaller load, or raise "
        "goal.search.overload_max_s to allow a longer overload"
    )
    assert guards.stopped == ([expected] if over and not is_exclusive else [])


def test_a_load_outside_of_trials_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warm-up, proof, calibration and backlog; only trials read the replicas' end offsets."""
    looks: list[Any] = []

    @contextmanager
    def watching(name: str, look: Any, *_: object) -> Iterator[None]:
        looks.append((name, look()))
        yield

    long = LOAD.with_phases(replace(LOAD.phases, measure_s=100.0))
    grows = Climb(1, 2.0)
    cases: list[tuple[dict[str, float], Climb | None, bool]] = [
        *((each, None, "lag" not in each) for each in OVERLOADS),
        ({}, None, False),
        ({"idle": 0.1}, grows, True),
        ({"short": 0.3}, grows, False),
    ]
    monkeypatch.setattr(running_load, "watching", watching)
    for over, climb, ends in cases:
        seen = Seen(60.0, 45.0, **over)
        clock = SimpleNamespace(time=lambda now_s=seen.now_s: now_s)
        monkeypatch.setattr(running_load, "time", clock)
        load = running(
            long, seen, context(), seen.samples.nodes, facts=ClusterFacts(followers=1), climb=climb
        )
        with unscored_load.ended_by_overload(load):
            name, next_s = looks.pop()
        assert (name, next_s is None, seen.ended_s is not None) == ("overload", ends, ends), over
