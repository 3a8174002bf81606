"""The search of a night's limit begins as a search of its own does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.console.events import RecordingReporter
from jobs.features.nightly.night_run import CaseMeasurer
from jobs.features.nightly.suite import SuiteCase, configuration_of
from jobs.runs import limit
from jobs.runs.limit import LimitRun
from jobs.trials.context import TrialHistory
from metrics.trial.trial import WarmUp
from search.line import FinishedPoint, Line
from search.model import Bracket, GaveUp
from tests.support.contexts import run_context
from tests.support.nights import SUITE
from tests.support.rows import trial

CASES = (SuiteCase(name="one", limit=100), SuiteCase(name="two", limit=1_000))
READ = WarmUp(24, 0.4, False)


class Topics:
    """Stands for the topics of a search."""

    def __init__(self, _: Any) -> None:
        self.open = lambda pattern: pattern
        self.close = lambda: None

    def __enter__(self) -> Topics:
        return self

    def __exit__(self, *_: object) -> None:
        return


class BegunError(Exception):
    """Ends a search where it begins, with its lines."""

    def __init__(self, lines: Mapping[str, Line]) -> None:
        super().__init__()
        self.lines = lines


class Gates:
    """Records the loads that warm the brokers, and their reading."""

    def __init__(self, history: TrialHistory) -> None:
        self._history = history
        self.warmed: list[tuple[int, float]] = []

    def warm(self, topics: Any) -> None:
        self.warmed.append((topics.message_bytes, topics.phases.measure_s))
        self._history.warm_up = READ


def begin(monkeypatch: pytest.MonkeyPatch, *, has_trials: bool, load_max_s: float) -> Any:
    """The gates, and the line at whose start the search of the first case was ended."""
    config = configuration_of(
        SUITE.model_copy(update={"cases": CASES}), overrides=[f"cluster.warm_up_max_s={load_max_s}"]
    )
    history = TrialHistory()
    gates = Gates(history)
    context = run_context(
        config=config, history=history, addresses={1: ("a", 1)},
        guards=SimpleNamespace(cap_violation=lambda _: None),
    )  # fmt: skip
    if has_trials:
        history.add(trial(), ())

    def searched(lines: Mapping[str, Line], *_: Any) -> Any:
        raise BegunError(lines)

    monkeypatch.setattr(limit, "run_lines", searched)
    monkeypatch.setattr(limit, "PointTopics", Topics)
    monkeypatch.setattr(limit, "progress_updater", lambda *_: None)
    measurer = CaseMeasurer(context, gates, SUITE.name, "n1")  # type: ignore[arg-type]
    with pytest.raises(BegunError) as begun:
        measurer.measure(CASES[0], None, None)
    (line,) = begun.value.lines.values()
    return gates.warmed, line


def test_the_first_limit_of_a_night_begins_at_the_reading_of_the_warm_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warmed, line = begin(monkeypatch, has_trials=False, load_max_s=30.0)
    ((message_bytes, load_s),) = warmed
    assert message_bytes == 100
    assert 0 < load_s <= 30.0
    assert line.hint is not None and line.hint.load == READ.load
    assert not line.check_for_change


@pytest.mark.parametrize(("has_trials", "load_max_s"), [(True, 30.0), (False, 0.0)])
def test_without_a_warm_up_a_limit_begins_without_a_reading(
    has_trials: bool, load_max_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    warmed, line = begin(monkeypatch, has_trials=has_trials, load_max_s=load_max_s)
    assert (warmed, line.hint) == ([], None)


def test_a_limit_of_a_night_has_only_the_trials_of_its_own_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = configuration_of(SUITE.model_copy(update={"cases": CASES[:1]}))
    history = TrialHistory()
    history.add(trial(1), ())  # of a load at the same size, measured before
    context = run_context(
        config=config, history=history, addresses={1: ("a", 1)},
        tables=SimpleNamespace(append_boundary=lambda _: None), reporter=RecordingReporter(),
        environment={},
    )  # fmt: skip

    def searched(lines: Mapping[str, Line], *others: Any) -> None:
        own = replace(trial(2), judgements={config.goal.name: trial().judgement})
        history.add(own, ())
        (goal,) = lines
        seen = (own.observation(goal),)
        others[-1](goal, FinishedPoint(100, GaveUp(Bracket(0, own.load), "enough"), seen))

    monkeypatch.setattr(limit, "run_lines", searched)
    monkeypatch.setattr(limit, "PointTopics", Topics)
    searching = LimitRun(config, holds=False, checks=False)
    searching.begin(context)
    searching.search(context, None)  # type: ignore[arg-type]
    (boundary,) = searching.boundaries
    assert (boundary.trials, boundary.gave_up) == (1, "enough")
