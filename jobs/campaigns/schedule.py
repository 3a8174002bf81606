"""Schedules: in which turns the cases of a campaign are measured. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from metrics.comparing.pairs import Side

CaseT = TypeVar("CaseT")


@dataclass(frozen=True)
class Turn(Generic[CaseT]):
    """One case in one repeat.

    Attributes:
        number: the number of the case in its campaign, from 1.
        repeat: the number of the repeat, from 1.
    """

    number: int
    case: CaseT
    repeat: int = 1

    @property
    def name(self) -> str:
        """The name of the turn in its campaign; a resumed campaign uses it again."""
        return f"c{self.number:02}-r{self.repeat}"


def once(cases: Sequence[CaseT]) -> list[Turn[CaseT]]:
    """Each case once, in order."""
    return [Turn(number, case) for number, case in enumerate(cases, 1)]


def shuffled(
    cases: Sequence[CaseT], repeats: int, seed: int, cluster_of: Callable[[CaseT], object]
) -> Iterator[list[Turn[CaseT]]]:
    """Each case once in each repeat, in groups that share brokers.

    Each repeat measures all cases in a random order from the seed, so that a slow hour or an
    earlier case affects no single case in all repeats. Within a repeat, brokers are started once
    for each different cluster.
    """
    for repeat in range(1, repeats + 1):
        chance = random.Random(f"{seed} {repeat}")
        groups: list[list[Turn[CaseT]]] = []
        for number, case in enumerate(cases, 1):
            turn = Turn(number, case, repeat)
            for group in groups:
                if cluster_of(group[0].case) == cluster_of(case):
                    group.append(turn)
                    break
            else:
                groups.append([turn])
        chance.shuffle(groups)
        for group in groups:
            chance.shuffle(group)
            yield group


def order_of(pair: int) -> tuple[Side, Side]:
    """The order of two sides in a pair: A B, B A, A B, …

    A machine that becomes slower or faster so affects both sides equally.
    """
    return (Side.A, Side.B) if pair % 2 == 0 else (Side.B, Side.A)
