"""The delay line of an emulated link: `python -m jobs.testbed.delay_line OPTIONS MARKER`.

The process reads packets from two TUN devices. It drops some packets at random and delays the rest.
A packet that was read from one device is written to the other device. OPTIONS are
`DelayLineOptions` as JSON, with the inherited descriptors of the devices.
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
    """A delay that varies at random, slowly enough to keep packets in order.

    A random delay is drawn at equal time intervals. Between two draws the delay is interpolated
    linearly. The delay never falls by more than half a second per second, so that packets leave in
    the order of their arrival.

    Args:
        delay_s: mean delay [s].
        jitter_s: largest deviation from the mean [s].
    """

    def __init__(self, delay_s: float, jitter_s: float, rng: random.Random) -> None:
        self._delay_s = delay_s
        self._jitter_s = jitter_s
        self._rng = rng
        self._slot_s = max(SLOT_S_MIN, 4 * jitter_s)
        self._slot: int | None = None
        self._from = self._to = 0.0

    def at(self, now_s: float) -> float:
        """The delay of a packet that arrives at `now_s` [s]; `now_s` must not decrease."""
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
    """Counts of the packets that went in one direction since the start of the link's process.

    Attributes:
        packets, bytes: number and total size of the forwarded packets.
        lost: number of packets that were dropped because of the configured loss.
        refused: number of packets that the device at the other end refused.
    """

    packets: int = 0
    bytes: int = 0
    lost: int = 0
    refused: int = 0


class Direction:
    """The packets in flight in one direction, first in, first out.

    Args:
        delay: the delay of packets.
        loss: share of packets that are dropped [ratio].
        rng: random numbers that choose the dropped packets.
        bytes_max: largest total size of the packets in flight [B].

    Attributes:
        passed: counts of the packets.
        held_bytes: total size of the packets in flight [B].
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
        """Whether another packet can be accepted."""
        return self.held_bytes < self._bytes_max

    @property
    def next_s(self) -> float | None:
        """The time at which the next packet leaves; None if there are no packets."""
        return self._packets[0][0] if self._packets else None

    def take(self, packet: bytes, now_s: float) -> None:
        """Accept a packet, or drop it with the probability of the loss."""
        if self._loss and self._rng.random() < self._loss:
            self.passed.lost += 1
            return
        self._last_s = max(self._last_s, now_s + self._delay.at(now_s))
        self._packets.append((self._last_s, packet))
        self.held_bytes += len(packet)

    def due(self, now_s: float) -> bytes | None:
        """Remove and return the next packet that leaves at or before `now_s`; None if there is
        none.
        """
        if not self._packets or self._packets[0][0] > now_s:
            return None
        _, packet = self._packets.popleft()
        self.held_bytes -= len(packet)
        return packet


_BATCH = 64
"""Largest number of packets that the process reads from one device before it reads from the other
device.
"""
_WRITE_INTERVAL_S = 1.0
_NICENESS = -10
"""Nice value of the process: high priority, so that packets do not wait for a core."""


@dataclass(frozen=True)
class DelayLineOptions:
    """The options of a delay line.

    Attributes:
        brokers, generator: descriptors of the two TUN devices.
        link: the options of the link.
        counts: path of the file for the packet counts.
    """

    brokers: int
    generator: int
    link: Link
    counts: str

    def direction(self, name: str) -> Direction:
        """One direction of the link; each direction has different random numbers."""
        link = self.link
        delays, losses = (random.Random(f"{link.seed} {name} {for_}") for for_ in ("delay", "loss"))
        varying = VaryingDelay(link.delay_s, link.jitter_s, delays)
        return Direction(varying, link.loss_share, losses, link.held_bytes)


class DelayLine:
    """Forwards the packets of both directions with a delay, on one thread."""

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
        """Forward packets until the process is killed."""
        next_write_s = 0.0
        while True:
            self.step(_WRITE_INTERVAL_S)
            if self._clock_s() >= next_write_s:
                self.write_counts()
                next_write_s = self._clock_s() + _WRITE_INTERVAL_S

    def step(self, patience_s: float) -> None:
        """Forward due packets; then read new packets, with a wait of up to `patience_s` [s]."""
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
            except OSError:  # the device has no buffer for the packet, or is being removed
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
    """Run the delay line with these options until the process is killed."""
    os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)
    DelayLine(restored(DelayLineOptions, json.loads(options))).run()


_TRIES = 3
_TIMEOUT_S = 8.0
"""Deadline of a handshake: twice the longest round trip of a link [s]."""


def line_command(link: Link, tuns: Sequence[int], counts: Path, marker: str) -> list[str]:
    """The command line of the delay line.

    Args:
        tuns: descriptors of the TUN devices, the brokers' device first.
        counts: path of the file for the packet counts.
        marker: argument by which the testbed's processes are found.
    """
    brokers, generator = tuns
    order = DelayLineOptions(brokers, generator, link, str(counts))
    module = "jobs.testbed.delay_line"
    return [sys.executable, "-m", module, json.dumps(asdict(order)), marker]


def round_trip_s(namespace: str, host: str, port: int) -> float:
    """The shortest duration of a few TCP handshakes [s].

    Args:
        namespace: file of the network namespace in which the connections are opened.

    Raises:
        OSError: a connection failed, or this process cannot enter the namespace.
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
    """Direction (`to_brokers` or `to_generator`) → packet counts; empty if the file is missing."""
    try:
        counted = json.loads(counts.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # no counts were written yet, or the testbed is ending
        return {}
    return {name: PacketCounts(**each) for name, each in counted.items()}


if __name__ == "__main__":
    main(sys.argv[1])
