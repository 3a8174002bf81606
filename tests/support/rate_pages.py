"""Meters of Yammer's metrics 2.2, and pages of an exporter that shows their averages, no counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from tests.support.served_exporter import Exporter

STEP_S = 0.1
POOL = "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent"
NAMES = {
    "bytes_in": "kafka_server_brokertopicmetrics_bytesinpersec",
    "messages_in": "kafka_server_brokertopicmetrics_messagesinpersec",
    "isr_shrinks": "kafka_server_replicamanager_isrshrinkspersec",
}
JVM = "process_start_time_seconds 900.0\n"
VALUES = (
    "kafka_server_replicamanager_leadercount 12.0\n"
    "kafka_server_replicamanager_underreplicatedpartitions 0.0\n"
    "kafka_server_raft_metrics_current_epoch 3.0\n"
)
ALPHA = 1 - math.exp(-5 / 60.0 / 1)
INTERVAL_NS = 5e9
PERIOD_S = 5.0


@dataclass
class SimulatedMeter:
    """A meter with its one-minute rate, by the arithmetic of its Java code.

    Its scheduled thread ticks each 5 s after its creation.

    Attributes:
        begun_s: time of its creation [s].
        rate_unit_ns: unit of the rates: 1e9 for events each second, 1 for nanoseconds each one.
        alpha: weight of a tick in the average.
        late_s: number of a tick → time by which it is late [s].
    """

    begun_s: float
    rate_unit_ns: float = 1e9
    late_s: dict[int, float] = field(default_factory=dict)
    alpha: float = ALPHA
    count: int = 0
    ticks: int = 0
    counted: list[int] = field(default_factory=list)
    _uncounted: int = 0
    _rate: float = 0.0
    _is_initialized: bool = False

    @property
    def one_minute_rate(self) -> float:
        return self._rate * self.rate_unit_ns

    @property
    def next_tick_s(self) -> float:
        number = self.ticks + 1
        return self.begun_s + number * PERIOD_S + self.late_s.get(number, 0.0)

    def mark(self, events: int) -> None:
        self.count += events
        self._uncounted += events

    def tick(self) -> None:
        """Take the events since the last tick, as `EWMA.tick` does."""
        events, self._uncounted = self._uncounted, 0
        self.counted.append(events)
        instant = events / INTERVAL_NS
        if self._is_initialized:
            self._rate += self.alpha * (instant - self._rate)
        else:
            self._rate = instant
            self._is_initialized = True
        self.ticks += 1


class RateExporter(Exporter):
    """An exporter of a broker with the meters of Yammer's metrics; each poll is `every_s` later.

    Args:
        end: end of the names of the rates.
        idle_factor: 100 for the idle time as a percentage.
        printed: the text of a number.
        up_s: time since the start of the broker, or since up to 5 s earlier [s].
    """

    def __init__(
        self,
        end: str = "",
        minutes: int = 1,
        idle_factor: float = 1.0,
        printed: Callable[[float], str] = repr,
        more: str = "",
        up_s: float = 60.0,
    ) -> None:
        super().__init__()
        self.random = Random(1)
        self.now_s, self.every_s = 1_000.0, 1.0
        self.idle, self.messages_per_s = 0.97, 0.0
        self.end, self.idle_factor, self.printed, self.more = end, idle_factor, printed, more
        alpha = 1 - math.exp(-5 / 60.0 / minutes)
        self.meters: Mapping[str, SimulatedMeter] = {
            name: SimulatedMeter(
                self.now_s - self.random.uniform(0, 5), 1.0 if name == "idle" else 1e9, alpha=alpha
            )
            for name in ("idle", *NAMES)
        }
        if not up_s:  # no meter has ticked yet
            for meter in self.meters.values():
                meter.begun_s = self.now_s
        self.run(up_s)

    def run(self, seconds: float) -> None:
        """Serve the load for so long."""
        for _ in range(round(seconds / STEP_S)):
            self.now_s += STEP_S
            vary = self.random.uniform(0.9, 1.1)
            self.meters["idle"].mark(int(1e9 * STEP_S * (1 - (1 - self.idle) * vary)))
            messages = int(self.messages_per_s * STEP_S * vary)
            self.meters["messages_in"].mark(messages)
            self.meters["bytes_in"].mark(messages * 1_071)
            for meter in self.meters.values():
                while meter.next_tick_s <= self.now_s:
                    meter.tick()

    def answer(self, path: str) -> str:
        """The page, `every_s` after the last one."""
        self.run(self.every_s)
        idle = self.meters["idle"].one_minute_rate * self.idle_factor
        lines = [f"{POOL}{self.end} {self.printed(idle)}"]
        for name, series in NAMES.items():
            rate = self.printed(self.meters[name].one_minute_rate)
            lines.append(f"{series}{self.end} {rate}")
        self.text = "\n".join(lines) + "\n" + VALUES + JVM + self.more
        return super().answer(path)
