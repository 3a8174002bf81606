"""Suites of `redline nightly`: their contents, and the loads and settings that follow.

Nights and runs of older versions are compared with and continued, though keys were added since.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.config import load
from jobs.features.nightly.night_run import config_of, load_of, plan_of, rule_of, settings_of
from jobs.features.nightly.suite import Suite, configuration_of, load_suite
from jobs.runs.resumption import config_text, differences
from metrics.columns import restored
from metrics.common.errors import ConfigError, NoConclusionError
from metrics.features.nightly.judging import NightComparison, Noise, judge_night
from metrics.tables.rows import CaseRow, Outcome
from tests.support.commands import ROOT
from tests.support.nights import SUITE, case_row


def suite_of(tmp_path: Path, text: str) -> Suite:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return load_suite(str(path))


def test_the_suite_that_comes_with_the_project_is_sound() -> None:
    suite = load_suite("testbed")
    config = configuration_of(suite)
    assert config.workload.message_bytes == suite.sizes == (1_000,)
    limit, load = suite.cases
    assert config_of(config, limit).workload.trial.early_end_error_rate > 0
    assert config_of(config, load).workload.trial.early_end_error_rate == 0
    assert plan_of(config, limit).write_bytes_max
    assert plan_of(config, load).write_bytes_max is None, "it is a share of a limit"
    axis = ("goal.search.axis=rate", "workload.np=16")
    with pytest.raises(ConfigError, match="expected one goal that searches along np"):
        configuration_of(suite, overrides=axis)


def test_a_case_may_have_its_own_noise_and_history_a_beginning(tmp_path: Path) -> None:
    suite = suite_of(
        tmp_path,
        "{noise: {cv: 0.1}, history_since: '1970-01-02', cases: [{name: a, limit: 3}, "
        "{name: b, limit: 4, noise: {cv: 0.3, weight: 2}}]}",
    )
    rule = rule_of(suite)
    assert suite.since_s == rule.since_s == 86_400.0
    assert (rule.noise["a"].cv, rule.noise["a"].weight) == (0.1, Noise().weight)
    assert (rule.noise["b"].cv, rule.noise["b"].weight) == (0.3, 2.0)


def test_a_share_keeps_the_load_of_its_first_night() -> None:
    share = SUITE.cases[1]
    assert load_of(share, [], 41, 100) == 20
    first = case_row(
        1, case="load", message_bytes=100, producers=20, settings={"case.share": "0.5"}
    )
    assert load_of(share, [first], 10, 100) == 20, "a lower limit must stay visible"
    other = replace(first, settings={"case.share": "0.8"})
    assert load_of(share, [other, replace(first, message_bytes=200)], 10, 100) == 5
    assert load_of(SUITE.cases[2], [first], None, 100) == 3
    with pytest.raises(NoConclusionError, match="of the limit at 100 B, "):
        load_of(share, [], None, 100)


def test_settings_are_the_keys_that_change_a_figure() -> None:
    config = configuration_of(SUITE)
    limit, load, _ = SUITE.cases
    of_limit = settings_of(config_of(config, limit), limit, 40, "driver-jvm", "id")
    of_load = settings_of(config_of(config, load), load, 20, "driver-jvm", "id")
    assert of_limit["workload.producer.acks"] == of_load["workload.producer.acks"] == "1"
    assert "goal.search.resolution" in of_limit
    assert "goal.search.resolution" not in of_load
    assert of_load["case.np"] == "20"
    assert "case.np" not in of_limit, "the answer of a search is no setting"
    assert not [name for name in of_limit if "guards" in name or "description" in name]
    assert "cluster.id" not in of_limit, "a testbed is new each night"
    real = replace(config, cluster=configuration_of(SUITE, "example").cluster)
    assert settings_of(config_of(real, load), load, 20, "jmx", "id")["cluster.id"] == "id"


COMMITS = ("2053f56", "13ccb174")
SKEW = "workload.producer.partition_skew"


def of_commit(commit: str) -> Any:
    path = ROOT / "tests" / "data" / "older-nights" / f"{commit}.json"
    return json.loads(path.read_text(encoding="utf-8"))


def older_rows() -> list[CaseRow]:
    return [restored(CaseRow, row) for each in COMMITS for row in of_commit(each)["cases"]]


def judged(suite: Suite, *overrides: str) -> Mapping[str, NightComparison]:
    """A night of this version with a third of the older limits, judged against the older nights."""
    config, before = configuration_of(suite, overrides=overrides), older_rows()
    tonight = []
    for case in suite.cases:
        last = [row for row in before if row.case == case.name][-1]
        settings = settings_of(config_of(config, case), case, last.producers, "JMX", "c1")
        value = last.value / 3 if case.limit else last.value * 3
        changed = replace(last, value=value, values=(value,), settings=settings, outcome=None)
        tonight.append(replace(changed, run_id="testbed-n9", night="n9", at_s=last.at_s + 1e6))
    return {each.tonight.case: each for each in judge_night(tonight, before, rule_of(suite))}


def test_a_night_is_compared_with_nights_of_older_versions() -> None:
    found = judged(load_suite("testbed"))
    assert len(found) == 2
    for each in found.values():
        assert (each.left_out, each.nights) == ((), ("n1", "n2"))
        assert each.outcome is Outcome.REGRESSION
        assert SKEW in each.tonight.settings, "it was added since"


def test_a_key_that_older_nights_lack_separates_them_where_it_has_another_value() -> None:
    for each in judged(load_suite("testbed"), f"{SKEW}=0.5").values():
        (left,) = each.left_out
        assert left.nights == ("n1", "n2")
        assert left.why == f"{SKEW} was –, is 0.5"


@pytest.mark.parametrize("commit", COMMITS)
def test_a_run_of_an_older_version_is_continued_with_the_same_configuration(commit: str) -> None:
    then = of_commit(commit)["config"]
    assert SKEW.removeprefix("workload.") not in then["workload"], "it was added since"

    def now(*overrides: str) -> Any:
        return json.loads(config_text(load("testbed", "demo", "default", overrides)))

    assert differences(then, now()) == []
    assert differences(then, now(f"{SKEW}=0.5")) == [f"{SKEW} was None and is 0.5"]
    (acks,) = differences(then, now("workload.producer.acks=all"))
    assert acks == "workload.producer.acks was 1 and is all"
