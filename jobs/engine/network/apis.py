"""The kinds of requests that the engine sends, and the choice of their versions.

Each request has the highest version that both the broker and the engine support. A broker closes
the connection without an answer if it does not support the version of a request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from metrics.common.errors import ConfigError


@dataclass(frozen=True)
class Api:
    """A kind of request: its name and key in Kafka, and the lowest and highest version that the
    engine supports.
    """

    name: str
    key: int
    least: int
    most: int


PRODUCE = Api("Produce", 0, 7, 7)
FETCH = Api("Fetch", 1, 10, 10)
METADATA = Api("Metadata", 3, 4, 9)
FIND_COORDINATOR = Api("FindCoordinator", 10, 1, 3)
INIT_PRODUCER_ID = Api("InitProducerId", 22, 1, 4)
ADD_PARTITIONS_TO_TXN = Api("AddPartitionsToTxn", 24, 0, 3)
END_TXN = Api("EndTxn", 26, 1, 4)


def apis_of_producers(is_idempotent: bool, has_transactions: bool) -> tuple[Api, ...]:
    """The kinds of requests that the engine's producers send."""
    if has_transactions:
        coordinated = (FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN)
        return (PRODUCE, METADATA, *coordinated)
    return (PRODUCE, METADATA, INIT_PRODUCER_ID) if is_idempotent else (PRODUCE, METADATA)


def negotiated(apis: Iterable[Api], known: Mapping[int, tuple[int, int]]) -> dict[Api, int]:
    """For each kind of request, the highest version that both a broker and the engine support.

    Args:
        apis: the kinds of requests that the broker will get.
        known: API key → lowest and highest version that the broker supports.

    Raises:
        ConfigError: the broker and the engine have no version in common for a kind of request. The
            error's text has no subject, because the caller puts the broker's name before this text.
    """
    found = {}
    for api in apis:
        least, most = known.get(api.key, (0, -1))
        found[api] = min(api.most, most)
        if found[api] < max(api.least, least):
            theirs = f" {least} to {most}" if api.key in known else " in no version"
            ours = f"{api.least} to {api.most}" if api.least < api.most else api.most
            raise ConfigError(
                f"supports {api.name}{theirs}, and this engine supports {ours}; expected a version "
                "that both support, as with brokers of Kafka 2.1 to 4.x; use such a broker, or a "
                "release of redline that supports this broker"
            )
    return found
