"""The engine's request buffers and response reader agree with kafka-python's own codec."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
)

from jobs.engine.network.apis import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    Api,
)
from jobs.engine.network.transport import (
    AnswerFormatError,
    FrameReader,
    answer_of,
    correlation_id_of,
    drop_bytes,
)
from jobs.engine.producing.protocol import (
    AddPartitions,
    ControlRequest,
    EndTransaction,
    FindCoordinator,
    FindLeaders,
    InitProducerId,
    ProduceEncoder,
    Sender,
    decode_answer,
    decode_produce_response,
    encode_request,
)
from jobs.engine.task.plan import Partitions
from tests.support.answers import produced


def test_request_bytes_equal_those_of_kafka_python_and_the_payload_is_not_copied() -> None:
    payload = memoryview(b"defgh")
    batches = [(3, b"h" * 61, memoryview(b"abc")), (1, b"g" * 61, payload)]
    encoded = ProduceEncoder("topic-é", "client", -1, 1234).encode(77, batches)
    topic = ProduceRequest.TopicProduceData
    data = [
        topic.PartitionProduceData(index=index, records=header + bytes(records))
        for index, header, records in batches
    ]
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=1234,
        topic_data=[topic(name="topic-é", partition_data=data)],
        version=PRODUCE.most,
    )
    request.with_header(correlation_id=77, client_id="client")
    assert b"".join(encoded) == bytes(request.encode(framed=True, header=True))
    assert any(buffer is payload for buffer in encoded)


def test_response_is_read_as_kafka_python_writes_it() -> None:
    frame = produced({4: 0, 2: 6})[4:]
    assert correlation_id_of(frame) == 12
    assert decode_produce_response(frame) == ({4: 0, 2: 6}, 55)


def test_answers_of_no_broker_end_in_an_error_and_no_loop() -> None:
    for sent, words in (
        (struct.pack(">i", -4) + b"rest", "a frame has -4 bytes"),
        (b"HTTP/1.1 400 Bad Request", r"a frame has 1213486160 bytes.*a broker's listen"),
    ):
        with pytest.raises(AnswerFormatError, match=words):
            list(FrameReader().feed(sent))
    backwards = struct.pack(">iihi", 1, 2**31 - 1, -6, 0) + bytes(8)
    with pytest.raises(AnswerFormatError, match=r"about records.*name has -6 bytes"):
        decode_produce_response(backwards)
    for error in (MemoryError, RecursionError):
        words = "about anything, with 3 bytes, cannot be read"
        with pytest.raises(AnswerFormatError, match=words), answer_of("anything", b"abc"):
            raise error


@given(
    st.lists(st.binary(max_size=40), max_size=8),
    st.lists(st.integers(min_value=1, max_value=30), min_size=1, max_size=40),
)
def test_frames_are_read_from_any_pieces(frames: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(len(f).to_bytes(4, "big") + f for f in frames)
    reader, seen, position, turn = FrameReader(), [], 0, 0
    while position < len(stream):
        size = cuts[turn % len(cuts)]
        seen += [bytes(f) for f in reader.feed(stream[position : position + size])]
        position, turn = position + size, turn + 1
    assert seen == frames


def test_a_large_frame_in_many_pieces_takes_time_in_proportion_to_its_size() -> None:
    size, reader = 32 * 2**20, FrameReader()
    piece = memoryview(bytes(16_384))
    begun_s = time.process_time()
    assert list(reader.feed(struct.pack(">i", size))) == []
    seen = [len(frame) for _ in range(size // len(piece)) for frame in reader.feed(piece)]
    assert seen == [size]
    assert time.process_time() - begun_s < 2.0  # 30 GB are copied in more than that


@given(st.lists(st.binary(max_size=10), max_size=6), st.integers(min_value=0, max_value=60))
def test_drop_bytes_keeps_the_rest(buffers: list[bytes], count: int) -> None:
    assert b"".join(drop_bytes(list(buffers), count)) == b"".join(buffers)[count:]


RESULT = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult.AddPartitionsToTxnPartitionResult
ADDED = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
LED = MetadataResponse.MetadataResponseTopic
CONTROL: list[tuple[ControlRequest, Api, Any, dict[str, Any], Any, dict[str, Any], Any]] = [
    (
        FindLeaders(), METADATA, MetadataRequest, {"allow_auto_topic_creation": False},
        MetadataResponse,
        {"topics": [LED(name="u", error_code=0, partitions=[
            LED.MetadataResponsePartition(error_code=error, partition_index=index, leader_id=leader)
            for index, leader, error in ((0, 7, 0), (1, -1, 0), (2, 8, 5))
        ]), LED(name="other", error_code=0, partitions=[
            LED.MetadataResponsePartition(error_code=0, partition_index=0, leader_id=7)
        ])]}, (0, {3: 7}),
    ),
    (
        FindCoordinator(), FIND_COORDINATOR, FindCoordinatorRequest, {"key": "tx", "key_type": 1},
        FindCoordinatorResponse, {"error_code": 0, "node_id": 4, "host": "h", "port": 5},
        (0, (4, ("h", 5))),
    ),
    (
        InitProducerId(), INIT_PRODUCER_ID, InitProducerIdRequest,
        {"transactional_id": "tx", "transaction_timeout_ms": 60}, InitProducerIdResponse,
        {"error_code": 51, "producer_id": 8, "producer_epoch": 9}, (51, (8, 9)),
    ),
    (
        AddPartitions((1, 3)), ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest,
        {"v3_and_below_transactional_id": "tx", "v3_and_below_producer_id": 8,
         "v3_and_below_producer_epoch": 9},
        AddPartitionsToTxnResponse,
        {"results_by_topic_v3_and_below": [ADDED(name="t", results_by_partition=[
            RESULT(partition_index=index, partition_error_code=code)
            for index, code in ((0, 55), (1, 51), (2, 0))
        ])]}, (51, None),
    ),
    (
        EndTransaction(True), END_TXN, EndTxnRequest,
        {"transactional_id": "tx", "producer_id": 8, "producer_epoch": 9, "committed": True},
        EndTxnResponse, {"error_code": 14}, (14, None),
    ),
]  # fmt: skip


def test_every_version_of_each_other_request_and_answer_is_that_of_kafka_python() -> None:
    sender, partitions = Sender("me", "tx", 60, 8, 9), Partitions(("t", "u"), 3)
    for request, api, kind, fields, answer, content, decoded in CONTROL:
        for version in range(api.least, api.most + 1):
            versions = {api.key: version}
            sent = encode_request(request, sender, partitions, 33, versions)
            read = kind.decode(sent[4:], version=version, header=True)
            assert read.header.correlation_id == 33
            assert {name: getattr(read, name) for name in fields} == fields, (api, version)
            if isinstance(request, AddPartitions):
                topics = [(each.name, each.partitions) for each in read.v3_and_below_topics]
                assert topics == [("t", [1]), ("u", [0])]
            made = answer(version=version, **content)
            made.with_header(correlation_id=33)
            frame = bytes(made.encode(framed=True, header=True))[4:]
            assert decode_answer(frame, request, partitions, versions) == decoded, (api, version)
