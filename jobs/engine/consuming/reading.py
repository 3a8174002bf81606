"""Reading of one member: its partitions, its fetch requests, and its connections.

Fetch sessions keep the requests small (KIP-227). Fetch requests have version 10, because the fields
of version 10 have a fixed width, and version 10 supports every codec. Brokers from Kafka 2.1 to 4.x
accept version 10 of fetch requests, and also the version of the engine's produce requests.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from kafka.errors import for_code

from jobs.engine.consuming.group_member import Assigned, Change, Member, Moved
from jobs.engine.consuming.ledger import SKIPPED, GroupLedger, Position, PositionBook
from jobs.engine.consuming.stream import Batch, FetchAnswer, FetchStream
from jobs.engine.network.apis import FETCH
from jobs.engine.network.sockets import Channel
from jobs.engine.task.plan import Partitions
from metrics.traffic.clients import ConsumerOptions

_HEADER = struct.Struct(">ihhi")
_TEXT = struct.Struct(">h")
_BODY = struct.Struct(">iiiibii")
_COUNT = struct.Struct(">i")
_PARTITION = struct.Struct(">iiqqi")
_NOT_A_REPLICA = -1
_UNKNOWN = -1
_READ_UNCOMMITTED = 0
_EPOCH_MAX = 2**31 - 1


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _TEXT.pack(len(encoded)) + encoded


class FetchEncoder:
    """Encoder of the fetch requests of one connection.

    Attributes:
        partitions: the partitions of all topics, with their numbers.
        options: options of the consumers.
    """

    def __init__(self, partitions: Partitions, client_id: str, options: ConsumerOptions) -> None:
        self._client_id = _text(client_id)
        self.partitions = partitions
        self._names = {topic: _text(topic) for topic in partitions.topics}
        self.options = options
        self._limits = (
            _NOT_A_REPLICA,
            options.fetch_max_wait_ms,
            options.fetch_min_bytes,
            options.fetch_max_bytes,
            _READ_UNCOMMITTED,
        )

    def encode(
        self,
        correlation_id: int,
        session: tuple[int, int],
        wanted: Sequence[tuple[int, int]],
        forgotten: Sequence[int] = (),
    ) -> bytes:
        """Encode one request.

        Args:
            session: (id, epoch) of the fetch session.
            wanted: the partitions to fetch, each as (number of the partition, first offset to
                fetch).
            forgotten: numbers of the partitions that leave the session.
        """
        room = self.options.max_partition_fetch_bytes
        fetched = [(number, (_UNKNOWN, offset, _UNKNOWN, room)) for number, offset in wanted]
        parts = [self._client_id, _BODY.pack(*self._limits, *session)]
        parts += self._by_topic(_PARTITION, fetched)
        parts += self._by_topic(_COUNT, [(number, ()) for number in forgotten])
        body = b"".join(parts)
        size = _HEADER.size - 4 + len(body)
        return _HEADER.pack(size, FETCH.key, FETCH.most, correlation_id) + body

    def _by_topic(
        self, form: struct.Struct, items: Sequence[tuple[int, tuple[int, ...]]]
    ) -> list[bytes]:
        """Encode partitions, grouped by topic; an item is (number of the partition, other
        fields).
        """
        packed: dict[str, list[bytes]] = {}
        for number, fields in items:
            topic, partition = self.partitions.of(number)
            packed.setdefault(topic, []).append(form.pack(partition, *fields))
        parts = [_COUNT.pack(len(packed))]
        for topic, each in packed.items():
            parts += [self._names[topic], _COUNT.pack(len(each)), *each]
        return parts


class FetchSession:
    """The fetch session of one connection. In a session, all requests except the first contain only
    changed partitions.

    The first request contains all partitions. Later requests contain the partitions from which the
    member now reads at a new offset. A broker that has no room for another session answers with the
    session id 0. If the session id is 0, every request contains all partitions, as in Kafka's own
    consumer. A broker fills an answer in the order of the session's partitions, up to
    `fetch.max.bytes`. After the broker has sent records of a partition, the partition moves to the
    end of the order, so that all partitions get their turn (KIP-74).
    """

    def __init__(self) -> None:
        self._id = 0
        self._epoch = 0
        self._known: dict[int, int] = {}

    def next_request(
        self, wanted: Mapping[int, int]
    ) -> tuple[tuple[int, int], list[tuple[int, int]], list[int]]:
        """The next request, as three values: the session's (id, epoch), the partitions that the
        request contains, and the partitions that leave the session.

        Args:
            wanted: partition → next offset, for all partitions to fetch.
        """
        session, known = (self._id, self._epoch), self._known
        moved = [(p, at) for p, at in wanted.items() if known.get(p) != at]
        self._known = {p: at for p, at in known.items() if wanted.get(p) == at} | dict(moved)
        if self._epoch == 0:
            return session, list(self._known.items()), []
        return session, moved, [p for p in known if p not in wanted]

    def update(self, error_code: int, session_id: int) -> None:
        """Update the session from the broker's answer. An error ends the session."""
        if error_code or session_id == 0:
            self._id = self._epoch = 0
            return
        self._id = session_id
        self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def renew(self) -> None:
        """Begin a new session with the next request, which also ends the old session."""
        self._epoch = 0


