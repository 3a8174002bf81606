"""How sure an answer is: the probability that the limit lies inside the bracket."""

from __future__ import annotations

import math
from collections.abc import Iterable

from search.estimate import Estimate
from search.model import Bracket, Observation, Verdict

_STEPS = 160
_REACH = 0.5
_STRAY = 0.05


def confidence(
    history: Iterable[Observation],
    bracket: Bracket,
    estimate: Estimate | None,
    noise: float,
    fluke: float = 0.02,
) -> float:
    """Posterior probability that the limit is in [sustained, overloaded) [ratio].

    The limit is put on a grid around the bracket, flat in its logarithm. Each verdict
    counts as a comparison of its load with a limit that scatters by `noise` and that is a
    fluke with probability `fluke`; the estimate counts as a Gaussian with a flat share of
    5 %, since curves can mislead.

    Args:
        history: the trials of the point.
        bracket: the answer.
        estimate: what readings and neighbours say, or None.
        noise: scatter of the limit from trial to trial [σ, ratio].
        fluke: share of trials whose verdict has nothing to do with the load.
    """
    if bracket.overloaded is None:
        return 0.0
    low, high = math.log(max(bracket.sustained, 0.5)), math.log(bracket.overloaded)
    valid = [seen for seen in history if seen.verdict is not Verdict.INVALID]
    start, width = low - _REACH, (high - low) + 2 * _REACH
    inside = total = 0.0
    for step in range(_STEPS):
        limit = start + width * (step + 0.5) / _STEPS
        weight = _weight_of_estimate(limit, estimate)
        for seen in valid:
            held = _normal((limit - math.log(seen.load)) / max(noise, 1e-3))
            agrees = held if seen.verdict is Verdict.SUSTAINED else 1.0 - held
            weight *= fluke / 2.0 + (1.0 - fluke) * agrees
        total += weight
        if low <= limit < high:
            inside += weight
    return inside / total if total > 0.0 else 0.0


def _weight_of_estimate(limit: float, estimate: Estimate | None) -> float:
    if estimate is None:
        return 1.0
    spread = max(estimate.spread, 0.005)
    away = (limit - math.log(estimate.load)) / spread
    return (1.0 - _STRAY) * math.exp(-0.5 * away * away) / spread + _STRAY


def _normal(z: float) -> float:
    return 0.5 * (1.0 + math.erf(z / math.sqrt(2.0)))
