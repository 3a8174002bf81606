"""The parts of the traffic of a limit, and their shares of its payload. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from metrics.columns import Column
from metrics.units import format_ratio


@dataclass(frozen=True)
class TrafficShare:
    """One part of a mix; other traffic has one part, which is all of it.

    Attributes:
        part: name of the part; empty for other traffic.
        share: its share of the payload [ratio].
        message_bytes: mean bytes per message [B].
        replication_factor: replicas of a partition, including the leader.
        consumer_groups: number of groups that read its topics.
    """

    part: str
    share: float
    message_bytes: Annotated[int, Column("bpm")]
    replication_factor: int
    consumer_groups: int


def weighted(shares: Sequence[TrafficShare], value: Callable[[TrafficShare], float]) -> float:
    """The mean of a value for each byte of payload, over all parts in their proportions."""
    return sum(each.share * value(each) for each in shares)


def proportions(shares: Sequence[TrafficShare]) -> str:
    """The parts of a mix with their shares of the payload, such as `orders 89 %, clicks 11 %`."""
    return ", ".join(f"{each.part} {format_ratio(each.share)}" for each in shares)
