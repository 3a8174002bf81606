"""The bounds of a cluster's owner: the strictest of owner, goal and option, and records."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from jobs.cluster.owner_topic import owner_topics
from jobs.config import Goal, load_goal, load_workload
from jobs.config.goal import GuardLimits, OwnerBounds, parse_bounds, tightened
from jobs.runs.estimate import line_of
from jobs.runs.lifecycle import RunState
from jobs.trials.control_server import ControlServer
from jobs.trials.guards import Guards
from metrics.common.errors import ConfigError, GuardStopError
from metrics.traffic.axes import NP
from search.line import FinishedPoint, Method
from search.model import Done, GaveUp, Observation, Verdict
from tests.support.guarded_cluster import Cluster
from tests.support.patterns import pattern
from tests.support.processes import PATIENCE_S, becomes
from tests.support.single_goal import run_line

LABEL = "topic redline-owner, record bounds"
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "stop_topic": st.sampled_from(["stop-a", "stop-b"]),
    "other_topics": st.booleans(),
    "fail_closed": st.booleans(),
    "disk_free_bytes_min": st.integers(0, 10),
    "disk_used_share_max": st.floats(0.1, 1.0),
    "load_bytes_per_s_max": st.floats(1.0, 10.0),
    "pause_max_s": st.floats(0.0, 10.0),
    "canary_p99_ms_max": st.floats(1.0, 10.0),
    "canary_rise_max": st.floats(1.0, 10.0),
    "others_fall_max": st.floats(0.1, 1.0),
    "others_errors_per_s_max": st.floats(0.1, 10.0),
    "others_lag_s_max": st.floats(1.0, 10.0),
    "controller_queue_ms_max": st.floats(1.0, 10.0),
    "np_max": st.integers(1, 10),
    "write_bytes_max": st.integers(1, 10),
    "connections_per_broker_max": st.integers(1, 10),
}
NEVER_NULL = ("canary_rise_max", "fail_closed")


def strictness(name: str, value: Any) -> float:
    """A number that grows with how much a limit forbids; no limit forbids nothing."""
    if name == "pause_max_s":
        return -(value or 0.0)
    if value is None:
        return float("-inf")
    if isinstance(value, (bool, str)):
        return float(bool(value))
    return float(value if name.endswith("_min") else -value)


goals = st.fixed_dictionaries(
    {},
    optional={
        name: values if name in NEVER_NULL else st.none() | values
        for name, values in VALUES.items()
    },
)
owners = st.fixed_dictionaries({}, optional=VALUES)


@given(goals, owners, owners)
def test_no_combination_loosens_a_limit(
    goal: dict[str, Any], first: dict[str, Any], second: dict[str, Any]
) -> None:
    assert set(VALUES) == set(GuardLimits.model_fields), "each limit is tried"
    limits = GuardLimits(**goal)
    bounds = [OwnerBounds(**each) for each in (first, second)]
    both, other_way = tightened(limits, *bounds), tightened(limits, *reversed(bounds))
    for name in VALUES:
        found = strictness(name, getattr(both, name))
        assert found == strictness(name, getattr(other_way, name)), "the order does not matter"
        wanted = [getattr(limits, name), *(b.given[name] for b in bounds if name in b.given)]
        assert found >= max(strictness(name, each) for each in wanted), name
    if first.get("fail_closed"):
        assert both.stop_topic and both.other_topics and both.canary_p99_ms_max


@pytest.mark.parametrize(
    ("goal", "owner", "name", "expected"),
    [
        ({"np_max": 64}, {"np_max": 20}, "np_max", 20),
        ({"np_max": 8}, {}, "np_max", 8),
        ({"disk_free_bytes_min": 5}, {"disk_free_bytes_min": 9}, "disk_free_bytes_min", 9),
        ({"pause_max_s": None}, {"pause_max_s": 60.0}, "pause_max_s", 0.0),
        ({"stop_topic": None}, {"fail_closed": True}, "stop_topic", "redline-stop"),
        ({"canary_p99_ms_max": None}, {"fail_closed": True}, "canary_p99_ms_max", 1_000.0),
        ({"canary_p99_ms_max": 5_000.0}, {"fail_closed": True}, "canary_p99_ms_max", 5_000.0),
        ({"pause_max_s": None}, {"fail_closed": True}, "pause_max_s", None),
    ],
)
def test_the_strictest_wins(
    goal: dict[str, Any], owner: dict[str, Any], name: str, expected: Any
) -> None:
    assert getattr(tightened(GuardLimits(**goal), OwnerBounds(**owner)), name) == expected


def test_a_record_is_json_or_yaml() -> None:
    wanted = {"fail_closed": True, "load_hours": "22:00-06:00", "np_max": 20}
    text = '{"np_max": 20, "fail_closed": true, "load_hours": "22:00-06:00"}'
    assert parse_bounds(text.encode(), LABEL).given == wanted
    lines = "np_max: 20\nfail_closed: true\nload_hours: 22:00-06:00\n"
    assert parse_bounds(lines.encode(), LABEL).given == wanted
    assert parse_bounds(b"{}", LABEL).given == {}


def test_the_topic_of_the_prefix_binds_beside_that_of_all_prefixes() -> None:
    assert owner_topics("redline-") == ("redline-owner",)
    assert owner_topics("team-a-") == ("redline-owner", "team-a-owner")
    owner = Owner(np_max=9)
    owner.found = {
        topic: OwnerBounds(np_max=most)
        for topic, most in zip(owner_topics("team-a-"), (9, 4), strict=True)
    }
    assert owner.guards().limits.np_max == 4
    assert "in the topic team-a-owner" in str(owner.guards().refusal(pattern(producers=5)))


def test_the_bounds_in_force_are_those_of_all_clusters_of_a_run() -> None:
    guards = {
        "a": Owner(np_max=2).guards(), "b": Guards(GuardLimits(), Cluster(), str.isdigit, print)
    }  # fmt: skip
    run = SimpleNamespace(contexts={k: SimpleNamespace(guards=v) for k, v in guards.items()})
    found = RunState.owner_bounds.fget(cast(RunState, run))  # type: ignore[attr-defined]
    assert found == {"redline-owner": {"np_max": 2}}


class Owner:
    """An owner whose record a test changes."""

    def __init__(self, **bounds: Any) -> None:
        self.cluster = Cluster()
        self.said: list[str] = []
        self.states(**bounds)

    def states(self, **bounds: Any) -> None:
        self.found: dict[str, OwnerBounds] | Exception = {"redline-owner": OwnerBounds(**bounds)}

    def read(self) -> dict[str, OwnerBounds]:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def guards(self, **limits: Any) -> Guards:
        given, warn = GuardLimits(**limits), self.said.append
        watching = Guards(given, self.cluster, str.isdigit, warn, owner=self.read)
        watching.open()
        return watching


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"np_max": 3}, "4 producers, more than 3 (np_max of the cluster's owner"),
        ({"load_bytes_per_s_max": 1_000.0}, "more than 0.001 MB/s (load_bytes_per_s_max of"),
        ({"write_bytes_max": 1}, "in all (write_bytes_max of the cluster's owner"),
        ({"connections_per_broker_max": 2}, "4 connections to each broker, more than 2 (conn"),
        ({"load_hours": "00:00-00:01"}, "load_hours of the cluster's owner are 00:00-00:01"),
    ],
)
def test_no_load_begins_beyond_a_bound_of_the_owner(bounds: dict[str, Any], words: str) -> None:
    owner = Owner()
    watching = owner.guards(np_max=1_000, load_bytes_per_s_max=1e12)
    watching.admit(pattern(producers=4))
    owner.states(**bounds)
    if "load_hours" in bounds and time.localtime()[3:5] == (0, 0):
        pytest.skip("it is the one minute of the day that is allowed")
    with pytest.raises(GuardStopError) as stop:
        watching.admit(pattern(producers=4))
    assert words in str(stop.value)
    assert "as far as the cluster's owner allows" in str(stop.value)


@pytest.mark.parametrize(
    "change",
    [{"redline-owner": OwnerBounds(np_max=3)}, ConfigError("topic redline-owner is empty")],
)
def test_a_running_load_ends_when_the_owner_tightens(change: Any) -> None:
    owner = Owner(np_max=8)
    watching = owner.guards()
    with (
        ControlServer("127.0.0.1", "127.0.0.1") as server,
        server.channel(1) as channel,
        watching.watch(pattern(producers=4), channel),
    ):
        owner.found = change
        assert becomes(lambda: watching.tripped is not None, PATIENCE_S)
    with pytest.raises(GuardStopError, match="redline-owner"):
        watching.require_untripped()


def test_a_running_load_within_the_new_bounds_goes_on_and_the_change_is_said() -> None:
    owner = Owner(np_max=8)
    watching = owner.guards()
    owner.states(np_max=4, others_fall_max=0.1)
    watching.admit(pattern(producers=4))
    (said,) = owner.said
    assert said.endswith("np_max 4, others_fall_max 0.1 (topic redline-owner), from now on")
    assert watching.limits.others_fall_max == 0.1


def test_an_owner_s_brake_holds_beside_that_of_the_goal() -> None:
    owner = Owner(stop_topic="halt")
    owner.cluster.topics = {"halt"}
    with pytest.raises(GuardStopError, match="the topic halt exists"):
        owner.guards(stop_topic="other")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ({"hidden": frozenset({"orders"})}, "may not describe (1, orders among"),
        ({"hidden": None}, "may not read the brokers' log directories"),
        ({"forbidden": {"redline-stop"}}, "may not describe the topic redline-stop"),
    ],
)
def test_what_cannot_be_watched_refuses_the_load_where_the_owner_fails_closed(
    spoil: dict[str, Any], words: str
) -> None:
    owner = Owner()
    vars(owner.cluster).update(spoil)
    owner.guards()
    owner.states(fail_closed=True)
    with pytest.raises(ConfigError) as caught:
        owner.guards(stop_topic=None, other_topics=None)
    assert words in str(caught.value)
    assert "fail_closed of the cluster's owner in the topic redline-owner" in str(caught.value)


SEARCHED = load_workload("demo", ["workload.message_bytes=[100,1000,10000]"])


def searched(
    goal: Goal, guards: Guards | None, limit: float = inf, history: Sequence[Observation] = ()
) -> tuple[dict[int, FinishedPoint], dict[int, list[int]]]:
    """The points of a search where `limit` producers are sustained, and all loads by size."""
    loads: dict[int, list[int]] = defaultdict(list)

    class Planted:
        def __init__(self, message_bytes: int) -> None:
            self.own = loads[message_bytes]

        def measure(self, load: int) -> Observation:
            self.own.append(load)
            return Observation(load, Verdict.SUSTAINED if load <= limit else Verdict.OVERLOADED)

    line = replace(line_of(SEARCHED, goal, 3, guards), check_for_change=False)
    points = run_line(line, Planted, begun=history)
    return {each.message_bytes: each for each in points}, loads


@pytest.mark.parametrize(
    ("goal", "owner"),
    [
        ({}, {"np_max": 20}),
        ({"np_max": 30}, {"np_max": 20}),
        ({"np_max": 20}, None),
        ({"connections_per_broker_max": 20}, {}),
        ({}, {"load_bytes_per_s_max": 20 * SEARCHED.pattern(10_000).mb_per_s * 1e6}),
        ({}, {"np_max": 1}),
    ],
    ids=str,
)
def test_a_search_offers_no_load_beyond_a_bound_and_answers_at_least(
    goal: dict[str, Any], owner: dict[str, Any] | None, snapshot: SnapshotAssertion
) -> None:
    goals = (load_goal("default", [f"goal.search.method={each}"]) for each in get_args(Method))
    reasons = set()
    for found in (each.model_copy(update={"guards": GuardLimits(**goal)}) for each in goals):
        guards = None if owner is None else Owner(**owner).guards(**goal)
        points, loads = searched(found, guards)
        limits = found.guards if guards is None else guards.limits
        for size, point in points.items():
            heaviest = NP.apply(SEARCHED.pattern(size), max(loads[size]))
            assert limits.load_violation(heaviest) is None
            assert max(loads[size]) == point.result.bracket.sustained, "the bound is measured"
            assert point.result.bracket.overloaded is None
        most = points[10_000].result
        assert isinstance(most, GaveUp)
        reasons.add(most.reason)
        lower, _ = searched(found, guards, limit=0.6 * most.bracket.sustained)
        if most.bracket.sustained > 1:
            assert isinstance(lower[10_000].result, Done), "a limit below the bound is found"
    (reason,) = reasons
    assert reason == snapshot


@given(st.integers(1, 300), st.lists(st.tuples(st.integers(1, 400), st.booleans()), max_size=6))
def test_a_search_that_continues_under_a_lower_bound_keeps_it(
    bound: int, before: list[tuple[int, bool]]
) -> None:
    """The trials before may have had more load, and a guard may have ended the last one."""
    history = [
        Observation(load, Verdict.INVALID if ended else Verdict.SUSTAINED, cause="a guard" * ended)
        for load, ended in before
    ]
    guards = Owner(np_max=bound).guards()
    _, loads = searched(load_goal("default", []), guards, history=history)
    assert max(loads[10_000], default=1) <= bound
