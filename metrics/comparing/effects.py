"""How large a change is, and how sure one can be of it: the statistics of comparisons.

All measures are positive (throughput, latency, cost), so an effect is a ratio and is
estimated on its logarithm, where a loss of a half and a gain of twice are the same size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import NormalDist, fmean, variance

from metrics.comparing.quantiles import chi2_tail, student_quantile, student_tail

CONFIDENCE = 0.95
POWER = 0.8
"""Chance to see the effect that is called the smallest visible one."""
ALIKE_P = 0.01
"""Less likely than this, effects in several places are not the same."""
PAIRS_MIN = 3
"""With fewer pairs their scatter is a guess."""
BETWEEN_STARTS_SD = 0.08
"""How much equal cases differ from one measurement to the next beyond their own intervals: standard
deviation of the logarithm. Of 17 ready experiments that were measured on two days, 38 cases on one
disk, differences within an experiment gave 0.06 (0.04 to 0.10), 21 degrees of freedom; more than
that is taken, as an error bar has to hold on a worse day too."""


@dataclass(frozen=True)
class Effect:
    """A change by a ratio; 0.9 is a loss of 10 %.

    Attributes:
        ratio: the estimate.
        low, high: its confidence interval, or prediction interval for a single night [ratio].
        p_value: two-sided, of no change.
        smallest_visible: the loss that would have been seen with a chance of 80 % [share].
        count: pairs or nights behind it.
    """

    ratio: float
    low: float
    high: float
    p_value: float
    smallest_visible: float
    count: int

    @property
    def change(self) -> float:
        """The estimate as a share: -0.1 is a loss of 10 %."""
        return self.ratio - 1.0


def are_alike(effects: Sequence[Effect]) -> bool:
    """Whether effects of the same change in several places may be one and the same.

    Cochran's Q: the scatter of their logarithms around the weighted mean, against what their
    intervals let expect; not alike where chance makes so much of it once in a hundred times.
    """
    spreads = [math.log(each.high / each.low) for each in effects]
    if len(effects) < 2 or not all(0 < each < math.inf for each in spreads):
        return True
    errors = [each / (2 * NormalDist().inv_cdf((1 + CONFIDENCE) / 2)) for each in spreads]
    weights = [1 / each**2 for each in errors]
    logs = [math.log(each.ratio) for each in effects]
    middle = sum(w * x for w, x in zip(weights, logs, strict=True)) / sum(weights)
    scatter = sum(w * (x - middle) ** 2 for w, x in zip(weights, logs, strict=True))
    return chi2_tail(scatter, len(effects) - 1) > ALIKE_P


def paired_effect(
    pairs: Sequence[tuple[float, float]], confidence: float = CONFIDENCE
) -> Effect | None:
    """The effect of B against A from pairs measured next to each other in time.

    Student's t interval of the mean of ln(b/a): what both of a pair met alike, such as a slow
    hour of the machine, cancels. None with fewer than `PAIRS_MIN` pairs.

    Args:
        pairs: (a, b), both above zero.
        confidence: of the interval [share].
    """
    if len(pairs) < PAIRS_MIN:
        return None
    logs = [math.log(b / a) for a, b in pairs]
    error = math.sqrt(variance(logs) / len(logs))
    return _effect(fmean(logs), error, len(logs) - 1, len(logs), confidence)


NORMAL_90 = 1.6449
"""A normal curve holds 90 % within so many standard deviations to either side."""


def spread_of(low: float, high: float) -> float:
    """The standard deviation of a figure's logarithm, from its interval at 90 %."""
    return math.log(high / low) / (2.0 * NORMAL_90)


def interval_effect(
    pairs: Sequence[tuple[tuple[float, float], tuple[float, float]]],
    between_sd: float = BETWEEN_STARTS_SD,
    confidence: float = CONFIDENCE,
) -> Effect:
    """The effect of B against A from few pairs whose figures state how sure they are.

    The normal interval of the mean of ln(b/a). It knows how sure each figure is; what changes from
    one measurement to the next it can only assume.

    Args:
        pairs: (a, its spread), (b, its spread): above zero, and the standard deviation of its
            logarithm.
        between_sd: how much equal cases differ beyond their intervals: standard deviation of the
            logarithm.
        confidence: of the interval [share].
    """
    logs = [math.log(b / a) for (a, _), (b, _) in pairs]
    variances = [of_a**2 + of_b**2 + 2 * between_sd**2 for (_, of_a), (_, of_b) in pairs]
    error = math.sqrt(sum(variances)) / len(pairs)
    return _effect(fmean(logs), error, math.inf, len(logs), confidence)


