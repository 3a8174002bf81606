"""Fixed loads on an open cluster: the configuration of a trial, and the conditions of an answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from jobs.measurements.fill import time_of_volume
from jobs.trials import measure as holding
from jobs.trials.measure import Holder
from metrics.common.errors import NoConclusionError
from metrics.trial.evidence import Judgement
from metrics.trial.trial import Trial, WarmUp
from search.model import Verdict
from tests.support.contexts import run_context
from tests.support.evidence import client
from tests.support.report_rows import IDLE
from tests.support.rows import PATTERN, trial


class Measurer:
    """A measurer that records a warm-up before each trial, and the configurations of trials."""

    made: ClassVar[list[tuple[str, WarmUp]]] = []

    def __init__(self, context: Any, *_others: Any, **_named: Any) -> None:
        self._context = context

    def trial(self, load: int) -> Trial:
        if self._context.config == "broken":
            raise NoConclusionError("no broker answers")
        self._context.history.warm_up = WarmUp(load, 0.4)
        self.made.append((self._context.config, self._context.history.warm_up))
        return trial()


def test_a_trial_with_its_own_configuration_keeps_the_readings_of_the_warm_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(holding, "TrialMeasurer", Measurer)
    monkeypatch.setattr(holding, "open_gates", lambda *_: None)
    monkeypatch.setattr(holding, "PointTopics", lambda _: None)
    monkeypatch.setattr(Measurer, "made", [])
    context = run_context(config="of the run")
    own: Any = "of the trial"
    broken: Any = "broken"
    holder = Holder(context, 10.0)
    holder.hold(100, 8, config=own)
    assert context.history.warm_up == WarmUp(8, 0.4), "the next trial's row states it too"
    with pytest.raises(NoConclusionError):
        holder.hold(100, 8, config=broken)
    holder.hold(100, 9)
    assert [config for config, _ in Measurer.made] == ["of the trial", "of the run"]


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
