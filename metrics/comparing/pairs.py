"""The comparison of two sides that were measured in pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import fmean

from metrics.comparing.effects import Effect, paired_effect
from metrics.trial.trial import Trial


class Side(str, Enum):
    """One of the two sides of a comparison; B is judged against A."""

    A = "A"
    B = "B"

    @property
    def other(self) -> Side:
        """The opposite side."""
        return Side.B if self is Side.A else Side.A


@dataclass(frozen=True)
class Quantity:
    """A measure that is compared.

    Attributes:
        name: name in compare.json, with the unit.
        title: name for people.
        unit: unit for people.
        read: returns the value of a trial; None if it is not known.
    """

    name: str
    title: str
    unit: str
    read: Callable[[Trial], float | None]

    def of(self, trial: Trial) -> float | None:
        """The value of a trial; None if it is not known or not above zero."""
        value = self.read(trial)
        return value if value is not None and math.isfinite(value) and value > 0 else None


def _capacity(trial: Trial) -> float:
    return (trial.evidence.client.achieved_mb_per_s or 0.0) / max(1, trial.pattern.brokers)


def _handlers_busy(trial: Trial) -> float | None:
    idle = trial.evidence.handler_idle_min
    return None if idle is None else 1.0 - idle


def _cpu_ms_per_mb(trial: Trial) -> float | None:
    spent_s = trial.evidence.broker_cpu_s_per_mb
    return None if spent_s is None else 1000.0 * spent_s


def _requests_per_1000_records(trial: Trial) -> float | None:
    """Produce requests per 1,000 records, from the clients or else from the brokers' counters."""
    own = trial.evidence.client.counts.records_per_request
    if own:
        return 1000.0 / own
    requests = [window.produce.per_s for window in trial.evidence.brokers]
    records = [window.messages_in_per_s for window in trial.evidence.brokers]
    if None in requests or None in records or not sum(filter(None, records)):
        return None
    return 1000.0 * sum(filter(None, requests)) / sum(filter(None, records))


def _network_bytes_per_byte(trial: Trial) -> float | None:
    """Network bytes, with all headers, for each byte of payload.

    For each host with brokers, the busier direction of its busiest interface counts.
    """
    hosts = [host for host in trial.evidence.hosts if host.brokers]
    carried = [each.busiest_bytes_per_s for host in hosts if (each := host.busiest_interface)]
    rate = trial.evidence.client.achieved_mb_per_s
    if not rate or None in carried or not carried or len(carried) < len(hosts):
        return None
    return sum(filter(None, carried)) / (rate * 1e6)


CAPACITY = Quantity("capacity_mb_per_s_per_broker", "capacity", "MB/s/broker", _capacity)
"""The rate that saturated brokers acknowledge; this quantity decides the comparison."""

STEADY = (
    Quantity("handlers_busy", "request handlers busy", "", _handlers_busy),
    Quantity("broker_cpu_ms_per_mb", "broker CPU per MB", "ms", _cpu_ms_per_mb),
    Quantity(
        "produce_requests_per_1000_records",
        "produce requests for 1,000 records",
        "",
        _requests_per_1000_records,
    ),
    Quantity(
        "network_bytes_per_payload_byte",
        "network bytes for each byte of payload",
        "",
        _network_bytes_per_byte,
    ),
    Quantity("latency_p50_ms", "latency p50", "ms", lambda t: t.evidence.client.latency.p50_ms),
    Quantity("latency_p99_ms", "latency p99", "ms", lambda t: t.evidence.client.latency.p99_ms),
)
"""Quantities at a load that both sides sustain; they explain and do not decide."""


def achieved_share(trial: Trial) -> float:
    """Acknowledged records divided by offered records; 0 if no records were offered [ratio].

    Of a mix it is the share of the payload, as most of its records may be those of one small part.
    """
    client = trial.evidence.client
    if trial.pattern.parts:
        offered = client.offered_mb_per_s
        return (client.achieved_mb_per_s or 0.0) / offered if offered else 0.0
    return client.achieved_share or 0.0


@dataclass(frozen=True)
class TrialPair:
    """Two successive trials at the same load, one of each side."""

    a: Trial
    b: Trial

    def of(self, side: Side) -> Trial:
        """The trial of a side."""
        return self.a if side is Side.A else self.b


@dataclass(frozen=True)
class Compared:
    """The comparison of a quantity.

    Attributes:
        quantity: the quantity.
        pairs: (a, b) of the pairs in which both values are known, in chronological order.
        effect: effect of B against A; None with too few pairs.
    """

    quantity: Quantity
    pairs: tuple[tuple[float, float], ...]
    effect: Effect | None

    def mean(self, side: Side) -> float | None:
        """The geometric mean of a side, so that the ratio of both means is the effect."""
        values = [pair[0 if side is Side.A else 1] for pair in self.pairs]
        return math.exp(fmean(math.log(value) for value in values)) if values else None


def compared(quantity: Quantity, pairs: Sequence[TrialPair]) -> Compared:
    """Compare a quantity over pairs of trials."""
    found = [(quantity.of(pair.a), quantity.of(pair.b)) for pair in pairs]
    known = tuple((a, b) for a, b in found if a is not None and b is not None)
    return Compared(quantity, known, paired_effect(known))
