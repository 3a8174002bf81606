"""`redline compare RUN_ID RUN_ID`: two finished runs by the intervals of their limits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from jobs.compare import compare
from metrics.reporting.summary import RunSummary, write_summary
from search.errors import ConfigError, NoConclusionError, RegressionError
from tests.support.reported import summary_of_sizes


def run_of(name: str, share: float, sizes: tuple[int, ...] = (100, 1000)) -> RunSummary:
    """A run whose limits are this share of those of any other, each known to 5 %."""
    found = summary_of_sizes(list(sizes))
    limits = tuple(
        replace(each, mb_per_s=each.mb_per_s * share, load_low=58.0, load_high=61.0)
        for each in found.boundaries
    )
    environment = {"broker.version": "4.1.2" if share == 1 else "4.3.1", "cluster.id": name}
    return replace(found, run_id=name, boundaries=limits, environment=environment)


def asked(out: Path, *runs: RunSummary, options: tuple[str, ...] = ()) -> Result:
    for one in runs:
        (out / one.run_id).mkdir()
        write_summary(one, out / one.run_id / "summary.json")
    names = [one.run_id for one in runs]
    command = [*names, "--out", str(out), *options]
    return CliRunner().invoke(compare, command, standalone_mode=False)


def test_a_limit_that_fell_is_a_regression_and_what_differs_is_told(tmp_path: Path) -> None:
    options = ("--json", str(tmp_path / "found.json"))
    done = asked(tmp_path, run_of("before", 1.0), run_of("after", 0.8), options=options)
    assert isinstance(done.exception, RegressionError)
    assert done.exception.exit_code == 4
    assert "run after against before, 100 B: 20.0% less" in done.output
    assert "differs: broker.version 4.1.2 → 4.3.1" in done.output
    told = json.loads((tmp_path / "found.json").read_text())
    assert told["runs"] == ["before", "after"]
    assert [each["conclusion"] for each in told["effects"]] == ["regression"] * 2


def test_no_difference_comes_with_what_would_have_been_seen(tmp_path: Path) -> None:
    done = asked(tmp_path, run_of("before", 1.0), run_of("after", 0.99))
    assert done.exception is None, done.output
    assert "no effect seen" in done.output and "would have been" in done.output


def test_a_small_loss_is_none_that_matters(tmp_path: Path) -> None:
    done = asked(
        tmp_path, run_of("before", 1.0), run_of("after", 0.8), options=("--min-effect", "0.3")
    )
    assert done.exception is None, done.output


def test_runs_without_a_size_or_an_interval_in_common_have_no_answer(tmp_path: Path) -> None:
    other = asked(tmp_path, run_of("a", 1.0, (100,)), run_of("b", 1.0, (1000,)))
    assert isinstance(other.exception, ConfigError)
    limits = tuple(replace(each, load_low=None) for each in run_of("d", 1.0).boundaries)
    bare = replace(run_of("d", 1.0), boundaries=limits)
    unsure = asked(tmp_path, run_of("c", 1.0), bare)
    assert isinstance(unsure.exception, NoConclusionError)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["one"], "1 RUN_ID are given"),
        (["one", "two", "three"], "3 RUN_ID are given"),
        (["one", "two", "--a", "kafka=4.3.1"], "and a side are given"),
        (["--a", "kafka=4.3.1"], "--b is missing"),
        ([], "--a is missing"),
        (["one", "two"], "does not exist"),
    ],
)
def test_what_is_neither_is_told(tmp_path: Path, arguments: list[str], told: str) -> None:
    done = CliRunner().invoke(compare, [*arguments, "--out", str(tmp_path)], standalone_mode=False)
    assert isinstance(done.exception, ConfigError) and told in str(done.exception)
