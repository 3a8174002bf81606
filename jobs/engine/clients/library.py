"""What is asked of a producer library, and the records that it is given."""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable
from typing import Protocol

from kafka.record.default_records import DefaultRecordBatch

from jobs.engine.pattern import ProducerPattern
from jobs.engine.pool import pool_of
from search.errors import ConfigError

Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]
"""(key, value, headers)."""

Settled = Callable[[str | None], None]
"""Called once per accepted record, from any thread: None when acknowledged, else why not."""

RECORDS_MAX = 50_000
"""Records of the pool that a library is given, apart from those of the first batch."""

NEVER_SENT = "never sent"
"""What `Settled` is told of a record that left the queue again without being sent."""


class LibraryError(ConfigError):
    """A producer library is missing, or refuses what the plan asks for."""


class Library(Protocol):
    """One producer of a library, with connections and threads of its own."""

    def offer(self, partition: int, record: Record, timestamp_ms: int, settled: Settled) -> bool:
        """Hand over a record without waiting; False when there is no room for it now.

        Args:
            partition: its number (`jobs.engine.partitions`).
        """
        ...

    def serve(self) -> None:
        """Call `settled` for what is known by now, if the library waits to be asked."""
        ...

    def end(self) -> None:
        """Send nothing that is not under way, as far as the library can be told so."""
        ...

    def close(self) -> None:
        """Close at once, whatever is unanswered."""
        ...

    @property
    def throttle_ms(self) -> int:
        """Throttle time that brokers reported, summed [ms]."""
        ...


@functools.lru_cache(maxsize=2)
def records_of(pattern: ProducerPattern) -> tuple[Record, ...]:
    """The records that the engine's own client sends, as single ones."""
    pool = pool_of(pattern)
    records: list[Record] = []
    for section in pool.sections:
        if len(records) >= RECORDS_MAX:
            break
        header, body = pool.take(section, section.full_records, 0)
        batch = DefaultRecordBatch(bytes(header) + bytes(body))
        records.extend((record.key, record.value, list(record.headers)) for record in batch)
    return tuple(records)


def missing(client: str, package: str) -> LibraryError:
    """The error of a library that is not installed here."""
    return LibraryError(
        f"producer.client is {client}, and {socket.gethostname()} has no package {package}; "
        f"expected it on every executor; install it there (pip install {package}), or set "
        "producer.client to wire"
    )
