"""The choice of one-minute rates for meters whose counts a page does not show.

A name that ends in `OneMinuteRate` says what the number is. Without it the numbers of successive
polls tell: a one-minute rate stays the same for 5 s, and its next value gives a whole number of
events (`metrics.sources.one_minute_rates`), which no other average does. A rate that is 0 means
what the page's other series with the same end of the name mean; the load of the warm-up proves it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise

from metrics.sources.bean_series import Candidate, Meaning, candidates_of
from metrics.sources.exposition import Poll, number_of, series_of
from metrics.sources.one_minute_rates import TICK_S, is_exact, is_whole_tick, rounding_of
from metrics.sources.rules import IDLE_METERS, METERS, Selector, as_rate
from metrics.sources.series_choice import IDLE_GROWTH_MAX, Choices, constant_labels

TICKS_SEEN_S = 3 * TICK_S + 2.0
"""Time after which a meter has ticked twice between polls, and once before that in a broker that
has just started [s]."""
POLLS_MAX = 20
_POLLS_APART_S = TICK_S - 0.5
"""Longest time between two polls with at most one tick between them [s]."""
_NAMED = ("oneminuterate", "oneminuteratetotal")
_PERCENT = 0.01


class _Evidence(str, Enum):
    """What a series is, by its name or by its numbers."""

    RATE = "one-minute rate"
    OTHER = "another number"
    ZERO = "0 until now"
    UNKNOWN = "unknown"


@dataclass
class _Shown:
    """A series that may be the rate of a meter.

    Attributes:
        candidate: what its name says.
        polls: time of each poll [s], its number and the rounding of its digits.
    """

    candidate: Candidate
    polls: list[tuple[float, float, float]] = field(default_factory=list)

    @property
    def meter(self) -> str:
        """The reading of its meter."""
        return self.candidate.reading

    @property
    def end(self) -> str:
        """The end of its name."""
        return self.candidate.family[-1]

    @property
    def factor(self) -> float:
        """Factor to the rate; the idle share may be a percentage."""
        is_percent = self.meter in IDLE_METERS and self._largest > IDLE_GROWTH_MAX
        return _PERCENT if is_percent else 1.0

    @property
    def selector(self) -> Selector:
        """The selector for the rate."""
        return as_rate(replace(self.candidate.selector, factor=self.factor), self.meter)

    @property
    def numbers(self) -> tuple[float, ...]:
        """The number of each poll."""
        return tuple(number for _, number, _ in self.polls)

    @property
    def _largest(self) -> float:
        return max(self.numbers)

    def evidence(self) -> _Evidence:
        """What the series is."""
        numbers = self.numbers
        if not all(map(math.isfinite, numbers)) or min(numbers) < 0:
            return _Evidence.OTHER
        if self.meter in IDLE_METERS and self._largest * self.factor > IDLE_GROWTH_MAX:
            return _Evidence.OTHER
        if self.end in _NAMED:
            return _Evidence.RATE
        if self.candidate.meaning is not Meaning.UNCERTAIN:
            return _Evidence.OTHER
        if max(numbers) == 0:
            # Only in the first seconds of a broker its handlers have not been idle.
            return _Evidence.UNKNOWN if self.meter in IDLE_METERS else _Evidence.ZERO
        if all(number.is_integer() for number in numbers):  # a count
            return _Evidence.OTHER
        whole = list(self._whole_ticks())
        if not all(whole):
            return _Evidence.OTHER
        return _Evidence.RATE if len(whole) > (self.meter in IDLE_METERS) else _Evidence.UNKNOWN

    def _whole_ticks(self) -> Iterator[bool]:
        """For each change of the number, whether it is that of a one-minute rate. The first rate
        after 0 may be that of the meter's first tick, which sets it.

        A number without all digits of a double, which has been rounded, shows nothing.
        """
        unit = self.selector.factor
        if not is_exact(self._largest * unit, self._rounding * unit):
            return
        for (before_s, before, _), (at_s, number, _) in pairwise(self.polls):
            if number != before != 0 and at_s - before_s <= _POLLS_APART_S:
                yield is_whole_tick(before * unit, number * unit, self._rounding * unit)

    @property
    def _rounding(self) -> float:
        return min(rounding for _, _, rounding in self.polls)


def choose_rates(polls: Sequence[Poll], found: Choices) -> Choices:
    """Add the one-minute rates of meters whose counts a page does not show.

    Args:
        polls: polls of the page, the earliest first.
        found: the choices without rates.
    """
    counted = found.selectors.keys() - {*found.unproven}
    shown = [each for each in _shown(polls) if each.meter not in counted]
    evidence = {id(each): each.evidence() for each in shown}
    ends = {each.end for each in shown if evidence[id(each)] is _Evidence.RATE}
    ends -= {each.end for each in shown if evidence[id(each)] is _Evidence.OTHER}
    rates: dict[str, list[_Shown]] = {}
    for each in shown:
        is_alike = evidence[id(each)] is _Evidence.ZERO and each.end in ends
        if evidence[id(each)] is _Evidence.RATE or is_alike:
            rates.setdefault(each.meter, []).append(each)
    chosen = {
        meter: (alike[0].selector,)
        for meter, alike in rates.items()
        if len({one.numbers for one in alike}) == 1
    }
    is_open = any(evidence[id(each)] is _Evidence.UNKNOWN for each in shown)
    passed_s = polls[-1].at_s - polls[0].at_s
    return replace(
        found,
        selectors={**found.selectors, **chosen},
        refused=tuple(each for each in found.refused if each.reading not in chosen),
        unproven=tuple(each for each in found.unproven if each not in chosen),
        needs_poll=is_open and passed_s < TICKS_SEEN_S and len(polls) < POLLS_MAX,
    )


def _shown(polls: Sequence[Poll]) -> list[_Shown]:
    """The series of meters that may be rates and that every poll shows."""
    pages = [_numbers(poll.text) for poll in polls]
    constant = constant_labels(pages[0])
    found = []
    for series in pages[0]:
        for candidate in candidates_of(series, constant):
            if candidate.reading in METERS and all(series in page for page in pages):
                each = _Shown(candidate)
                for poll, page in zip(polls, pages, strict=True):
                    each.polls.append((poll.at_s, *page[series]))
                found.append(each)
    return found


def _numbers(text: str) -> Mapping[str, tuple[float, float]]:
    """Series → its number and the rounding of its digits."""
    found: dict[str, tuple[float, float]] = {}
    for line in text.split("\n"):
        series = series_of(line)
        if series:
            printed = line[len(series) :].split(None, 1)[0] if line[len(series) :].strip() else ""
            number = number_of(printed)
            rounding = rounding_of(printed) if math.isfinite(number) else 0.0
            found[series] = (number, rounding)
    return found
