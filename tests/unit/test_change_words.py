"""A change of the limit in the results: its sentence, and the trials that count since then."""

from __future__ import annotations

from dataclasses import replace

from syrupy.assertion import SnapshotAssertion

from jobs.config import load
from jobs.runs.change_words import present_trials
from jobs.runs.results import boundary_of
from metrics.reporting.limit_answer import answer_of
from metrics.tables.boundary import Boundary
from metrics.trial.trial import Trial
from metrics.windows.resource import Resource
from search.interval import Interval
from search.line import FinishedPoint
from search.model import Bracket, Change, Done, GaveUp
from tests.support.report_rows import overloaded, sustained, trial_at

CHANGE = Change(1, 3, 0.97, Interval(84.0, 90.0, 87.0), Interval(38.0, 46.0, 42.0))
"""Between the second trial and the fourth one."""


def trials_of_a_change() -> list[Trial]:
    """Overloads by the disk before the change, and by the handlers after it."""
    disk, handlers = (overloaded(each) for each in (Resource.DISK, Resource.REQUEST_HANDLERS))
    loads = [(80, sustained()), (90, disk), (60, disk), (43, handlers)] + [(41, sustained())] * 2
    return [
        replace(
            trial_at(number, 1000, load, {"default": judged}),
            started_at_s=1_700_000_000.0 + 60 * number,
            checks=number == 6,
        )
        for number, (load, judged) in enumerate(loads, 1)
    ]


def boundary(result: Done | GaveUp, *overrides: str) -> Boundary:
    trials = trials_of_a_change()
    history = tuple(each.observation("default") for each in trials)
    point = FinishedPoint(1000, result, history, checked=True)
    return boundary_of(point, trials, load("testbed", "demo", "default", overrides), "default", 3)


def test_a_change_is_a_sentence_with_its_size_and_time(snapshot: SnapshotAssertion) -> None:
    done = Done(Bracket(41, 43), 0.9, Interval(40.5, 43.5, 42.0), changed=(CHANGE,))
    found = boundary(done)
    assert found.changed == snapshot
    assert found.trials == 6
    assert found.limited_by == Resource.REQUEST_HANDLERS.value
    assert answer_of(found).caveat == f"caveat: {found.changed[0]}"


def test_two_changes_are_two_sentences_and_the_first_keeps_its_own_end() -> None:
    first = replace(CHANGE, last_before=0, since=1)
    done = Done(Bracket(41, 43), 0.9, Interval(40.5, 43.5, 42.0), changed=(first, CHANGE))
    one, other = boundary(done).changed
    assert "to 42 (38 to 46 at 90 %)" in one
    assert "to 42 (40.5 to 43.5 at 90 %)" in other


def test_a_search_that_gave_up_keeps_its_change() -> None:
    for changed in ((), (CHANGE,)):
        found = boundary(GaveUp(Bracket(41, 43), "the budget is used up", None, changed))
        assert len(found.changed) == len(changed)


def test_trials_before_a_change_count_no_more() -> None:
    trials = trials_of_a_change()
    trials.append(replace(trials[-1], number=7, checks=False, steady=True))
    changed = FinishedPoint(1000, Done(Bracket(41, 43), changed=(CHANGE,)), ())
    assert [each.number for each in present_trials(changed, trials)] == [4, 5, 6, 7]
    steady = FinishedPoint(1000, Done(Bracket(41, 43)), ())
    assert [each.number for each in present_trials(steady, trials)] == [1, 2, 3, 4, 5, 6, 7]


def test_an_answer_without_a_look_for_a_change_states_it() -> None:
    off = "goal.search.check_for_change=false"
    done = Done(Bracket(41, 43))
    note = "not checked for a change of the limit, as search.check_for_change is false"
    assert note in boundary(done, off).notes
    assert note not in boundary(done).notes
    assert note not in boundary(GaveUp(Bracket(41, 43), "used up"), off).notes
