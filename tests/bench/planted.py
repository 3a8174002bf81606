"""Comparison of the limits that `redline find-limit` finds on real brokers with planted limits.

    python -m tests.bench.planted --kind handlers --repeats 4 --json handlers.json
    python -m tests.bench.planted --kind disk --json disk.json
    python -m tests.bench.planted --kind link --rates 10MB/s,20MB/s --json link.json

Each run starts brokers whose request handlers wait a stated time in each produce request
(conf/testbed/calibrated.yaml), or whose disks or link have a stated rate (conf/testbed/planted-*;
needs root), and searches three message sizes. The distance of a point is that of the answer, the
largest sustained number of producers, from the planted limit; that of the best estimate stands
beside it. The file keeps each point, and a second start with the same file makes only the missing
runs. A failed run is reported, and its points count as off.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean, median
from typing import Any

import click

from metrics.units import format_size
from metrics.windows.use import Resource
from tests.support.commands import RunningCommand, document_in

SIZES = 3
"""Message sizes of each run."""
NEAR = 0.05
"""Distance from the planted limit within which an answer is right [ratio]."""
OPTIONS = ("find-limit", "--yes", "--set=workload.trial.measure_s=6")
_PLANTED = ("--workload=planted", "--set=goal.search.resolution=0.03",
            "--set=workload.trial.warmup_s=2")  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """What is planted.

    Attributes:
        key: property of the testbed that states the value.
        run_s: longest duration of a run; a longer one has failed [s].
        resource: limiting resource that a run has to name; None for any.
        share: share of the points that have to be right.
    """

    key: str
    values: tuple[str, ...]
    options: tuple[str, ...]
    run_s: float = 1_200.0
    resource: Resource | None = None
    share: float = 1.0


KINDS: Mapping[str, Kind] = {
    # The limits of these times [ms] are from about 200 producers of 1 kB down to 40.
    "handlers": Kind(
        "produce_handler_ms",
        ("24", "36", "60", "90", "120"),
        (
            "--cluster=calibrated",
            "--workload=calibrated",
            "--set=goal.search.resolution=0.02",
            "--set=goal.search.steady_s=0",
            "--set=workload.trial.warmup_s=1",
        ),
        run_s=900.0,
        share=0.95,
    ),
    "disk": Kind(
        "disk.write_rate",
        ("6MB/s", "8MB/s", "10MB/s", "14MB/s"),
        ("--cluster=planted-disk", *_PLANTED),
        resource=Resource.DISK,
    ),
    "link": Kind(
        "link.rate",
        ("10MB/s", "15MB/s", "20MB/s", "30MB/s"),
        ("--cluster=planted-link", *_PLANTED),
        resource=Resource.NETWORK,
    ),
}


@dataclass(frozen=True)
class Point:
    """The answer of one run for one message size.

    Attributes:
        kind: what was planted.
        value: its stated value.
        repeat: number of the run with this value, from 1.
        planted: the planted limit [producers]; None if the run did not state it.
        sustained, overloaded: the bracket [producers]; None without a conclusion.
        low, high: the interval at 90 % [producers]; None if the run stated none.
        estimate: the best estimate of the limit [producers]; None if the run stated none.
        limited_by: the limiting resource that the run named; None without one.
    """

    kind: str
    value: str
    repeat: int
    message_bytes: int
    planted: float | None
    sustained: int | None
    overloaded: int | None
    low: float | None
    high: float | None
    estimate: float | None
    limited_by: str | None
    trials: int

    @property
    def off_by(self) -> float:
        """The answer divided by the planted limit, minus 1; -1 without an answer [ratio]."""
        if not self.planted or self.sustained is None:
            return -1.0
        return self.sustained / self.planted - 1.0

    @property
    def estimate_off_by(self) -> float | None:
        """The best estimate divided by the planted limit, minus 1; None if one of them is missing
        [ratio].
        """
        if not self.planted or self.estimate is None:
            return None
        return self.estimate / self.planted - 1.0

    @property
    def has_cause(self) -> bool:
        """True if the run named the planted resource."""
        resource = KINDS[self.kind].resource
        return resource is None or self.limited_by == resource.value

    @property
    def is_right(self) -> bool:
        """True for an answer near the planted limit with the right cause."""
        return abs(self.off_by) <= NEAR and self.has_cause


def points_of(summary: Mapping[str, Any], kind: str, value: str, repeat: int = 1) -> list[Point]:
    return [
        Point(
            kind,
            value,
            repeat,
            message_bytes=each["bpm"],
            planted=each.get("np_planted"),
            sustained=None if each["gave_up"] else each["np_sustained"],
            overloaded=each["np_overloaded"],
            low=each.get("np_low"),
            high=each.get("np_high"),
            estimate=each.get("np_estimate"),
            limited_by=each.get("limited_by"),
            trials=each["trials"],
        )
        for each in summary["boundaries"]
    ]


def measure(
    kind: str, value: str, repeat: int, *more: str, folder: Path | None = None, **process: Any
) -> list[Point]:
    """Make one run with `more` options, and return its points; none where it failed.

    Args:
        folder: folder of the run; by default a temporary one, which is deleted.
        process: `program` and `environ` of the command, see `RunningCommand`.
    """
    planted = f"--set=cluster.testbed.properties.{KINDS[kind].key}={value}"
    options = (*OPTIONS, *KINDS[kind].options, planted, *more)
    with (
        tempfile.TemporaryDirectory(prefix="redline-planted-") as name,
        RunningCommand(*options, folder=folder or Path(name), **process) as command,
    ):
        command.wait(deadline_s=KINDS[kind].run_s)
        try:
            return points_of(document_in(folder or Path(name)), kind, value, repeat)
        except ValueError:  # there is no summary
            click.echo(command.text[-2_000:], err=True)
            return []


def table(points: Sequence[Point]) -> list[str]:
    """The lines of a table with one row per planted limit, and all answers for it."""
    columns = (
        "planted", "value", "size", "planted producers", "found", "off by", "estimate",
        "estimate off by", "named", "trials",
    )  # fmt: skip
    rows = []
    for (kind, value, message_bytes), own in _by_place(points):
        cells = [
            (
                "?" if each.planted is None else f"{each.planted:.1f}",
                f"{'none' if each.sustained is None else each.sustained}-{each.overloaded or ''}",
                f"{each.off_by:+.1%}",
                "?" if each.estimate is None else f"{each.estimate:.1f}",
                "?" if each.estimate_off_by is None else f"{each.estimate_off_by:+.1%}",
                each.limited_by or "none",
                str(each.trials),
            )
            for each in own
        ]
        together = map(" ".join, zip(*cells, strict=True))
        rows.append((kind, value, format_size(message_bytes), *together))
    return [f"| {' | '.join(each)} |" for each in (columns, ["---"] * len(columns), *rows)]


def conclusion(points: Sequence[Point], expected: int) -> list[str]:
    """Sentences about all points.

    Args:
        expected: number of points that all runs should have.
    """
    answered = [each for each in points if each.sustained is not None and each.planted]
    if not answered:
        return [f"0 of {expected} points have an answer"]
    distances = [abs(each.off_by) for each in answered]
    lines = []
    lines.append(
        f"{sum(abs(each.off_by) <= NEAR for each in points)} of {expected} points within "
        f"{NEAR:.0%} of the planted limit, {sum(each.has_cause for each in points)} with the right "
        f"cause; median distance {median(distances):.1%}, largest {max(distances):.1%}, "
        f"{fmean(each.trials for each in answered):.1f} trials a point"
    )
    ratios = []
    for _, own in _by_place(answered):
        found = [each.sustained or 0 for each in own]
        if len(found) > 1:
            ratios.append(max(found) / min(found) - 1.0)
    if ratios:
        lines.append(
            f"runs on equal brokers differ by {median(ratios):.1%} at the median, "
            f"{max(ratios):.1%} at most, from their lowest answer to their highest"
        )
    away = [abs(off) for each in answered if (off := each.estimate_off_by) is not None]
    if away:
        lines.append(
            f"median distance of the best estimate {median(away):.1%}, largest {max(away):.1%}"
        )
    held = [
        each.low <= each.planted <= each.high
        for each in answered
        if each.planted is not None and each.low is not None and each.high is not None
    ]
    if held:
        lines.append(
            f"the interval at 90 % contains the planted limit in {sum(held)} of {len(held)}"
        )
    return lines


def _by_place(points: Sequence[Point]) -> list[tuple[tuple[str, str, int], list[Point]]]:
    """(kind, value, message size) → its points, in the order of the values of the kind."""

    def order(point: Point) -> tuple[str, float, int]:
        return point.kind, float(point.value.removesuffix("MB/s")), point.message_bytes

    grouped = [list(own) for _, own in groupby(sorted(points, key=order), order)]
    return [((own[0].kind, own[0].value, own[0].message_bytes), own) for own in grouped]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 0 if enough of the points are right, else 1."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--kind", choices=sorted(KINDS), required=True)
    parser.add_argument("--rates", help="values with commas between; those of the kind by default")
    parser.add_argument("--repeats", type=int, default=1, help="runs for each value")
    parser.add_argument("--json", type=Path, help="file that keeps the points")
    options = parser.parse_args(arguments)
    kind = KINDS[options.kind]
    values = options.rates.split(",") if options.rates else kind.values
    points: list[Point] = []
    if options.json is not None and options.json.exists():
        points = [Point(**each) for each in json.loads(options.json.read_text(encoding="utf-8"))]
    done = {(each.kind, each.value, each.repeat) for each in points}
    for repeat in range(1, options.repeats + 1):
        for value in values:
            if (options.kind, value, repeat) in done:
                continue
            points += (new := measure(options.kind, value, repeat))
            answers = ", ".join(
                f"{format_size(p.message_bytes)}: {p.sustained} for {p.planted or 0:.1f}"
                for p in new
            )
            click.echo(f"{options.kind} {value}, run {repeat}: {answers or 'failed'}")
            if options.json is not None:
                kept = json.dumps([asdict(each) for each in points], indent=1)
                options.json.write_text(kept, encoding="utf-8")
    asked = [
        each
        for each in points
        if (each.kind == options.kind and each.value in values and each.repeat <= options.repeats)
    ]
    expected = SIZES * len(values) * options.repeats
    click.echo("\n".join([*table(asked), *conclusion(asked, expected)]))
    return 0 if sum(each.is_right for each in asked) >= kind.share * expected else 1


if __name__ == "__main__":
    raise SystemExit(main())
