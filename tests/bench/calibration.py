"""Comparison of the limits that `redline find-limit` finds on real brokers with planted limits.

    python -m tests.bench.calibration --repeats 4 --json calibration.json

Each run starts three brokers whose handlers wait a stated time in each produce request
(conf/testbed/calibrated.yaml), and searches three message sizes at a resolution of 2 %. The
distance of a point is that of the answer, the largest sustained number of producers, from the
planted limit; that of the best estimate stands beside it. The file keeps each point, and a second
start with the same file makes only the missing runs. A failed run is reported, and its points count
as off.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any

import click

from metrics.columns import Column, as_document, restored
from metrics.units import format_size
from tests.support.commands import RunningCommand

STATED_MS = (24.0, 36.0, 60.0, 90.0, 120.0)
"""Planted times [ms]; their limits are from about 200 producers of 1 kB down to 40."""
RUN_S = 900.0
"""Longest duration of a run; a longer one has failed [s]."""
OPTIONS = (
    "find-limit",
    "--cluster=calibrated",
    "--workload=calibrated",
    "--set=goal.search.resolution=0.02",
    "--set=goal.search.steady_s=0",
    "--set=workload.trial.warmup_s=1",
    "--set=workload.trial.measure_s=6",
    "--yes",
)
NEAR = 0.05
"""Distance from the planted limit within which an answer is right [ratio]."""


@dataclass(frozen=True)
class Point:
    """The answer of one run for one message size.

    Attributes:
        stated_ms: planted time of each produce request [ms].
        repeat: number of the run with this time, from 1.
        message_bytes: message size [B].
        planted_producers: the planted limit; None if the run did not state it.
        np_sustained, np_overloaded: the bracket; None without a conclusion.
        np_low, np_high: the interval at 90 %; None if the run did not state one.
        np_estimate: the best estimate of the limit; None if the run did not state one.
        trials: number of trials.
    """

    stated_ms: float
    repeat: int
    message_bytes: Annotated[int, Column("bpm")]
    planted_producers: Annotated[float | None, Column("planted_np")]
    np_sustained: int | None
    np_overloaded: int | None
    trials: int
    np_low: float | None = None
    np_high: float | None = None
    np_estimate: float | None = None

    @property
    def off_by(self) -> float:
        """The answer divided by the planted limit, minus 1; -1 without an answer [ratio]."""
        if not self.planted_producers or self.np_sustained is None:
            return -1.0
        return self.np_sustained / self.planted_producers - 1.0

    @property
    def estimate_off_by(self) -> float | None:
        """The best estimate divided by the planted limit, minus 1; None if one of them is missing
        [ratio].
        """
        if not self.planted_producers or self.np_estimate is None:
            return None
        return self.np_estimate / self.planted_producers - 1.0

    @property
    def interval_holds(self) -> bool | None:
        """True if the interval contains the planted limit; None if one of them is missing."""
        if self.planted_producers is None or self.np_low is None or self.np_high is None:
            return None
        return self.np_low <= self.planted_producers <= self.np_high


def points_of(summary: dict[str, Any], stated_ms: float, repeat: int) -> list[Point]:
    """The points of a finished run."""
    return [
        Point(
            stated_ms,
            repeat,
            each["bpm"],
            each.get("np_planted"),
            None if each["gave_up"] else each["np_sustained"],
            each["np_overloaded"],
            each["trials"],
            each.get("np_low"),
            each.get("np_high"),
            each.get("np_estimate"),
        )
        for each in summary["boundaries"]
    ]


def measure(
    stated_ms: float, repeat: int, *more: str, folder: Path | None = None, **process: Any
) -> list[Point]:
    """Make one run with `more` options, and return its points.

    Args:
        folder: folder of the run; by default a temporary one, which is deleted.
        process: `program` and `environ` of the command, see `RunningCommand`.
    """
    planted = f"--set=cluster.testbed.properties.produce_handler_ms={stated_ms:g}"
    with (
        tempfile.TemporaryDirectory(prefix="redline-calibration-") as name,
        RunningCommand(*OPTIONS, planted, *more, folder=folder or Path(name), **process) as command,
    ):
        command.wait(deadline_s=RUN_S)
        found = list((folder or Path(name)).glob("out/*/summary.json"))
        if not found:
            click.echo(command.text[-2_000:], err=True)
            return []
        return points_of(json.loads(found[0].read_text(encoding="utf-8")), stated_ms, repeat)


def table(points: Sequence[Point]) -> list[str]:
    """The lines of a table with one row per planted limit, and all answers for it."""
    rows = []
    for (stated_ms, message_bytes), group in groupby(sorted(points, key=_place), _place):
        own = list(group)
        planted = [each.planted_producers for each in own if each.planted_producers]
        rows.append(
            (
                f"{stated_ms:g}",
                format_size(message_bytes),
                " ".join(f"{each:.1f}" for each in planted),
                " ".join("none" if p.np_sustained is None else str(p.np_sustained) for p in own),
                " ".join(f"{each.off_by:+.1%}" for each in own),
                " ".join("?" if p.np_estimate is None else f"{p.np_estimate:.1f}" for p in own),
                " ".join(
                    "?" if each.estimate_off_by is None else f"{each.estimate_off_by:+.1%}"
                    for each in own
                ),
                " ".join(str(each.trials) for each in own),
            )
        )
    columns = (
        "stated ms", "size", "planted producers", "found producers", "off by", "estimate",
        "estimate off by", "trials",
    )  # fmt: skip
    return [f"| {' | '.join(each)} |" for each in (columns, ["---"] * len(columns), *rows)]


def conclusion(points: Sequence[Point], expected: int) -> list[str]:
    """Sentences about all points.

    Args:
        expected: number of points that all runs should have.
    """
    near = sum(abs(each.off_by) <= NEAR for each in points)
    answered = [each for each in points if each.np_sustained is not None and each.planted_producers]
    if not answered:
        return [f"0 of {expected} points have an answer"]
    first = (
        f"{near} of {expected} points within {NEAR:.0%} of the planted limit; median distance "
        f"{median(abs(each.off_by) for each in answered):.1%}, largest "
        f"{max(abs(each.off_by) for each in answered):.1%}, "
        f"{fmean(each.trials for each in answered):.1f} trials a point"
    )
    lines, ratios = [first], []
    for _, group in groupby(sorted(answered, key=_place), _place):
        found = [each.np_sustained or 0 for each in group]
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
    held = [each.interval_holds for each in answered if each.interval_holds is not None]
    if held:
        lines.append(
            f"the interval at 90 % contains the planted limit in {sum(held)} of {len(held)}"
        )
    return lines


def _place(point: Point) -> tuple[float, int]:
    return point.stated_ms, point.message_bytes


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 0 if 95 % of the points are right, else 1."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--repeats", type=int, default=4, help="runs for each planted time")
    parser.add_argument("--json", type=Path, help="file that keeps the points")
    options = parser.parse_args(arguments)
    points: list[Point] = []
    if options.json is not None and options.json.exists():
        points = [restored(Point, each) for each in json.loads(options.json.read_text())]
    done = {(each.stated_ms, each.repeat) for each in points}
    for repeat in range(1, options.repeats + 1):
        for stated_ms in STATED_MS:
            if (stated_ms, repeat) in done:
                continue
            points += (new := measure(stated_ms, repeat))
            answers = ", ".join(
                f"{format_size(p.message_bytes)}: {p.np_sustained} for "
                f"{p.planted_producers or 0:.1f}"
                for p in new
            )
            click.echo(f"{stated_ms:g} ms, run {repeat}: {answers or 'failed'}")
            if options.json is not None:
                options.json.write_text(
                    json.dumps([as_document(each) for each in points], indent=1)
                )
    sizes = len({each.message_bytes for each in points})
    expected = options.repeats * len(STATED_MS) * sizes
    click.echo("\n".join([*table(points), *conclusion(points, expected)]))
    return 0 if sum(abs(each.off_by) <= NEAR for each in points) >= 0.95 * expected > 0 else 1


if __name__ == "__main__":
    raise SystemExit(main())
