"""The attributions of several overloads, combined by weighted vote."""

from __future__ import annotations

from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.config import load
from jobs.runs.results import boundary_of
from metrics.judging.attribution import AttributionVote, combine_votes, contradiction
from metrics.tables.boundary import Boundary
from metrics.trial.evidence import Judgement
from metrics.trial.trial import Trial
from metrics.windows.use import Resource
from search.line import FinishedPoint
from search.model import Bracket, Done, Verdict
from tests.support.rows import traffic, trial

CPU, DISK, UNKNOWN = Resource.CPU, Resource.DISK, Resource.UNKNOWN
CONFIG = load("testbed", "demo", "default")


def judgement_for(resource: Resource, producers: int = 40) -> Judgement:
    return Judgement(Verdict.OVERLOADED, (), {}, resource, f"{resource.value}: seen at {producers}")


def vote(resource: Resource, where: str = "", producers: int = 40) -> AttributionVote:
    return AttributionVote(judgement_for(resource, producers), where)


def overload(producers: int, resource: Resource) -> Trial:
    judgements = {"default": judgement_for(resource, producers)}
    return trial(judgements=judgements, pattern=traffic(producers))


def boundary(*trials: Trial, overloaded: int | None = 40) -> Boundary:
    bracket = Bracket(39, overloaded)
    return boundary_of(FinishedPoint(100, Done(bracket), ()), trials, CONFIG, "default", 2)


@pytest.mark.parametrize(
    ("votes", "resource", "text"),
    [
        ([vote(DISK)], DISK, "disk: seen at 40"),
        ([vote(CPU, "40 producers"), vote(DISK), vote(DISK, producers=44)], DISK,
         ("disk: seen at 44; 2 of 3 overloads were limited by this resource, "
         "the others by CPU at 40 producers")),
        ([vote(UNKNOWN)] * 3 + [vote(CPU)], CPU,
         ("CPU: seen at 40; 1 of 4 overloads were limited by this resource, "
         "the others by unknown, unknown, unknown")),
        ([vote(UNKNOWN)] * 2, UNKNOWN,
         "unknown: seen at 40; all 2 overloads were limited by this resource"),
    ],
)  # fmt: skip
def test_a_majority_wins_and_overloads_without_a_resource_do_not_count(
    votes: list[AttributionVote], resource: Resource, text: str
) -> None:
    found = combine_votes(votes)
    assert found is not None
    assert (found.resource, found.text) == (resource, text)


def test_an_unknown_resource_does_not_contradict_a_known_one(snapshot: SnapshotAssertion) -> None:
    assert combine_votes([]) is None
    assert contradiction([vote(DISK), vote(UNKNOWN), vote(DISK)]) == ""
    assert contradiction([vote(DISK, "40"), vote(CPU, "44")]) == snapshot


def test_overloads_near_the_limit_vote_with_more_weight_the_nearer_they_are() -> None:
    found = boundary(overload(40, DISK), overload(60, CPU))
    assert found.limited_by == "disk"
    assert found.evidence == (
        "disk: seen at 40; 1 of 2 overloads near the limit were limited by this resource, "
        "the others by CPU at 60 producers"
    )
    assert any("disk at 40 producers; CPU at 60 producers" in note for note in found.notes)
    two = boundary(overload(40, DISK), overload(50, CPU), overload(56, CPU))
    assert two.limited_by == "CPU"
    assert two.evidence.startswith("CPU: seen at 50; 2 of 3 ")
    silent = boundary(overload(40, UNKNOWN), overload(44, DISK), overload(50, DISK))
    assert silent.limited_by == "disk"
    assert (
        "2 of 3 overloads near the limit were limited by this resource, the others by unknown at 40"
        in silent.evidence
    )
    # Overloads far above or below the limit do not vote.
    far = [overload(61, CPU), overload(30, CPU), overload(640, CPU)]
    found = boundary(*far, overload(40, DISK))
    assert (found.limited_by, found.evidence) == ("disk", "disk: seen at 40")
    assert not [note for note in found.notes if "name different" in note]
    invalid = replace(judgement_for(CPU), verdict=Verdict.INVALID)
    other = trial(judgements={"default": invalid}, pattern=traffic(44))
    assert boundary(overload(40, DISK), other).limited_by == "disk"
    assert boundary(*far, overloaded=None).limited_by is None
