"""Schedules: the times at which the records of a producer are due.

A schedule has two parts: arrivals and a pace. The arrivals convert the number k of a record to the
record's position. A position is a number on the same scale as k. At a fixed rate the position of
record k is k; in a Poisson process the position of a record is random. The pace converts the
position of a record to the time at which the record is due. At a constant rate the due time is
proportional to the position. During a ramp-up a record is due later than at a constant rate. In a
bursty pattern all records are due within the bursts. Arrivals and paces convert in both directions:
from a record to its due time, and from a time to the number of due records. Neither arrivals nor
paces keep a state of earlier records.
"""

from __future__ import annotations

import functools
import math
import random
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from metrics.traffic.clients import ProducerPattern
from metrics.traffic.pattern import TrafficPattern
from metrics.traffic.profile import RateProfile

_GOLDEN = 0.6180339887498949
_TOLERANCE = 1e-6  # in records: the rounding error of a time that was computed from a position
_CYCLE = 262_144
_ENDLESS = 2**62


@dataclass(frozen=True)
class Pace:
    """Pace of a constant rate, with a ramp-up or with bursts. Time starts at 0.

    Attributes:
        rate_records_per_s: mean rate after the ramp-up [1/s].
        ramp_up_s: time in which the rate grows linearly from 0 [s].
        on_s, off_s: length of bursts and of the pauses between them [s]; within a burst the rate is
            (on_s + off_s) / on_s times the mean rate; by default there are no pauses.
    """

    rate_records_per_s: float
    ramp_up_s: float = 0.0
    on_s: float = 1.0
    off_s: float = 0.0

    def time_s(self, records: float) -> float:
        """Time at which `records` records are due [s]. If the last of these records ends a burst,
        the result is the end of this burst, not the end of the following pause.
        """
        steady_s = records / self.rate_records_per_s
        if steady_s >= self.ramp_up_s / 2:
            steady_s += self.ramp_up_s / 2
        else:
            steady_s = math.sqrt(2 * steady_s * self.ramp_up_s)
        if not self.off_s:
            return steady_s
        cycle_s = self.on_s + self.off_s
        slack_s = 2 * _TOLERANCE / self.rate_records_per_s
        cycles = max(0, math.ceil((steady_s - slack_s) / cycle_s) - 1)
        return cycles * cycle_s + (steady_s - cycles * cycle_s) * self.on_s / cycle_s

    def records(self, time_s: float) -> float:
        """Number of records that are due by this time; negative before the start."""
        steady_s = time_s
        if self.off_s and time_s > 0:
            cycle_s = self.on_s + self.off_s
            cycles = time_s // cycle_s
            burst_s = min(self.on_s, time_s - cycles * cycle_s)
            steady_s = cycles * cycle_s + burst_s * cycle_s / self.on_s
        if self.ramp_up_s and 0 <= steady_s < self.ramp_up_s:
            return self.rate_records_per_s * steady_s**2 / (2 * self.ramp_up_s)
        return self.rate_records_per_s * (steady_s - self.ramp_up_s / 2)


@dataclass(frozen=True)
class ProfilePace:
    """Pace of a profile. For each time, the profile has a share of the full rate.

    Attributes:
        rate_records_per_s: the full rate [1/s].
        profile: the profile, whose time 0 is the start of the measured window.
        warmup_s: duration of the load before the window [s]. During this time the load is the
            profile's first share.
    """

    rate_records_per_s: float
    profile: RateProfile
    warmup_s: float

    @property
    def _before_s(self) -> float:
        return -self.profile.passed_s(-self.warmup_s)

    def time_s(self, records: float) -> float:
        """Time at which `records` records are due [s]."""
        passed_s = records / self.rate_records_per_s - self._before_s
        return self.warmup_s + self.profile.time_s(passed_s)

    def records(self, time_s: float) -> float:
        """Number of records that are due by this time; negative before the start."""
        passed_s = self._before_s + self.profile.passed_s(time_s - self.warmup_s)
        return self.rate_records_per_s * passed_s


class FixedArrivals:
    """Evenly spaced arrivals. The first record has the position `phase`."""

    def __init__(self, phase: float = 0.0) -> None:
        self._phase = phase

    def position(self, record: int) -> float:
        """Position of record number `record`. A pace converts the position to a time."""
        return record + self._phase

    def until(self, position: float) -> int:
        """Number of records up to this position."""
        return max(0, math.floor(position - self._phase) + 1)


@functools.lru_cache(maxsize=2)
def _poisson_cycle(seed: int) -> list[float]:
    """One cycle: a fixed number of points from a Poisson process whose rate is 1.

    In a Poisson process with a given number of points, the points are independent and uniformly
    distributed.
    """
    rng = np.random.default_rng(seed)
    points: list[float] = np.sort(rng.random(_CYCLE) * _CYCLE).tolist()
    return points


class PoissonArrivals:
    """Arrivals with independent, exponentially distributed gaps. Each producer starts at a random
    point of a cycle.

    All producers of a task share one cycle of 262,144 points, so that any record of any producer
    can be looked up. The mean rate of a whole cycle is exact.
    """

    def __init__(self, seed: int, rng: random.Random) -> None:
        self._points = _poisson_cycle(seed)
        self._origin = rng.random() * _CYCLE
        self._first = bisect_left(self._points, self._origin)

    def position(self, record: int) -> float:
        """Position of record number `record`. A pace converts the position to a time."""
        cycles, index = divmod(self._first + record, _CYCLE)
        return cycles * _CYCLE + self._points[index] - self._origin

    def until(self, position: float) -> int:
        """Number of records up to this position."""
        cycles, rest = divmod(position + self._origin, _CYCLE)
        count = int(cycles) * _CYCLE + bisect_right(self._points, rest)
        return max(0, count - self._first)


