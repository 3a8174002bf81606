"""The order in which the cases of a sweep are measured. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from jobs.campaigns.sweep.cases import Sweep, SweepCase
from jobs.config.experiment import Experiment


@dataclass(frozen=True)
class Turn:
    """One case in one repeat.

    Attributes:
        number: the number of the case in its experiment, from 1.
        repeat: the number of the repeat, from 1.
    """

    number: int
    experiment: Experiment
    case: SweepCase
    repeat: int

    @property
    def name(self) -> str:
        """The name of the turn's run in the sweep; a resumed sweep uses it again."""
        return f"c{self.number:02}-r{self.repeat}"


def turns(sweep: Sweep) -> Iterator[list[Turn]]:
    """The turns of a sweep, in groups that share brokers.

    Each repeat measures all cases in a random order from the experiment's seed, so that a slow
    hour or an earlier case affects no single case in all repeats. Within a repeat, brokers are
    started once for each different cluster.
    """
    for repeat in range(1, sweep.experiment.repeats + 1):
        chance = random.Random(f"{sweep.experiment.seed} {repeat}")
        groups: list[list[Turn]] = []
        for number, case in enumerate(sweep.cases, 1):
            turn = Turn(number, sweep.experiment, case, repeat)
            for group in groups:
                if group[0].case.config.cluster == case.config.cluster:
                    group.append(turn)
                    break
            else:
                groups.append([turn])
        chance.shuffle(groups)
        for group in groups:
            chance.shuffle(group)
            yield group
