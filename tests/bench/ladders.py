"""Recorded readings of real brokers at loads from a tenth to eight times their limit.

    python -m tests.bench.ladders --folder tests/data/ladders
    python -m tests.bench.ladders --folder tests/data/ladders --only slow-broker

The simulated clusters of `tests.bench.search` replay these ladders. Each condition starts its own
brokers. The load is doubled until the brokers are overloaded; then trials of a fixed length fill
in loads around the limit and up to eight times the limit.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import click

from jobs.config import Configuration, load
from jobs.console.events import Plan
from jobs.console.printing import make_reporter
from jobs.runs.context_factory import RunOrder
from jobs.runs.fixed_load import FixedLoad, FixedLoadRun
from jobs.runs.lifecycle import Body, RunState, execute, new_run_id
from jobs.runs.outcome import RunOutcome
from jobs.trials.measure import Rig
from metrics.columns import Column, as_document
from metrics.trial.trial import Trial
from search.model import Verdict

SHARES = (0.1, 0.3, 0.6, 0.85, 1.0, 1.15, 1.4, 2.0, 4.0, 8.0)
"""Loads of a ladder, divided by the limit [ratio]."""
CLIMB = 2.0
BYTES_MAX = 400e6
"""Largest offered payload of a rung [B/s]: above it two cores are too few for the generator and the
brokers."""


@dataclass(frozen=True)
class Condition:
    """Brokers and a workload.

    Attributes:
        name: name of the file of recorded ladders.
        first: number of producers in the first rung.
    """

    name: str
    cluster: str
    workload: str
    sizes: tuple[int, ...]
    overrides: tuple[str, ...] = ()
    first: int = 4


def _disk(name: str, sizes: tuple[int, ...], *overrides: str, first: int = 4) -> Condition:
    return Condition(name, "testbed", "demo", sizes, overrides, first)


_ALL = (100, 1_000, 10_000)
_ONE = "cluster.testbed.brokers=1"
_ACKS_ALL = "workload.producer.acks=all"
_SINGLE = "workload.topic.replication_factor=1"
_DEFAULT = (
    "cluster.testbed.profile=default",
    # A follower that falls behind leaves the ISR within a rung.
    "cluster.testbed.properties.replica.lag.time.max.ms=2000",
)

CONDITIONS = (
    _disk("disk-bound", _ALL),
    _disk("disk-bound-acks-all", (1_000,), _ACKS_ALL),
    _disk("disk-bound-1-broker", (1_000,), _ONE, _SINGLE),
    _disk("default", _ALL, *_DEFAULT, first=16),
    _disk("default-acks-all", (1_000,), *_DEFAULT, _ACKS_ALL, first=16),
    _disk("secured", (1_000,), "cluster.testbed.profile=secured"),
    Condition("calibrated", "calibrated", "calibrated", _ALL, first=16),
    Condition("calibrated-1-broker", "calibrated", "calibrated", (1_000,), (_ONE,), first=8),
    Condition(
        "slow-broker",
        "calibrated",
        "calibrated",
        (1_000,),
        ('cluster.testbed.properties.produce_handler_ms="1: 60, 2: 60, 3: 120"',),
        first=8,
    ),
    Condition(
        "slow-follower",
        "calibrated",
        "calibrated",
        (1_000,),
        (
            'cluster.testbed.properties.produce_handler_ms="1: 20, 2: 20, 3: 80"',
            "workload.topic.replication_factor=2",
            _ACKS_ALL,
        ),
        first=8,
    ),
)


@dataclass(frozen=True)
class Rung:
    """The readings of one trial.

    Attributes:
        idle: lowest idle fraction of any broker's handlers.
        achieved: achieved load divided by offered load [ratio].
        isr: share of samples with an ISR change.
        p50_ms, p99_ms: latencies of acknowledged records [ms].
        reason: indicator of the first reason for it.
    """

    producers: Annotated[int, Column("np")]
    idle: float | None
    achieved: float
    isr: float | None
    p50_ms: float | None
    p99_ms: float | None
    verdict: str
    reason: str

    @classmethod
    def of(cls, trial: Trial) -> Rung:
        """The readings of a trial that a search uses, and further ones."""
        evidence, client = trial.evidence, trial.evidence.client
        first = next(iter(trial.reasons), None)
        share = (client.achieved_mb_per_s or 0.0) / (client.offered_mb_per_s or math.inf)
        return cls(
            trial.pattern.producers,
            _rounded(evidence.handler_idle_min),
            round(share, 4),
            _rounded(evidence.isr_changed_share),
            _rounded(client.latency.p50_ms),
            _rounded(client.latency.p99_ms),
            trial.verdict.value,
            "" if first is None else first.indicator,
        )


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 4)


@dataclass
class LadderRun(Body):
    """A run that records a ladder for each message size.

    Attributes:
        ladders: message size → its rungs, the lightest first; filled during the run.
    """

    config: Configuration
    first: int
    ladders: dict[int, list[Rung]] = field(default_factory=dict)

    def plan(self, out: Path) -> Plan:
        """A plan for the same number of trials at the first load, as later loads are unknown."""
        sizes = self.config.workload.message_bytes
        trials = len(sizes) * len(SHARES)
        return FixedLoadRun(self.config, FixedLoad(sizes[0], self.first, trials)).plan(out)

    def measure(self, run: RunState) -> None:
        """Double the load up to the first overload, and then fill in the other loads."""
        for message_bytes in self.config.workload.message_bytes:
            rungs: dict[int, Rung] = {}
            self.ladders[message_bytes] = []
            with Rig.open(run.context, self.config.cluster.warm_up_max_s) as rig:

                def rung(
                    producers: int, rig: Rig = rig, message_bytes: int = message_bytes
                ) -> Rung:
                    return Rung.of(rig.trial(message_bytes, producers, "a rung of a ladder"))

                producers = self.first
                while self._may_offer(message_bytes, producers):
                    rungs[producers] = rung(producers)
                    if rungs[producers].verdict == Verdict.OVERLOADED.value:
                        break
                    producers = math.ceil(producers * CLIMB)
                limit = limit_of(list(rungs.values()))
                for share in SHARES if limit else ():
                    producers = max(1, round((limit or 0) * share))
                    if producers not in rungs and self._may_offer(message_bytes, producers):
                        rungs[producers] = rung(producers)
            self.ladders[message_bytes] = [rungs[producers] for producers in sorted(rungs)]

    def _may_offer(self, message_bytes: int, producers: int) -> bool:
        return self.config.pattern(message_bytes, producers).mb_per_s * 1e6 <= BYTES_MAX

    def conclude(self, run: RunState, outcome: RunOutcome) -> None:
        """Do nothing: a ladder has no further conclusion."""


def limit_of(rungs: Sequence[Rung]) -> float | None:
    """The limit of a ladder [producers]; None without a rung on each side of it.

    If idle time is the reason of the first overload, the limit is where a straight line between
    the two rungs crosses the threshold; else it is the geometric mean of the two loads.
    """
    ordered = sorted(rungs, key=lambda each: each.producers)
    for low, high in pairwise(ordered):
        if low.verdict == "SUSTAINED" and high.verdict == "OVERLOADED":
            if None not in (low.idle, high.idle) and high.reason == "request_handler_idle":
                fall = (low.idle or 0.0) - (high.idle or 0.0)
                share = ((low.idle or 0.0) - 0.2) / fall
                return low.producers + (high.producers - low.producers) * share
            return math.sqrt(low.producers * high.producers)
    return None


def record(condition: Condition) -> dict[str, Any]:
    """Start the brokers, record the ladders, and return them as a JSON document."""
    config = load(
        condition.cluster,
        condition.workload,
        "default",
        (
            *condition.overrides,
            f"workload.message_bytes={list(condition.sizes)}",
            "workload.trial.warmup_s=1.5",
            "workload.trial.measure_s=6",
            "workload.trial.early_end_error_rate=0",
            "cluster.warm_up_max_s=30",
        ),
    )
    body = LadderRun(config, condition.first)
    with tempfile.TemporaryDirectory(prefix="redline-ladders-") as name, make_reporter() as shown:
        out = Path(name)
        order = RunOrder(out, reporter=shown, run_id=new_run_id(time.time()))
        execute(body, order)
    return {
        "name": condition.name,
        "date": time.strftime("%Y-%m-%d"),
        "cluster": condition.cluster,
        "workload": condition.workload,
        "overrides": list(condition.overrides),
        "ladders": [
            {
                "bpm": message_bytes,
                "limit_np": _rounded(limit_of(rungs)),
                "rungs": list(map(as_document, rungs)),
            }
            for message_bytes, rungs in body.ladders.items()
        ],
    }


@click.command()
@click.option("--folder", type=click.Path(path_type=Path), required=True)
@click.option("--only", multiple=True, help="Names of conditions; all by default.")
def ladders(folder: Path, only: tuple[str, ...]) -> None:
    """Record ladders on real brokers; existing files are kept."""
    for condition in CONDITIONS:
        path = folder / f"{condition.name}.json"
        if path.exists() or (only and condition.name not in only):
            continue
        found = record(condition)
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    ladders()