RETRY_S = 0.1
"""Time between an answer with an error and the next request of the connection [s]."""

_OFFSET_OUT_OF_RANGE = 1
_NO_SUCH_SESSION = frozenset({70, 71})
"""Error codes of brokers that have dropped the fetch session. The next request begins a new
session."""


class Reader(PositionBook):
    """The partitions of one member, with the member's positions.

    Attributes:
        generation: how often the assignment has changed so far. Answers to requests of an earlier
            generation are ignored.
        is_paused: True before the first assignment, and during a rebalance.
    """

    def __init__(self, member: Member, ledger: GroupLedger, leaders: Sequence[int]) -> None:
        self.member = member
        self.ledger = ledger
        self.leaders = dict(enumerate(leaders))
        self.positions = {}
        self.generation = 0
        self.is_paused = True

    def apply(self, change: Change) -> None:
        """Apply a change of the assignment or of the leaders."""
        if isinstance(change, Moved):
            self._move(change)
            return
        self.generation += 1
        for position in self.positions.values():
            self.ledger.close_read_range(position)
        if isinstance(change, Assigned):
            self.positions = {p: Position(p, offset) for p, offset in change.offsets.items()}
            self.ledger.counts.rebalances += 1 if self.generation > 1 else 0
            self.is_paused = False
        else:
            self.positions = {}
            self.is_paused = True
            change.done.set()

    def _move(self, change: Moved) -> None:
        self.leaders.update(change.leaders)
        for partition, start in change.starts.items():
            position = self.positions.get(partition)
            if position is not None and start > position.offset:
                self.ledger.counts.errors[SKIPPED] += start - position.offset
                self.ledger.close_read_range(position)
                self.positions[partition] = Position(partition, start)

    def offsets_led_by(self, broker: int) -> dict[int, int]:
        """Partition → next offset, for the member's partitions whose leader is this broker."""
        leaders = self.leaders
        return {p: at.offset for p, at in self.positions.items() if leaders[p] == broker}

    def has_reached(self, targets: Mapping[int, int]) -> bool:
        """True if the member has read each of its partitions up to the target offset."""
        return not self.is_paused and super().has_reached(targets)