class Schedule(Protocol):
    """The due times of one producer's records 0, 1, 2, …"""

    def due_s(self, record: int) -> float:
        """Time at which this record is due, on the engine's clock [s]."""

    def due_until(self, at_s: float, slack: float = _TOLERANCE) -> int:
        """Number of records that are due at or before this time.

        Args:
            slack: number of later records that are counted, too; a negative slack leaves out a
                record that is due exactly at this time.
        """


def due_between(schedule: Schedule, from_s: float, to_s: float) -> int:
    """Number of records that are due in [from_s, to_s)."""
    due_before_end = schedule.due_until(to_s, -_TOLERANCE)
    return max(0, due_before_end - schedule.due_until(from_s, -_TOLERANCE))


class EvenSchedule:
    """The schedule with record k at `first_s + k/rate`: a faster form of a `PacedSchedule`."""

    def __init__(self, rate_records_per_s: float, first_s: float) -> None:
        self._rate = rate_records_per_s
        self._first_s = first_s

    def due_s(self, record: int) -> float:
        """Time at which this record is due [s]."""
        return self._first_s + record / self._rate

    def due_until(self, at_s: float, slack: float = _TOLERANCE) -> int:
        """Number of records that are due at or before this time; see `Schedule`."""
        return max(0, math.floor((at_s - self._first_s) * self._rate + slack) + 1)


class ClosedLoop:
    """The schedule of a closed loop. From the start on, records are always available."""

    def __init__(self, start_s: float) -> None:
        self._start_s = start_s

    def due_s(self, record: int) -> float:
        """The start of the loop, at which all records become available."""
        return self._start_s

    def due_until(self, at_s: float, slack: float = _TOLERANCE) -> int:
        """Number of records that are available at `at_s`.

        From the start of the load, the result is more than a producer can send. Before the start,
        the result is 0. With a negative `slack` the result is 0, because no record is late.
        """
        return _ENDLESS if at_s >= self._start_s and slack >= 0 else 0


class PacedSchedule:
    """A schedule that combines any arrivals with any pace; see the module's docstring."""

    def __init__(
        self, pace: Pace | ProfilePace, arrivals: FixedArrivals | PoissonArrivals, start_s: float
    ) -> None:
        self._pace = pace
        self._arrivals = arrivals
        self._start_s = start_s

    def due_s(self, record: int) -> float:
        """Time at which this record is due [s]."""
        return self._start_s + self._pace.time_s(self._arrivals.position(record))

    def due_until(self, at_s: float, slack: float = _TOLERANCE) -> int:
        """Number of records that are due at or before this time; see `Schedule`."""
        return self._arrivals.until(self._pace.records(at_s - self._start_s) + slack)


class EndingSchedule:
    """A schedule with only the first records of another schedule."""

    def __init__(self, whole: Schedule, records: int) -> None:
        self._whole = whole
        self._records = records

    def due_s(self, record: int) -> float:
        """Time at which this record is due; infinite after the last record."""
        return self._whole.due_s(record) if record < self._records else math.inf

    def due_until(self, at_s: float, slack: float = _TOLERANCE) -> int:
        """Number of records that are due at or before this time; see `Schedule`."""
        whole = _ENDLESS if at_s == math.inf else self._whole.due_until(at_s, slack)
        return min(self._records, whole)


def schedule_for(pattern: TrafficPattern, index: int, start_s: float) -> Schedule:
    """The schedule of one producer of a trial.

    All producers start together, and their bursts are at the same times. Each producer's records
    are shifted in time, by a different part of the time in which one batch fills. If the records
    were not shifted, the batches of all producers would arrive at the same time.

    Args:
        index: index of the producer.
        start_s: start of the load, on the engine's clock [s].
    """
    phases, producer, options = pattern.phases, pattern.producer, pattern.producer.options
    rate = producer.rate_records_per_s
    if pattern.profile is not None:
        profile_pace = ProfilePace(rate, pattern.profile, phases.warmup_s)
        return PacedSchedule(profile_pace, _arrivals_of(producer, index), start_s)
    if producer.closed_loop:
        whole: Schedule = ClosedLoop(start_s)
    elif options.arrivals == "fixed" and not phases.ramp_up_s:
        whole = EvenSchedule(rate, start_s + _phase(producer, index) / rate)
    else:
        off_s = options.burst_off_s if options.arrivals == "bursts" else 0.0
        pace = Pace(rate, phases.ramp_up_s, options.burst_on_s, off_s)
        whole = PacedSchedule(pace, _arrivals_of(producer, index), start_s)
    records = pattern.records_each
    return whole if records is None else EndingSchedule(whole, records)


def _phase(pattern: ProducerPattern, index: int) -> float:
    """The shift of the producer's records in time. The unit of the shift is the mean time between
    two records. The shift is at least 0, and less than the number of records in a batch.
    """
    return pattern.records_per_batch * (index * _GOLDEN % 1.0)


def _arrivals_of(pattern: ProducerPattern, index: int) -> FixedArrivals | PoissonArrivals:
    if pattern.options.arrivals == "poisson":
        rng = random.Random(f"{pattern.seed}/arrivals/{index}")
        return PoissonArrivals(pattern.payload.seed, rng)
    return FixedArrivals(_phase(pattern, index))
