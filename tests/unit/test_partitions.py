"""Numbers for the partitions of several topics."""

from __future__ import annotations

from jobs.engine.consuming.group_member import is_fair_share
from jobs.engine.producing.protocol import ProduceEncoder
from jobs.engine.task.plan import Partitions

THREE = Partitions(("a", "b", "c"), 4)


def test_each_partition_has_one_number() -> None:
    assert len(THREE) == 12
    for number, name in ((0, ("a", 0)), (3, ("a", 3)), (9, ("c", 1))):
        assert (THREE.of(number), THREE.number(*name)) == (name, number)
    assert THREE.number("d", 0) is None
    assert THREE.number("a", 4) is None
    assert THREE.number("a", -1) is None


def test_producers_take_the_topics_in_turns() -> None:
    taken = [THREE.topic_of(producer) for producer in range(4)]
    assert taken == [
        ("a", range(4)), ("b", range(4, 8)), ("c", range(8, 12)), ("a", range(4))
    ]  # fmt: skip


def test_a_range_assignor_gives_the_first_members_more_of_each_topic() -> None:
    owned = {3: [3, 4, 5, 6], 2: [6], 5: [2, 3], 12: [1]}
    for members, counts in owned.items():
        found = [count for count in range(13) if is_fair_share(count, THREE, members)]
        assert found == counts, f"12 partitions of three topics for {members}"


def test_a_request_names_the_partition_within_its_topic() -> None:
    batch = (b"h" * 61, memoryview(b"abc"))
    alone = ProduceEncoder("b", "me", 1, 1_000).encode(7, [(1, *batch)])
    numbered = ProduceEncoder("b", "me", 1, 1_000, first=4).encode(7, [(5, *batch)])
    assert b"".join(alone) == b"".join(numbered)
