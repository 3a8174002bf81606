"""The statistics of comparisons: the size of a change, and its certainty.

All measures (throughput, latency, cost) are positive, so a ratio describes an effect. The
statistics use the logarithm of the ratio, because the logarithms of halving and doubling have equal
sizes.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import accumulate, pairwise
from statistics import NormalDist, fmean, variance

import mpmath

from metrics.trial.trial import Trial

_STEPS = 100
"""Maximum number of steps of Newton's method, sufficient for degrees of freedom of 0.5 or more."""
_CLOSE = 1e-9
"""Newton's method ends if the size of a step, divided by the value, is below this ratio. The
relative error of the result is about the square of this ratio."""


def student_tail(x: float, freedom: float) -> float:
    """The probability that Student's t is above `x`.

    P(T > x) is half of the regularized incomplete beta function at freedom / (freedom + x²)
    (Abramowitz and Stegun, 26.7.1).

    Args:
        x: the value, 0 or more.
        freedom: degrees of freedom, a real number above 0; infinity means the normal distribution.
    """
    if math.isinf(x):
        return 0.0
    if math.isinf(freedom):
        return 0.5 * math.erfc(x / math.sqrt(2))
    at = freedom / (freedom + x * x)
    return 0.5 * float(mpmath.betainc(freedom / 2, 0.5, 0, at, regularized=True))


@lru_cache(maxsize=1024)
def student_quantile(probability: float, freedom: float) -> float:
    """The quantile of Student's t.

    Newton's method starts at the quantile of the normal distribution, which is lower than the
    quantile of Student's t. For positive values the tail is convex, so no step overshoots the
    quantile.

    Args:
        probability: from 0.5 to below 1.
        freedom: degrees of freedom, a real number above 0; infinity means the normal distribution.
    """
    tail, found = 1.0 - probability, NormalDist().inv_cdf(probability)
    for _ in range(_STEPS):
        step = (student_tail(found, freedom) - tail) / _student_density(found, freedom)
        found += step
        if abs(step) <= _CLOSE * max(1.0, found):
            break
    return found


def _student_density(x: float, freedom: float) -> float:
    if math.isinf(freedom):
        return NormalDist().pdf(x)
    logs = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    logs -= (freedom + 1) / 2 * math.log1p(x * x / freedom)
    return math.exp(logs) / math.sqrt(freedom * math.pi)


def chi2_tail(x: float, freedom: float) -> float:
    """The probability that chi-squared is above `x` (Abramowitz and Stegun, 26.4.19)."""
    return float(mpmath.gammainc(freedom / 2, x / 2, mpmath.inf, regularized=True))


CONFIDENCE = 0.95
POWER = 0.8
"""Probability that the smallest detectable effect is detected."""
ALIKE_P = 0.01
"""If the p-value is below this value, the effects of one change at several settings count as
different."""
PAIRS_MIN = 3
"""Minimum number of pairs from which the scatter of the pairs is estimated."""
BETWEEN_STARTS_SD = 0.08
"""Standard deviation of a result's logarithm over repeated measurements of one case. In
comparisons, a result's variance is the sum of the variance from the result's interval and the
square of this value. The measured value is 0.06 (0.04 to 0.10, 21 degrees of freedom). For this
measurement, 17 of the delivered experiments (38 cases) were made on two days on one disk. The
constant is larger than the measured 0.06, so that intervals are also wide enough on a machine with
other load."""
BETWEEN_NIGHTS_SD = 0.05
"""Default standard deviation of a figure between measurements on different days, divided by the
mean of the figure [ratio]."""


@dataclass(frozen=True)
class Effect:
    """A change, stated as a ratio: 0.9 is a loss of 10 %.

    Attributes:
        ratio: the estimate.
        low, high: ends of the confidence interval; for a night, ends of the prediction interval
            [ratio].
        p_value: two-sided p-value of the hypothesis that there is no change.
        smallest_visible: the smallest loss that the comparison detects with a probability of 80 %
            [share].
        count: number of pairs; for a night, number of earlier nights.
    """

    ratio: float
    low: float
    high: float
    p_value: float
    smallest_visible: float
    count: int

    @property
    def change(self) -> float:
        """The estimated change as a share; -0.1 is a loss of 10 %."""
        return self.ratio - 1.0


