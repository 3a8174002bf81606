"""The interfaces of client libraries for producers and consumers, and the libraries' options."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Protocol

from metrics.common.bounds import kafka_properties
from metrics.common.errors import ConfigError, RedlineError

Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]
"""(key, value, headers)."""

Settled = Callable[[str | None], None]
"""A callback that is called once per accepted record, from any thread. The callback's argument is
the name of the error; None for an acknowledged record."""

NEVER_SENT = "never sent"
"""Argument of `Settled` for a record that was dropped from the queue and never sent."""

Read = tuple[int, int, int, int]
"""A record that a consumer read: number of the partition, offset, size of key and value [B], and
create time [ms since the epoch]."""


class LibraryError(ConfigError):
    """A client library is missing, or does not support the plan."""


class ReadError(RedlineError):
    """A library's consumer ended because of an error."""


class LibraryProducer(Protocol):
    """One producer of a client library, with connections and threads of its own."""

    def offer(self, partition: int, record: Record, timestamp_ms: int, settled: Settled) -> bool:
        """Offer a record without waiting; False if the library has no room for it.

        Args:
            partition: number of the record's partition (`jobs.engine.task.plan`).
            settled: function that is called once with the outcome of the record, if the library
                accepted the record.
        """

    def serve(self) -> None:
        """Call `settled` for known outcomes; needed only if a library must be polled for
        outcomes.
        """

    def end(self) -> None:
        """Drop the queued records, if the library has a function for this."""

    def close(self) -> None:
        """Close without waiting for outstanding acknowledgements."""

    @property
    def throttle_ms(self) -> int:
        """Sum of the throttle times that brokers reported [ms]."""


class LibraryConsumer(Protocol):
    """One consumer of a client library; only one thread uses it."""

    def open(self) -> None:
        """Subscribe to the topics. The consumer joins its group when it polls."""

    def poll(self, timeout_s: float) -> Iterator[Read]:
        """Take the records that have arrived. The call waits at most `timeout_s` for the first
        record.
        """

    def take_assignment(self) -> Mapping[int, int] | None:
        """Take a new assignment: partition → start offset; None if there is no new assignment.

        No record of a newly assigned partition is polled before `begin`.
        """

    def begin(self) -> None:
        """Start to read all partitions that are assigned now, and all partitions that are assigned
        later.
        """

    def high_watermark(self, partition: int) -> int | None:
        """Last known end offset of a partition; None if the library has received no end offset."""

    @property
    def throttle_ms(self) -> int:
        """Sum of the throttle times that brokers reported [ms]."""

    def close(self) -> None:
        """Commit, and leave the group."""


def kafka_options(
    options: Any, *, without: Collection[str] = (), known: Collection[str] | None = None
) -> dict[str, Any]:
    """The options that a library accepts unchanged: Kafka's name of the property → value.

    Args:
        options: options of producers or consumers.
        without: properties to leave out, because the library has another name for them or the
            caller implements them.
        known: properties that the library has; None if the library itself rejects unknown
            properties.

    Raises:
        LibraryError: an option is not at its default, and the library does not have the option.
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
                f"{option} is {value}, and the client {options.client} has no {name}; expected the "
                f"default {defaults[option]}; leave {option} out, or choose another client"
            )
    return given