class FetchChannel(Channel):
    """One member's connection to one broker, with at most one request in flight.

    Args:
        key: (client id, broker id).
        encoder: encoder of the fetch requests.

    Attributes:
        stream: parser of the received bytes.
        wall_offset_s: time since the epoch minus the time of the engine's clock [s].
        sent_s: time at which the request in flight was sent; None without a request in flight.
        retry_s: earliest time of the next request.
    """

    def __init__(self, key: tuple[str, int], reader: Reader, encoder: FetchEncoder) -> None:
        super().__init__()
        self.key = key
        self.broker = key[1]
        self.reader = reader
        self._encoder = encoder
        self._check_crcs = encoder.options.check_crcs
        self.reset()
        self.wall_offset_s = 0.0
        self._session = FetchSession()
        self._correlation_id = 0
        self._generation = 0
        self._position: Position | None = None
        self._failed = False

    def reset(self) -> None:
        """Prepare for a new transport; no request is in flight."""
        self.stream = FetchStream(self, self._encoder.partitions, self._check_crcs)
        self.sent_s: float | None = None
        self.retry_s = 0.0

    def handle_lost(self, error: str) -> None:
        """Handle a lost transport; a later request fetches the same records again."""
        self.sent_s = None
        self._session = FetchSession()
        self.reader.ledger.counts.errors[error] += 1

    def look_up_leaders(self) -> None:
        """Request the new leaders of the partitions that this broker led."""
        for partition in self.reader.offsets_led_by(self.broker):
            self.reader.member.look_up(partition, False)

    @property
    def skippable(self) -> int:
        """Size [B] of the rest of the current batch, which can be skipped; 0 if CRCs are checked.
        See `Channel`.
        """
        return 0 if self._check_crcs else self.stream.skippable

    def skip(self, size: int, now: float) -> None:
        """Skip bytes that were dropped; see `Channel`."""
        self.stream.skip(size, now)

    def next_request(self, now: float) -> bytes | None:
        """The next fetch request; None if there is nothing to fetch from this broker."""
        reader = self.reader
        wanted = reader.offsets_led_by(self.broker)
        if not wanted:
            return None
        if self._generation != reader.generation:
            self._generation = reader.generation
            self._session.renew()
        self._correlation_id += 1
        self.sent_s = now
        return self._encoder.encode(self._correlation_id, *self._session.next_request(wanted))

    # --- events of the stream -----------------------------------------------------

    def begin_partition(self, index: int, error_code: int, high_watermark: int) -> None:
        """Begin the batches of a partition; see `Sink`."""
        reader = self.reader
        current = self._generation == reader.generation
        position = self._position = reader.positions.get(index) if current else None
        if position is None:
            return
        if error_code:
            self._failed = True
            error, needs_start = for_code(error_code), error_code == _OFFSET_OUT_OF_RANGE
            reader.ledger.counts.errors[error.__name__] += 1
            if needs_start or error.retriable:
                reader.member.look_up(index, needs_start)
        elif high_watermark >= 0:
            position.high_watermark = high_watermark

    def take_batch(self, batch: Batch, now: float) -> None:
        """Count the batch's new records, from the member's position on; see `Sink`."""
        position = self._position
        if position is None or self._generation != self.reader.generation:
            return
        base, last, records, first_ms, _max_ms, size = batch
        offset = position.offset
        if last < offset:
            return
        if base < offset:
            records -= offset - base
        age_s = now + self.wall_offset_s - first_ms / 1000.0 if first_ms >= 0 else None
        position.advance(records, last + 1)
        self.reader.member.positions[position.partition] = last + 1
        self.reader.ledger.count_read(records, size, age_s, now)

    def take_control_batch(self, last_offset: int, records: int) -> None:
        """Skip a control batch, which marks the end of a transaction; see `Sink`."""
        position = self._position
        if position is None or self._generation != self.reader.generation:
            return
        if last_offset >= position.offset:
            position.advance(records, last_offset + 1)
            self.reader.member.positions[position.partition] = last_offset + 1
            self.reader.ledger.counts.control_records += records

    def end_response(self, answer: FetchAnswer, now: float) -> None:
        """Finish the request in flight, and update the session; see `Sink`."""
        self.sent_s = None
        self.reader.ledger.throttle_ms += answer.throttle_ms
        self._session.update(answer.error_code, answer.session_id)
        if answer.error_code and answer.error_code not in _NO_SUCH_SESSION:
            self.reader.ledger.counts.errors[for_code(answer.error_code).__name__] += 1
            self._failed = True
        if self._failed:
            self.retry_s = now + RETRY_S
            self._failed = False
