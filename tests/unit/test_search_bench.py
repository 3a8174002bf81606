"""The benchmark's table, on so few clusters that it takes a second."""

from __future__ import annotations

from click.testing import CliRunner

from tests.bench.mlrsearch import mlrsearch
from tests.bench.search import bench_search
from tests.bench.search_methods import OURS, compare, scenarios
from tests.bench.search_overloads import conditions


def test_every_contestant_appears_under_every_condition() -> None:
    contestants = (*OURS, mlrsearch(2))
    conditions = scenarios(0.01)
    rows = list(compare(contestants, conditions))
    assert [(row.scenario, row.contestant) for row in rows] == [
        (scenario.name, one.name) for scenario in conditions for one in contestants
    ]
    assert all(row.points % 8 == 0 and row.trials_mean >= 2 for row in rows)


def test_mlrsearch_finds_the_limits_where_nothing_disturbs() -> None:
    quiet = scenarios(0.05)[0]
    (row,) = compare((mlrsearch(3),), (quiet,))
    assert row.off_10 == 0.0
    assert row.inside > 0.8


def test_the_command_prints_the_table() -> None:
    done = CliRunner().invoke(bench_search, ["--scale", "0.01"])
    assert done.exit_code == 0, done.output
    assert done.output.count("  redline  ") == len(scenarios())
    assert done.output.count("held out") == len(conditions()) // 2
    assert "off >5 %" in done.output
