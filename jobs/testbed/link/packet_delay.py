"""One direction of a link: which packets are lost, and when the others may go on. Pure."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

SLOT_S_MIN = 0.01


class VaryingDelay:
    """A delay that goes up and down between drawn values, slower than time passes.

    The values are drawn for moments at equal distances, and between them it is a straight line.
    It never falls by more than half a second in a second, so who comes later leaves later.

    Args:
        delay_s: in the middle [s].
        jitter_s: the furthest from it [s].
    """

    def __init__(self, delay_s: float, jitter_s: float, rng: random.Random) -> None:
        self._delay_s = delay_s
        self._jitter_s = jitter_s
        self._rng = rng
        self._slot_s = max(SLOT_S_MIN, 4 * jitter_s)
        self._slot: int | None = None
        self._from = self._to = 0.0

    def at(self, now_s: float) -> float:
        """The delay of a packet that comes now [s]; times must not go back."""
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
    """What one direction has done since its start.

    Attributes:
        packets, bytes: handed on.
        lost: dropped on purpose, as the link's loss wants it.
        refused: not taken by the other end's device.
    """

    packets: int = 0
    bytes: int = 0
    lost: int = 0
    refused: int = 0


class Direction:
    """Packets on their way, first in, first out.

    Args:
        delay: of each packet.
        loss: share of packets that are dropped [ratio].
        rng: which ones.
        bytes_max: how much it holds before it has no room for more [B].

    Attributes:
        passed: what it has done.
        held_bytes: what it holds now.
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
        """Whether it takes another packet."""
        return self.held_bytes < self._bytes_max

    @property
    def next_s(self) -> float | None:
        """When the next packet may go on; None when there is none."""
        return self._packets[0][0] if self._packets else None

    def take(self, packet: bytes, now_s: float) -> None:
        """A packet has come."""
        if self._loss and self._rng.random() < self._loss:
            self.passed.lost += 1
            return
        self._last_s = max(self._last_s, now_s + self._delay.at(now_s))
        self._packets.append((self._last_s, packet))
        self.held_bytes += len(packet)

    def due(self, now_s: float) -> bytes | None:
        """The next packet that may go on now, once; None when there is none."""
        if not self._packets or self._packets[0][0] > now_s:
            return None
        _, packet = self._packets.popleft()
        self.held_bytes -= len(packet)
        return packet
