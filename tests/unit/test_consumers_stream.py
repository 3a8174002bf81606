"""Fetch responses, cut at any byte, give the batches that the broker sent."""

from __future__ import annotations

import random

import pytest
from kafka.protocol.consumer import FetchRequest

from jobs.engine.consuming.reading import FetchEncoder, FetchSession
from jobs.engine.consuming.stream import FetchAnswer, FetchFormatError, FetchStream
from jobs.engine.network.apis import FETCH
from jobs.engine.task.plan import Partitions
from metrics.traffic.clients import ConsumerOptions
from tests.support.answers import PARTITIONS, Notes, encoded_batch, response, size_of


def read(data: bytes, cuts: int | None = None, check_crcs: bool = True) -> Notes:
    """Feed the bytes in one piece, or in a number of pieces of random sizes."""
    notes = Notes()
    stream = FetchStream(notes, PARTITIONS, check_crcs)
    rng = random.Random(cuts)
    places = sorted(rng.randrange(len(data) + 1) for _ in range(cuts or 0))
    for begin, end in zip([0, *places], [*places, len(data)], strict=True):
        stream.feed(memoryview(data)[begin:end], 1.0)
    return notes


TWO = response(
    {4: encoded_batch(10, 3) + encoded_batch(13, 1), 9: b"", 5: encoded_batch(0, 20, 9_000)},
    throttle_ms=8,
)


def test_batches_come_with_their_offsets_records_times_and_sizes() -> None:
    notes = read(TWO)
    assert notes.partitions == [(4, 0, 1_004), (9, 0, 1_009), (5, 0, 1_005)]
    assert notes.batches == [
        (4, (10, 12, 3, 5_000, 5_002, size_of(3))),
        (4, (13, 13, 1, 5_000, 5_000, size_of(1))),
        (5, (0, 19, 20, 9_000, 9_019, size_of(20))),
    ]
    assert notes.answers == [FetchAnswer(3, 0, 77, 8)]
    assert read(response({}, error_code=71, session_id=0)).answers == [FetchAnswer(3, 71, 0, 0)]
    assert read(response({2: b""}, {2: 6})).partitions == [(2, 6, 1_002)]


@pytest.mark.parametrize("check_crcs", [True, False])
@pytest.mark.parametrize("cuts", [1, 2, 7, 40, 400])
def test_the_place_of_a_cut_makes_no_difference(cuts: int, check_crcs: bool) -> None:
    whole = read(TWO * 2)
    notes = read(TWO * 2, cuts, check_crcs)
    assert notes.batches == whole.batches
    assert notes.answers == whole.answers == [FetchAnswer(3, 0, 77, 8)] * 2


@pytest.mark.parametrize("missing", [1, 30, 300, size_of(8) - 61, size_of(8) - 5])
def test_a_batch_that_is_cut_off_does_not_count(missing: int) -> None:
    """A response whose last batch is cut, as brokers do at the partition's limit."""
    records = encoded_batch(0, 5) + encoded_batch(5, 8)[:-missing]
    notes = read(response({1: records, 2: encoded_batch(0, 1)}), 9)
    assert [(p, batch[0]) for p, batch in notes.batches] == [(1, 0), (2, 0)]
    assert len(notes.answers) == 1


def test_a_changed_byte_is_found_when_crcs_are_checked() -> None:
    broken = bytearray(TWO)
    broken[-50] ^= 1
    with pytest.raises(FetchFormatError, match="offset 0 has the CRC"):
        read(bytes(broken))
    assert len(read(bytes(broken), check_crcs=False).batches) == 3


