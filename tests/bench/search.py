"""`make bench-search`: the search beside plain bisection and MLRsearch, as a table."""

from __future__ import annotations

import time

import click

from tests.bench.mlrsearch import mlrsearch
from tests.bench.search_methods import OURS, Row, compare, scenarios

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


@click.command()
@click.option("--scale", default=1.0, show_default=True, help="Multiplies the clusters.")
def bench_search(scale: float) -> None:
    """Measure boundary lines on simulated clusters by three methods, side by side."""
    started_s = time.monotonic()
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
    click.echo(f"done in {time.monotonic() - started_s:.0f} s")


if __name__ == "__main__":
    bench_search()
