"""The options of two emulations: the link between brokers and clients, and the brokers' disks."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from metrics.common.bounds import Checked, UnexpectedError, Whole

PACKETS_MIN = 64
"""Smallest size of the queue of a rate limit [packets of full size]."""
QUEUE_S = 0.05
"""Default size of the queue of a rate limit, given as the time to send a full queue at the limited
rate [s].
"""
BURST_S = 0.001
"""Size of the largest burst that may exceed the limited rate, given as the time to send the burst
at the limited rate [s].
"""

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_BYTES_PER_S = {
    "kB/s": 1e3,
    "MB/s": 1e6,
    "GB/s": 1e9,
    "kbit/s": 1e3 / 8,
    "Mbit/s": 1e6 / 8,
    "Gbit/s": 1e9 / 8,
}
_SHARES = {"%": 0.01, "": 1.0}


@dataclass(frozen=True)
class Quantity(Checked):
    """A check for a text with a number and a unit.

    Attributes:
        units: unit → factor of the unit.
        low, high: smallest and largest value.
        what: a noun phrase with an example, for messages.
        is_optional: whether `none` is allowed.
    """

    units: Mapping[str, float] = field(hash=False)
    low: float
    high: float
    what: str
    is_optional: bool = False

    def expected(self) -> str:
        """The accepted values as a noun phrase, for messages and docs."""
        return f"{self.what}, or none" if self.is_optional else self.what

    def accepts(self, value: Any) -> bool:
        """Whether a value has a unit and is within the bounds; 0 may have no unit."""
        if value in (None, "none"):
            return self.is_optional
        return self.low <= self.of(value) <= self.high

    def of(self, value: Any) -> float:
        """The number in a text, multiplied by the factor of its unit; NaN for a value in another
        form.
        """
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return math.nan
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z/%]*)", _text(value))
        if found is None:
            return math.nan
        number, unit = float(found[1]), found[2]
        if unit not in self.units and number:
            return math.nan
        return number * self.units.get(unit, 1.0)

    def _check(self, value: Any) -> Any:
        if not self.accepts(value):
            raise UnexpectedError(self.expected())
        return None if value in (None, "none") else _text(value)


def _text(value: str | float) -> str:
    """The text of a value; a number has no exponent: 0.00001, not 1e-05."""
    return value.strip() if isinstance(value, str) else f"{value:.12f}".rstrip("0").rstrip(".")


DELAY = Quantity(_SECONDS, 0, 1, "a time from 0 to 1s, one way, such as 25ms")
JITTER = Quantity(_SECONDS, 0, 1, "a time from 0 up to the delay, such as 2ms")
RATE = Quantity(
    _BYTES_PER_S,
    1e4,
    1.25e10,
    "a rate of at least 10kB/s, such as 100MB/s or 1Gbit/s",
    is_optional=True,
)
LOSS = Quantity(_SHARES, 0, 0.5, "a share of the packets from 0 to 50%, such as 0.1% or 0.001")
_MAXIMUM = Whole(4_096, 2**31 - 1, "bytes")


@dataclass(frozen=True)
class Planted:
    """The options that configure the limits of a link or of a disk."""

    @property
    def facts(self) -> dict[str, str]:
        """Key → value for each key whose value differs from the default. The first key is always
        included.
        """
        first, *_ = known = fields(self)
        values = {each: getattr(self, each.name) for each in known}
        return {
            each.name: f"{value}"
            for each, value in values.items()
            if each is first or value != each.default
        }


@dataclass(frozen=True)
class Link(Planted):
    """The link between the brokers and the load generator.

    Attributes:
        delay: one-way delay; a round trip takes twice as long.
        jitter: largest deviation from `delay` in each direction; packets keep their order.
        rate: largest rate in each direction; unlimited if not given.
        loss: share of lost packets in each direction.
        queue_bytes: size of the queue of the rate limit [B]; further packets are dropped.
        held_bytes: largest number of bytes that are in flight in one direction [B]; further packets
            wait in the device's queue.
        device_packets: largest number of packets in the device's queue; further packets are dropped
            and counted.
        mtu: largest size of a packet [B].
        seed: seed of the random numbers that determine the lost packets and the jitter.
        brokers_tcp_rmem_max: largest receive buffer of a socket at the brokers' end [B]; the
            machine's setting if not given.
        brokers_tcp_wmem_max: largest send buffer of a socket at the brokers' end [B].
        generator_tcp_rmem_max: largest receive buffer of a socket at the generator's end [B].
        generator_tcp_wmem_max: largest send buffer of a socket at the generator's end [B].
    """

    delay: Annotated[str, DELAY] = "0ms"
    jitter: Annotated[str, JITTER] = "0ms"
    rate: Annotated[str | None, RATE] = None
    loss: Annotated[str, LOSS] = "0%"
    queue_bytes: Annotated[int, Whole(10_000, 10**9, "bytes")] | None = None
    held_bytes: Annotated[int, Whole(10_000, 10**10, "bytes")] = 256_000_000
    device_packets: Annotated[int, Whole(2, 1_000_000, "packets")] = 10_000
    mtu: Annotated[int, Whole(576, 65_000, "bytes")] = 9_000
    seed: Annotated[int, Whole(0, 2**31 - 1)] = 1
    brokers_tcp_rmem_max: Annotated[int, _MAXIMUM] | None = None
    brokers_tcp_wmem_max: Annotated[int, _MAXIMUM] | None = None
    generator_tcp_rmem_max: Annotated[int, _MAXIMUM] | None = None
    generator_tcp_wmem_max: Annotated[int, _MAXIMUM] | None = None

    @property
    def delay_s(self) -> float:
        """The one-way delay [s]."""
        return DELAY.of(self.delay)

    @property
    def jitter_s(self) -> float:
        """The largest deviation from the delay [s]."""
        return JITTER.of(self.jitter)

    @property
    def rate_bytes_per_s(self) -> float | None:
        """The rate [B/s] in each direction, including IP and TCP headers; None if unlimited."""
        return None if self.rate is None else RATE.of(self.rate)

    @property
    def loss_share(self) -> float:
        """The share of lost packets in each direction [ratio]."""
        return LOSS.of(self.loss)

    @property
    def rate_queue_bytes(self) -> int:
        """The size of the queue of the rate limit [B]; 0 without a rate."""
        if self.rate_bytes_per_s is None:
            return 0
        default = max(PACKETS_MIN * self.mtu, round(self.rate_bytes_per_s * QUEUE_S))
        return self.queue_bytes or default

    @property
    def rate_burst_bytes(self) -> int:
        """The size of the largest burst after a pause [B]; 0 without a rate."""
        if self.rate_bytes_per_s is None:
            return 0
        return max(10 * self.mtu, round(self.rate_bytes_per_s * BURST_S))

    def require_consistent(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            ValueError: two options contradict each other.
        """
        if self.jitter_s > self.delay_s:
            raise ValueError(
                f"jitter is {self.jitter} and delay is {self.delay}; expected a jitter of at most "
                "the delay, because a packet cannot arrive before it is sent; lower the jitter, or "
                "raise the delay"
            )
        if self.queue_bytes is not None and self.rate is None:
            raise ValueError(
                f"queue_bytes is {self.queue_bytes} and rate is missing; expected both or neither, "
                "because the queue belongs to the rate limit; add rate, or remove queue_bytes"
            )

    def words(self) -> str:
        """A phrase that describes the link, such as `25ms one way, loss 0.1%`."""
        parts = [f"{self.delay} one way"]
        parts += [f"jitter {self.jitter}"] * (self.jitter_s > 0)
        parts += [f"{self.rate} each way"] * (self.rate is not None)
        parts += [f"loss {self.loss}"] * (self.loss_share > 0)
        return ", ".join(parts)


