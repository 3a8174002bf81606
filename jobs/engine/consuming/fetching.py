"""Fetch requests on the wire, and the fetch sessions that keep them small (KIP-227).

Version 10 is used because all its fields have a fixed width and it carries every codec. Brokers
from Kafka 2.1 to 4.x accept it, as they accept the produce requests of the engine.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from jobs.engine.task.partitions import Partitions
from metrics.traffic.consumers import ConsumerOptions

FETCH_VERSION = 10

_API_KEY = 1
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

    Args:
        partitions: the partitions of all topics, which requests name by their numbers.
    """

    def __init__(self, partitions: Partitions, client_id: str, options: ConsumerOptions) -> None:
        self._client_id = _text(client_id)
        self._partitions = partitions
        self._names = {topic: _text(topic) for topic in partitions.topics}
        self._options = options
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
            wanted: (partition, offset) to fetch from.
            forgotten: partitions that leave the session.
        """
        room = self._options.max_partition_fetch_bytes
        fetched = [(number, (_UNKNOWN, offset, _UNKNOWN, room)) for number, offset in wanted]
        parts = [self._client_id, _BODY.pack(*self._limits, *session)]
        parts += self._by_topic(_PARTITION, fetched)
        parts += self._by_topic(_COUNT, [(number, ()) for number in forgotten])
        body = b"".join(parts)
        size = _HEADER.size - 4 + len(body)
        return _HEADER.pack(size, _API_KEY, FETCH_VERSION, correlation_id) + body

    def _by_topic(
        self, form: struct.Struct, items: Sequence[tuple[int, tuple[int, ...]]]
    ) -> list[bytes]:
        """(Number, other fields) of partitions, grouped by topic."""
        packed: dict[str, list[bytes]] = {}
        for number, fields in items:
            topic, partition = self._partitions.of(number)
            packed.setdefault(topic, []).append(form.pack(partition, *fields))
        parts = [_COUNT.pack(len(packed))]
        for topic, each in packed.items():
            parts += [self._names[topic], _COUNT.pack(len(each)), *each]
        return parts


class FetchSession:
    """The fetch session of one connection, in which requests name only what has changed.

    A session begins with a request that names all partitions; later ones name those whose offset
    moved. A broker without room for another session answers with id 0; then every request names all
    partitions, as those of real consumers do.
    """

    def __init__(self) -> None:
        self._id = 0
        self._epoch = 0
        self._known: dict[int, int] = {}

    def next_request(
        self, wanted: Mapping[int, int]
    ) -> tuple[tuple[int, int], list[tuple[int, int]], list[int]]:
        """The content of the next request: (id, epoch), partitions to name, partitions to forget.

        Args:
            wanted: partition → next offset, for all partitions to fetch.
        """
        session = (self._id, self._epoch)
        if self._epoch == 0:
            named, forgotten = list(wanted.items()), []
        else:
            known = self._known
            named = [(p, at) for p, at in wanted.items() if known.get(p) != at]
            forgotten = [p for p in known if p not in wanted]
        self._known = dict(wanted)
        return session, named, forgotten

    def update(self, error_code: int, session_id: int) -> None:
        """Update the session from the broker's answer; any error begins a new one."""
        if error_code or session_id == 0:
            self._id = self._epoch = 0
            return
        self._id = session_id
        self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def renew(self) -> None:
        """Begin a new session with the next request, which ends the broker's old session, too."""
        self._epoch = 0
