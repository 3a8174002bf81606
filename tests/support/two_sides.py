"""Two simulated clusters for comparisons, with capacities, noise and a drifting machine."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from jobs.features.compare.answer import load_of_cluster
from metrics.comparing.effects import Side
from metrics.trial.evidence import Judgement
from metrics.trial.trial import Trial
from metrics.windows.use import Resource
from search.model import Verdict
from tests.support.evidence import client
from tests.support.rows import PATTERN, trial

PRODUCER_MB_PER_S = 0.25
WINDOW_S = 5.0


def steady_machine(_trial: int) -> float:
    """The relative speed of a machine without drift."""
    return 1.0


@dataclass
class TwoSides:
    """Two sides that make trials; a `jobs.features.compare.answer.Hold`.

    Attributes:
        capacity: side → capacity of a broker [MB/s].
        machine: number of the trial → speed of the machine at that time, normally 1.
        made: (side, load per broker) of each trial, oldest first.
    """

    capacity: dict[Side, float]
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    noise: float = 0.0
    machine: Callable[[int], float] = steady_machine
    invalid: frozenset[int] = frozenset()
    brokers: int = 1
    made: list[tuple[Side, float]] = field(default_factory=list)

    def __call__(self, side: Side, load_per_broker: float, reason: str) -> Trial:
        self.made.append((side, load_per_broker))
        number = len(self.made)
        producers = load_of_cluster(load_per_broker, self.brokers)
        offered = producers * PRODUCER_MB_PER_S
        takes = self.capacity[side] * self.brokers * self.machine(number)
        takes *= self.chance.lognormvariate(0.0, self.noise)
        acked = min(offered, takes)
        is_over = acked < 0.99 * offered
        verdict = Verdict.OVERLOADED if is_over else Verdict.SUSTAINED
        if number in self.invalid:
            verdict = Verdict.INVALID
        bound = Resource.DISK if is_over else None
        offered_bytes, acked_bytes = (round(each * WINDOW_S * 1e6) for each in (offered, acked))
        window = client(
            end_s=client().start_s + WINDOW_S,
            offered_bytes=offered_bytes,
            acked_bytes=acked_bytes,
            offered_records=offered_bytes // PATTERN.message_bytes,
            acked_records=acked_bytes // PATTERN.message_bytes,
        )
        pattern = replace(PATTERN, producers=producers, brokers=self.brokers)
        judged = Judgement(verdict, (), {}, bound, "disk: invented" if bound else "")
        return trial(number, client=window, pattern=pattern, judgements={"default": judged})
