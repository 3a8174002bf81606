"""Replicas are spread over racks, and every broker leads alike."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from jobs.cluster.topic_plan import assignment


@st.composite
def equal_racks(draw: st.DrawFn) -> dict[int, str | None]:
    """Brokers of racks of equal size, with ids in any order."""
    racks, size = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    ids = draw(st.permutations(range(0, 3 * racks * size, 3)))
    return {broker: f"rack-{number % racks}" for number, broker in enumerate(ids)}


@st.composite
def any_racks(draw: st.DrawFn) -> dict[int, str | None]:
    """Brokers of racks of any sizes."""
    named = draw(st.lists(st.integers(0, 3), min_size=1, max_size=9))
    return {broker: f"rack-{rack}" for broker, rack in enumerate(named)}


@given(racks=st.one_of(equal_racks(), any_racks()), turns=st.integers(1, 12), data=st.data())
def test_racks_share_the_replicas_of_a_partition_and_brokers_lead_alike(
    racks: dict[int, str | None], turns: int, data: st.DataObject
) -> None:
    replication = data.draw(st.integers(1, len(racks)))
    plan = assignment(list(racks), turns, replication, racks)

    assert sorted(plan) == list(range(turns * len(racks)))
    leads = Counter(replicas[0] for replicas in plan.values())
    assert leads == dict.fromkeys(racks, turns)
    sizes = Counter(racks.values())
    for replicas in plan.values():
        assert len(set(replicas)) == replication
        held = Counter(racks[broker] for broker in replicas)
        assert len(held) == min(replication, len(sizes))
        with_room = [held[rack] for rack in sizes if held[rack] < sizes[rack]]
        assert not with_room or max(held.values()) - min(with_room) <= 1


@given(racks=equal_racks(), turns=st.integers(1, 12), data=st.data())
def test_racks_of_equal_sizes_leave_all_counts_even(
    racks: dict[int, str | None], turns: int, data: st.DataObject
) -> None:
    replication = data.draw(st.integers(1, len(racks)))
    plan = assignment(list(racks), turns, replication, racks)
    held = Counter(broker for replicas in plan.values() for broker in replicas)
    assert held == dict.fromkeys(racks, turns * replication)


@given(racks=equal_racks(), turns=st.integers(1, 12), data=st.data())
def test_followers_of_a_leader_are_spread_over_the_other_racks(
    racks: dict[int, str | None], turns: int, data: st.DataObject
) -> None:
    replication = data.draw(st.integers(1, len(set(racks.values()))))
    plan = assignment(list(racks), turns, replication, racks)
    pairs = Counter((r[0], follower) for r in plan.values() for follower in r[1:])
    counts = [pairs[a, b] for a in racks for b in racks if racks[a] != racks[b]]
    assert not counts or max(counts) - min(counts) <= 1


def test_racks_do_not_matter_unless_each_broker_states_its_own() -> None:
    some: list[dict[int, str | None]] = [{}, {1: "a", 2: "b"}, {1: "a", 2: None, 3: "a", 4: "b"}]
    for racks in some:
        assert assignment([1, 2, 3, 4], 3, 2, racks) == assignment([1, 2, 3, 4], 3, 2)
