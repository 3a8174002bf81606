"""Answers of brokers in the encoding of Kafka's codec, and a recorder of a parser's results."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata import MetadataResponse
from kafka.protocol.producer import InitProducerIdResponse, ProduceResponse
from kafka.record.default_records import DefaultRecordBatchBuilder

from jobs.engine.consuming.stream import Batch, FetchAnswer
from jobs.engine.network.apis import FETCH, PRODUCE
from jobs.engine.task.plan import Partitions


def encoded_batch(base: int, records: int, first_ms: int = 5_000) -> bytes:
    """A record batch in the broker's format, from offset `base` on, one record per millisecond."""
    return base.to_bytes(8, "big") + _batch_after_its_offset(records, first_ms)


@cache
def _batch_after_its_offset(records: int, first_ms: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1_000_000)
    for index in range(records):
        builder.append(index, first_ms + index, None, bytes([index % 256]) * 100, [])
    return bytes(builder.build())[8:]


def size_of(records: int) -> int:
    """Size of an encoded batch of so many records [B]."""
    return len(encoded_batch(0, records))


PARTITIONS = Partitions(("t", "u"), 4)


def _framed(answer: Any, correlation_id: int) -> bytes:
    answer.with_header(correlation_id=correlation_id)
    return bytes(answer.encode(framed=True, header=True))


def response(
    partitions: dict[int, bytes], errors: dict[int, int] | None = None, **fields: Any
) -> bytes:
    """A framed fetch response with the records of these partitions."""
    topic = FetchResponse.FetchableTopicResponse
    data = [
        topic.PartitionData(
            partition_index=index,
            error_code=(errors or {}).get(index, 0),
            high_watermark=1_000 + index,
            log_start_offset=0,
            aborted_transactions=None,
            records=records or None,
        )
        for index, records in partitions.items()
    ]
    answer = FetchResponse(
        throttle_time_ms=fields.get("throttle_ms", 0),
        error_code=fields.get("error_code", 0),
        session_id=fields.get("session_id", 77),
        responses=[topic(topic=fields.get("topic", "t"), partitions=data)] if data else [],
        version=FETCH.most,
    )
    return _framed(answer, fields.get("correlation_id", 3))


class Notes:
    """A sink that records the partitions, batches and answers that a stream finds."""

    def __init__(self) -> None:
        self.partitions: list[tuple[int, int, int]] = []
        self.batches: list[tuple[int, Batch]] = []
        self.controls: list[tuple[int, int]] = []
        self.answers: list[FetchAnswer] = []

    def begin_partition(self, index: int, error_code: int, high_watermark: int) -> None:
        self.partitions.append((index, error_code, high_watermark))

    def take_batch(self, batch: Batch, now: float) -> None:
        self.batches.append((self.partitions[-1][0], batch))

    def take_control_batch(self, last_offset: int, records: int) -> None:
        self.controls.append((last_offset, records))

    def end_response(self, answer: FetchAnswer, now: float) -> None:
        self.answers.append(answer)


def produced(
    codes: dict[int, int], topic: str = "t", throttle_ms: int = 55, correlation_id: int = 12
) -> bytes:
    """A framed produce response: partition → error code."""
    row = ProduceResponse.TopicProduceResponse
    partitions = [
        row.PartitionProduceResponse(index=index, error_code=code, base_offset=9)
        for index, code in codes.items()
    ]
    answer = ProduceResponse(
        responses=[row(name=topic, partition_responses=partitions)],
        throttle_time_ms=throttle_ms,
        version=PRODUCE.most,
    )
    return _framed(answer, correlation_id)


def producer_id(correlation_id: int = 12) -> bytes:
    """A framed response to a request for a producer id."""
    return _framed(InitProducerIdResponse(producer_id=7, version=1), correlation_id)


def metadata(leaders: Mapping[int, int], correlation_id: int = 12) -> bytes:
    """A framed metadata response with these leaders: partition → broker."""
    topic = MetadataResponse.MetadataResponseTopic
    broker = MetadataResponse.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=9092)
    partitions = [
        topic.MetadataResponsePartition(
            partition_index=index, leader_id=leader, replica_nodes=[leader], isr_nodes=[leader]
        )
        for index, leader in leaders.items()
    ]
    topics = [topic(name="t", partitions=partitions)]
    answer = MetadataResponse(
        brokers=[broker], cluster_id="c", controller_id=1, topics=topics, version=4
    )
    return _framed(answer, correlation_id)
