"""Searches on clusters whose handlers others use, too: readings count what others leave."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest

from metrics.trial.judgement import Judgement
from metrics.trial.others import ClientTraffic, Level, OtherLoad, OwnTraffic
from metrics.trial.warm_up import WarmUp
from search.guide import Guide
from search.guided import Guided
from search.limits import Limits
from search.model import Done, Observation, Verdict
from search.signals import AT_REST, HANDLER_IDLE, own_utilization
from search.simulate import ClusterSpec, SimulatedCluster
from tests.support.evidence import broker, evidence
from tests.support.rows import trial
from tests.support.searching import run_on

pytestmark = pytest.mark.computes

LIMITS = Limits(128, 20_000, 0.1, 3)
CAPACITIES = (9.0, 23.0, 41.0, 77.0, 120.0, 260.0)


class Shared(SimulatedCluster):
    """A cluster whose handlers others use to a share of the threshold."""

    def __init__(self, capacity: float, seed: int, theirs: float, is_known: bool = True) -> None:
        super().__init__(ClusterSpec(capacity=capacity), seed)
        self._theirs, self._is_known = theirs, is_known

    def measure(self, load: int) -> Observation:
        seen = super().measure(load)
        readings = dict(seen.indicators)
        if (used := readings.get(HANDLER_IDLE)) is not None and used < 1.0:
            readings[HANDLER_IDLE] = self._theirs + (1.0 - self._theirs) * used
        if self._is_known:
            readings[AT_REST] = self._theirs
        return replace(seen, indicators=readings)


def trials_needed(theirs: float, is_known: bool = True) -> float:
    """Mean number of trials to find a limit."""
    counts = []
    for seed, capacity in enumerate(CAPACITIES * 5):
        cluster = Shared(capacity, seed, theirs, is_known)
        found = run_on(Guided(LIMITS, Guide()), cluster).result
        assert isinstance(found, Done)
        assert 0.8 <= found.bracket.sustained / capacity <= 1.1
        counts.append(len(cluster.trials))
    return fmean(counts)


@pytest.mark.parametrize("theirs", [0.3, 0.6])
def test_others_cost_no_further_trials(theirs: float) -> None:
    alone = trials_needed(0.0)
    assert trials_needed(theirs) <= alone + 0.25
    assert trials_needed(theirs, is_known=False) > alone + 0.5, "the reading at rest has no effect"


def test_others_that_leave_nothing_take_nothing_from_a_reading() -> None:
    assert own_utilization(1.2, 0.5) == 1.2
    assert own_utilization(0.7, 1.1) == 0.7
    assert own_utilization(0.3, 0.4) == 0.0


@pytest.mark.parametrize(
    ("idle_at_rest", "lately", "expected"),
    [(0.6, None, 0.5), (1.0, None, None), (None, None, None), (0.9, 0.6, 0.5), (0.6, 1.0, None)],
)
def test_a_trial_states_what_others_used_when_they_were_last_measured(
    idle_at_rest: float | None, lately: float | None, expected: float | None
) -> None:
    rates = ClientTraffic(1.0, 0.0, 0.0)
    others = OtherLoad.of(rates, OwnTraffic(0.0, 0.0), Level.of([rates], lately))
    made = replace(
        trial(),
        evidence=evidence(
            brokers=(broker(1, handler_idle=0.4), broker(2, handler_idle=0.5)), others=others
        ),
        judgements={"g": Judgement(Verdict.SUSTAINED, (), {HANDLER_IDLE: 0.75})},
        warm_up=WarmUp(idle_at_rest=idle_at_rest),
    )
    assert made.observation("g").indicators.get(AT_REST) == pytest.approx(expected)
