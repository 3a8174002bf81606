"""Sealed batches, their producer ids and partitions, and produce requests without a payload's copy.

kafka-python's own encoder makes the head of the request, once per connection; each send patches and
appends fixed-width fields only. Version 7 is used because all its fields have a fixed width, and
every broker from Kafka 2.1 to 4.x accepts it. A broker does the same work for it as for later
versions, which only changed the framing.

Every batch of an idempotent producer carries the producer id, an epoch and the sequence of its
first record; a broker takes a partition's batches only in sequence. Where a batch failed for good
and breaks the sequence, the partition starts again at 0 in the next epoch. A producer without
transactions raises its own epoch (KIP-360); with transactions the coordinator does it for all
partitions, once the transaction of that batch is aborted.

Kafka's producer puts a record with a key into the open batch of the key's partition. When the first
of a broker's batches has waited for `linger.ms`, all of its open batches go into one request. Here
the records that a linger gathered are divided over the partitions of one broker at random, as keys
divide them.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka.protocol.producer import ProduceRequest

from jobs.engine.batches.sections import Section
from jobs.engine.network.connections import PRODUCE
from jobs.engine.network.transport import Buffer, unreadable
from metrics.common.errors import RedlineError
from metrics.traffic.clients import ProducerPattern, zipf_weights

EXPIRED = "KafkaTimeoutError"
"""Error name of records that were never sent within `delivery_timeout_ms`."""

UNACKNOWLEDGED = "Unacknowledged"
"""Error name of records that were sent and had no answer by the end of the drain."""


@dataclass
class Trouble:
    """History of a batch that was not acknowledged at once.

    Attributes:
        failures: number of its failed sends.
        error: the name of the last error.
        is_unsure: whether a broker may hold it, and would recognize it by its sequence.
        copies: number of copies that a broker may hold without recognizing the batch.
    """

    failures: int = 0
    error: str = ""
    is_unsure: bool = False
    copies: int = 0


class Batch:
    """Records of one producer for one partition.

    Attributes:
        first: index of its first record in the producer's schedule.
        records: number of its records.
        due_s: when its first record was due, on the engine's clock [s].
        section: the section with its encoded records.
        size: its size, header included [B].
        stamp: epoch and sequence of an idempotent producer, once it was sent.
        trouble: history of its failures; None for almost every batch.
    """

    __slots__ = ("due_s", "first", "partition", "records", "section", "size", "stamp", "trouble")

    def __init__(
        self, partition: int, first: int, records: int, section: Section, due_s: float
    ) -> None:
        self.partition = partition
        self.first = first
        self.records = records
        self.section = section
        self.due_s = due_s
        self.size = section.size_of(records)
        self.stamp: tuple[int, int] | None = None
        self.trouble: Trouble | None = None

    @property
    def last_error(self) -> str:
        """Name of the error with which it fails if it is given up now."""
        return EXPIRED if self.trouble is None else self.trouble.error


class KeySpread:
    """The choice of a partition for each record of one producer.

    Args:
        partitions: the partitions of the producer's topic.
        index: index of the producer.

    Attributes:
        partitions: the partitions of the producer's topic.
    """

    __slots__ = ("_rng", "_weights", "partitions")

    def __init__(self, pattern: ProducerPattern, partitions: range, index: int) -> None:
        self.partitions = partitions
        self._rng = random.Random(f"{pattern.seed}/keys/{index}")
        weights = zipf_weights(len(partitions), pattern.options.partition_skew)
        self._weights = dict(zip(partitions, weights, strict=True))

    def shares(self, records: int, among: Sequence[int]) -> Mapping[int, int]:
        """Partition → number of records, of those among these partitions that get some."""
        weights = [self._weights[each] for each in among]
        return Counter(self._rng.choices(among, weights, k=records))


_FRAME_AND_CORRELATION = struct.Struct(">ihhi")
_COUNT_AND_HEAD = struct.Struct(">iii")
_COUNT = struct.Struct(">i")
_PARTITION_HEAD = struct.Struct(">ii")
_RESULT_HEAD = struct.Struct(">iih")
_PARTITION_RESULT = struct.Struct(">ihqqq")
_ONLY_RESULT = struct.Struct(">iihqqqi")
_NAME_LENGTH = struct.Struct(">h")


class ProduceEncoder:
    """Encoder of produce requests for one topic and client id, as scatter-gather buffers.

    Args:
        first: the number of the topic's partition 0.
        transactional_id: the id of a producer with transactions; None without.
    """

    def __init__(
        self,
        topic: str,
        client_id: str,
        acks: int,
        timeout_ms: int,
        first: int = 0,
        transactional_id: str | None = None,
    ) -> None:
        self.first = first
        self.client_id = client_id
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[])],
            version=PRODUCE.version,
        )
        request.with_header(correlation_id=0, client_id=client_id)
        head = bytes(request.encode(framed=True, header=True))
        self._middle = head[_FRAME_AND_CORRELATION.size : -_COUNT.size]
        self._fixed_bytes = len(head) - 4

    def encode(
        self, correlation_id: int, batches: Sequence[tuple[int, bytes, memoryview]]
    ) -> list[Buffer]:
        """Encode one request.

        Args:
            correlation_id: returned by the broker with its response.
            batches: (number of the partition, batch header, records), one per partition.
        """
        size, first = self._fixed_bytes, self.first
        if len(batches) == 1:  # as almost always
            ((partition, header, records),) = batches
            batch_bytes = len(header) + len(records)
            head = _FRAME_AND_CORRELATION.pack(
                size + _PARTITION_HEAD.size + batch_bytes,
                PRODUCE.key,
                PRODUCE.version,
                correlation_id,
            )
            middle = _COUNT_AND_HEAD.pack(1, partition - first, batch_bytes)
            return [b"".join((head, self._middle, middle, header)), records]
        buffers: list[Buffer] = [b""]
        for partition, header, records in batches:
            batch_bytes = len(header) + len(records)
            size += _PARTITION_HEAD.size + batch_bytes
            buffers.append(_PARTITION_HEAD.pack(partition - first, batch_bytes) + header)
            buffers.append(records)
        buffers[0] = (
            _FRAME_AND_CORRELATION.pack(size, PRODUCE.key, PRODUCE.version, correlation_id)
            + self._middle
            + _COUNT.pack(len(batches))
        )
        return buffers


def decode_produce_response(frame: Buffer, first: int = 0) -> tuple[dict[int, int], int]:
    """Decode a version 7 response, without its size field.

    Args:
        first: the number of partition 0 of its topic, as a request is for one topic.

    Returns:
        The number of each partition → Kafka error code, 0 for success; and how long a quota held
        the client back [ms].

    Raises:
        AnswerFormatError: the frame is not such a response.
    """
    try:
        _correlation_id, topics, name_length = _RESULT_HEAD.unpack_from(frame, 0)
        at = _RESULT_HEAD.size + name_length
        if topics == 1 and len(frame) == at + _ONLY_RESULT.size:
            _one, partition, error, _, _, _, throttle_ms = _ONLY_RESULT.unpack_from(frame, at)
            return {first + partition: error}, throttle_ms
        return _results(frame, topics, first)
    except (struct.error, ValueError) as error:
        raise unreadable("records", frame, error) from error


def _results(frame: Buffer, topics: int, first: int) -> tuple[dict[int, int], int]:
    """The results of a response for several partitions; see `decode_produce_response`."""
    position, errors = 8, {}
    for _ in range(topics):
        (name_length,) = _NAME_LENGTH.unpack_from(frame, position)
        if name_length < 0:  # it would make the parser go backwards for ever
            raise ValueError(f"a topic's name of {name_length} bytes")
        position += _NAME_LENGTH.size + name_length
        (partitions,) = _COUNT.unpack_from(frame, position)
        position += _COUNT.size
        for _ in range(partitions):
            partition, error, *_offsets = _PARTITION_RESULT.unpack_from(frame, position)
            errors[first + partition] = error
            position += _PARTITION_RESULT.size
    (throttle_ms,) = _COUNT.unpack_from(frame, position)
    return errors, throttle_ms


SEQUENCES = 2**31
"""Number of sequences, which are counted modulo this."""

_EPOCH_MAX = 2**15 - 1


class EpochExhaustedError(RedlineError):
    """A partition whose sequence was broken more often than there are epochs."""


class ProducerIdState:
    """The producer id of one producer, and its epochs and sequences by partition.

    Attributes:
        producer_id, epoch: the id and the epoch that a broker gave.
    """

    __slots__ = ("_acknowledged", "_epochs", "_next", "epoch", "producer_id")

    def __init__(self, producer_id: int, epoch: int = 0) -> None:
        self.renew_all(producer_id, epoch)

    def renew_all(self, producer_id: int, epoch: int) -> None:
        """Begin anew in all partitions with the coordinator's epoch; no batch is in flight."""
        self.producer_id = producer_id
        self.epoch = epoch
        self._epochs: dict[int, int] = {}
        self._next: dict[int, int] = {}
        self._acknowledged: dict[int, int] = {}

    def epoch_of(self, partition: int) -> int:
        """The epoch in which the partition's batches are sent."""
        return self._epochs.get(partition, self.epoch)

    def stamp(self, batch: Batch) -> tuple[int, int]:
        """Epoch and sequence of a batch: those of its first sending, or else the next ones."""
        if batch.stamp is None:
            partition = batch.partition
            sequence = self._next.get(partition, 0)
            self._next[partition] = (sequence + batch.records) % SEQUENCES
            batch.stamp = (self.epoch_of(partition), sequence)
        return batch.stamp

    def acknowledge(self, batch: Batch) -> None:
        """Note that the broker has this batch."""
        if batch.stamp is not None and batch.stamp[0] == self.epoch_of(batch.partition):
            self._acknowledged[batch.partition] = (batch.stamp[1] + batch.records) % SEQUENCES

    def is_next(self, batch: Batch) -> bool:
        """True when the broker expects this batch next, as it has all batches before it."""
        partition = batch.partition
        expected = (self.epoch_of(partition), self._acknowledged.get(partition, 0))
        return batch.stamp == expected

    def is_current(self, batch: Batch) -> bool:
        """False for a batch that was stamped before its partition started again."""
        return batch.stamp is None or batch.stamp[0] == self.epoch_of(batch.partition)

    def renew(self, batch: Batch) -> None:
        """Forget a stamp of an older epoch, by which a broker would not recognize the batch."""
        if self.is_current(batch) or batch.trouble is None:
            return
        batch.stamp = None
        batch.trouble.copies += 1 if batch.trouble.is_unsure else 0
        batch.trouble.is_unsure = False

    def withdraw(self, batch: Batch) -> bool:
        """Withdraw the sequence of a batch that no broker has; False if other batches follow it."""
        if batch.stamp is None:
            return True
        sequence = batch.stamp[1]
        if (sequence + batch.records) % SEQUENCES != self._next[batch.partition]:
            return False
        self._next[batch.partition] = sequence
        return True

    def start_again(self, partition: int) -> None:
        """Begin again at sequence 0 in the next epoch.

        Raises:
            EpochExhaustedError: there is no further epoch.
        """
        epoch = self.epoch_of(partition) + 1
        if epoch > _EPOCH_MAX:
            raise EpochExhaustedError(
                f"partition {partition} lost its sequence {epoch} times; expected a cluster that "
                "takes most batches: look at the errors of shorter trials"
            )
        self._epochs[partition] = epoch
        self._next[partition] = 0
        self._acknowledged[partition] = 0
