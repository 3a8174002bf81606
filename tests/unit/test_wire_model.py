"""The sizes of the wire model against kafka-python's own encoder, and its arithmetic.

The cores that producers need, by the size of their batches.
"""

from __future__ import annotations

import itertools
import uuid
from dataclasses import replace
from typing import Any

import pytest
from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse
from kafka.protocol.producer import ProduceResponse
from kafka.record.default_records import DefaultRecordBatchBuilder
from syrupy.assertion import SnapshotAssertion

from jobs.config import load, load_workload
from jobs.engine.batches.pool import BatchPool
from jobs.engine.producing.protocol import ProduceEncoder
from jobs.runs.estimate import plan_of
from metrics.planning.load_needs import (
    BYTES_PER_S,
    CONSUMER_CLIENT_ID_BYTES,
    REQUEST_S,
    Assumptions,
    ExecutorCpu,
    Framing,
    batch_bytes,
    describe,
    executor_cpu,
    wire_bytes,
)
from metrics.traffic.clients import ConsumerOptions, ProducerPattern
from metrics.traffic.pattern import TopicOptions, TrafficPattern
from tests.support.patterns import pattern, producer_pattern


def traffic(
    message_bytes: int = 1_000, *, replicas: int = 1, groups: int = 0, **fields: Any
) -> TrafficPattern:
    """A producer that sends eleven messages of 1 kB in a batch, 10 ms of its rate."""
    return pattern(
        message_bytes=message_bytes,
        topic=TopicOptions(replication_factor=replicas),
        consumers=ConsumerOptions(groups=groups),
        **{"rate_records_per_s": 1_000.0, "linger_ms": 10.0} | fields,
    )


PATTERN = traffic()
RECORDS = PATTERN.producer.records_per_batch
NAMES = Assumptions(topic_bytes=len("topic"))


def keyed(size: int, key_bytes: int, headers: int, **options: Any) -> ProducerPattern:
    """A producer of messages with a key and headers of 9 B each."""
    header_bytes = 9 if headers else 0
    return producer_pattern(
        size, key_bytes=key_bytes, headers=headers, header_bytes=header_bytes, **options
    )


def encoded_batch(producer: ProducerPattern) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 2**31 - 1)
    payload = producer.payload
    key = b"k" * payload.key_bytes or None
    value = b"v" * (producer.message_bytes - payload.key_bytes)
    headers = [(f"h{each}", b"x" * payload.header_bytes) for each in range(payload.headers)]
    for index in range(producer.records_per_batch):
        at_ms = int(index * 1000.0 / producer.rate_records_per_s)
        builder.append(index, at_ms, key, value, headers)
    return bytes(builder.build())


def test_a_batch_has_the_size_of_the_encoded_one() -> None:
    values = (0, 1, 63, 64, 100, 8_191, 8_192, 100_000)
    for value_bytes, key_bytes, headers in itertools.product(values, (0, 20, 100), (0, 1, 11)):
        made = keyed(key_bytes + value_bytes, key_bytes, headers, linger_ms=10.0)
        case = value_bytes, key_bytes, headers
        assert batch_bytes(made) == len(encoded_batch(made)), case


def test_a_produce_request_and_its_answer_have_the_encoders_sizes() -> None:
    given = replace(NAMES, client_id_bytes=len("client-7"))
    batch = memoryview(encoded_batch(PATTERN.producer))
    encoder = ProduceEncoder("topic", "client-7", acks=1, timeout_ms=1_000)
    buffers = encoder.encode(1, [(3, bytes(batch[:61]), batch[61:])])
    found = wire_bytes(PATTERN, given=given)
    assert found.produce_requests * RECORDS == pytest.approx(sum(map(len, buffers)))
    topic = ProduceResponse.TopicProduceResponse
    partition = topic.PartitionProduceResponse(
        index=3, error_code=0, base_offset=5, log_append_time_ms=-1, log_start_offset=0, version=7
    )
    responses = [topic(version=7, name="topic", partition_responses=[partition])]
    answer = ProduceResponse(version=7, responses=responses, throttle_time_ms=0)
    assert found.produce_answers * RECORDS == pytest.approx(_framed(answer))
    assert wire_bytes(traffic(acks="0")).produce_answers == 0
    assert wire_bytes(traffic(acks="all"), given=given) == found


def _framed(message: Any) -> int:
    message.with_header(correlation_id=1)
    return len(message.encode(framed=True, header=True))