def are_alike(effects: Sequence[Effect]) -> bool:
    """True if one common effect can explain the effects of a change at several settings.

    Cochran's Q compares the scatter of the effects' logarithms around their weighted mean with the
    scatter that the effects' intervals predict. The effects differ if the p-value of Cochran's Q is
    below `ALIKE_P`.
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


def paired_effect(pairs: Sequence[tuple[float, float]]) -> Effect | None:
    """Estimate the effect of B against A from pairs of successive measurements.

    The interval is Student's t interval of the mean of ln(b/a). A disturbance that affects both
    values of a pair equally, such as a slow hour of the machine, cancels out.

    Args:
        pairs: the pairs (a, b), all values above zero.

    Returns:
        The effect; None if there are fewer than `PAIRS_MIN` pairs.
    """
    if len(pairs) < PAIRS_MIN:
        return None
    logs = [math.log(b / a) for a, b in pairs]
    error = math.sqrt(variance(logs) / len(logs))
    return _effect(fmean(logs), error, len(logs) - 1, len(logs))


NORMAL_90 = 1.6449
"""Half the width of the central 90 % of a normal distribution [standard deviations]."""


def spread_of(low: float, high: float) -> float:
    """The standard deviation of a figure's logarithm, computed from the figure's 90 % interval."""
    return math.log(high / low) / (2.0 * NORMAL_90)


def interval_effect(
    pairs: Sequence[tuple[tuple[float, float], tuple[float, float]]],
    between_sd: float = BETWEEN_STARTS_SD,
) -> Effect:
    """Estimate the effect of B against A from a few pairs of figures whose intervals are known.

    The interval is the normal interval of the mean of ln(b/a). The variance is the sum of the
    figures' variances and of an assumed variance between measurements.

    Args:
        pairs: pairs ((a, spread), (b, spread)); a figure is above zero, and the spread is the
            standard deviation of the figure's logarithm.
        between_sd: standard deviation of the figure's logarithm over repeated measurements of one
            case.
    """
    logs = [math.log(b / a) for (a, _), (b, _) in pairs]
    variances = [of_a**2 + of_b**2 + 2 * between_sd**2 for (_, of_a), (_, of_b) in pairs]
    error = math.sqrt(sum(variances)) / len(pairs)
    return _effect(fmean(logs), error, math.inf, len(logs))


NIGHT_ALPHA = 1 / 30
"""Probability that a night has at least one false alarm in any of its cases. A false alarm is a
regression or an improvement that a night reports although nothing has changed; each kind has half
of this probability."""
REFERENCE_NIGHTS = 20
"""Number of first nights that are the reference for a slow loss."""
_NIGHT_FREEDOM = 0.6
"""Degrees of freedom that each difference between neighboring nights adds to the estimated
variance. The estimated variance from n differences, whose squares are limited, has as much scatter
as a variance from 0.6 n independent values."""
_WINSOR = 2.0
"""Differences between neighboring nights that are larger than this value are reduced to it
[standard deviations]."""
_WINSOR_MEAN = 0.9205
"""Mean of min(z², 4) for a standard normal z."""
_SPREAD_CLOSE = 1e-4
"""The iterative estimate of the variance ends when its relative change in one step is below this
value."""
_SLOW_NIGHTS = 120
"""Mean number of nights until the cumulative sum of any case causes a false alarm, if the reference
and the spread are exact. For an estimated reference and an estimated spread, `make bench-decisions`
measures the mean number of nights until a false alarm."""
_REFERENCE_ERRORS = 1.5
"""A difference from the reference is a loss only if it is larger than this value [standard errors].
"""
_NEWEST_NIGHTS = 5
"""The size of a slow loss is the mean loss of the newest nights. This is the maximum number of
these nights."""


@dataclass(frozen=True)
class Spread:
    """The spread of a figure from night to night.

    Attributes:
        sd: standard deviation of the logarithm.
        freedom: degrees of freedom of the estimated standard deviation.
    """

    sd: float
    freedom: float


def night_spread(nights: Sequence[float], noise_cv: float, noise_weight: float) -> Spread:
    """Estimate the spread of a figure from night to night, from the suite and from the figures.

    The estimated variance is the weighted mean of `noise_cv`² and the variance of the figures'
    logarithms (scaled inverse chi-square prior, Gelman et al., Bayesian Data Analysis, 3rd ed.,
    2.6). With `noise_cv`, two nights whose figures agree by chance do not make the variance so
    small that the next night causes a false alarm. In a long history, the figures have more weight
    than `noise_cv`. The variance of the figures is half of the mean square of the differences. A
    difference is computed from the logarithms of the figures of two neighboring nights. A sudden
    and lasting loss affects only one of the differences between neighboring nights. A slow loss
    affects each difference only slightly. The square of a difference is limited to a multiple of
    the estimated variance. This limitation is called winsorizing (Huber's proposal 2, Huber and
    Ronchetti, Robust Statistics, 2nd ed., 6.4).

    Args:
        nights: figures of all comparable nights, oldest first, each above zero; also figures of
            nights with a regression or an improvement.
        noise_cv: standard deviation from night to night that the suite states [ratio].
        noise_weight: weight of `noise_cv`, as a number of nights.
    """
    halves = sorted(math.log(b / a) ** 2 / 2 for a, b in pairwise(nights))
    sums = [0.0, *accumulate(halves)]
    freedom = noise_weight + _NIGHT_FREEDOM * len(halves)
    before, found = math.inf, noise_cv**2 + sum(halves)
    while before - found > _SPREAD_CLOSE * found:
        before = found
        largest = _WINSOR**2 * before
        inside = bisect(halves, largest)
        own = (sums[inside] + largest * (len(halves) - inside)) / _WINSOR_MEAN
        found = (noise_weight * noise_cv**2 + _NIGHT_FREEDOM * own) / freedom
    return Spread(math.sqrt(found), freedom)


def night_effect(tonight: float, nights: Sequence[float], spread: Spread) -> Effect | None:
    """Estimate the effect of tonight against earlier, comparable nights.

    The interval is Student's t prediction interval for the figure of one more night.

    Args:
        tonight: tonight's figure, above zero.
        nights: figures of earlier nights with the same case and the same environment. Each figure
            is above zero.
        spread: the spread from night to night.

    Returns:
        The effect; None if there is no earlier night.
    """
    if not nights:
        return None
    level = fmean(math.log(value) for value in nights)
    error = spread.sd * math.sqrt(1.0 + 1.0 / len(nights))
    log_ratio, confidence = math.log(tonight) - level, 1.0 - NIGHT_ALPHA
    return _effect(log_ratio, error, spread.freedom, len(nights), confidence)


def slow_loss(
    reference: Sequence[float], later: Sequence[float], sd: float, min_effect: float, cases: int
) -> tuple[float, int] | None:
    """A loss that has accumulated over several nights since a reference.

    The method is Page's cumulative sum (Biometrika 41, 100, 1954): it sums the losses of the nights
    in standard deviations. Half of the smallest loss that matters is subtracted from each loss. If
    the cumulative sum reaches its threshold, there is a slow loss. The threshold follows from the
    mean number of nights until a false alarm (Siegmund, Sequential Analysis, 1985, equation 2.57).
    The cumulative sum is limited to its threshold, so that the sum falls below the threshold soon
    after a loss has ended.

    Args:
        reference: figures of the first nights, each above zero.
        later: figures of all nights after the reference nights, oldest first and tonight's figure
            last, each above zero.
        sd: standard deviation of the logarithm from night to night.
        min_effect: the smallest loss that matters [share].
        cases: number of cases that share the rate of false alarms.

    Returns:
        The mean loss of the newest nights [share], and the index in `later` of the night at which
        the cumulative sum began to grow. None without a slow loss.
    """
    level = fmean(math.log(value) for value in reference)
    least = -math.log1p(-min_effect)
    half = max(0.5, least / (2 * sd))
    threshold = max(0.1, math.log(2 * half**2 * _SLOW_NIGHTS * cases) / (2 * half) - 1.166)
    slack = half + _REFERENCE_ERRORS / math.sqrt(len(reference))
    losses = [level - math.log(value) for value in later]
    total, start = 0.0, 0
    for index, loss in enumerate(losses):
        total = min(threshold, max(0.0, total + loss / sd - slack))
        start = start if total else index + 1
    newest = losses[max(start, len(losses) - _NEWEST_NIGHTS) :]
    if total < threshold or fmean(newest) < least:
        return None
    return 1.0 - math.exp(-fmean(newest)), start


def _effect(
    log_ratio: float, error: float, freedom: float, count: int, confidence: float = CONFIDENCE
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
    """Decide which of several changes are significant, with a family-wise error rate of `alpha`.

    S. Holm, Scandinavian Journal of Statistics 6, 65 (1979): in ascending order, each p-value is
    compared with alpha divided by the number of remaining p-values, until a p-value is larger.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    found = [False] * len(p_values)
    for rank, index in enumerate(order):
        if p_values[index] > alpha / (len(p_values) - rank):
            break
        found[index] = True
    return tuple(found)


