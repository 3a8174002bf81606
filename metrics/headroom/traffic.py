"""Today's traffic against the traffic at a measured limit, corrected by the size of a message.

Sizes between measured ones follow the boundary line: a cost for each message and one for each byte
(`metrics.planning.provisioning`). Sizes count as brokers store them, with the overhead of records
and batches, so that compression is in them; the model of
`metrics.planning.wire_model` gives them where a run's brokers do not show them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from metrics.headroom.answer import Capacity, row_of
from metrics.headroom.limits import RunLimit, TrafficLimit
from metrics.headroom.loads import BYTES_PER_S, ResourceLoad
from metrics.headroom.today import Today
from metrics.planning.provisioning import MeasuredLimit, limit_at
from metrics.tables.headroom import ResourceHeadroom
from metrics.units import format_ratio, format_size
from metrics.windows.broker import BrokerWindow
from metrics.windows.resource import Resource

MEASURED_TRAFFIC = "measured traffic"
"""Name of the row of today's rate against the measured one."""
SIZES_ALIKE = 0.1
"""Difference of two sizes up to which they count as the same [ratio]."""
FULLNESS_APART = 2.0
"""Ratio of messages for each request, today's over the run's, beyond which rates mislead."""
_DISAGREES = 1.25
"""Ratio of the answers by use and by rate beyond which their interval does not explain it."""


@dataclass(frozen=True)
class SizedLimit:
    """The traffic at the limit for messages of one size.

    Attributes:
        bytes_per_s: bytes of record batches that a broker receives from producers [B/s].
        note: how it follows from the measured ones; empty where that size was measured.
    """

    bytes_per_s: float
    note: str = ""


def limit_for_size(points: Sequence[TrafficLimit], stored_bytes: float) -> SizedLimit:
    """The traffic at the limit for messages of this stored size.

    Args:
        points: the measured ones, at least one.
        stored_bytes: size of a message with its share of the batch [B].
    """
    nearest = min(points, key=lambda each: abs(each.stored_bytes - stored_bytes))
    if abs(nearest.stored_bytes / stored_bytes - 1.0) <= SIZES_ALIKE:
        return SizedLimit(nearest.bytes_per_s)
    sizes = [each.stored_bytes for each in points]
    size, measured = format_size(round(stored_bytes)), format_size(round(nearest.stored_bytes))
    if not min(sizes) < stored_bytes < max(sizes):
        smaller = stored_bytes < nearest.stored_bytes
        rate = nearest.messages_per_s * stored_bytes if smaller else nearest.bytes_per_s
        same = "messages" if smaller else "bytes"
        return SizedLimit(
            rate,
            f"messages are {size} in the brokers' logs and {measured} in the nearest measurement: "
            f"the same {same}/s are assumed to be the limit",
        )
    line = [
        MeasuredLimit(max(1, round(each.stored_bytes)), each.bytes_per_s / 1e6) for each in points
    ]
    found, _ = limit_at(line, round(stored_bytes))
    return SizedLimit(
        found.mb_per_s * 1e6,
        f"messages are {size} in the brokers' logs, between measured sizes: the limit is "
        "interpolated with a cost for each message and for each byte",
    )


def traffic_rows(
    today: Today, measured: RunLimit, points: Sequence[RunLimit], *, counts: bool
) -> tuple[list[ResourceHeadroom], list[str]]:
    """The rows of the brokers' traffic against the measured one, and the notes on them.

    Args:
        measured: the limit at the size that is nearest to today's.
        points: the limits at all sizes.
        counts: whether these rows decide the answer.
    """
    limits = [each.traffic for each in points if each.traffic is not None]
    rows: list[ResourceHeadroom] = []
    notes: dict[str, None] = {}
    for window in today.whole.brokers if limits else ():
        taken, messages = window.bytes_in_per_s, window.messages_in_per_s
        if not taken or not messages:
            continue
        sized = limit_for_size(limits, taken / messages)
        if sized.note and not notes:  # brokers differ in the last digits
            notes[sized.note] = None
        load = ResourceLoad(Resource.UNKNOWN, BYTES_PER_S, taken)
        capacity = Capacity(0.0, 0.0, sized.bytes_per_s, 0.0, measured.low, measured.high, counts)
        row = row_of(window.broker_id, load, capacity, 0.0)
        rows.append(replace(row, resource=MEASURED_TRAFFIC))
    if measured.traffic is not None:
        notes |= dict.fromkeys(_fullness_notes(today.whole.brokers, measured.traffic))
    return rows, list(notes)


def _fullness_notes(brokers: Sequence[BrokerWindow], limit: TrafficLimit) -> Iterator[str]:
    """A sentence where requests carry more or fewer messages than at the limit."""
    if not limit.requests_per_s:
        return
    then = limit.messages_per_s / limit.requests_per_s
    messages = [each.messages_in_per_s or 0.0 for each in brokers]
    requests = [each.produce.per_s or 0.0 for each in brokers]
    if not sum(requests):
        return
    now = sum(messages) / sum(requests)
    if not 1 / FULLNESS_APART <= now / then <= FULLNESS_APART:
        yield (
            f"a request carries {now:.3g} messages today and {then:.3g} in the run: bytes say "
            "little, and the use of the resources counts"
        )


def disagreement(by_use: float, rows: Sequence[ResourceHeadroom]) -> str:
    """A sentence where the rates give another answer than the use of the resources; else empty."""
    times = [row.times for row in rows if row.times is not None]
    if not times or 1 / _DISAGREES <= min(times) / by_use <= _DISAGREES:
        return ""
    share = format_ratio(min(times) / by_use)
    return (
        f"by bytes/s today's traffic would fit {min(times):.1f} times, {share} of the answer: a "
        "byte of it costs the brokers more or less than a byte of the run's load"
    )