def night_effect(
    tonight: float,
    nights: Sequence[float],
    noise_cv: float,
    noise_weight: float,
    confidence: float = CONFIDENCE,
) -> Effect | None:
    """The effect of tonight against the nights before it, all alike but for chance.

    Student's t prediction interval for one night more. The variance between nights is the
    weighted mean of a stated one and of that of the nights (scaled inverse chi-square prior,
    Gelman et al., Bayesian Data Analysis, 3rd ed., 2.6): so two nights that happen to agree
    raise no alarm, and a long history speaks for itself. None without a night before.

    Args:
        tonight: above zero.
        nights: of the same case in the same environment; above zero.
        noise_cv: the stated standard deviation from night to night [ratio].
        noise_weight: what the statement is worth [nights].
        confidence: of the interval [share].
    """
    if not nights:
        return None
    logs = [math.log(value) for value in nights]
    freedom = noise_weight + len(logs) - 1
    seen = variance(logs) * (len(logs) - 1) if len(logs) > 1 else 0.0
    spread = math.sqrt((noise_weight * noise_cv**2 + seen) / freedom)
    error = spread * math.sqrt(1.0 + 1.0 / len(logs))
    return _effect(math.log(tonight) - fmean(logs), error, freedom, len(logs), confidence)


def _effect(
    log_ratio: float, error: float, freedom: float, count: int, confidence: float
) -> Effect:
    quantile = student_quantile(0.5 + confidence / 2, freedom)
    visible = (quantile + student_quantile(POWER, freedom)) * error
    if error > 0.0:
        p_value = 2.0 * student_tail(abs(log_ratio) / error, freedom)
    else:
        p_value = 1.0 if log_ratio == 0.0 else 0.0
    return Effect(
        ratio=math.exp(log_ratio),
        low=math.exp(log_ratio - quantile * error),
        high=math.exp(log_ratio + quantile * error),
        p_value=p_value,
        smallest_visible=1.0 - math.exp(-visible),
        count=count,
    )


def holm(p_values: Sequence[float], alpha: float = 1.0 - CONFIDENCE) -> tuple[bool, ...]:
    """Which of several changes are none of chance, with at most `alpha` false alarms in all.

    S. Holm, Scandinavian Journal of Statistics 6, 65 (1979): from the smallest p-value on,
    each is held against alpha over the number of those that are left, until one fails.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    found = [False] * len(p_values)
    for rank, index in enumerate(order):
        if p_values[index] > alpha / (len(p_values) - rank):
            break
        found[index] = True
    return tuple(found)


class Conclusion(str, Enum):
    """What one may call a change, in a comparison as in a night."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    SMALL = "smaller than the least that matters"
    NONE_SEEN = "no difference seen"
    NO_ANSWER = "no answer"


def conclude(effects: Sequence[Effect | None], min_effect: float) -> tuple[Conclusion, ...]:
    """What to call each of several effects that share the chance of a false alarm.

    A change is called one when it is not chance by Holm's rule over all cases, and when it is
    no smaller than the least that matters: `min_effect` down, and as much up on the logarithm,
    so that a loss of a tenth is undone by a gain of a ninth.

    Args:
        effects: one for each case; None where too little was measured.
        min_effect: the least change that matters, such as 0.05 [share].
    """
    known = [effect for effect in effects if effect is not None]
    is_seen = iter(holm([effect.p_value for effect in known], 1.0 - CONFIDENCE))
    return tuple(
        Conclusion.NO_ANSWER if effect is None else _called(effect, next(is_seen), min_effect)
        for effect in effects
    )


def _called(effect: Effect, is_seen: bool, min_effect: float) -> Conclusion:
    if not is_seen:
        return Conclusion.NONE_SEEN
    if effect.ratio <= 1.0 - min_effect:
        return Conclusion.REGRESSION
    if effect.ratio >= 1.0 / (1.0 - min_effect):
        return Conclusion.IMPROVEMENT
    return Conclusion.SMALL
