"""How much of each resource there is: measured at the limit of a run, or by a threshold.

The use of a resource as a line over the load: a part at rest, and a part that grows.

Busy handlers and threads, bytes and CPU time grow in proportion to the requests, beside what an
idle broker uses (fetches of followers, heartbeats). Few trials near the limit do not show that
part, so that it has a prior of its own: near 0, and at most some hundredths of the use.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from metrics.common.errors import NoConclusionError
from metrics.features.headroom.loads import BYTES_PER_S, RATIO, Key, loads_of
from metrics.judging.thresholds import Indicators
from metrics.planning.load_needs import stored_bytes
from metrics.planning.provisioning import on_any_day
from metrics.reporting.summary import chosen_goal
from metrics.tables.boundary import Boundary
from metrics.traffic.axes import MESSAGE_BYTES
from metrics.trial.trial import ALL_BROKERS, Trial
from metrics.units import format_size
from metrics.windows.use import Resource
from search.model import Verdict

REST_PRIOR = 0.05
"""Standard deviation of the use at rest before any trial, over the use at the limit [ratio]."""
NOISE_LEAST = 0.01
"""Least standard deviation of a reading, over the use at the limit [ratio]."""


@dataclass(frozen=True)
class Line:
    """The use of a resource over the load.

    Attributes:
        at_rest: use without load.
        at_load: use at the load that the line was fitted for.
        rest_error, load_error: standard deviation of each.
    """

    at_rest: float
    at_load: float
    rest_error: float
    load_error: float


def fit_line(points: Sequence[tuple[float, float]], load: float) -> Line | None:
    """The line through (load, use) of some windows; None without a window under load.

    Args:
        points: load and use of each window.
        load: load at which `at_load` is wanted; the unit is that of the points.
    """
    known = [(each / load, use) for each, use in points if each > 0]
    if not known or load <= 0:
        return None
    # The nearest reading gives the scale of prior and noise.
    nearest = min(known, key=lambda each: abs(each[0] - 1.0))
    scale = nearest[1] / nearest[0]
    if scale <= 0:
        return Line(0.0, 0.0, 0.0, 0.0)
    noise = NOISE_LEAST * scale
    line = _fitted(known, noise, REST_PRIOR * scale)
    if len(known) > 2:
        rest, slope = line.at_rest, line.at_load - line.at_rest
        off = [use - rest - slope * at for at, use in known]
        noise = max(noise, math.sqrt(sum(each * each for each in off) / (len(known) - 2)))
        line = _fitted(known, noise, REST_PRIOR * scale)
    return line


def _fitted(points: Sequence[tuple[float, float]], noise: float, prior: float) -> Line:
    """The posterior line: intercept a ~ N(0, prior²), free slope b, use = a + b·load."""
    count, by_load = len(points), sum(at for at, _ in points)
    squares = sum(at * at for at, _ in points)
    uses, products = sum(use for _, use in points), sum(at * use for at, use in points)
    held = count + (noise / prior) ** 2
    whole = held * squares - by_load * by_load
    rest = (squares * uses - by_load * products) / whole
    slope = (held * products - by_load * uses) / whole
    if rest < 0:
        rest, slope = 0.0, products / squares
    variance = noise * noise / whole
    at_load = variance * (squares + held - 2 * by_load)
    return Line(rest, rest + slope, math.sqrt(variance * squares), math.sqrt(max(0.0, at_load)))


OVERLOADS_TO = 1.1
"""Highest load of an overload whose readings count, over the limit; beyond it readings are capped
[ratio]."""
BEND, BEND_OF_DISKS = 0.05, 0.4
"""How far a use is from a line, see `Capacity.bend`; from recorded loads of real brokers
(tests/data/ladders). Where appends wait for a disk, requests get fuller before the limit, so that
each of them does more."""
_OF_BYTES = (Resource.DISK, Resource.NETWORK)
"""Resources that a run can measure in bytes where their share in use is not known."""


@dataclass(frozen=True)
class TrafficLimit:
    """The traffic of one broker at a measured limit.

    Attributes:
        stored_bytes: bytes of record batches for each message [B].
        bytes_per_s: bytes of record batches from producers [B/s].
        requests_per_s: produce requests; None where the brokers do not show them [1/s].
    """

    stored_bytes: float
    bytes_per_s: float
    requests_per_s: float | None = None

    @property
    def messages_per_s(self) -> float:
        """Messages from producers [1/s]."""
        return self.bytes_per_s / self.stored_bytes


@dataclass(frozen=True)
class RunLimit:
    """The limit of a run at one message size, as far as headroom needs it.

    Attributes:
        message_bytes: size of a message [B].
        low, high: ends of the limit's 90 % range on any day over its best estimate [ratio].
        limited_by: the limiting resource; None where it is not known.
        lines: broker id → use of each resource over the load, at the limit.
        traffic: the traffic of a broker at the limit, the mean of all brokers; None where they do
            not show it.
        is_doubtful: whether its interval is wider than the goal accepts.
    """

    message_bytes: int
    low: float
    high: float
    limited_by: Resource | None
    lines: Mapping[int, Mapping[Key, Line]] = field(default_factory=dict)
    traffic: TrafficLimit | None = None
    is_doubtful: bool = False

    def line_of(self, broker_id: int, key: Key) -> Line | None:
        """The line of a broker; for a broker that the run did not have, the mean of the others."""
        own = self.lines.get(broker_id)
        if own is not None:
            return own.get(key)
        others = [each[key] for each in self.lines.values() if key in each]
        if not others:
            return None
        return Line(
            fmean(each.at_rest for each in others),
            fmean(each.at_load for each in others),
            max(each.rest_error for each in others),
            max(each.load_error for each in others),
        )

    @property
    def bend(self) -> float:
        """How far the uses are from lines."""
        return BEND_OF_DISKS if self.limited_by is Resource.DISK else BEND

    @property
    def binding(self) -> Key | None:
        """The limiting resource with the unit in which the run measured it; None if not known."""
        keys = {key for lines in self.lines.values() for key in lines}
        if self.limited_by is None:
            return None
        for unit in (RATIO, *((BYTES_PER_S,) if self.limited_by in _OF_BYTES else ())):
            if (self.limited_by, unit) in keys:
                return self.limited_by, unit
        return None


def answers_of(points: Sequence[Boundary], run_id: str, goal: str | None) -> list[Boundary]:
    """The limits of a run that headroom can use, for one goal.

    Raises:
        ConfigError: the run has several goals, and `goal` names none of them.
        NoConclusionError: the run has no limit along an axis that makes the load grow.
    """
    chosen = chosen_goal(points, run_id, goal) if points else goal
    found = [
        each
        for each in points
        if each.goal == chosen
        and each.along.grows_payload
        and each.along is not MESSAGE_BYTES
        and each.state == ALL_BROKERS
        and each.gave_up is None
        and each.mb_per_s > 0
    ]
    if not found:
        raise NoConclusionError(
            f"run {run_id} has no closed bracket, and headroom is the distance to a limit; "
            "expected the limit of a load with all brokers; finish the run with redline find-limit "
            "--resume, or omit --run for an estimate"
        )
    return found


def run_limit(
    point: Boundary,
    trials: Sequence[Trial],
    limits: Indicators,
    machines: Mapping[int, str] | None = None,
) -> RunLimit:
    """The limit of a point with what its trials show of the brokers.

    Args:
        trials: all trials of the run.
        limits: the limits of the goal.
        machines: see `loads_of`.

    Raises:
        NoConclusionError: no trial of the point shows the use of any resource.
    """
    sustained, overloaded = point.loads
    estimate = float(point.load_estimate or sustained)
    low = point.load_low if point.load_low is not None else sustained
    high = point.load_high if point.load_high is not None else overloaded or sustained
    steady = point.steady_load  # what disks were proven to write, where the burst was above it
    if steady and steady < sustained:
        estimate = low = high = float(steady)
    near = [each for each in trials if _counts(each, point, estimate)]
    uses: dict[int, dict[Key, list[tuple[float, float]]]] = {}
    for trial in near:
        found = loads_of(trial.evidence.brokers, trial.evidence.hosts, limits, machines)
        for broker_id, loads in found.items():
            own = uses.setdefault(broker_id, {})
            for key, load in loads.items():
                own.setdefault(key, []).append((trial.load + others_of(trial), load.used))
    beside = fmean(map(others_of, near)) if near else 0.0
    lines = {
        broker_id: {
            key: line
            for key, points in each.items()
            if (line := fit_line(points, estimate + beside)) is not None and line.at_load > 0
        }
        for broker_id, each in uses.items()
    }
    if not any(lines.values()):
        raise NoConclusionError(
            f"the trials at {format_size(point.message_bytes)} show no use of the brokers' "
            "resources; expected a run with the brokers' metrics; configure jmx or metrics in the "
            "cluster's file and measure again"
        )
    named = next((each for each in Resource if each.value == point.limited_by), None)
    if steady and steady < sustained:
        named = Resource.DISK
    below = max(1.0, (estimate + beside) / (low + beside))
    above = max(1.0, (high + beside) / (estimate + beside))
    return RunLimit(
        point.message_bytes,
        1.0 / on_any_day(below),
        on_any_day(above),
        None if named is Resource.UNKNOWN else named,
        lines,
        _traffic_at(near, estimate),
        point.doubtful,
    )


def others_of(trial: Trial) -> float:
    """The load of other producers in a trial, in the unit of its own load."""
    others = trial.evidence.others
    if others is None or not others.is_notable or not others.bytes_per_s:
        return 0.0
    own = others.all_bytes_per_s - others.bytes_per_s
    return trial.load * others.bytes_per_s / own if own > 0 else 0.0


def _counts(trial: Trial, point: Boundary, estimate: float) -> bool:
    """Whether a trial shows what the brokers use at loads up to the limit of a point."""
    judged = trial.judgements.get(point.goal)
    if judged is None or judged.verdict is Verdict.INVALID or trial.state != ALL_BROKERS:
        return False
    if trial.point_message_bytes != point.message_bytes or trial.pattern.axis != point.axis:
        return False
    return judged.verdict is Verdict.SUSTAINED or trial.load <= OVERLOADS_TO * estimate


def _traffic_at(trials: Sequence[Trial], estimate: float) -> TrafficLimit | None:
    """The mean traffic of a broker at the limit, from the trial that is nearest to it."""
    for trial in sorted(trials, key=lambda each: abs(each.load - estimate)):
        brokers = trial.evidence.brokers
        rates = [each.bytes_in_per_s for each in brokers if each.bytes_in_per_s]
        messages = [each.messages_in_per_s for each in brokers if each.messages_in_per_s]
        if not rates:
            continue
        is_shown = len(rates) == len(messages)
        planned = stored_bytes(trial.pattern.producer)
        stored = sum(rates) / sum(messages) if is_shown else planned
        requests = [each.produce.per_s for each in brokers if each.produce.per_s]
        others = others_of(trial)
        grown = (estimate + others) / (trial.load + others)
        return TrafficLimit(
            stored,
            fmean(rates) * grown,
            fmean(requests) * grown if len(requests) == len(brokers) else None,
        )
    return None
