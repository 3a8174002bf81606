"""The process between the two devices: `python -m jobs.testbed.link.delay_line ORDER MARKER`.

It takes packets from one TUN device, holds them back, and hands them to the other, both ways.
ORDER is JSON: the devices' inherited descriptors, the delay and the rest of `Order`.
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
"""Packets that are taken before the other direction has its turn."""
_TELL_S = 1.0
_NICENESS = -10
"""Packets wait for the link and not for their turn on a busy machine."""


@dataclass(frozen=True)
class DelayLineOptions:
    """What the process is told.

    Attributes:
        brokers, generator: descriptors of the two devices.
        delay_s, jitter_s: one way [s].
        loss: share of packets [ratio].
        held_bytes: in each direction [B].
        mtu: largest packet [B].
        seed: of what is drawn.
        counts: file that it keeps what it has done in.
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
        """One direction; each draws for itself, so that neither changes the other."""
        varying = VaryingDelay(self.delay_s, self.jitter_s, self._rng(name, "delay"))
        return Direction(varying, self.loss, self._rng(name, "loss"), self.held_bytes)

    def _rng(self, name: str, what: str) -> random.Random:
        return random.Random(f"{self.seed} {name} {what}")


class DelayLine:
    """Both directions, on one thread."""

    def __init__(
        self, order: DelayLineOptions, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._order = order
        self._clock_s = clock_s
        to_brokers, to_generator = map(order.direction, ("to brokers", "to generator"))
        self._ways = (
            (order.generator, order.brokers, to_brokers),
            (order.brokers, order.generator, to_generator),
        )
        self._told: dict[str, Any] = {}

    def run(self) -> None:
        """Until the process is ended."""
        next_tell_s = 0.0
        while True:
            self.step(_TELL_S)
            if self._clock_s() >= next_tell_s:
                self.tell()
                next_tell_s = self._clock_s() + _TELL_S

    def step(self, patience_s: float) -> None:
        """Hand on what is due, wait at most so long for what comes or gets due, and take it."""
        for _, target, way in self._ways:
            self._hand_on(target, way)
        due_s = [each for _, _, way in self._ways if (each := way.next_s) is not None]
        wait_s = min([patience_s, *(each - self._clock_s() for each in due_s)])
        sources = [source for source, _, way in self._ways if way.has_room]
        ready, _, _ = select.select(sources, [], [], max(0.0, wait_s))
        for source, _, way in self._ways:
            if source in ready:
                self._take(source, way)

    def _hand_on(self, target: int, way: Direction) -> None:
        now_s, passed = self._clock_s(), way.passed
        while (packet := way.due(now_s)) is not None:
            try:
                os.write(target, packet)
            except OSError:  # the device has no memory for it, or goes down
                passed.refused += 1
            else:
                passed.packets += 1
                passed.bytes += len(packet)

    def _take(self, source: int, way: Direction) -> None:
        now_s = self._clock_s()
        for _ in range(_BATCH):
            if not way.has_room:
                return
            try:
                packet = os.read(source, self._order.mtu)
            except BlockingIOError:  # that was all
                return
            way.take(packet, now_s)

    def tell(self) -> None:
        """Write down what has passed, for `redline testbed status`."""
        counts = {
            name: asdict(way.passed)
            for name, (_, _, way) in zip(("to_brokers", "to_generator"), self._ways, strict=True)
        }
        if counts != self._told:
            path = Path(self._order.counts)
            draft = path.with_name(f"{path.name}.new")
            draft.write_text(json.dumps(counts), encoding="utf-8")
            draft.replace(path)
            self._told = counts


def main(order: str) -> None:
    """Hold packets back until ended."""
    os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)
    DelayLine(DelayLineOptions(**json.loads(order))).run()


if __name__ == "__main__":
    main(sys.argv[1])
