"""The process of a link's delay line: its command, its packet counts and its round trip.

One direction of a link: which packets are lost, and when the others leave it.

The delay line of a link: `python -m jobs.testbed.delay_line OPTIONS MARKER`.

The process reads packets from one TUN device, delays them, and writes them to the other, in both
directions. OPTIONS are `DelayLineOptions` as JSON, with the devices' inherited descriptors.
"""

from __future__ import annotations

import json
import os
import random
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jobs.config.link import Link
from jobs.engine.network.namespaces import inside
from metrics.columns import restored
from metrics.common.errors import ConfigError

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
        self, delay: VaryingDelay, loss: float, rng: random.Random, bytes_max: int
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


_BATCH = 64
"""Packets of one direction that are read before the other direction continues."""
_WRITE_INTERVAL_S = 1.0
_NICENESS = -10
"""Priority at which packets wait for the link and not for a core of a busy machine."""


@dataclass(frozen=True)
class DelayLineOptions:
    """The options of a delay line.

    Attributes:
        brokers, generator: descriptors of the two devices.
        link: the link.
        counts: file for the packet counts.
    """

    brokers: int
    generator: int
    link: Link
    counts: str

    def direction(self, name: str) -> Direction:
        """One direction, with random numbers of its own."""
        link = self.link
        delays, losses = (random.Random(f"{link.seed} {name} {for_}") for for_ in ("delay", "loss"))
        varying = VaryingDelay(link.delay_s, link.jitter_s, delays)
        return Direction(varying, link.loss_share, losses, link.held_bytes)


class DelayLine:
    """Delays the packets of both directions, on one thread."""

    def __init__(
        self, options: DelayLineOptions, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._clock_s = clock_s
        to_brokers, to_generator = map(options.direction, ("to brokers", "to generator"))
        self._ways = (
            (options.generator, options.brokers, to_brokers),
            (options.brokers, options.generator, to_generator),
        )
        self._written: dict[str, Any] = {}

    def run(self) -> None:
        """Delay packets until the process is killed."""
        next_write_s = 0.0
        while True:
            self.step(_WRITE_INTERVAL_S)
            if self._clock_s() >= next_write_s:
                self.write_counts()
                next_write_s = self._clock_s() + _WRITE_INTERVAL_S

    def step(self, patience_s: float) -> None:
        """Pass on due packets, then wait up to `patience_s` for the next and read new ones."""
        for _, target, way in self._ways:
            self._pass_on(target, way)
        due_s = [each for _, _, way in self._ways if (each := way.next_s) is not None]
        wait_s = min([patience_s, *(each - self._clock_s() for each in due_s)])
        sources = [source for source, _, way in self._ways if way.has_room]
        ready, _, _ = select.select(sources, [], [], max(0.0, wait_s))
        for source, _, way in self._ways:
            if source in ready:
                self._read(source, way)

    def _pass_on(self, target: int, way: Direction) -> None:
        now_s, passed = self._clock_s(), way.passed
        while (packet := way.due(now_s)) is not None:
            try:
                os.write(target, packet)
            except OSError:  # the device has no memory for it, or is going down
                passed.refused += 1
            else:
                passed.packets += 1
                passed.bytes += len(packet)

    def _read(self, source: int, way: Direction) -> None:
        now_s = self._clock_s()
        for _ in range(_BATCH):
            if not way.has_room:
                return
            try:
                packet = os.read(source, self._options.link.mtu)
            except BlockingIOError:  # no more packets
                return
            way.take(packet, now_s)

    def write_counts(self) -> None:
        """Write the packet counts to their file, for `redline testbed status`."""
        counts = {
            name: asdict(way.passed)
            for name, (_, _, way) in zip(("to_brokers", "to_generator"), self._ways, strict=True)
        }
        if counts != self._written:
            path = Path(self._options.counts)
            draft = path.with_name(f"{path.name}.new")
            draft.write_text(json.dumps(counts), encoding="utf-8")
            draft.replace(path)
            self._written = counts


def main(options: str) -> None:
    """Run the delay line of these options until the process is killed."""
    os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)
    DelayLine(restored(DelayLineOptions, json.loads(options))).run()


_TRIES = 3
_TIMEOUT_S = 4.0
"""Twice the longest round trip [s]."""


def line_command(link: Link, tuns: Sequence[int], counts: Path, marker: str) -> list[str]:
    """The command line of the delay line.

    Args:
        tuns: descriptors of the TUN devices, the brokers' first.
        counts: file for its packet counts.
        marker: argument that marks the process as the testbed's.
    """
    brokers, generator = tuns
    order = DelayLineOptions(brokers, generator, link, str(counts))
    module = "jobs.testbed.delay_line"
    return [sys.executable, "-m", module, json.dumps(asdict(order)), marker]


def round_trip_s(namespace: str, host: str, port: int) -> float:
    """The shortest time of a few TCP handshakes [s].

    Args:
        namespace: file of the network namespace from which the connections are opened.

    Raises:
        OSError: no connection is possible, or this process cannot enter the namespace.
    """
    took_s = []
    try:
        with inside(namespace):
            for _ in range(_TRIES):
                began_s = time.monotonic()
                socket.create_connection((host, port), _TIMEOUT_S).close()
                took_s.append(time.monotonic() - began_s)
    except ConfigError as error:
        raise OSError(str(error)) from error
    return min(took_s)


def read_counts(counts: Path) -> dict[str, PacketCounts]:
    """Direction, `to_brokers` or `to_generator` → its packet counts; empty without counts."""
    try:
        counted = json.loads(counts.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # no packet has passed yet, or the testbed is ending
        return {}
    return {name: PacketCounts(**each) for name, each in counted.items()}


if __name__ == "__main__":
    main(sys.argv[1])