def test_a_consumers_fetch_and_its_answer_have_the_encoders_sizes() -> None:
    topic_id = uuid.uuid4()
    asked = FetchRequest.FetchTopic.FetchPartition(
        partition=3, current_leader_epoch=0, fetch_offset=5, last_fetched_epoch=-1,
        log_start_offset=-1, partition_max_bytes=1 << 20, version=17,
    )  # fmt: skip
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, isolation_level=0, session_id=1,
        session_epoch=2, forgotten_topics_data=[], rack_id="", version=17,
        topics=[FetchRequest.FetchTopic(version=17, topic_id=topic_id, partitions=[asked])],
    )  # fmt: skip
    request.with_header(correlation_id=1, client_id="c" * CONSUMER_CLIENT_ID_BYTES)
    found = wire_bytes(traffic(groups=1), given=NAMES)
    size = len(request.encode(framed=True, header=True))
    assert found.consumer_requests * RECORDS == pytest.approx(size)
    data = FetchResponse.FetchableTopicResponse.PartitionData(
        partition_index=3, error_code=0, high_watermark=9, last_stable_offset=9,
        log_start_offset=0, aborted_transactions=None, preferred_read_replica=-1,
        records=encoded_batch(PATTERN.producer), version=17,
    )  # fmt: skip
    topic = FetchResponse.FetchableTopicResponse(version=17, topic_id=topic_id, partitions=[data])
    answer = FetchResponse(
        version=17, throttle_time_ms=0, error_code=0, session_id=1, responses=[topic]
    )
    assert found.consumer_answers * RECORDS == pytest.approx(_framed(answer))


def test_every_replica_but_the_first_and_every_group_read_everything_again() -> None:
    once = wire_bytes(traffic(replicas=2, groups=1))
    more = wire_bytes(traffic(replicas=3, groups=4))
    assert more.follower_answers == pytest.approx(2 * once.follower_answers)
    assert more.consumer_answers == pytest.approx(4 * once.consumer_answers)
    assert more.produce_requests == once.produce_requests
    assert more.brokers_in - more.served_in == pytest.approx(more.follower_answers)
    assert more.brokers_out - more.served_out == pytest.approx(more.follower_requests)
    each_way = [8e-3 * more.brokers_in, 8e-3 * more.brokers_out]
    assert list(more.mbit_per_s(1_000.0)) == pytest.approx(each_way)
    alone = wire_bytes(PATTERN)
    assert (alone.follower_answers, alone.consumer_requests) == (0, 0)


def test_the_network_adds_headers_for_each_packet_and_acknowledgement() -> None:
    framing = Framing(mtu_bytes=1_500, link_bytes=38)
    plain, framed = wire_bytes(PATTERN), wire_bytes(PATTERN, framing)
    packets = plain.produce_requests * RECORDS / 1_448
    grown = (framed.produce_requests - plain.produce_requests) * RECORDS
    assert grown == pytest.approx(packets * 90)
    acked = (framed.produce_answers - plain.produce_answers) * RECORDS
    assert acked == pytest.approx(packets / 2 * 90), "the answer is the last acknowledgement"
    tiny = traffic(1, linger_ms=0.0)
    assert wire_bytes(tiny, framing).produce_answers - wire_bytes(tiny).produce_answers == 90


def test_the_model_batches_as_the_generator_does() -> None:
    sizes, lingers_ms, keys = (100, 1_000, 10_000), (0.0, 25.0, 500.0), ((0, 0), (20, 0), (0, 2))
    for size, linger_ms, (key_bytes, headers) in itertools.product(sizes, lingers_ms, keys):
        options = {"linger_ms": linger_ms, "pool_bytes": 65_536}
        made = keyed(size, key_bytes, headers, rate_records_per_s=250_000 / size, **options)
        section, case = BatchPool(made).sections[0], (size, linger_ms, key_bytes, headers)
        assert section.full_records == made.records_per_full_batch, case
        assert section.fitting(made.records_per_batch) == made.records_per_batch, case
        assert section.size_of(made.records_per_batch) == batch_bytes(made), case


def test_the_plan_of_a_run_has_the_network_in_its_notes() -> None:
    config = load("testbed", "demo", "default", ["workload.producer.acks=0"])
    without_answers = config.workload.pattern(1_000)
    assert wire_bytes(without_answers).produce_answers == 0
    assert wire_bytes(without_answers).follower_answers > 0
    (network,) = [note for note in plan_of(config).notes if "interfaces" in note]
    assert network == describe(config.workload.pattern(size) for size in (100, 10_000))
    text = describe(traffic(size) for size in (100, 10_000))
    assert text.startswith("Mbit/s on all brokers' interfaces for each MB/s of payload: 100 B: ")
    small, large = text.split(": ", 1)[1].split("; ")
    assert "(+5." in small
    assert "10,000 B: 8." in large and "(+0.0" in large


def test_each_request_of_the_smallest_batches_and_each_byte_takes_its_time() -> None:
    small, large = (producer_pattern(n, 250_000 / n, linger_ms=25.0) for n in (1_000, 9_000))
    needed = executor_cpu([large, small], 70e6)
    assert needed is not None
    assert needed.records == 7
    assert needed.requests_per_s == pytest.approx(10_000)
    assert needed.cores == pytest.approx(10_000 * REQUEST_S + 70e6 / BYTES_PER_S)


def test_a_closed_loop_has_no_known_batches() -> None:
    rates = ["workload.producer.rate=unlimited", "workload.producer.rate_bytes_per_s=null"]
    pattern = load_workload("1kB", rates).pattern(1_000)
    assert executor_cpu([pattern.producer], 1e6) is None


def test_the_sentence_has_cores_requests_and_records(snapshot: SnapshotAssertion) -> None:
    assert str(ExecutorCpu(6.84, 82_041.0, 7)) == snapshot
    assert str(ExecutorCpu(0.1, 10.0, 1)).endswith("batches of 1 record")
