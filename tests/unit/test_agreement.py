"""What several overloads say together of what bound the brokers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.config import load
from jobs.runs.results import boundary_of
from metrics.comparing.cause import SideEvidence
from metrics.judging.agreement import Told, agreed, contradiction
from metrics.tables.boundary import Boundary
from metrics.trial.judgement import Judgement
from metrics.trial.trial import Trial
from metrics.windows.resource import Resource
from search.line import FinishedPoint
from search.model import Bracket, Done, Verdict
from tests.support.rows import traffic, trial

CPU, DISK, UNKNOWN = Resource.CPU, Resource.DISK, Resource.UNKNOWN
CONFIG = load("testbed", "demo", "default")


def says(resource: Resource, np: int = 40) -> Judgement:
    return Judgement(Verdict.OVERLOADED, (), {}, resource, f"{resource.value}: seen at {np}")


def overload(np: int, resource: Resource) -> Trial:
    return trial(judgements={"default": says(resource, np)}, pattern=traffic(np))


def boundary(*trials: Trial, overloaded: int | None = 40) -> Boundary:
    bracket = Bracket(39, overloaded)
    return boundary_of(FinishedPoint(100, Done(bracket), ()), trials, CONFIG, "default", 2)


def test_one_overload_speaks_for_itself() -> None:
    found = agreed([Told(says(DISK))])
    assert found is not None
    assert (found.resource, found.text) == (DISK, "disk: seen at 40")
    assert agreed([]) is None


def test_most_overloads_outvote_one_and_those_that_cannot_tell_outvote_nobody() -> None:
    told = [Told(says(CPU), "40 producers"), Told(says(DISK)), Told(says(DISK, 44))]
    found = agreed(told)
    assert found is not None
    assert found.resource is DISK
    assert found.text == "disk: seen at 44; 2 of 3 overloads say so, the others CPU at 40 producers"
    silent = agreed([Told(says(UNKNOWN))] * 3 + [Told(says(CPU))])
    assert silent is not None
    assert silent.resource is CPU
    assert "1 of 4 overloads say so, the others unknown, unknown, unknown" in silent.text
    nobody = agreed([Told(says(UNKNOWN))] * 2)
    assert nobody is not None
    assert (nobody.resource, "all 2 overloads say so" in nobody.text) == (UNKNOWN, True)


def test_what_one_overload_cannot_tell_is_no_contradiction() -> None:
    assert contradiction([Told(says(DISK)), Told(says(UNKNOWN)), Told(says(DISK))]) == ""
    assert contradiction([Told(says(DISK), "40"), Told(says(CPU), "44")]) == (
        "overloads near the limit do not agree on what bound the brokers: disk at 40; CPU at 44"
    )


def test_all_overloads_near_the_limit_speak_the_nearer_the_more() -> None:
    found = boundary(overload(40, DISK), overload(60, CPU))
    assert found.limited_by == "disk"
    assert found.evidence == (
        "disk: seen at 40; 1 of 2 overloads near the limit say so, the others CPU at 60 producers"
    )
    assert any("disk at 40 producers; CPU at 60 producers" in note for note in found.notes)
    two = boundary(overload(40, DISK), overload(50, CPU), overload(56, CPU))
    assert two.limited_by == "CPU"
    assert two.evidence.startswith("CPU: seen at 50; 2 of 3 ")


def test_what_lies_far_above_the_limit_or_was_outvoted_below_it_has_no_say() -> None:
    far = [overload(61, CPU), overload(30, CPU), overload(640, CPU)]
    found = boundary(*far, overload(40, DISK))
    assert (found.limited_by, found.evidence) == ("disk", "disk: seen at 40")
    assert not [note for note in found.notes if "do not agree" in note]
    invalid = replace(says(CPU), verdict=Verdict.INVALID)
    other = trial(judgements={"default": invalid}, pattern=traffic(44))
    assert boundary(overload(40, DISK), other).limited_by == "disk"
    assert boundary(*far, overloaded=None).limited_by is None


def test_an_overload_that_cannot_tell_leaves_it_to_the_next() -> None:
    found = boundary(overload(40, UNKNOWN), overload(44, DISK), overload(50, DISK))
    assert found.limited_by == "disk"
    assert "2 of 3 overloads near the limit say so, the others unknown at 40" in found.evidence


@pytest.mark.parametrize(
    ("named", "expected"), [([CPU, DISK, DISK], DISK), ([UNKNOWN, UNKNOWN, CPU], CPU)]
)
def test_a_side_of_a_comparison_is_bound_by_what_most_of_its_trials_can_tell(
    named: list[Resource], expected: Resource
) -> None:
    side = SideEvidence("A", [overload(40, each) for each in named], [], {})
    assert side.bound_by is expected
    assert side.attribution.startswith(f"{expected.value}: seen at 40; ")
