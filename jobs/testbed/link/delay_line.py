"""The delay line of a link: `python -m jobs.testbed.link.delay_line OPTIONS MARKER`.

The process reads packets from one TUN device, delays them, and writes them to the other, in both
directions. OPTIONS are `DelayLineOptions` as JSON, with the devices' inherited descriptors.
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jobs.testbed.link.packet_delay import Direction, VaryingDelay

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
        delay_s, jitter_s: delay one way and its jitter [s].
        loss: share of lost packets [ratio].
        held_bytes: maximum size of the delayed packets in each direction [B].
        mtu: largest packet [B].
        seed: seed of loss and jitter.
        counts: file for the packet counts.
    """

    brokers: int
    generator: int
    delay_s: float
    jitter_s: float
    loss: float
    held_bytes: int
    mtu: int
    seed: int
    counts: str

    def direction(self, name: str) -> Direction:
        """One direction, with random numbers of its own."""
        varying = VaryingDelay(self.delay_s, self.jitter_s, self._rng(name, "delay"))
        return Direction(varying, self.loss, self._rng(name, "loss"), self.held_bytes)

    def _rng(self, name: str, what: str) -> random.Random:
        return random.Random(f"{self.seed} {name} {what}")


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
                packet = os.read(source, self._options.mtu)
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
    DelayLine(DelayLineOptions(**json.loads(options))).run()


if __name__ == "__main__":
    main(sys.argv[1])
