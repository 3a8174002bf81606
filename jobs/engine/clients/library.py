"""The interface of client libraries in both of their roles, and their options."""

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
"""A callback, called once per accepted record from any thread: None when acknowledged, else the
error's name."""

NEVER_SENT = "never sent"
"""Argument of `Settled` for a record that left the queue without being sent."""

Read = tuple[int, int, int, int]
"""A record that was read: its partition's number, offset, size of key and value [B], and create
time [ms since the epoch]."""


class LibraryError(ConfigError):
    """A library that is missing, or that refuses what the plan requires."""


class ReadError(RedlineError):
    """An error that ended a library's consumer."""


class LibraryProducer(Protocol):
    """One producer of a library, with connections and threads of its own."""

    def offer(self, partition: int, record: Record, timestamp_ms: int, settled: Settled) -> bool:
        """Offer a record without waiting; False when there is no room for it now.

        Args:
            partition: number of its partition (`jobs.engine.task.plan`).
        """
        ...

    def serve(self) -> None:
        """Call `settled` for the outcomes that are known, in a library that needs polling."""
        ...

    def end(self) -> None:
        """Stop sending queued records, as far as the library supports it."""
        ...

    def close(self) -> None:
        """Close at once, without waiting for answers."""
        ...

    @property
    def throttle_ms(self) -> int:
        """Sum of the throttle times that brokers reported [ms]."""
        ...


class LibraryConsumer(Protocol):
    """One consumer of a library; all calls come from one thread."""

    def open(self) -> None:
        """Subscribe; polling joins the group."""
        ...

    def poll(self, timeout_s: float) -> Iterator[Read]:
        """Take the records that have arrived, after a wait of at most so long for the first [s]."""
        ...

    def take_assignment(self) -> Mapping[int, int] | None:
        """Take a new assignment, partition → offset to begin at; None without a new one.

        No record of these partitions is polled before `begin`.
        """
        ...

    def begin(self) -> None:
        """Begin to poll the partitions that are assigned now and later."""
        ...

    def high_watermark(self, partition: int) -> int | None:
        """End of a partition as the library last learned it; None before that."""
        ...

    @property
    def throttle_ms(self) -> int:
        """Sum of the throttle times that brokers reported [ms]."""
        ...

    def close(self) -> None:
        """Commit, and leave the group."""
        ...


def kafka_options(
    options: Any, *, without: Collection[str] = (), known: Collection[str] | None = None
) -> dict[str, Any]:
    """The options that a library takes unchanged: Kafka's property → value.

    Args:
        options: options of producers or consumers.
        without: properties that the library has by another name, or that its caller implements.
        known: properties that the library lists; None where it refuses unknown ones itself.

    Raises:
        LibraryError: the library lacks an option that is not at its default.
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
    """The error for a library that is not installed here."""
    return LibraryError(
        f"the client {client} needs the package {package}, which {socket.gethostname()} lacks; "
        f"expected it on every executor; install it there (pip install {package}), or set "
        "producer.client and consumers.client to wire"
    )
