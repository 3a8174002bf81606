"""Numbers for the partitions of several topics."""

from __future__ import annotations

from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from jobs.engine.consuming.group_member import is_fair_share
from jobs.engine.producing.control_requests import leaders_in, metadata_request
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


def test_leaders_are_requested_and_read_by_topic() -> None:
    request = MetadataRequest.decode(
        metadata_request(("a", "b"), "me", 3)[4:], version=4, header=True
    )
    assert [topic.name for topic in request.topics] == ["a", "b"]
    topic = MetadataResponse.MetadataResponseTopic
    partition = topic.MetadataResponsePartition
    found = [
        partition(error_code=0, partition_index=0, leader_id=leader, replica_nodes=[], isr_nodes=[])
        for leader in (5, 6)
    ]
    response = MetadataResponse(
        throttle_time_ms=0, brokers=[], cluster_id="x", controller_id=1,
        topics=[
            topic(error_code=0, name=name, is_internal=False, partitions=[each])
            for name, each in zip("ab", found, strict=True)
        ],
        version=4,
    )  # fmt: skip
    response.with_header(correlation_id=3)
    frame = bytes(response.encode(framed=True, header=True))[4:]
    assert leaders_in(frame) == {("a", 0): 5, ("b", 0): 6}
