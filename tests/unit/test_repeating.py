"""Repeats of INVALID trials at a fixed load."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.config import load
from jobs.measurements.load import Load
from jobs.runs.fixed_load import FixedLoad, FixedLoadRun
from jobs.runs.measurement import Case
from jobs.trials.measure import Rig, repeat_until_valid
from metrics.common.errors import NoConclusionError
from metrics.trial.evidence import Judgement
from metrics.trial.trial import Trial
from search.model import Verdict
from tests.support.contexts import run_context
from tests.support.report_rows import IDLE, sustained, trial_at

CONFIG = load(
    "testbed", "demo", "default",
    ["workload.message_bytes=[1000]", "goal.search.invalid_repeats_max=2"],
)  # fmt: skip
INVALID = Judgement(Verdict.INVALID, (IDLE,))


def trials(pattern: str) -> list[Trial]:
    """A trial for each letter: V is valid, I is INVALID."""
    judged = {"V": sustained(), "I": INVALID}
    return [
        trial_at(number, 1000, 40, {"default": judged[letter]})
        for number, letter in enumerate(pattern, start=1)
    ]


def test_invalid_trials_are_repeated_within_a_bound() -> None:
    for coming, made, asked in (
        ("VV", "VV", [2, 1]),
        ("IVIV", "IVIV", [2, 2, 1, 1]),
        ("VIIIV", "VIII", [2, 1, 1, 1]),
        ("IIIV", "III", [2, 2, 2]),
    ):
        left, missing, into = iter(trials(coming)), list[int](), list[Trial]()

        def hold(count: int, left: Iterator[Trial] = left, missing: list[int] = missing) -> Trial:
            missing.append(count)
            return next(left)

        repeat_until_valid(hold, 2, 2, into)
        assert (into, missing) == (trials(made), asked)


class Holding:
    """A rig whose trials are given."""

    coming: str

    def __init__(self, *_: Any) -> None:
        self._left = trials(self.coming)

    def __enter__(self) -> Holding:
        return self

    def __exit__(self, *_: object) -> None: ...

    def trial(self, *_: Any) -> Trial:
        return self._left.pop(0)


def test_a_case_repeats_invalid_trials_and_the_command_traffic_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run: Any = SimpleNamespace(context=run_context(config=CONFIG))
    monkeypatch.setattr(Rig, "open", Holding)
    monkeypatch.setattr(Holding, "coming", "IVVV", raising=False)
    case = Load().body(Case(CONFIG, load=40, trials=2))
    assert isinstance(case, FixedLoadRun)
    case.measure(run)
    assert [each.is_valid for each in case.trials] == [False, True, True]
    traffic = FixedLoadRun(CONFIG, FixedLoad(1_000, 40, trials=2))
    traffic.measure(run)
    assert [each.is_valid for each in traffic.trials] == [False, True]
    monkeypatch.setattr(Holding, "coming", "IIIIII", raising=False)
    with pytest.raises(NoConclusionError, match="3 of 3 trials could not be judged"):
        Load().body(Case(CONFIG, load=40)).measure(run)
