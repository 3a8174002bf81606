"""`make bench-search`: tables of the search, plain bisection and MLRsearch."""

from __future__ import annotations

import time

import click

from tests.bench.search_changing import Found, changing_cases, compare_changing
from tests.bench.search_coverage import Coverage, cases, compare_coverage
from tests.bench.search_methods import OURS, Row, compare, scenarios
from tests.bench.search_overloads import STARTS, Result, compare_overloads, conditions
from tests.bench.search_recorded import POINTS, Replayed, ladders, replay

_HEAD = (
    f"{'':28}{'points':>7}{'trials':>8}{'p95':>5}{'seconds':>9}{'off >5 %':>10}{'>10 %':>8}"
    f"{'inside':>8}{'stated':>8}"
)


def line_of(row: Row) -> str:
    """One row of the table."""
    stated = "" if row.confidence is None else f"{row.confidence:.0%}"
    return (
        f"  {row.contestant:26}{row.points:7}{row.trials_mean:8.2f}{row.trials_p95:5}"
        f"{row.seconds_mean:9.0f}{row.off_5:10.1%}{row.off_10:8.2%}{row.inside:8.0%}{stated:>8}"
    )


def pair_line(bisection: Result, ours: Result) -> str:
    """One row of the second table, with both methods under one condition."""
    condition = ours.condition
    return (
        f"  {condition.delivers:<6g}{'held out' if condition.is_held_out else '':10}"
        f"{condition.points:7}{bisection.trials:11.2f}{bisection.off_10:10.2%}"
        f"{ours.trials:11.2f}{ours.off_10:10.2%}{ours.inside:8.0%}"
    )


def coverage_line(row: Coverage) -> str:
    """One row of the third table."""
    return (
        f"  {row.name + ('*' if row.is_held_out else ''):52}{row.points:7}{row.held:8.1%}"
        f"{row.too_high:10.1%}{row.too_low:9.1%}{row.width:8.1%}{row.inside:8.0%}{row.stated:8.0%}"
    )


def replayed_line(bisection: Replayed, ours: Replayed) -> str:
    """One row of the fourth table."""
    name = f"{ours.ladder.name}{'*' if ours.ladder.is_held_out else ''}"
    return (
        f"  {name:30}{ours.start:6}{bisection.trials:11.2f}{bisection.off_10:10.2%}"
        f"{ours.trials:11.2f}{ours.off_10:10.2%}{ours.held:8.1%}"
    )


def changing_line(row: Found) -> str:
    """One row of the fifth table."""
    return (
        f"  {row.name:44}{row.searches:9}{row.trials:8.2f}{row.changed:9.1%}{row.off_10:10.1%}"
        f"{row.unnamed:9.1%}{row.silent:9.1%}"
    )


PARTS = ("all", "lines", "overloads", "coverage", "recorded", "changing")


@click.command()
@click.option("--scale", default=1.0, show_default=True, help="Factor on the number of clusters.")
@click.option("--part", type=click.Choice(PARTS), default="all", show_default=True)
@click.option("--processes", type=click.IntRange(1, 2), default=2, show_default=True)
@click.option("--only", default="", help="Conditions of CHANGING whose name contains this.")
def bench_search(scale: float, part: str, processes: int, only: str) -> None:
    """Measure limits on simulated clusters with several methods.

    LINES compares boundary lines of eight sizes, also with MLRsearch; OVERLOADS has clusters that
    deliver more than their limit; COVERAGE shows how often the interval contains the true limit;
    RECORDED replays readings of real brokers; CHANGING has clusters whose limit changes meanwhile.
    """
    started_s = time.monotonic()
    if part in ("all", "lines"):
        _show_lines(scale)
    if part in ("all", "overloads"):
        _show_overloads(scale)
    if part in ("all", "coverage"):
        _show_coverage(scale, processes)
    if part in ("all", "recorded"):
        _show_recorded(scale)
    if part in ("all", "changing"):
        _show_changing(scale, processes, only)
    click.echo(f"done in {time.monotonic() - started_s:.0f} s")


def _show_lines(scale: float) -> None:
    from tests.bench.mlrsearch import mlrsearch

    contestants = (*OURS, mlrsearch(2), mlrsearch(3))
    click.echo("Per boundary point: trials, simulated seconds, distance of the answer from the")
    click.echo("true limit, brackets that hold it, and the confidence that was stated.")
    click.echo(_HEAD)
    heading = ""
    for row in compare(contestants, scenarios(scale)):
        if row.scenario != heading:
            heading = row.scenario
            click.echo(heading)
        click.echo(line_of(row))


def _show_overloads(scale: float) -> None:
    click.echo("Clusters that deliver so many times their limit; per boundary point.")
    click.echo(f"{'':18}{'':7}{'bisection':>21}{'redline':>21}")
    click.echo(
        f"{'  times':18}{'points':>7}{'trials':>11}{'off >10 %':>10}"
        f"{'trials':>11}{'off >10 %':>10}{'inside':>8}"
    )
    results = compare_overloads(conditions(scale))
    heading = ""
    for bisection, ours in zip(results, results, strict=True):
        if ours.condition.start != heading:
            heading = ours.condition.start
            click.echo(STARTS[heading])
        click.echo(pair_line(bisection, ours))


def _show_coverage(scale: float, processes: int) -> None:
    click.echo("Share of points whose 90 % interval holds the true limit, lies above it, or below;")
    click.echo(
        "its median width; brackets that hold the limit, and the confidence that was stated."
    )
    click.echo(
        f"{'':54}{'points':>7}{'held':>8}{'too high':>10}{'too low':>9}{'width':>8}"
        f"{'inside':>8}{'stated':>8}"
    )
    for row in compare_coverage(cases(scale), processes):
        click.echo(coverage_line(row))
    click.echo("* had no part in choosing constants")


def _show_recorded(scale: float) -> None:
    points = max(1, round(POINTS * scale))
    click.echo(f"What real brokers read, replayed with noise; {points} searches a row.")
    click.echo(f"  {'':36}{'bisection':>21}{'redline':>21}")
    click.echo(
        f"  {'brokers and size':30}{'start':6}{'trials':>11}{'off >10 %':>10}"
        f"{'trials':>11}{'off >10 %':>10}{'held':>8}"
    )
    results = replay(ladders(), points=points)
    for bisection, ours in zip(results, results, strict=True):
        click.echo(replayed_line(bisection, ours))
    click.echo("* had no part in choosing constants")


def _show_changing(scale: float, processes: int, only: str) -> None:
    click.echo("Clusters whose limit changes during a search: share of runs that name a change, of")
    click.echo("answers more than 10 % off the present limit, of these without `changed`, and")
    click.echo("without a note as well.")
    click.echo(
        f"{'':46}{'searches':>9}{'trials':>8}{'changed':>9}{'off >10 %':>10}{'unnamed':>9}"
        f"{'silent':>9}"
    )
    cases = [one for one in changing_cases(scale) if only in one.name]
    for row in compare_changing(cases, processes):
        click.echo(changing_line(row))


if __name__ == "__main__":
    bench_search()
