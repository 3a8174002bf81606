"""Partitions that lack a replica, as a whole cluster reports them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobs.cluster.admin import AdminError, Partition
from jobs.cluster.health import ClusterHealth
from tests.support.scripted_admin import ScriptedAdmin


class Described(ScriptedAdmin):
    """A cluster with a few partitions, some of which a reassignment moves."""

    def __init__(
        self, moved: Mapping[tuple[str, int], Sequence[int]], answers: bool = True
    ) -> None:
        super().__init__()
        self._moved, self._answers = moved, answers
        self.topics = {
            "whole": {0: Partition(1, (1, 2), (2, 1))},
            # Broker 3 is added, or out of sync.
            "orders": {0: Partition(1, (1, 2, 3), (1, 2)), 1: Partition(1, (1, 2, 3), (1,))},
        }
        self.listed: list[Mapping[str, Sequence[int]] | None] = []

    def adding_replicas(
        self, partitions: Mapping[str, Sequence[int]] | None = None
    ) -> dict[tuple[str, int], frozenset[int]]:
        self.listed.append(partitions)
        if not self._answers:
            raise AdminError("denied (ClusterAuthorizationFailedError)", "")
        return {place: frozenset(added) for place, added in self._moved.items()}


def test_replicas_that_a_reassignment_adds_are_not_lacking() -> None:
    admin = Described({("orders", 0): [3], ("orders", 1): [3]})
    assert ClusterHealth(admin).under_replicated() == {("orders", 1)}, "broker 2 is out of sync"
    assert admin.listed == [{"orders": [0, 1]}], "only partitions that lack one"
    for admin in (Described({}), Described({("orders", 0): [3]}, answers=False)):
        assert ClusterHealth(admin).under_replicated() == {("orders", 0), ("orders", 1)}


def test_a_reassignment_is_under_way_while_it_adds_replicas() -> None:
    admin = Described({("orders", 0): [3]})
    assert ClusterHealth(admin).is_reassigning() and admin.listed == [None], "all partitions"
    assert not ClusterHealth(Described({("orders", 0): []})).is_reassigning()
    assert not ClusterHealth(Described({("orders", 0): [3]}, answers=False)).is_reassigning()
