"""Nights and runs of older versions are compared with and continued, though keys were added since.

`tests/data/older-nights` has the configuration of a run and a night of the suite `testbed`, as the
code of two earlier commits wrote them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from jobs.config import load
from jobs.features.nightly.body import config_of, rule_of, settings_of
from jobs.features.nightly.suite import Suite, configuration_of, load_suite
from jobs.runs.resumption import config_text, differences
from metrics.columns import restored
from metrics.features.nightly.judging import NightComparison, judge_night
from metrics.tables.rows import CaseRow, Outcome
from tests.support.commands import ROOT

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
