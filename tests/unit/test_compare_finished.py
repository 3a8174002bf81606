"""`redline compare RUN_ID RUN_ID`: two finished runs by the intervals of their limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from syrupy.assertion import SnapshotAssertion

from jobs.compare import compare
from jobs.console.events import Notice, RecordingReporter
from jobs.features.compare.sides import compare_finished
from metrics.common.errors import ConfigError, NoConclusionError, RegressionError
from metrics.reporting.summary import RunSummary, write_summary
from metrics.trial.trial import ALL_BROKERS, offline_state
from tests.support.report_rows import summary_of_sizes


def run_of(name: str, share: float, sizes: tuple[int, ...] = (100, 1000)) -> RunSummary:
    """A run whose limits are this share of those of any other, each known to 5 %."""
    found = summary_of_sizes(list(sizes))
    limits = tuple(
        replace(each, mb_per_s=each.mb_per_s * share, load_low=58.0, load_high=61.0)
        for each in found.boundaries
    )
    environment = {"broker.version": "4.1.2" if share == 1 else "4.3.1", "cluster.id": name}
    return replace(found, run_id=name, boundaries=limits, environment=environment)


def run_compare(out: Path, *runs: RunSummary, options: tuple[str, ...] = ()) -> Result:
    for one in runs:
        (out / one.run_id).mkdir()
        write_summary(one, out / one.run_id / "summary.json")
    names = [one.run_id for one in runs]
    command = [*names, "--out", str(out), *options]
    return CliRunner().invoke(compare, command, standalone_mode=False)


def test_a_limit_that_fell_is_a_regression_and_the_differences_are_listed(tmp_path: Path) -> None:
    options = ("--json", str(tmp_path / "found.json"))
    done = run_compare(tmp_path, run_of("before", 1.0), run_of("after", 0.8), options=options)
    assert isinstance(done.exception, RegressionError)
    assert done.exception.exit_code == 4
    assert "run after against before, 100 B: 20.0% less" in done.output
    assert "differs: broker.version 4.1.2 → 4.3.1" in done.output
    assert "first run were Kafka 4.1.2, of the second Kafka 4.3.1" in done.output
    document = json.loads((tmp_path / "found.json").read_text())
    assert document["runs"] == ["before", "after"]
    assert [each["conclusion"] for each in document["effects"]] == ["regression"] * 2


def test_no_difference_comes_with_the_smallest_detectable_loss(tmp_path: Path) -> None:
    done = run_compare(tmp_path, run_of("before", 1.0), run_of("after", 0.99))
    assert done.exception is None, done.output
    assert "no significant effect (-1.0%" in done.output
    assert "smallest detectable loss is" in done.output
    small = ("--min-effect", "0.3")
    done = run_compare(tmp_path, run_of("first", 1.0), run_of("second", 0.8), options=small)
    assert done.exception is None, done.output


def test_caveats_of_either_run_stand_beside_the_answer(tmp_path: Path) -> None:
    uneven = "leaders uneven: 14 at most, 10 on average"
    first, second = run_of("before", 1.0), replace(run_of("after", 1.0), caveat=uneven)
    done = run_compare(tmp_path, first, second, options=("--json", str(tmp_path / "found.json")))
    assert f"caveat of after: {uneven}" in done.output
    document = json.loads((tmp_path / "found.json").read_text())
    assert f"caveat of after: {uneven}" in document["caveats"]
    both = tmp_path / "both"
    both.mkdir()
    printed = run_compare(both, replace(first, caveat=uneven), second).output
    assert printed.count(uneven) == 1 and f"caveat of both runs: {uneven}" in printed


def test_runs_without_a_size_or_an_interval_in_common_have_no_answer(tmp_path: Path) -> None:
    other = run_compare(tmp_path, run_of("a", 1.0, (100,)), run_of("b", 1.0, (1000,)))
    assert isinstance(other.exception, ConfigError)
    limits = tuple(replace(each, load_low=None) for each in run_of("d", 1.0).boundaries)
    bare = replace(run_of("d", 1.0), boundaries=limits)
    unsure = run_compare(tmp_path, run_of("c", 1.0), bare)
    assert isinstance(unsure.exception, NoConclusionError)


def goals_of(name: str, shares: Mapping[str, float], state: str = ALL_BROKERS) -> RunSummary:
    """A run with a limit at 1 kB for each goal, each another share."""
    found = [
        replace(each, goal=goal, state=state)
        for goal, share in shares.items()
        for each in run_of(name, share, (1000,)).boundaries
    ]
    return replace(run_of(name, 1.0), goal=", ".join(shares), boundaries=tuple(found))


def test_each_goal_is_compared_with_the_same_goal_only(tmp_path: Path) -> None:
    options = ("--json", str(tmp_path / "found.json"))
    before = goals_of("before", {"strict": 0.5, "tolerant": 1.0, "default": 1.0})
    after = goals_of("after", {"tolerant": 1.0, "strict": 0.4})
    done = run_compare(tmp_path, before, after, options=options)
    assert isinstance(done.exception, RegressionError)
    assert "run after against before with goal strict" in str(done.exception)
    effects = json.loads((tmp_path / "found.json").read_text())["effects"]
    found = {each["where"]["goal"]: (each["conclusion"], each["count"]) for each in effects}
    assert found == {"strict": ("regression", 1), "tolerant": ("no difference seen", 1)}
    assert len(effects) == 2
    assert "default, all brokers, 1 kB" in done.output


def test_runs_along_the_message_size_compare_with_different_sizes(tmp_path: Path) -> None:
    def along(name: str, share: float, message_bytes: int) -> RunSummary:
        found = run_of(name, share, (message_bytes,))
        span: dict[str, Any] = {
            "load_sustained": message_bytes,
            "load_low": 0.97 * message_bytes,
            "load_high": 1.02 * message_bytes,
        }
        limits = (replace(each, axis="message_bytes", **span) for each in found.boundaries)
        return replace(found, boundaries=tuple(limits))

    first, second = along("before", 1.0, 5_000), along("after", 0.5, 2_500)
    done = run_compare(tmp_path, first, second)
    assert isinstance(done.exception, RegressionError), done.output
    assert "run after against before: 50.0% less" in done.output
    assert "the searched size" in done.output and "0 B" not in done.output
    assert "only one" not in done.output


def test_limits_in_other_states_of_the_cluster_are_not_compared(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    away = goals_of("after", {"default": 0.5}, offline_state(1))
    done = run_compare(tmp_path, goals_of("before", {"default": 1.0}), away)
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception) == snapshot


def test_a_file_that_cannot_be_written_is_refused_before_and_a_warning_after(
    tmp_path: Path,
) -> None:
    file = tmp_path / "before" / "summary.json" / "found.json"
    runs, options = (run_of("before", 1.0), run_of("after", 0.8)), ("--json", str(file))
    done = run_compare(tmp_path, *runs, options=options)
    assert isinstance(done.exception, ConfigError)
    assert "--json" in str(done.exception) and "cannot be written" in str(done.exception)
    assert "Limits" not in done.output, "refused before the comparison"
    reporter = RecordingReporter()
    with pytest.raises(RegressionError, match=r"20\.0% less"):
        compare_finished(("before", "after"), tmp_path, 0.05, file, reporter)
    notices = [each.text for each in reporter.events if isinstance(each, Notice)]
    assert any(f"--json {file} cannot be written" in text for text in notices)


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    for arguments, part in (
        (["one"], "1 RUN_ID are given (one); expected two RUN_ID"),
        (["one", "two", "three"], "(one, two, three); expected two RUN_ID"),
        (["one", "two", "--a", "kafka=4.3.1"], "and a side are given (one, two)"),
        (["--a", "kafka=4.3.1"], "--b is missing"),
        ([], "--a is missing"),
        (["one", "two"], "does not exist"),
        (["one", "one"], "the run one is given twice"),
    ):
        command = [*arguments, "--out", str(tmp_path)]
        done = CliRunner().invoke(compare, command, standalone_mode=False)
        assert isinstance(done.exception, ConfigError) and part in str(done.exception)


def test_a_run_without_a_conclusion_has_the_reason_below_the_table(tmp_path: Path) -> None:
    whole = run_of("a", 1.0, (100,))
    limits = tuple(replace(each, gave_up="4 invalid trials in a row") for each in whole.boundaries)
    done = run_compare(tmp_path, whole, replace(run_of("b", 1.0, (100,)), boundaries=limits))
    (row,) = [each for each in done.output.splitlines() if each.strip().startswith("b ")]
    assert "no conclusion" in row and "invalid trials" not in row
    assert "b, 100 B: 4 invalid trials in a row" in done.output
