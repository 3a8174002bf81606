"""The evidence of one trial about its own limit, for the posterior and the test for a change."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from search.estimate import READABLE_MIN, Curve, readable_max
from search.model import Observation, Verdict
from search.signals import SATURATED_UTILIZATION, Signals

STRAY, STRAY_SPREAD = 0.04, 0.25
"""Share of readings that do not show limit and noise, and their scatter [σ]."""
FLUKE = 0.04
"""Share of verdicts that do not depend on the load."""

# Errors of one reading, without the noise: of the idle fraction (absolute); of the curve, per
# unit of ln u and of its square; of the curve past the threshold, where requests grow; of the
# delivered share, per unit of the share that is missing.
_IDLE_ERROR = 0.005
_CURVE_ERROR = 0.02
_CURVATURE = 0.12
_GROWTH_ERROR = 0.1
_DELIVERED_ERROR = 0.3
_SHORT_ERROR = 0.01


@dataclass(frozen=True)
class TrialEvidence:
    """The evidence of one trial, in logarithms.

    Attributes:
        load: ln of the load.
        held: True when the load was sustained.
        met: ln of the trial's own limit plus `slope` · gain; None where the trial shows only the
            side of that limit, relative to the load lowered by `slope` · gain.
        slope: ln of the utilization over that at the limit.
        error: error of the equation, without the noise.
        by_curve: True when the equation uses the utilization.
    """

    load: float
    held: bool
    met: float | None = None
    slope: float = 0.0
    error: float = 0.0
    by_curve: bool = False


def evidence_of(
    history: Iterable[Observation], signals: Signals, curve: Curve
) -> list[TrialEvidence]:
    """The evidence of each valid trial, in their order."""
    valid = (seen for seen in history if seen.verdict is not Verdict.INVALID)
    return [_evidence(seen, signals, curve) for seen in valid]


def _evidence(seen: Observation, signals: Signals, curve: Curve) -> TrialEvidence:
    load, held = math.log(seen.load), seen.verdict is Verdict.SUSTAINED
    used, share = signals.utilization(seen), signals.delivered(seen)
    if share is not None and (used is None or curve.at_limit < 1.0):
        short = math.log(min(1.0, share / signals.achieved_min))
        return TrialEvidence(
            load, held, load + short, error=_SHORT_ERROR - _DELIVERED_ERROR * short
        )
    if curve.at_limit >= 1.0 and signals.at_most(seen) is not None:
        return TrialEvidence(
            load,
            held,
            None,
            math.log(SATURATED_UTILIZATION),
            _GROWTH_ERROR * (SATURATED_UTILIZATION - 1.0),
        )
    if used is None or not READABLE_MIN <= used < readable_max(curve):
        return TrialEvidence(load, held)
    slope = math.log(used / curve.at_limit)
    error = math.hypot(
        curve.gain * _IDLE_ERROR / used,
        _CURVE_ERROR * slope,
        _CURVATURE * slope**2,
        _GROWTH_ERROR * max(0.0, used - 1.0),
    )
    return TrialEvidence(load, held, load, slope, error, by_curve=True)
