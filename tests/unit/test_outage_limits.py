"""Planned broker outages: requests, waits, expectations of topics, and messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.cluster.admin import NO_LEADER, Partition
from jobs.cluster.broker_outage import PATIENCE_S, AnnouncedOutage
from jobs.cluster.topic_plan import Assignment, TopicState, state_of
from jobs.cluster.topic_set import TopicSet
from jobs.cluster.topics import Topics
from jobs.config import load, load_workload
from jobs.console.events import PhaseStarted, RecordingReporter
from jobs.console.printing import limit_title, point_words
from jobs.features.plan.planning import limits_of
from jobs.runs.outage_limits import caught_up
from jobs.trials.context import RunContext
from metrics.common.errors import NoConclusionError
from metrics.planning.provisioning import Demand, MeasuredLimit, offline_mb_per_s, provision
from metrics.reporting.limit_answer import answer_of
from metrics.reporting.summary import by_goal
from metrics.tables.boundary import Boundary
from metrics.trial.evidence import ClusterFacts, Judgement
from metrics.trial.trial import CATCHING_UP, Trial, offline_state
from search.model import Verdict
from tests.support.evidence import broker, judged
from tests.support.report_rows import overloaded, summary_of_sizes, sustained, trial_at
from tests.support.scripted_admin import ScriptedAdmin

AWAY = frozenset({3})
WANTED: Assignment = {0: (1, 2), 1: (2, 3), 2: (3, 1)}
LED = {
    0: Partition(1, (1, 2), (1, 2)),
    1: Partition(2, (2, 3), (2,)),
    2: Partition(1, (3, 1), (1,)),
}
INVALID = Judgement(Verdict.INVALID, sustained().reasons)


# --- topics -------------------------------------------------------------------


def test_the_next_replica_leads_and_offline_brokers_may_be_out_of_sync() -> None:
    assert state_of(WANTED, LED, offline=AWAY).healthy
    assert state_of(WANTED, LED) == TopicState(moved=(2,), lagging=(1, 2))
    caught = {**LED, 2: Partition(1, (3, 1), (1, 3))}
    assert state_of(WANTED, caught, offline=AWAY).healthy
    assert TopicSet.assigned(("t", "u"), 100, WANTED, AWAY).leaders == (1, 2, 1, 1, 2, 1)
    short = {**LED, 0: Partition(1, (1, 2), (1,))}
    assert state_of(WANTED, short, offline=AWAY) == TopicState(lagging=(0,))
    alone = state_of({0: (3,)}, {0: Partition(NO_LEADER, (3,), (3,))}, offline=AWAY)
    assert alone == TopicState(leaderless=(0,))


def test_replicas_are_assigned_to_brokers_that_are_offline() -> None:
    admin = ScriptedAdmin((1, 2))
    topics = Topics(admin, "run1")
    topics.offline = AWAY
    admin.before_look = lambda: _lead_without(admin, AWAY)
    made = topics.create(load_workload("demo").pattern(100))
    assert {each for replicas in made.replicas.values() for each in replicas} == {1, 2, 3}
    assert set(made.leaders) == {1, 2}
    assert not topics.is_in_sync(made)
    admin.broker_ids = [1, 2, 3]
    admin.before_look = lambda: _lead_without(admin, AWAY, is_in_sync=True)
    assert topics.is_in_sync(made)


def _lead_without(admin: ScriptedAdmin, away: frozenset[int], is_in_sync: bool = False) -> None:
    for partitions in admin.topics.values():
        for number, each in partitions.items():
            live = tuple(broker for broker in each.replicas if broker not in away)
            isr = each.replicas if is_in_sync else live
            partitions[number] = Partition(live[0], each.replicas, isr)


# --- outages ------------------------------------------------------------------


def outage(steps: Sequence[Callable[[ScriptedAdmin], None]]) -> tuple[Any, Any, list[float]]:
    """An outage of three brokers with a step at each pause, its reporter, and the pauses."""
    admin, reporter, pauses = ScriptedAdmin((1, 2, 3)), RecordingReporter(), list[float]()
    left = iter(steps)

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        next(left, lambda _: None)(admin)

    return AnnouncedOutage(admin, (1, 2, 3), reporter, pause), reporter, pauses


def serve(*ids: int) -> Callable[[ScriptedAdmin], None]:
    return lambda admin: setattr(admin, "broker_ids", list(ids))


def phases(reporter: RecordingReporter) -> list[str]:
    return [event.text for event in reporter.events if isinstance(event, PhaseStarted)]


def test_the_operator_is_requested_to_stop_and_to_restart_a_broker(
    snapshot: SnapshotAssertion,
) -> None:
    announced, reporter, pauses = outage([serve(1, 2, 3), serve(1, 3), serve(1, 3), serve(1, 2, 3)])
    assert announced.begin(1) == {2}
    assert len(phases(reporter)) == 1
    announced.end()
    assert phases(reporter) == snapshot
    assert len(pauses) == 4
    announced.end()
    assert len(pauses) == 4, "all brokers serve"
    announced, reporter, _ = outage([serve(), serve(1, 2), serve(1, 2, 3)])
    assert announced.begin(1) == {3}, "a cluster without an answer is requested again"
    serve()(announced._admin)
    announced.end()
    assert len(phases(reporter)) == 1, "an unknown broker is not named"


def test_an_outage_without_a_stopped_broker_fails() -> None:
    announced, _, pauses = outage([])
    with pytest.raises(NoConclusionError, match=r"0 of 3 brokers .* 3600 s; expected 1; "):
        announced.begin(1)
    assert sum(pauses) == PATIENCE_S


# --- verdicts -----------------------------------------------------------------


@pytest.mark.parametrize(("fenced", "verdict"), [(1.0, Verdict.SUSTAINED), (2.0, Verdict.INVALID)])
def test_a_broker_outage_invalidates_no_trial(fenced: float, verdict: Verdict) -> None:
    controllers = (broker(100, fenced_brokers_max=fenced),)
    found = judged(controllers=controllers, cluster=ClusterFacts(offline=1))
    assert found.verdict is verdict, found.reasons
    assert judged(controllers=controllers).verdict is Verdict.INVALID


# --- answers ------------------------------------------------------------------


def while_catching_up(*judged: Judgement, is_in_sync: bool = True) -> Boundary:
    config = load("testbed", "demo", "default", ["goal.search.brokers_offline=1"])
    rest = cast("RunContext", SimpleNamespace(config=config, brokers=2))
    windows: list[Trial] = [
        replace(trial_at(number, 1000, 40, {"default": each}), held=True, state=CATCHING_UP)
        for number, each in enumerate(judged, 1)
    ]
    return caught_up(rest, "default", 40, windows, is_in_sync)


def test_a_limit_that_is_sustained_while_brokers_catch_up_is_a_lower_bound() -> None:
    carried = while_catching_up(sustained(), overloaded(), sustained())
    assert (carried.loads, carried.gave_up, carried.state) == ((40, None), None, CATCHING_UP)
    assert carried.confirmed_s == 30.0
    assert carried.notes == ("1 of 3 windows were overloaded while brokers caught up",)
    assert point_words(carried).startswith("1 kB, catching up: at least 5.00 MB/s, 5,000")
    assert answer_of(carried).why[-1] == carried.notes[0]


def test_a_hold_without_a_limit_while_catching_up_is_no_answer() -> None:
    over, under = overloaded(), sustained()
    for boundary, words in (
        (
            while_catching_up(under, over, over),
            "40 producers overloaded the brokers: 2 of 3 windows were overloaded",
        ),
        (while_catching_up(INVALID, INVALID), "no window in which brokers caught up was valid"),
        (
            while_catching_up(under, under, is_in_sync=False),
            "replicas were not in sync after 2 windows of 10 s",
        ),
    ):
        assert boundary.gave_up is not None and words in boundary.gave_up
        assert boundary.confirmed_s is None


def test_each_state_has_its_own_part_of_an_answer_and_plans_go_by_all_brokers() -> None:
    summary = summary_of_sizes([1000])
    (whole,) = summary.boundaries
    rest = replace(whole, state=offline_state(1), mb_per_s_per_broker=1.0)
    summary = replace(summary, boundaries=(whole, rest))
    assert [name for name, _ in by_goal(summary)] == ["", "1-broker-offline"]
    assert [part.boundaries for _, part in by_goal(summary)] == [(whole,), (rest,)]
    titles = [limit_title(part) for _, part in by_goal(summary)]
    assert ["1 broker offline" in title for title in titles] == [False, True]
    (limit,) = limits_of(summary, None)
    assert limit.mb_per_s == whole.mb_per_s_per_broker


def test_the_reserve_for_offline_brokers_is_that_of_a_plan() -> None:
    limit = MeasuredLimit(1000, 10.0, replication_factor=2)
    planned = provision([limit], Demand(20.0, 1000, 2, offline=1 / 3))
    assert offline_mb_per_s(30.0, 3, 1) == pytest.approx(3 * planned.plan_mb_per_s_per_broker)
