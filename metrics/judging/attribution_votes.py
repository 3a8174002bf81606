"""The attributions of several overloads, combined into one by weighted vote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metrics.judging.attribution import Attribution
from metrics.trial.evidence import Judgement
from metrics.windows.use import Resource

VOTING_LOAD_RATIO_MAX = 1.5
"""Highest load of an overload that votes on the limiting resource, over the lowest overload's load.
Beyond it, other resources are exhausted as well [ratio]."""


@dataclass(frozen=True)
class AttributionVote:
    """The vote of one overload for a resource.

    Attributes:
        judgement: the judgement of the overload.
        load: its load in words; empty where all overloads had the same load.
        weight: the weight of the vote.
    """

    judgement: Judgement
    load: str = ""
    weight: float = 1.0

    @property
    def resource(self) -> Resource:
        """The resource that the overload is attributed to."""
        return self.judgement.limited_by or Resource.UNKNOWN


def combine_votes(votes: Sequence[AttributionVote], what: str = "overloads") -> Attribution | None:
    """The resource with the most weight, with the number of votes for it and the other votes.

    An overload without a known resource does not count against the others. The evidence is that of
    the heaviest vote for the resource; the last one wins a tie. None without votes.

    Args:
        votes: one vote for each overload, oldest first.
        what: the plural noun for the voters.
    """
    if not votes:
        return None
    weights = dict.fromkeys(Resource, 0.0)
    for vote in votes:
        weights[vote.resource] += vote.weight
    weights[Resource.UNKNOWN] = 0.0
    named = max(weights, key=lambda resource: weights[resource]) if any(weights.values()) else None
    named = named or Resource.UNKNOWN
    alike = [vote for vote in votes if vote.resource is named]
    heaviest = max(reversed(alike), key=lambda vote: vote.weight)
    text = heaviest.judgement.attribution
    return Attribution(named, "; ".join(filter(None, [text, _vote_count(votes, named, what)])))


def contradiction(votes: Sequence[AttributionVote]) -> str:
    """A sentence about overloads that name different resources; empty where they agree."""
    by_name: dict[Resource, list[str]] = {}
    for vote in votes:
        if vote.resource is not Resource.UNKNOWN:
            by_name.setdefault(vote.resource, []).append(vote.load)
    if len(by_name) < 2:
        return ""
    named = [f"{name.value}{_at(loads)}" for name, loads in by_name.items()]
    return f"overloads near the limit name different limiting resources: {'; '.join(named)}"


def _vote_count(votes: Sequence[AttributionVote], named: Resource, what: str) -> str:
    if len(votes) == 1:
        return ""
    others = [
        f"{vote.resource.value}{_at([vote.load])}" for vote in votes if vote.resource is not named
    ]
    if not others:
        return f"all {len(votes)} {what} say so"
    alike = len(votes) - len(others)
    return f"{alike} of {len(votes)} {what} say so, the others {', '.join(others)}"


def _at(loads: Sequence[str]) -> str:
    places = ", ".join(dict.fromkeys(filter(None, loads)))
    return f" at {places}" if places else ""
