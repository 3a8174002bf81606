"""Nights of a mix: its limit is a scale, and a load of it is a scale that is held."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.features.nightly.night_run import (
    CaseMeasurer,
    case_reports,
    config_of,
    load_of,
    plan_of,
    rule_of,
    settings_of,
)
from jobs.features.nightly.suite import Suite, configuration_of, load_suite
from jobs.trials.context import RunContext
from jobs.trials.gates import Gates
from metrics.common.errors import ConfigError, NoConclusionError
from metrics.features.nightly.judging import judge_night, night_document
from metrics.tables.boundary import make_boundary
from metrics.tables.rows import CaseRow, Outcome
from metrics.traffic.axes import SCALE
from search.model import Bracket
from tests.support.mixes import MIX
from tests.support.nights import case_row, head_of_night
from tests.support.report_rows import sustained
from tests.support.rows import trial

CASES = (
    "{name: limit, mix: limit}, {name: half, mix: load, share: 0.5}, "
    "{name: once, mix: load, scale: 1, repeats: 1, compares: achieved}"
)


def suite_of(folder: Path, cases: str = CASES, workload: str = MIX) -> Suite:
    path = folder / "mixed.yaml"
    path.write_text(f"{{workload: '{workload}', cases: [{cases}]}}", encoding="utf-8")
    return load_suite(str(path))


# --- the suite --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cases",
    [
        "{name: a, mix: limit, limit: 1000}",
        "{name: a, mix: load, message_bytes: 1000, np: 4}",
        "{name: a, mix: limit, share: 0.5}",
        "{name: a, mix: load}",
        "{name: a, mix: load, share: 0.5, scale: 1}",
        "{name: a, scale: 1}",
        "{name: a, mix: both}",
        "{name: a, mix: limit}, {name: b, limit: 1000}",
        "{name: a, mix: limit}, {name: b, mix: limit}",
    ],
)
def test_a_wrong_case_of_a_mix_is_refused(
    cases: str, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    with pytest.raises(ConfigError) as error:
        suite_of(tmp_path, cases)
    assert str(error.value).replace(str(tmp_path), "DIR") == snapshot


def test_a_suite_of_a_mix_searches_its_scale(tmp_path: Path) -> None:
    suite = suite_of(tmp_path)
    config = configuration_of(suite)
    assert (config.axis, suite.sizes) == (SCALE, ())
    assert [each.kind for each in suite.cases] == ["limit", "load", "load"]
    assert [each.held for each in suite.cases] == [None, None, 100]
    limit, half, once = suite.cases
    assert config_of(config, limit).workload.trial.early_end_error_rate > 0
    parts = config_of(config, once).workload.parts
    assert {each.trial.early_end_error_rate for each in parts} == {0}
    assert plan_of(config, once).peak_mb_per_s == pytest.approx(2.8)
    of_limit = settings_of(config_of(config, limit), limit, 270, "driver-jvm", "id")
    of_half = settings_of(config_of(config, half), half, 135, "driver-jvm", "id")
    assert of_half["workload.mix.orders.producers"] == "40"
    assert (of_half["case.scale"], of_half["case.share"]) == ("1.35", "0.5")
    assert not {"case.scale", "case.np"} & set(of_limit), "the answer of a search is no setting"
    assert "case.np" not in of_half


@pytest.mark.parametrize(
    ("cases", "workload", "overrides"),
    [
        (CASES, "demo", ()),
        ("{name: a, limit: 1000}", MIX, ()),
        (CASES, MIX, ("goal.search.axis=scale.orders",)),
    ],
    ids=["no mix", "sizes", "axis"],
)
def test_cases_and_workload_have_to_suit_each_other(
    cases: str, workload: str, overrides: tuple[str, ...], tmp_path: Path,
    snapshot: SnapshotAssertion,
) -> None:  # fmt: skip
    suite = suite_of(tmp_path, cases, workload)
    with pytest.raises(ConfigError) as error:
        configuration_of(suite, overrides=overrides)
    assert str(error.value).replace(MIX, "FILE") == snapshot


# --- loads and settings -----------------------------------------------------------------


def mixed_row(day: int = 1, scale: float = 2.7, **changes: Any) -> CaseRow:
    return case_row(day, message_bytes=795, scale=scale, **changes)


def test_a_share_of_a_mix_keeps_the_scale_of_its_first_night(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    _, half, once = suite_of(tmp_path).cases
    assert load_of(half, [], 271, 795) == 135
    first = mixed_row(case="half", scale=1.35, producers=63, settings={"case.share": "0.5"})
    assert load_of(half, [first], 100, 795) == 135, "a lower limit must stay visible"
    assert load_of(half, [replace(first, settings={"case.share": "0.4"})], 100, 795) == 50
    assert load_of(once, [first], None, 795) == 100
    with pytest.raises(NoConclusionError) as error:
        load_of(half, [], None, 795)
    assert str(error.value) == snapshot


# --- rows and answers -------------------------------------------------------------------


def measurer(suite: Suite) -> tuple[CaseMeasurer, RunContext]:
    config = configuration_of(suite)
    context = SimpleNamespace(
        config=config, run_id="r1", environment={}, brokers=3,
        source=SimpleNamespace(name="driver-jvm"),
        pattern=lambda size, load: config.pattern(size, load, 3),
    )  # fmt: skip
    made = cast(RunContext, context)
    return CaseMeasurer(made, cast(Gates, None), suite.name, "n1"), made


def test_the_row_of_a_limit_has_the_scale_and_all_producers(tmp_path: Path) -> None:
    suite = suite_of(tmp_path)
    own, context = measurer(suite)
    whole = configuration_of(suite).workload.pattern(1, 3)
    boundary = replace(
        make_boundary(Bracket(270, 283), SCALE, whole, trials=4), goal="default", confidence=0.95
    )
    row = own._limit_row(context, suite.cases[0], boundary, [1, 2, 3, 4])
    assert (row.kind, row.scale, row.producers) == ("limit", 2.7, 108 + 14 + 5)
    assert row.value == row.mb_per_s_per_broker == pytest.approx(2.7 * 2.8 / 3)
    assert row.message_bytes == whole.message_bytes
    nothing = replace(boundary, load_sustained=0, np_sustained=0, mb_per_s_per_broker=0.0)
    with pytest.raises(NoConclusionError, match=r"0\.01 times the mix was too much"):
        own._limit_row(context, suite.cases[0], nothing, [1])


def test_the_row_of_a_load_has_its_scale(tmp_path: Path) -> None:
    suite = suite_of(tmp_path)
    own, context = measurer(suite)
    held = trial(1, "r1", pattern=context.pattern(795, 100), judgements={"default": sustained()})
    row = own._load_row(context, suite.cases[2], 100, [held])
    assert (row.kind, row.scale, row.producers) == ("load", 1.0, 47)
    assert row.settings["case.scale"] == "1"
    assert row.measure == "achieved_share"


def test_nights_of_a_mix_are_compared(tmp_path: Path) -> None:
    suite = suite_of(tmp_path)
    nights = [mixed_row(day, case="limit") for day in (1, 2, 3, 4)]
    tonight = mixed_row(5, case="limit", scale=1.2, value=9.0)
    comparisons = judge_night([tonight], nights, rule_of(suite))
    cases = case_reports(suite, comparisons, {}, None, 795)
    outcomes = [each.outcome for each in cases]
    assert outcomes == [Outcome.REGRESSION, Outcome.NOT_MEASURED, Outcome.NOT_MEASURED]
    document = json.loads(json.dumps(night_document(head_of_night(), cases, {})))
    assert [each["bpm"] for each in document["cases"]] == [795, 795, 795]
    assert (document["cases"][0]["scale"], document["cases"][0]["np"]) == (1.2, 480)
