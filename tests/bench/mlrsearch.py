"""FD.io CSIT's MLRsearch from PyPI, as a contestant of the search benchmark.

It gets a verdict as a loss: none for a sustained trial, and for an overloaded one the share that
was not achieved, at least one record in a million. So it knows the delivered rate, which it uses
as a hint, and judges loads by verdicts like the other methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from MLRsearch import (
    AbstractMeasurer,
    Config,
    GoalResult,
    MeasurementResult,
    MultipleLossRatioSearch,
    SearchGoal,
)

from search.forecast import ACHIEVED_MIN
from search.model import Bracket, Done, GaveUp, Verdict
from tests.bench.search_methods import LIMITS, Contestant
from tests.support.simulated_clusters import SimulatedCluster, SimulatedEnd, SimulatedLine

_RECORDS = 1_000_000
_PATIENCE_S = 60.0
# MLRsearch needs a maximum above the limit; all limits of the benchmark are below this load.
_MAX_LOAD = 1024.0


class _Adapter(AbstractMeasurer):  # type: ignore[misc]
    """A simulated cluster behind MLRsearch's own measurer."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._last = Verdict.SUSTAINED

    def measure(self, intended_duration: float, intended_load: float) -> MeasurementResult:
        """Make one trial; an INVALID one is repeated, as MLRsearch has no such verdict."""
        if self._last is Verdict.OVERLOADED:
            self._cluster.recover()
        seen = self._cluster.measure(round(intended_load))
        while seen.verdict is Verdict.INVALID:
            seen = self._cluster.measure(round(intended_load))
        self._last = seen.verdict
        loss = 0
        if seen.verdict is Verdict.OVERLOADED:
            missing = seen.indicators["achieved"] * (1.0 - ACHIEVED_MIN)
            loss = max(1, min(_RECORDS, int(missing * _RECORDS)))
        return MeasurementResult(
            intended_duration, intended_load, offered_count=_RECORDS, loss_count=loss
        )


def mlrsearch(trials: int) -> Contestant:
    """MLRsearch that judges a load by the majority of `trials` trials."""

    return Contestant(f"MLRsearch, {trials} trials a load", partial(_run, trials))


def _run(trials: int, simulated: SimulatedLine, sizes: Sequence[int]) -> list[SimulatedEnd]:
    outcomes = []
    for message_bytes in sizes:
        outcomes.append(_search(simulated.cluster(message_bytes), trials))
        simulated.cluster(message_bytes).recover()
    return outcomes


def _search(cluster: SimulatedCluster, trials: int) -> SimulatedEnd:
    goal = SearchGoal(
        loss_ratio=0.0,
        exceed_ratio=0.5,
        relative_width=LIMITS.resolution,
        initial_trial_duration=1.0,
        final_trial_duration=1.0,
        duration_sum=float(trials),
        preceding_targets=2,
        expansion_coefficient=2,
        fail_fast=False,
    )
    config = Config()
    config.goals = [goal]
    config.min_load, config.max_load = 1.0, _MAX_LOAD
    config.search_duration_max = _PATIENCE_S
    config.warmup_duration = None
    before_s = cluster.elapsed_s
    search = MultipleLossRatioSearch(config=config)
    found = search.search(measurer=_Adapter(cluster), debug=lambda _: None)[goal]
    took_s = cluster.elapsed_s - before_s
    return SimulatedEnd(_result(found), len(cluster.trials), took_s, cluster.true_limit)


def _result(found: GoalResult) -> Done | GaveUp:
    low, high = found.relevant_lower_bound, found.relevant_upper_bound
    if low is None or high is None:
        return GaveUp(Bracket(0, None), "no pair of bounds")
    return Done(Bracket(round(float(low)), round(float(high))))
