"""Comparison of the loads that two clients cause on brokers, by the brokers' own metrics."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metrics.common.errors import RedlineError
from metrics.windows.broker import BrokerWindow


class NoReadingError(RedlineError):
    """A broker lacks a reading that the comparison needs."""


@dataclass(frozen=True)
class BrokerLoad:
    """The load of the producers on all brokers together in a window.

    Attributes:
        requests_per_s: produce requests [1/s].
        request_bytes: record batches per produce request [B]; below its limit a producer
            sends one batch in a request.
        bytes_in_per_s: record batches from producers [B/s].
        handler_idle: idle fraction of the request handlers, mean of the brokers [ratio].
        local_ms: LocalTimeMs of produce requests, mean of the requests [ms].
    """

    requests_per_s: float
    request_bytes: float
    bytes_in_per_s: float
    handler_idle: float
    local_ms: float


@dataclass(frozen=True)
class Tolerance:
    """Allowed difference of two loads: a share of the larger one, or an amount, if that is more.

    Kafka rounds the times of a request to whole milliseconds, so a fifth of a mean below a
    millisecond cannot be resolved.
    """

    share: float = 0.0
    amount: float = 0.0

    def allows(self, apart: float, larger: float) -> bool:
        """True if two values with this difference count as equal."""
        return abs(apart) <= max(self.share * abs(larger), self.amount)


TOLERANCES: Mapping[str, Tolerance] = {
    "requests_per_s": Tolerance(share=0.10),
    "request_bytes": Tolerance(share=0.10),
    "bytes_in_per_s": Tolerance(share=0.10),
    "handler_idle": Tolerance(amount=0.05),
    "local_ms": Tolerance(share=0.20, amount=0.25),
}
"""Field of `BrokerLoad` → allowed difference."""


def load_of(windows: Sequence[BrokerWindow]) -> BrokerLoad:
    """The windows of all brokers as one load.

    Raises:
        NoReadingError: a broker's reading is missing.
    """
    requests = [_known(w, "produce.per_s", w.produce.per_s) for w in windows]
    bytes_in = [_known(w, "bytes_in_per_s", w.bytes_in_per_s) for w in windows]
    idle = [_known(w, "handler_idle", w.handler_idle) for w in windows]
    busy_ms = [
        rate * _known(w, "produce.local_ms", w.produce.local_ms)
        for w, rate in zip(windows, requests, strict=True)
        if rate > 0
    ]
    total = sum(requests)
    if total <= 0:
        raise NoReadingError("the brokers saw no produce request in the window")
    return BrokerLoad(
        requests_per_s=total,
        request_bytes=sum(bytes_in) / total,
        bytes_in_per_s=sum(bytes_in),
        handler_idle=sum(idle) / len(idle),
        local_ms=sum(busy_ms) / total,
    )


def median_of(loads: Sequence[BrokerLoad]) -> BrokerLoad:
    """The median of each field over several windows of the same pattern."""
    fields: dict[str, Any] = {
        name: statistics.median(getattr(load, name) for load in loads) for name in TOLERANCES
    }
    return BrokerLoad(**fields)


def differences(pairs: Sequence[tuple[BrokerLoad, BrokerLoad]]) -> dict[str, tuple[float, float]]:
    """Fields in which two clients' loads differ by more than allowed, with both medians.

    The difference is the median over the pairs of adjacent windows, as a slow minute of the disk
    affects both windows of a pair.
    """
    found = {}
    for name, tolerance in TOLERANCES.items():
        one, other = ([getattr(pair[i], name) for pair in pairs] for i in (0, 1))
        apart = statistics.median(a - b for a, b in zip(one, other, strict=True))
        middles = (statistics.median(one), statistics.median(other))
        if not tolerance.allows(apart, max(middles, key=abs)):
            found[name] = middles
    return found


def _known(window: BrokerWindow, name: str, value: float | None) -> float:
    if value is None:
        raise NoReadingError(f"broker {window.broker_id} gave no {name} in the window")
    return value
