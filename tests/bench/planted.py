"""Comparison of the limits that `redline find-limit` finds with planted limits of disks and links.

    python -m tests.bench.planted --kind disk --json disk.json
    python -m tests.bench.planted --kind link --rates 10MB/s,20MB/s --json link.json

Each run starts two brokers whose disks, or whose link, have a stated rate (conf/testbed/planted-*),
and searches three message sizes. The file keeps each point, and a second start with the same file
makes only the missing runs. It needs root.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click

from metrics.units import format_size
from metrics.windows.use import Resource
from tests.support.commands import RunningCommand

RUN_S = 1_200.0
"""Longest duration of a run; a longer one has failed [s]."""
NEAR = 0.05
"""Distance from the planted limit within which an answer is right [ratio]."""
OPTIONS = (
    "find-limit",
    "--workload=planted",
    "--set=goal.search.resolution=0.03",
    "--set=workload.trial.warmup_s=2",
    "--set=workload.trial.measure_s=6",
    "--yes",
)


@dataclass(frozen=True)
class Kind:
    """What is planted.

    Attributes:
        key: property of the testbed that states the rate.
        resource: limiting resource that a run has to name.
        rates: rates of the planned runs.
    """

    key: str
    resource: Resource
    rates: tuple[str, ...]


KINDS: Mapping[str, Kind] = {
    "disk": Kind("disk.write_rate", Resource.DISK, ("6MB/s", "8MB/s", "10MB/s", "14MB/s")),
    "link": Kind("link.rate", Resource.NETWORK, ("10MB/s", "15MB/s", "20MB/s", "30MB/s")),
}


@dataclass(frozen=True)
class Point:
    """The answer of one run for one message size.

    Attributes:
        kind: what was planted.
        rate: its stated rate.
        message_bytes: message size [B].
        planted: the planted limit [producers].
        sustained, overloaded: the bracket [producers]; None without a conclusion.
        estimate: the best estimate of the limit [producers]; None if the run stated none.
        limited_by: the limiting resource that the run named; None without one.
        trials: number of trials.
    """

    kind: str
    rate: str
    message_bytes: int
    planted: float
    sustained: int | None
    overloaded: int | None
    estimate: float | None
    limited_by: str | None
    trials: int

    @property
    def off_by(self) -> float:
        """The answer divided by the planted limit, minus 1; -1 without an answer [ratio]."""
        return -1.0 if self.sustained is None else self.sustained / self.planted - 1.0

    @property
    def is_right(self) -> bool:
        """True for an answer near the planted limit with the right cause."""
        return abs(self.off_by) <= NEAR and self.limited_by == KINDS[self.kind].resource.value


def points_of(summary: Mapping[str, Any], kind: str, rate: str) -> list[Point]:
    """The points of a finished run."""
    return [
        Point(
            kind,
            rate,
            each["bpm"],
            each["np_planted"],
            None if each["gave_up"] else each["np_sustained"],
            each["np_overloaded"],
            each.get("np_estimate"),
            each.get("limited_by"),
            each["trials"],
        )
        for each in summary["boundaries"]
    ]


def measure(kind: str, rate: str, *more: str) -> list[Point]:
    """Make one run with `more` options, and return its points; none where it failed."""
    planted = f"--set=cluster.testbed.properties.{KINDS[kind].key}={rate}"
    options = (*OPTIONS, f"--cluster=planted-{kind}", planted, *more)
    with (
        tempfile.TemporaryDirectory(prefix="redline-planted-") as name,
        RunningCommand(*options, folder=Path(name)) as command,
    ):
        command.wait(deadline_s=RUN_S)
        found = list(Path(name).glob("out/*/summary.json"))
        if not found:
            click.echo(command.text[-2_000:], err=True)
            return []
        return points_of(json.loads(found[0].read_text(encoding="utf-8")), kind, rate)


def table(points: Sequence[Point]) -> list[str]:
    """The lines of a table with a row for each point."""
    columns = ("planted", "rate", "size", "planted producers", "found", "off by", "named", "trials")
    rows = [
        (
            each.kind,
            each.rate,
            format_size(each.message_bytes),
            f"{each.planted:.1f}",
            f"{'none' if each.sustained is None else each.sustained}-{each.overloaded or ''}",
            f"{each.off_by:+.1%}",
            each.limited_by or "none",
            str(each.trials),
        )
        for each in points
    ]
    return [f"| {' | '.join(each)} |" for each in (columns, ["---"] * len(columns), *rows)]


def conclusion(points: Sequence[Point], expected: int) -> str:
    """A sentence about all points.

    Args:
        expected: number of points that all runs should have.
    """
    near = sum(abs(each.off_by) <= NEAR for each in points)
    named = sum(each.limited_by == KINDS[each.kind].resource.value for each in points)
    distances = [abs(each.off_by) for each in points] or [1.0]
    return (
        f"{near} of {expected} points within {NEAR:.0%} of the planted limit, {named} with the "
        f"right cause; median distance {median(distances):.1%}, largest {max(distances):.1%}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 0 if all points are right, else 1."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--kind", choices=sorted(KINDS), required=True)
    parser.add_argument("--rates", help="rates with commas between; those of the kind by default")
    parser.add_argument("--json", type=Path, help="file that keeps the points")
    options = parser.parse_args(arguments)
    rates = options.rates.split(",") if options.rates else KINDS[options.kind].rates
    points: list[Point] = []
    if options.json is not None and options.json.exists():
        points = [Point(**each) for each in json.loads(options.json.read_text(encoding="utf-8"))]
    for rate in rates:
        if (options.kind, rate) not in {(each.kind, each.rate) for each in points}:
            points += measure(options.kind, rate)
            if options.json is not None:
                kept = json.dumps([asdict(each) for each in points], indent=1)
                options.json.write_text(kept, encoding="utf-8")
    click.echo("\n".join([*table(points), conclusion(points, 3 * len(rates))]))
    return 0 if len(points) == 3 * len(rates) and all(each.is_right for each in points) else 1


if __name__ == "__main__":
    raise SystemExit(main())