DIRTY_S = 0.4
"""Default of the largest number of dirty bytes, given as the time that the disk takes to write them
[s].
"""
DIRTY_LEAST_BYTES = 1_000_000
PAUSE_S = 0.2
"""Longest time for which the kernel pauses a writer before it checks the dirty bytes again [s]."""

WRITE_RATE = Quantity(
    {"kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9},
    5e5,
    1e10,
    "a rate of at least 500kB/s, such as 10MB/s",
)


@dataclass(frozen=True)
class PlantedDisk(Planted):
    """The disk of each broker of a testbed: a file with a configured write rate.

    Attributes:
        write_rate: rate at which each broker's disk writes.
        dirty_bytes: largest number of bytes in memory that wait to be written to a disk [B]. When
            `dirty_bytes` bytes wait, the broker pauses until the disk has written some of them. 0
            selects the kernel's default.
        size_bytes: size of each disk [B]; the disk's file grows with the broker's data.
    """

    write_rate: Annotated[str, WRITE_RATE]
    dirty_bytes: Annotated[int, Whole(0, 10**12, "bytes")] | None = None
    size_bytes: Annotated[int, Whole(100_000_000, 10**13, "bytes")] = 8_000_000_000

    @property
    def write_bytes_per_s(self) -> float:
        """The write rate [B/s]."""
        return WRITE_RATE.of(self.write_rate)

    @property
    def dirty_limit_bytes(self) -> int | None:
        """Largest number of bytes in memory that wait to be written [B]; None for the kernel's
        default.
        """
        if self.dirty_bytes is None:
            return max(DIRTY_LEAST_BYTES, round(self.write_bytes_per_s * DIRTY_S))
        return self.dirty_bytes or None

    def require_consistent(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            ValueError: `dirty_bytes` is less than the number of bytes that the disk writes during a
                writer's pause.
        """
        least = round(self.write_bytes_per_s * PAUSE_S)
        if self.dirty_bytes is not None and 0 < self.dirty_bytes < least:
            raise ValueError(
                f"dirty_bytes is {self.dirty_bytes} and write_rate is {self.write_rate}; expected "
                f"at least {least}, or 0; the disk writes {least} bytes while the kernel pauses "
                f"a writer ({PAUSE_S:g} s); raise dirty_bytes, or remove it"
            )

    def words(self) -> str:
        """A phrase that describes the disk, such as `10MB/s a broker; at most 4.0 MB wait in
        memory`.
        """
        limit = self.dirty_limit_bytes
        waiting = "the kernel limits the bytes that wait in memory"
        if limit is not None:
            waiting = f"at most {limit / 1e6:.1f} MB wait in memory"
        return f"{self.write_rate} a broker; {waiting}"
