"""Measurements: each file is found by its name, and states what it requires and what it gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.campaigns.campaign import measurement_named, own_names
from jobs.config import load
from jobs.measurements.fill import time_of_volume
from jobs.runs.fixed_load import FixedLoadRun
from jobs.runs.limit import LimitRun
from jobs.runs.measurement import Case, require_measurable, result_at
from metrics.common.errors import ConfigError, NoConclusionError
from metrics.reporting.summary import inferred_measurement, trial_document
from metrics.trial.evidence import Judgement
from search.model import Verdict
from tests.support.commands import ROOT
from tests.support.evidence import client
from tests.support.report_rows import IDLE
from tests.support.rows import PATTERN, trial

VOLUME = ("workload.trial.volume_bytes=4000000", "workload.consumers.groups=1")


def case_of(name: str) -> Case:
    """A case that the measurement accepts."""
    wanted = measurement_named(name)
    given = ("workload.message_bytes=[1000]", *(VOLUME if wanted.moves_volume else ()))
    return Case(load("testbed", "demo", "default", given), 8 if "load" in wanted.takes else None)


def test_each_file_of_the_folder_is_a_measurement_of_its_name() -> None:
    files = {each.stem for each in (ROOT / "jobs" / "measurements").glob("[a-z]*.py")}
    assert {name.replace("-", "_") for name in own_names()} == files
    assert len(files) >= 5
    for name in own_names():
        found, case = measurement_named(name), case_of(name)
        assert found.name == name
        assert found.unit_on("np") in ("MB/s", "s")
        require_measurable(found, case)
        body = found.body(case)
        assert body.measurement == name
        assert isinstance(body, LimitRun if name == "limit" else FixedLoadRun)


def test_a_volume_is_written_once_and_planned_for_each_of_its_trials() -> None:
    fill, drain = (
        measurement_named(name).body(case_of(name)).plan(Path("out")) for name in ("fill", "drain")
    )
    assert (fill.trials_estimated, drain.trials_estimated) == (1, 2)
    assert drain.duration_s == 2 * fill.duration_s
    assert drain.write_bytes_max == fill.write_bytes_max
    body = measurement_named("fill").body(case_of("fill"))
    phases = body.configurations[""].workload.trial
    assert (phases.warmup_s, phases.ramp_up_s, phases.early_end_error_rate) == (0.0, 0.0, 0.0)


def test_a_search_begins_near_the_limit_of_the_case_before() -> None:
    case = case_of("limit")
    near = Case(case.config, nearby=60)
    body = measurement_named("limit").body(near)
    assert body.configurations[""].goal.search.load_start_max == 80
    first = measurement_named("limit").body(case).configurations[""].goal.search.load_start_max
    assert first == case.config.goal.search.load_start_max != 80


def test_a_case_that_does_not_fit_is_refused() -> None:
    for name, change, words in (
        ("fill", "workload.trial.volume_bytes=null", "volume_bytes None; expected a volume"),
        ("load", VOLUME[0], "volume_bytes 4000000; expected none"),
        ("load", "workload.message_bytes=[100, 1000]", "2 message sizes; expected one"),
        ("drain", "workload.consumers.groups=0", "expected 1 or more"),
        ("failover", "workload.topic.replication_factor=1", "2 replicas or more"),
    ):
        wanted = measurement_named(name)
        base = ("workload.message_bytes=[1000]", *(VOLUME if wanted.moves_volume else ()))
        case = Case(load("testbed", "demo", "default", (*base, change)), 8)
        with pytest.raises(ConfigError, match=words):
            require_measurable(wanted, case)


def test_only_a_valid_trial_of_the_whole_volume_has_a_time() -> None:
    phases = replace(PATTERN.phases, volume_bytes=PATTERN.producers * 10 * PATTERN.message_bytes)
    pattern = replace(PATTERN, phases=phases)
    assert pattern.records_each == 10
    seen = client(acked_by_partition={0: 10 * PATTERN.producers}, last_acked_s=2.5)
    made = trial(pattern=pattern, client=seen)
    assert time_of_volume(made, "writing a volume") == 2.5
    invalid = replace(made, judgements={"default": Judgement(Verdict.INVALID, (IDLE,))})
    with pytest.raises(NoConclusionError, match=r"writing a volume: the trial was INVALID: "):
        time_of_volume(invalid, "writing a volume")
    half = replace(made, evidence=replace(made.evidence, client=client(last_acked_s=2.5)))
    with pytest.raises(
        NoConclusionError, match=r"writing a volume: .* raise workload\.trial\.measure_s"
    ):
        time_of_volume(half, "writing a volume")


def test_a_result_has_further_readings_and_none_from_an_invalid_trial() -> None:
    document = trial_document(trial())
    found = result_at(document, 2.5, rest_s=4.0, unknown=None)
    assert (found.value, found.reading("rest_s"), found.reading("unknown")) == (2.5, 4.0, None)
    assert found.reading("p99_ms") == document["latency_p99_ms"]
    assert result_at(document, None, "too short").why == "too short"
    invalid = result_at({**document, "verdict": "INVALID"}, 2.5)
    assert (invalid.value, invalid.why) == (None, document["reasons"][0])


def test_older_runs_have_the_measurement_that_follows_from_their_results() -> None:
    killed, write, read = {"leaders_back_s": 2.0}, {"volume_bytes": 9}, {"volume_bytes": 0}
    assert inferred_measurement(True, [write]) == "limit"
    assert inferred_measurement(False, [killed, write]) == "failover"
    assert inferred_measurement(False, [write]) == "fill"
    assert inferred_measurement(False, [write, read]) == "drain"
    assert inferred_measurement(False, [{}]) == "load"
    assert inferred_measurement(False, [], "done") == "load"
    assert inferred_measurement(False, [], "failed") == "limit"