class Conclusion(str, Enum):
    """The conclusion about a change, in a comparison or a night."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    SMALL = "smaller than the least that matters"
    NONE_SEEN = "no difference seen"
    NO_ANSWER = "no answer"


def conclude(
    effects: Sequence[Effect | None], min_effect: float, alpha: float = 1.0 - CONFIDENCE
) -> tuple[Conclusion, ...]:
    """Draw a conclusion about each of several effects that share one error rate.

    A change counts if it is significant by Holm's rule over all cases and its size is at least
    `min_effect`. Gains and losses are compared by the size of their logarithms. So a gain of one
    ninth has the same size as a loss of one tenth.

    Args:
        effects: one effect for each case; None if there are too few measurements.
        min_effect: the smallest change that matters, such as 0.05 [share].
        alpha: the error rate over all cases.
    """
    known = [effect for effect in effects if effect is not None]
    significant = iter(holm([effect.p_value for effect in known], alpha))
    return tuple(
        Conclusion.NO_ANSWER
        if effect is None
        else _conclusion(effect, next(significant), min_effect)
        for effect in effects
    )


def _conclusion(effect: Effect, is_significant: bool, min_effect: float) -> Conclusion:
    if not is_significant:
        return Conclusion.NONE_SEEN
    if effect.ratio <= 1.0 - min_effect:
        return Conclusion.REGRESSION
    if effect.ratio >= 1.0 / (1.0 - min_effect):
        return Conclusion.IMPROVEMENT
    return Conclusion.SMALL


class Side(str, Enum):
    """One of the two sides of a comparison. The comparison states the change from A to B."""

    A = "A"
    B = "B"

    @property
    def other(self) -> Side:
        """The opposite side."""
        return Side.B if self is Side.A else Side.A


@dataclass(frozen=True)
class Quantity:
    """A quantity that is measured on both sides of a comparison.

    Attributes:
        name: name in compare.json, with the unit.
        title: name in texts for people.
        unit: unit in texts for people.
        read: returns the value of a trial, or None if the value is not known.
        less_is_better: True if a smaller value is better.
    """

    name: str
    title: str
    unit: str
    read: Callable[[Trial], float | None]
    less_is_better: bool = False

    def of(self, trial: Trial) -> float | None:
        """The value of a trial; None if the value is not known or is not above zero."""
        value = self.read(trial)
        return value if value is not None and math.isfinite(value) and value > 0 else None


def _capacity(trial: Trial) -> float:
    return (trial.evidence.client.achieved_mb_per_s or 0.0) / max(1, trial.pattern.brokers)


def _handlers_busy(trial: Trial) -> float | None:
    idle = trial.evidence.handler_idle_min
    return None if idle is None else 1.0 - idle


def _cpu_ms_per_mb(trial: Trial) -> float | None:
    spent_s = trial.evidence.broker_cpu_s_per_mb
    return None if spent_s is None else 1000.0 * spent_s


def _requests_per_1000_records(trial: Trial) -> float | None:
    """Produce requests per 1,000 records.

    The counts come from the clients; if the clients have no counts, they come from the brokers.
    """
    own = trial.evidence.client.counts.records_per_request
    if own:
        return 1000.0 / own
    requests = [window.produce.per_s for window in trial.evidence.brokers]
    records = [window.messages_in_per_s for window in trial.evidence.brokers]
    if None in requests or None in records or not sum(filter(None, records)):
        return None
    return 1000.0 * sum(filter(None, requests)) / sum(filter(None, records))


def _network_bytes_per_byte(trial: Trial) -> float | None:
    """Bytes on the network, including headers, per byte of payload.

    For each host with brokers, only the busier direction of the busiest interface is counted.
    """
    hosts = [host for host in trial.evidence.hosts if host.brokers]
    carried = [each.busiest_bytes_per_s for host in hosts if (each := host.busiest_interface)]
    rate = trial.evidence.client.achieved_mb_per_s
    if not rate or None in carried or not carried or len(carried) < len(hosts):
        return None
    return sum(filter(None, carried)) / (rate * 1e6)


CAPACITY = Quantity("capacity_mb_per_s_per_broker", "capacity", "MB/s/broker", _capacity)
"""Payload rate that saturated brokers acknowledge, which determines the conclusion of a comparison.
"""

STEADY = (
    Quantity("handlers_busy", "request handlers busy", "", _handlers_busy),
    Quantity("broker_cpu_ms_per_mb", "broker CPU per MB", "ms", _cpu_ms_per_mb),
    Quantity(
        "produce_requests_per_1000_records",
        "produce requests for 1,000 records",
        "",
        _requests_per_1000_records,
    ),
    Quantity(
        "network_bytes_per_payload_byte",
        "network bytes for each byte of payload",
        "",
        _network_bytes_per_byte,
    ),
    Quantity("latency_p50_ms", "latency p50", "ms", lambda t: t.evidence.client.latency.p50_ms),
    Quantity("latency_p99_ms", "latency p99", "ms", lambda t: t.evidence.client.latency.p99_ms),
)
"""Quantities at a load that both sides sustain. These quantities help to explain the result, but
the conclusion does not depend on them."""


def achieved_share(trial: Trial) -> float:
    """Acknowledged records divided by offered records; 0 if no records were offered [ratio].

    For a mix, the ratio uses payload instead of records, because a small part of the mix may have
    most of the records.
    """
    client = trial.evidence.client
    if trial.pattern.parts:
        offered = client.offered_mb_per_s
        return (client.achieved_mb_per_s or 0.0) / offered if offered else 0.0
    return client.achieved_share or 0.0


@dataclass(frozen=True)
class TrialPair:
    """Two successive trials at the same load, one trial on each side."""

    a: Trial
    b: Trial

    def of(self, side: Side) -> Trial:
        """The trial of a side."""
        return self.a if side is Side.A else self.b


@dataclass(frozen=True)
class Compared:
    """The comparison of a quantity.

    Attributes:
        quantity: the quantity.
        pairs: the values (a, b) of each pair in which both values are known, in chronological
            order.
        effect: effect of B against A; None if there are too few pairs.
    """

    quantity: Quantity
    pairs: tuple[tuple[float, float], ...]
    effect: Effect | None

    def mean(self, side: Side) -> float | None:
        """The geometric mean of the quantity on one side. The effect is the mean of side B divided
        by the mean of side A.
        """
        values = [pair[0 if side is Side.A else 1] for pair in self.pairs]
        return math.exp(fmean(math.log(value) for value in values)) if values else None


def compared(quantity: Quantity, pairs: Sequence[TrialPair]) -> Compared:
    """Compare a quantity over pairs of trials."""
    found = [(quantity.of(pair.a), quantity.of(pair.b)) for pair in pairs]
    known = tuple((a, b) for a, b in found if a is not None and b is not None)
    return Compared(quantity, known, paired_effect(known))
