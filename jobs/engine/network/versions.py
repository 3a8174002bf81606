"""Versions of Kafka's protocol that the engine speaks, and their check against those of a broker.

Each codec of the engine speaks one version. A broker closes the connection without an answer at a
request in a version that it does not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Api:
    """A kind of request, with Kafka's name and key, and the one version that the engine speaks."""

    name: str
    key: int
    version: int


PRODUCE = Api("Produce", 0, 7)
FETCH = Api("Fetch", 1, 10)
METADATA = Api("Metadata", 3, 4)
FIND_COORDINATOR = Api("FindCoordinator", 10, 1)
INIT_PRODUCER_ID = Api("InitProducerId", 22, 1)
ADD_PARTITIONS_TO_TXN = Api("AddPartitionsToTxn", 24, 0)
END_TXN = Api("EndTxn", 26, 1)

REGISTRATION = (FIND_COORDINATOR, INIT_PRODUCER_ID)
"""Requests that register a transactional id."""


def apis_of_producers(is_idempotent: bool, has_transactions: bool) -> tuple[Api, ...]:
    """The requests that producers of the engine send."""
    if has_transactions:
        return (PRODUCE, METADATA, *REGISTRATION, ADD_PARTITIONS_TO_TXN, END_TXN)
    return (PRODUCE, METADATA, INIT_PRODUCER_ID) if is_idempotent else (PRODUCE, METADATA)


def explain_mismatch(apis: Iterable[Api], known: Mapping[int, tuple[int, int]]) -> str | None:
    """A clause on the first request that a broker does not know; None where it knows them all.

    Args:
        apis: the requests that are sent to the broker.
        known: API key → least and most version that the broker knows.
    """
    for api in apis:
        least, most = known.get(api.key, (0, -1))
        if not least <= api.version <= most:
            theirs = f" {least} to {most}" if api.key in known else " in no version"
            return (
                f"knows {api.name}{theirs}, and this engine speaks {api.version}; expected a "
                "broker that knows that version, as those of Kafka 2.1 to 4.x do; use such a "
                "broker, or a release of redline that speaks a version of this one"
            )
    return None
