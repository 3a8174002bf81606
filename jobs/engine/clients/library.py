"""What is asked of a client library in both of its roles, and how it is told its options."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Protocol

from metrics.common.bounds import kafka_properties
from metrics.common.errors import ConfigError, RedlineError

Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]
"""(key, value, headers)."""

Settled = Callable[[str | None], None]
"""Called once per accepted record, from any thread: None when acknowledged, else why not."""

NEVER_SENT = "never sent"
"""What `Settled` is told of a record that left the queue again without being sent."""

Read = tuple[int, int, int, int]
"""Of a record: its partition's number, offset, size of key and value [B], and create time
[ms since the epoch]."""


class LibraryError(ConfigError):
    """A library is missing, or refuses what the plan asks for."""


class ReadError(RedlineError):
    """A library's consumer had to end."""


class LibraryProducer(Protocol):
    """One producer of a library, with connections and threads of its own."""

    def offer(self, partition: int, record: Record, timestamp_ms: int, settled: Settled) -> bool:
        """Hand over a record without waiting; False when there is no room for it now.

        Args:
            partition: its number (`jobs.engine.task.partitions`).
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


class LibraryConsumer(Protocol):
    """One consumer of a library; all calls come from one thread."""

    def open(self) -> None:
        """Subscribe; joining happens while polling."""
        ...

    def poll(self, timeout_s: float) -> Iterator[Read]:
        """Records that have arrived, waiting at most so long for the first [s]."""
        ...

    def take_assignment(self) -> Mapping[int, int] | None:
        """Partition → offset to begin at, once after each assignment; else None.

        Nothing of them is polled before `begin`.
        """
        ...

    def begin(self) -> None:
        """Poll what is assigned now and later."""
        ...

    def high_watermark(self, partition: int) -> int | None:
        """The end of a partition as the library last heard of it, if it did."""
        ...

    @property
    def throttle_ms(self) -> int:
        """Throttle time that brokers reported, summed [ms]."""
        ...

    def close(self) -> None:
        """Commit, and leave the group."""
        ...


def kafka_options(
    options: Any, *, without: Collection[str] = (), known: Collection[str] | None = None
) -> dict[str, Any]:
    """The options that a library takes as they are: Kafka's property → value.

    Args:
        options: of producers or consumers.
        without: properties that the library has by another name, or that are done for it.
        known: properties that it has, where it tells; None where it refuses others itself.

    Raises:
        LibraryError: an option was changed that the library does not have.
    """
    given = {}
    defaults = {item.name: item.default for item in dataclasses.fields(options)}
    for option, name in kafka_properties(type(options)).items():
        value = getattr(options, option)
        if name in without or value is None:
            continue
        if known is None or name in known:
            given[name] = value
        elif value != defaults[option]:
            raise LibraryError(
                f"the client {options.client} has no {name}, and {option} is {value}; expected "
                f"{defaults[option]}, as without it; leave {option} out, or choose another client"
            )
    return given


def missing_package(client: str, package: str) -> LibraryError:
    """The error of a library that is not installed here."""
    return LibraryError(
        f"the client {client} is asked for, and {socket.gethostname()} has no package {package}; "
        f"expected it on every executor; install it there (pip install {package}), or set "
        "producer.client and consumers.client to wire"
    )
