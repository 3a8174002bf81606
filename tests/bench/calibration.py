"""Limits that `redline find-limit` finds on real brokers, beside those planted in them.

    python -m tests.bench.calibration --repeats 4 --json calibration.json

Each run starts three brokers of its own whose handlers wait a stated time in each produce request
(conf/testbed/calibrated.yaml) and searches three message sizes at a resolution of 2 %. Every
point's distance is that of the answer, the most producers that were sustained, from the planted
limit. Points are kept in the file as they are found, and a second start with the same file makes
only the runs that are missing; a run that fails is told and counts as off.
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
"""Planted times, each another limit: from about 200 producers of 1 kB down to 40 [ms]."""
RUN_S = 900.0
"""A run that takes longer has failed [s]."""
OPTIONS = (
    "find-limit",
    "--cluster=calibrated",
    "--workload=calibrated",
    "--set=goal.search.resolution=0.02",
    "--set=workload.trial.warmup_s=1",
    "--set=workload.trial.measure_s=6",
    "--yes",
)
NEAR = 0.05
"""Distance from the planted limit within which an answer is right [ratio]."""


@dataclass(frozen=True)
class Point:
    """One size of one run.

    Attributes:
        stated_ms: planted in each produce request [ms].
        repeat: which run with this time, from 1.
        message_bytes: message size [B].
        planted_producers: the planted limit; None where the run did not state it.
        np_sustained, np_overloaded: the bracket; None where there was no conclusion.
        np_low, np_high: the interval at 90 %, where the run stated one.
        trials: that it took.
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

    @property
    def off_by(self) -> float:
        """The answer over the planted limit, less 1; -1 without an answer [ratio]."""
        if not self.planted_producers or self.np_sustained is None:
            return -1.0
        return self.np_sustained / self.planted_producers - 1.0

    @property
    def interval_holds(self) -> bool | None:
        """Whether the interval holds the planted limit; None where one of them is missing."""
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
        )
        for each in summary["boundaries"]
    ]


def measure(stated_ms: float, repeat: int, *more: str) -> list[Point]:
    """One run with `more` options, in a folder that is gone afterwards."""
    planted = f"--set=cluster.testbed.properties.produce_handler_ms={stated_ms:g}"
    with (
        tempfile.TemporaryDirectory(prefix="redline-calibration-") as name,
        RunningCommand(*OPTIONS, planted, *more, folder=Path(name)) as command,
    ):
        command.wait(deadline_s=RUN_S)
        found = list(Path(name).glob("out/*/summary.json"))
        if not found:
            click.echo(command.text[-2_000:], err=True)
            return []
        return points_of(json.loads(found[0].read_text(encoding="utf-8")), stated_ms, repeat)


def table(points: Sequence[Point]) -> list[str]:
    """A line for each planted limit: all answers beside it."""
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
                " ".join(str(each.trials) for each in own),
            )
        )
    columns = ("stated ms", "size", "planted producers", "found producers", "off by", "trials")
    return [f"| {' | '.join(each)} |" for each in (columns, ["---"] * len(columns), *rows)]


def conclusion(points: Sequence[Point], expected: int) -> list[str]:
    """Sentences over all points.

    Args:
        expected: points that all runs together should have given.
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
    held = [each.interval_holds for each in answered if each.interval_holds is not None]
    if held:
        lines.append(f"the interval at 90 % holds the planted limit in {sum(held)} of {len(held)}")
    return lines


def _place(point: Point) -> tuple[float, int]:
    return point.stated_ms, point.message_bytes


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say by the exit code whether 95 % of the points were right."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--repeats", type=int, default=4, help="runs for each planted time")
    parser.add_argument("--json", type=Path, help="where to keep the points")
    asked = parser.parse_args(arguments)
    points: list[Point] = []
    if asked.json is not None and asked.json.exists():
        points = [restored(Point, each) for each in json.loads(asked.json.read_text())]
    done = {(each.stated_ms, each.repeat) for each in points}
    for repeat in range(1, asked.repeats + 1):
        for stated_ms in STATED_MS:
            if (stated_ms, repeat) in done:
                continue
            points += (new := measure(stated_ms, repeat))
            told = ", ".join(
                f"{format_size(p.message_bytes)}: {p.np_sustained} for "
                f"{p.planted_producers or 0:.1f}"
                for p in new
            )
            click.echo(f"{stated_ms:g} ms, run {repeat}: {told or 'failed'}")
            if asked.json is not None:
                asked.json.write_text(json.dumps([as_document(each) for each in points], indent=1))
    sizes = len({each.message_bytes for each in points})
    expected = asked.repeats * len(STATED_MS) * sizes
    click.echo("\n".join([*table(points), *conclusion(points, expected)]))
    return 0 if sum(abs(each.off_by) <= NEAR for each in points) >= 0.95 * expected > 0 else 1


if __name__ == "__main__":
    raise SystemExit(main())
