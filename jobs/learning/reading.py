"""Fetch requests for recent data, whose batches are counted and dropped at once."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka import errors as kafka_errors
from kafka.protocol.consumer import FetchRequest

from jobs.cluster.admin import QUERY_TIMEOUT_MS, AdminError, KafkaAdmin
from jobs.learning.decoding import decode
from metrics.learning.batches import batches_in
from metrics.learning.decoded import RecordTally
from metrics.learning.pacing import ReadingPace
from metrics.learning.tally import BatchTally

ANSWER_BYTES = 2_097_152
"""Size of an answer at most, one batch excepted [B]."""
PARTITIONS_AT_ONCE = 20
"""Partitions of one request at most."""
_BY_NAME = 12
"""The newest version of the request that names topics; later ones need an id."""
_UNCOMMITTED = 0
_REFUSED = kafka_errors.TopicAuthorizationFailedError.errno
_DELETED = kafka_errors.OffsetOutOfRangeError.errno

log = logging.getLogger(__name__)


@dataclass
class Stretch:
    """The data of a partition between two offsets.

    Attributes:
        leader: broker to read from.
        start, end: the first offset, and the one after the last.
        bytes_max: bytes to read at most [B].
        at: the next offset to read.
        bytes_read: bytes that were read [B].
        is_over: whether no more is read.
    """

    topic: str
    partition: int
    leader: int
    start: int
    end: int
    bytes_max: float
    at: int = -1
    bytes_read: int = 0
    is_over: bool = False

    def __post_init__(self) -> None:
        self.at = self.start
        self.is_over = self.start >= self.end

    @property
    def read_share(self) -> float:
        """Share of its offsets that were read [ratio]; 1 for none."""
        offsets = self.end - self.start
        return min(1.0, (self.at - self.start) / offsets) if offsets > 0 else 1.0


@dataclass
class Readings:
    """What was read of all topics.

    Attributes:
        batches: topic → what its batches show.
        records: topic → what its decoded records show; empty without decoding.
        refused: topics that this user may not read.
        troubles: partition in words → why no more of it was read.
    """

    batches: dict[str, BatchTally] = field(default_factory=lambda: defaultdict(BatchTally))
    records: dict[str, RecordTally] = field(default_factory=lambda: defaultdict(RecordTally))
    refused: set[str] = field(default_factory=set)
    troubles: dict[str, str] = field(default_factory=dict)


class BatchReader:
    """Reads stretches in turns, so that an early end leaves a part of each.

    Args:
        pace: pace of all requests, by its clock; brokers' throttle times count, too.
        decodes: whether to decode the records, for their sizes.
    """

    def __init__(self, admin: KafkaAdmin, pace: ReadingPace, *, decodes: bool = False) -> None:
        self._admin, self._pace, self._decodes = admin, pace, decodes
        self.readings = Readings()

    def read(
        self,
        stretches: Sequence[Stretch],
        until_s: float,
        progress: Callable[[str], None] = lambda _: None,
        bytes_max: float = math.inf,
    ) -> None:
        """Read all stretches, or what is read of them until a time or a number of bytes.

        Args:
            until_s: the time from which on no request begins, on the clock of the pace [s].
            progress: called with a few words after each answer.
            bytes_max: bytes of all answers of the pace from which on no request begins [B].

        Raises:
            AdminError: no broker answers any more.
        """
        failures: list[AdminError] = []
        answered = False
        while rest := [each for each in stretches if not each.is_over]:
            led: dict[int, list[Stretch]] = defaultdict(list)
            for each in rest:
                led[each.leader].append(each)
            for own in led.values():
                # A broker fills its answer in this order, so those that got little come first.
                own.sort(key=lambda each: each.bytes_read)
                for start in range(0, len(own), PARTITIONS_AT_ONCE):
                    if self._pace.next_s >= until_s or self._pace.bytes_read >= bytes_max:
                        return
                    chunk = own[start : start + PARTITIONS_AT_ONCE]
                    try:
                        self._turn(chunk)
                        answered = True
                    except AdminError as error:
                        failures.append(error)
                        self._give_up(chunk, str(error))
                    progress(f"{self._pace.bytes_read / 1e6:,.1f} MB read")
        if failures and not answered:
            raise failures[0]

    def _turn(self, chunk: Sequence[Stretch]) -> None:
        """Read a part of each of these stretches of one leader."""
        leader = chunk[0].leader
        request = _request(chunk)
        manager = self._admin.client._manager
        self._pace.wait()
        answer = self._admin.ask(
            f"read recent batches from broker {leader}",
            lambda: manager.run(manager.send, request, leader, QUERY_TIMEOUT_MS),
        )
        by_place = {(each.topic, each.partition): each for each in chunk}
        size = 0
        for topic in answer.responses:
            for each in topic.partitions:
                stretch = by_place.get((topic.topic, int(each.partition_index)))
                if stretch is not None:
                    size += self._take(stretch, each, is_first=stretch is chunk[0])
        self._pace.count(size, int(getattr(answer, "throttle_time_ms", 0) or 0))
        if answer.error_code:
            self._give_up(chunk, kafka_errors.for_code(answer.error_code).__name__)

    def _take(self, stretch: Stretch, answer: Any, *, is_first: bool) -> int:
        """Count the batches of an answer; returns its size [B].

        Args:
            is_first: whether the partition was the first one of the request, of which an answer
                has at least one batch.
        """
        if answer.error_code == _REFUSED:
            self.readings.refused.add(stretch.topic)
        if answer.error_code == _DELETED and answer.log_start_offset > stretch.at:
            stretch.at = min(stretch.end, int(answer.log_start_offset))  # retention was faster
            stretch.is_over = stretch.at >= stretch.end
            return 0
        if answer.error_code:
            self._give_up([stretch], kafka_errors.for_code(answer.error_code).__name__)
            return 0
        data = memoryview(answer.records or b"")
        found = batches_in(data)
        tally = self.readings.batches[stretch.topic]
        tally.older += found.older
        for header, body in found.batches:
            if header.base_offset >= stretch.end:
                break
            tally.add(stretch.partition, header)
            if self._decodes and not header.is_control:
                decode(header, body, self.readings.records[stretch.topic])
        stretch.bytes_read += len(data)
        if found.next_offset is None or found.next_offset <= stretch.at:
            if is_first:
                self._give_up([stretch], "an answer holds no whole batch")
        else:
            stretch.at = found.next_offset
            stretch.is_over = stretch.at >= stretch.end or stretch.bytes_read >= stretch.bytes_max
        return len(data)

    def _give_up(self, stretches: Sequence[Stretch], why: str) -> None:
        for each in stretches:
            each.is_over = True
            self.readings.troubles[f"{each.topic}-{each.partition}"] = why
            log.info("%s-%d is not read further: %s", each.topic, each.partition, why)


def _request(chunk: Sequence[Stretch]) -> Any:
    kind = FetchRequest.FetchTopic
    room = max(65_536, ANSWER_BYTES // len(chunk))
    wanted: dict[str, list[Any]] = defaultdict(list)
    for each in chunk:
        rest = each.bytes_max - each.bytes_read
        wanted[each.topic].append(
            kind.FetchPartition(
                partition=each.partition,
                current_leader_epoch=-1,
                fetch_offset=each.at,
                last_fetched_epoch=-1,
                log_start_offset=-1,
                partition_max_bytes=int(max(4_096, min(room, rest))),
            )
        )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=ANSWER_BYTES,
        isolation_level=_UNCOMMITTED,
        session_id=0,
        session_epoch=-1,
        topics=[kind(topic=name, partitions=own) for name, own in wanted.items()],
        forgotten_topics_data=[],
        rack_id="",
        max_version=_BY_NAME,
    )
