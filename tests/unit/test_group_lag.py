"""Consumer groups of others that fall behind under a load stop the run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from jobs.cluster.admin import AdminError, DescribedTopic, Partition
from jobs.cluster.health import GROUPS_MAX, PARTITIONS_MAX, GroupLags
from jobs.config.goal import GuardLimits
from jobs.trials.control_server import TaskChannel
from jobs.trials.guards import BLIND_S, GROUPS_INTERVAL_S, Guards
from metrics.common.errors import ConfigError
from tests.support.guarded_cluster import Cluster
from tests.support.scripted_admin import ScriptedAdmin

PER_S = 100
"""Records that the topic gains [1/s]."""


class Groups(ScriptedAdmin):
    """A topic that grows by `PER_S`, and groups that read it.

    Attributes:
        read_by: group → records that it has committed; None where this user may not see it.
        partitions: partitions of the topic.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1_000.0
        self.read_by: dict[str, int | None] = {"billing": 0, "redline-r-group-1": 0}
        self.states: dict[str, str] = {}
        self.partitions = 1
        self.error: AdminError | None = None

    def groups(self) -> dict[str, str]:
        return {each: self.states.get(each, "Stable") for each in self.read_by}

    def committed_offsets(self, groups: Sequence[str]) -> dict[str, dict[tuple[str, int], int]]:
        if self.error is not None:
            raise self.error
        found = {}
        for each in groups:
            read = self.read_by[each]
            if read is None:
                raise AdminError("it is hidden", "GroupAuthorizationFailedError")
            found[each] = {("orders", n): read for n in range(self.partitions)}
        return found

    def describe_topics(self, *_: Any, **__: Any) -> list[DescribedTopic]:
        return [DescribedTopic("orders", dict.fromkeys(range(self.partitions), Partition(1)))]

    def end_offsets(self, partitions: Any) -> dict[tuple[str, int], int]:
        return {each: int(PER_S * self.now_s) for each in partitions}


class Watched:
    """Guards of a run beside these groups, on the clock of the test."""

    def __init__(self, **limits: Any) -> None:
        self.admin, self.warnings = Groups(), list[str]()
        self.cluster = Cluster()
        self.guards = Guards(
            GuardLimits(**limits), self.cluster, str.isdigit, self.warnings.append,
            lambda: self.admin.now_s,
        )  # fmt: skip
        self.admin.read_by["billing"] = int(PER_S * self.admin.now_s)
        self.lags = GroupLags(self.admin, lambda group: group.startswith("redline-"), self._clock)

    def open(self) -> Watched:
        self.guards.groups = self.lags
        self.guards.open()
        return self

    def _clock(self) -> float:
        return self.admin.now_s

    def load(self, seconds: float, reads_share: float) -> str | None:
        """A load under which the group reads a share of what is written; why the run stopped."""
        channel = TaskChannel("127.0.0.1", 1, 1, lambda _: None)
        looks = iter(range(10**6))
        for _ in range(int(seconds / GROUPS_INTERVAL_S) + 1):
            wait_s = self.guards._look(partial(self.guards._look_at_groups, looks), channel)
            if wait_s is None:
                break
            assert wait_s == GROUPS_INTERVAL_S
            self.rest(wait_s, reads_share)
        return self.guards.tripped

    def rest(self, seconds: float, reads_share: float) -> None:
        self.admin.now_s += seconds
        read = self.admin.read_by["billing"]
        assert read is not None
        self.admin.read_by["billing"] = read + int(reads_share * PER_S * seconds)


def test_a_group_that_falls_a_minute_behind_under_loads_stops_the_run() -> None:
    for reads_share in (0.0, 0.85, 1.0, 2.0):
        watched = Watched().open()
        why = watched.load(300, reads_share)
        assert (why is None) == (reads_share > 0)
        assert watched.warnings == []
        if why is not None:
            words = (
                "the consumer group billing of other clients grew by 9,000 records under the load"
            )
            assert words in why and "as many as its topics gain in 90 s" in why
    for _ in range(8):
        assert watched.load(50, 0.2) is None  # 40 s behind each time
        watched.rest(50, 2.5)
    watched.rest(600, 0.0)
    assert watched.load(50, 0.9) is None


def test_a_group_that_commits_once_a_minute_does_not() -> None:
    watched = Watched().open()
    channel, looks = TaskChannel("127.0.0.1", 1, 1, lambda _: None), iter(range(100))
    for number in range(60):
        look = partial(watched.guards._look_at_groups, looks)
        assert watched.guards._look(look, channel) is not None
        watched.rest(GROUPS_INTERVAL_S, 6.0 if number % 6 == 5 else 0.0)


def test_the_largest_active_groups_of_others_are_watched() -> None:
    watched = Watched()
    watched.admin.read_by = {**{f"group-{n:03}": n for n in range(60)}, "redline-x": 99, "idle": 98}
    watched.admin.states["idle"] = "Empty"
    assert watched.lags.choose() == tuple(f"group-{n:03}" for n in range(59, 59 - GROUPS_MAX, -1))
    watched.admin.partitions = PARTITIONS_MAX // 2
    assert watched.lags.choose() == ("group-059", "group-058")
    watched.admin.partitions = PARTITIONS_MAX + 1
    assert watched.lags.choose() == ()


@pytest.mark.parametrize("fails_closed", [False, True])
def test_groups_that_this_user_may_not_describe_are_named(fails_closed: bool) -> None:
    for case, words in (
        ("groups", "2 consumer groups, billing among them"),
        ("cluster", "cluster"),
    ):
        watched = Watched(fail_closed=fails_closed)
        if case == "groups":
            watched.admin.read_by = {"billing": None, "audit": 7, "orders": None}
        else:
            watched.admin.read_by, watched.cluster.hidden = {}, None
        if fails_closed:
            with pytest.raises(ConfigError, match=words):
                watched.open()
            continue
        watched.open()
        (warning,) = watched.warnings
        assert words in warning and "grant the user the ACL Describe on groups" in warning


def test_an_unread_lag_is_a_warning_and_ends_the_load_where_limits_fail_closed() -> None:
    for fails_closed in (False, True):
        watched = Watched(fail_closed=fails_closed).open()
        watched.admin.error = AdminError("no answer", "KafkaTimeoutError")
        why = watched.load(3 * BLIND_S, 1.0)
        assert (why is not None) == fails_closed
        assert why is None or "could not be read for 70 s" in why
        (warning,) = watched.warnings
        assert "could not be read for 70 s" in warning
