"""One direction of a link: which packets are lost, and when the others leave it."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

SLOT_S_MIN = 0.01


class VaryingDelay:
    """A delay that varies between random values, slowly enough to keep packets in order.

    Random values at equal distances in time are connected by straight lines. The delay never
    falls by more than half a second per second, so a later packet leaves later.

    Args:
        delay_s: mean delay [s].
        jitter_s: largest deviation from it [s].
    """

    def __init__(self, delay_s: float, jitter_s: float, rng: random.Random) -> None:
        self._delay_s = delay_s
        self._jitter_s = jitter_s
        self._rng = rng
        self._slot_s = max(SLOT_S_MIN, 4 * jitter_s)
        self._slot: int | None = None
        self._from = self._to = 0.0

    def at(self, now_s: float) -> float:
        """The delay of a packet that arrives now [s]; calls must be in order of time."""
        if not self._jitter_s:
            return self._delay_s
        place = now_s / self._slot_s
        slot = int(place)
        if slot != self._slot:
            follows = self._slot is not None and slot == self._slot + 1
            self._from = self._to if follows else self._draw()
            self._to = self._draw()
            self._slot = slot
        return self._delay_s + self._from + (self._to - self._from) * (place - slot)

    def _draw(self) -> float:
        return self._rng.uniform(-self._jitter_s, self._jitter_s)


@dataclass
class PacketCounts:
    """The packets of one direction since its start.

    Attributes:
        packets, bytes: packets that were passed on, and their size.
        lost: packets that were dropped on purpose, by the link's loss.
        refused: packets that the device at the other end refused.
    """

    packets: int = 0
    bytes: int = 0
    lost: int = 0
    refused: int = 0


class Direction:
    """The packets on their way in one direction, first in, first out.

    Args:
        delay: delay of each packet.
        loss: share of packets that are dropped [ratio].
        rng: random numbers that choose the dropped packets.
        bytes_max: size of delayed packets at which it accepts no more [B].

    Attributes:
        passed: counts of its packets.
        held_bytes: size of the delayed packets [B].
    """

    def __init__(
        self,
        delay: VaryingDelay,
        loss: float,
        rng: random.Random,
        bytes_max: int,
    ) -> None:
        self._delay = delay
        self._loss = loss
        self._rng = rng
        self._bytes_max = bytes_max
        self._packets: deque[tuple[float, bytes]] = deque()
        self._last_s = 0.0
        self.passed = PacketCounts()
        self.held_bytes = 0

    @property
    def has_room(self) -> bool:
        """Whether it accepts another packet."""
        return self.held_bytes < self._bytes_max

    @property
    def next_s(self) -> float | None:
        """The time at which the next packet leaves; None without packets."""
        return self._packets[0][0] if self._packets else None

    def take(self, packet: bytes, now_s: float) -> None:
        """Accept a packet, or lose it."""
        if self._loss and self._rng.random() < self._loss:
            self.passed.lost += 1
            return
        self._last_s = max(self._last_s, now_s + self._delay.at(now_s))
        self._packets.append((self._last_s, packet))
        self.held_bytes += len(packet)

    def due(self, now_s: float) -> bytes | None:
        """Remove and return the next packet that leaves by now; None without one."""
        if not self._packets or self._packets[0][0] > now_s:
            return None
        _, packet = self._packets.popleft()
        self.held_bytes -= len(packet)
        return packet
