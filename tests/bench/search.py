"""`make bench-search`: tables of the search, plain bisection and MLRsearch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from operator import methodcaller

import click

from tests.bench.search_changing import Found, changing_cases, found_of
from tests.bench.search_coverage import coverage_cases
from tests.bench.search_methods import OURS, Case, Row, line_cases, measured, scenarios
from tests.bench.search_overloads import conditions, overload_cases
from tests.bench.search_recorded import POINTS, ladders, replay_cases

_HEAD = (
    f"  {'':56}{'':26}{'points':>7}{'trials':>8}{'p95':>5}{'seconds':>9}{'off >5 %':>10}"
    f"{'>10 %':>8}{'inside':>8}{'stated':>8}{'held':>8}{'too high':>10}{'too low':>9}{'width':>8}"
)
_CHANGING_HEAD = (
    f"{'':46}{'searches':>9}{'trials':>8}{'changed':>9}{'off >10 %':>10}{'unnamed':>9}{'silent':>9}"
)


def line_of(row: Row) -> str:
    stated = "" if row.stated is None else f"{row.stated:.0%}"
    interval = (
        ""
        if row.width is None
        else f"{row.held:8.1%}{row.too_high:10.1%}{row.too_low:9.1%}{row.width:8.1%}"
    )
    return (
        f"  {row.name + ('*' if row.is_held_out else ''):55} {row.method:26}{row.points:7}"
        f"{row.trials:8.2f}{row.trials_p95:5}{row.seconds:9.0f}{row.off_5:10.1%}{row.off_10:8.2%}"
        f"{row.inside:8.0%}{stated:>8}{interval}"
    )


def changing_line(row: Found) -> str:
    return (
        f"  {row.name:44}{row.searches:9}{row.trials:8.2f}{row.changed:9.1%}{row.off_10:10.1%}"
        f"{row.unnamed:9.1%}{row.silent:9.1%}"
    )


def _lines(scale: float) -> list[Case]:
    from tests.bench.mlrsearch import mlrsearch

    return line_cases((*OURS, mlrsearch(2), mlrsearch(3)), scenarios(scale))


PARTS: Mapping[str, tuple[str, Callable[[float], list[Case]]]] = {
    "lines": ("lines of eight sizes", _lines),
    "overloads": (
        "clusters that deliver so many times their limit",
        lambda scale: list(overload_cases(conditions(scale))),
    ),
    "coverage": ("how often the 90 % interval holds the true limit", coverage_cases),
    "recorded": (
        "what real brokers read, replayed with noise",
        lambda scale: replay_cases(ladders(), points=max(1, round(POINTS * scale))),
    ),
}


@click.command()
@click.option("--scale", default=1.0, show_default=True, help="Factor on the number of clusters.")
@click.option(
    "--part", type=click.Choice(("all", *PARTS, "changing")), default="all", show_default=True
)
@click.option("--processes", type=click.IntRange(1, 2), default=2, show_default=True)
@click.option("--only", default="", help="Conditions whose name contains this.")
def bench_search(scale: float, part: str, processes: int, only: str) -> None:
    """Measure limits on simulated clusters with several methods.

    LINES compares boundary lines of eight sizes, also with MLRsearch; OVERLOADS has clusters that
    deliver more than their limit; COVERAGE shows how often the interval contains the true limit;
    RECORDED replays readings of real brokers; CHANGING has clusters whose limit changes meanwhile.
    """
    started_s = time.monotonic()
    click.echo("Per boundary point: trials, simulated seconds, distance of the answer from the")
    click.echo("true limit, brackets that hold it, the confidence that was stated; intervals that")
    click.echo("hold the limit, lie above it, or below; their median width. Conditions with a star")
    click.echo("had no part in choosing constants.")
    for name, (what, cases) in PARTS.items():
        if part in ("all", name):
            click.echo(f"{what}\n{_HEAD}")
            asked = [each for each in cases(scale) if only in each.name]
            for row in measured(methodcaller("row"), asked, processes):
                click.echo(line_of(row))
    if part in ("all", "changing"):
        click.echo("Clusters whose limit changes during a search: share of runs that name a")
        click.echo("change, of answers more than 10 % off the present limit, of these without")
        click.echo(f"`changed`, and without a note as well.\n{_CHANGING_HEAD}")
        changing = [each for each in changing_cases(scale) if only in each.name]
        for found in measured(found_of, changing, processes):
            click.echo(changing_line(found))
    click.echo(f"done in {time.monotonic() - started_s:.0f} s")


if __name__ == "__main__":
    bench_search()