def test_a_request_has_the_bytes_of_kafka_pythons_encoder() -> None:
    pattern = ConsumerOptions(
        groups=1, fetch_min_bytes=7, fetch_max_wait_ms=8, fetch_max_bytes=9_000,
        max_partition_fetch_bytes=2_000,
    )  # fmt: skip
    encoded = FetchEncoder(Partitions(("topic",), 4), "me", pattern).encode(
        42, (5, 6), [(1, 100), (3, 2**40)], [2]
    )
    topic = FetchRequest.FetchTopic
    wanted = [
        topic.FetchPartition(
            partition=partition, current_leader_epoch=-1, fetch_offset=offset,
            log_start_offset=-1, partition_max_bytes=2_000,
        )
        for partition, offset in [(1, 100), (3, 2**40)]
    ]  # fmt: skip
    request = FetchRequest(
        replica_id=-1, max_wait_ms=8, min_bytes=7, max_bytes=9_000, isolation_level=0,
        session_id=5, session_epoch=6, topics=[topic(topic="topic", partitions=wanted)],
        forgotten_topics_data=[FetchRequest.ForgottenTopic(topic="topic", partitions=[2])],
        version=FETCH.most,
    )  # fmt: skip
    request.with_header(correlation_id=42, client_id="me")
    assert encoded == bytes(request.encode(framed=True, header=True))


def test_a_request_groups_partitions_by_topic() -> None:
    encoder = FetchEncoder(PARTITIONS, "me", ConsumerOptions(groups=1))
    frame = encoder.encode(1, (0, 0), [(6, 60), (1, 10), (5, 50)], [7, 0])
    request = FetchRequest.decode(frame[4:], version=FETCH.most, header=True)
    named = {each.topic: [(p.partition, p.fetch_offset) for p in each.partitions]
             for each in request.topics}  # fmt: skip
    assert named == {"u": [(2, 60), (1, 50)], "t": [(1, 10)]}
    forgotten = {each.topic: each.partitions for each in request.forgotten_topics_data}
    assert forgotten == {"u": [3], "t": [0]}


def test_an_answer_about_another_topic_has_other_numbers_and_a_strangers_is_refused() -> None:
    notes = read(response({1: encoded_batch(0, 2)}, topic="u"))
    assert [number for number, _, _ in notes.partitions] == [5]
    with pytest.raises(FetchFormatError, match="b'stranger'; expected a topic of the trial"):
        read(response({1: encoded_batch(0, 2)}, topic="stranger"))


def test_a_session_names_only_changed_partitions() -> None:
    session = FetchSession()
    assert session.next_request({1: 10, 2: 20}) == ((0, 0), [(1, 10), (2, 20)], [])
    session.update(0, 99)
    assert session.next_request({1: 10, 2: 25}) == ((99, 1), [(2, 25)], [])
    session.update(0, 99)
    assert session.next_request({2: 25, 3: 0}) == ((99, 2), [(3, 0)], [1])
    session.renew()
    assert session.next_request({2: 25}) == ((99, 0), [(2, 25)], [])
    session.update(70, 99)  # without a session, all are named again
    assert session.next_request({2: 25}) == ((0, 0), [(2, 25)], [])


def test_without_a_session_every_partition_takes_its_turn() -> None:
    session, offsets = FetchSession(), {1: 0, 2: 0, 3: 0, 4: 0}
    for _ in range(8):
        _, named, _ = session.next_request(offsets)
        offsets[named[0][0]] += 10  # an answer has room for the first partition alone
        session.update(0, 0)
    assert offsets == dict.fromkeys((1, 2, 3, 4), 20)


def test_the_end_of_a_transaction_is_distinguished_from_records() -> None:
    marker = bytearray(encoded_batch(2, 1))
    marker[22] |= 0x30  # a control batch, and transactional
    notes = read(response({1: encoded_batch(0, 2) + bytes(marker)}), check_crcs=False)
    assert [batch[:3] for _, batch in notes.batches] == [(0, 1, 2)]
    assert notes.controls == [(2, 1)]


def test_a_batch_that_is_none_is_an_error_behind_whole_ones() -> None:
    for place, value, named in ((16, 1, "format 1"), (11, 3, "and 3 bytes")):
        wrong = bytearray(encoded_batch(5, 1))
        wrong[8:12] = bytes(4) if place == 11 else wrong[8:12]
        wrong[place] = value
        data = response({1: encoded_batch(0, 5) + bytes(wrong)})
        for check_crcs in (True, False):
            with pytest.raises(FetchFormatError, match=named):
                read(data, check_crcs=check_crcs)
    with pytest.raises(FetchFormatError, match="unexpected bytes at its end"):
        read((len(TWO) - 4 + 6).to_bytes(4, "big") + TWO[4:] + b"x" * 6)
