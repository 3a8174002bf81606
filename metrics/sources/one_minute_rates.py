"""Counts of Kafka's meters from their one-minute rates, for exporters that show no counts.

Kafka's meters are those of Yammer's metrics 2.2. Every 5 s, counted from its creation, a meter
takes the events since its last tick: x = events / 5 s. The first x is its one-minute rate m, and
each later one moves it: m' = m + α (x - m), with α = 1 - e^(-5/60). So two rates in a row give the
events of the tick between them, n = 5 s · (m + (m' - m) / α), which is a whole number. Where the
numbers have all digits of a double, n is exact.

- A tick that was not seen leaves a rate between two others unknown. It lies within bounds, as no
  rate of events is negative and no thread is idle for more than all of the time; n is the middle of
  its range, and half of the range its error.
- Rounded rates have an error of e each. Over k ticks n is off by at most 5 s · e · (k + 2 / α), as
  the errors of all rates but the first and the last cancel out in the second part.

The count of a reading begins at 0 with the first look, is that of the last tick, and has a clock of
its own, `ticked_s:READING`, which gains 5 s with each tick. A rate that was always 0 has no clock,
as its ticks do not show, and its count is 0 at any time.

What windows of one-minute rates require: their length, and the interval of samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from metrics.common.errors import ConfigError
from metrics.sources.beans import HANDLER_IDLE_NS, TICK_EDGE_ERROR, TICK_ERROR, TICKED_S, UPTIME_MS
from metrics.sources.rules import IDLE_METERS, ONE_MINUTE_RATE, ROUNDING
from metrics.sources.sample import Sample
from metrics.sources.source import NodeInfo, named_brokers

TICK_S = 5.0
"""Time between two ticks of a meter [s]."""
SEES_EACH_TICK_S = 4.0
"""Interval of samples that sees each tick, also where a sample takes a while [s]."""
ALPHA = 1 - math.exp(-5 / 60.0)
"""Weight of a tick in the one-minute rate."""
IDLE_MOST, SHARED_IDLE_MOST = 1.1, 2.2
"""Largest idle time in a tick of one pool of handlers and of two, as waits of up to 0.3 s count at
their end [ratio]."""

_RATE = f"{ONE_MINUTE_RATE}:"
_OF_RATES = (_RATE, f"{ROUNDING}:")
_DIGITS_OF_DOUBLE = 15
_ULPS = 4.0
"""Largest error of a meter's own arithmetic [units in the last place]."""
_WHOLE = 0.25
"""Largest error with which a number of events is recognized as a whole number."""
_LATE = 2.0
"""Largest time of a tick over 5 s, as a paused process ticks late."""
_SLACK_S = 0.3
"""Largest time by which a tick, or the look at it, may be off [s]."""
_DRIFT = 2e-4
"""Largest difference of the speed of two clocks [ratio]."""


def rounding_of(text: str) -> float:
    """Largest error of a printed number by its digits; 0 for the digits of a whole double."""
    mantissa, _, exponent = text.lower().split(None, 1)[0].partition("e")
    if len(mantissa.replace(".", "").lstrip("+-0")) >= _DIGITS_OF_DOUBLE:
        return 0.0
    return 0.5 * 10.0 ** min(99, int(exponent or 0) - len(mantissa.partition(".")[2]))


@dataclass(frozen=True)
class TickedCount:
    """The events of a meter up to its last tick, since the first look.

    Attributes:
        at_s: time of the last look [s since the epoch].
        rate: the rate that it showed [unit of the count / s].
        rounding: smallest rounding that the rate has shown.
        earliest_s, latest_s: bounds of the moment of the last tick [s since the epoch].
        count: events [unit of the count].
        ticked_s: time of the counted ticks [s].
        error: largest error of `count` from ticks that were not seen, and from rounded rates.
        edge_error: largest further error of `count` at each edge of a window, from rounded rates.
        has_moved: whether the rate was ever above 0. Ticks of one that was not do not show, and
            count nothing.
    """

    at_s: float
    rate: float
    rounding: float
    earliest_s: float
    latest_s: float
    count: float = 0.0
    ticked_s: float = 0.0
    error: float = 0.0
    edge_error: float = 0.0
    has_moved: bool = False

    @classmethod
    def first(cls, at_s: float, rate: float, rounding: float) -> TickedCount:
        """The count at the first look; the last tick was less than 5 s ago."""
        is_known = rate == 0 or is_exact(rate, rounding)
        edge = 0.0 if is_known else _edge_error(rate, rounding)
        return cls(at_s, rate, rounding, at_s - TICK_S, at_s, edge_error=edge, has_moved=rate > 0)

    def look(self, at_s: float, rate: float, rounding: float, most: float) -> TickedCount | None:
        """The count at a later look; None where it cannot be the same meter, as after a restart.

        Args:
            at_s: time of the look [s since the epoch].
            rate: the rate that it shows.
            rounding: the rounding of its digits; a number that ends in zeros seems rounded.
            most: highest possible rate in a tick.
        """
        known = replace(self, rounding=min(self.rounding, rounding))
        is_whole = is_exact(max(rate, self.rate), known.rounding)
        if is_whole and self.edge_error:
            known = replace(known, error=self.error + self.edge_error, edge_error=0.0)
        sure, maybe = self._scheduled(at_s)
        if rate == self.rate:
            is_hidden = rate == 0 or not is_whole
            return known._unchanged(at_s, sure if is_hidden else 0, is_hidden, is_whole)
        least = max(1, sure)
        most_ticks = max(least, maybe)
        if is_whole and least <= 1:
            if is_whole_tick(self.rate, rate, known.rounding):
                least = most_ticks = 1
            elif at_s - self.at_s < TICK_S - _SLACK_S:
                return None
            else:
                least, most_ticks = 2, max(2, most_ticks)
        ranges = [
            found
            for ticks in range(least, most_ticks + 1)
            if (found := _range(self.rate, rate, ticks, most, known.rounding)) is not None
        ]
        if not ranges:
            return None
        lowest = min(events - error for events, error in ranges)
        highest = max(events + error for events, error in ranges)
        # A tick that may or may not have been makes the time of the ticks uncertain, too.
        fastest = 2 * max(rate, self.rate) if math.isinf(most) else most
        doubtful = (most_ticks - least) * TICK_S * fastest
        likely = math.floor((at_s - (self.earliest_s + self.latest_s) / 2) / TICK_S)
        ticks = min(max(least, likely), most_ticks)
        known = known._ticked(at_s, rate, ticks, is_certain=least == most_ticks)
        middle, half = (lowest + highest) / 2, (highest - lowest) / 2
        return known._with_events(middle, half + doubtful, is_whole)

    def _scheduled(self, at_s: float) -> tuple[int, int]:
        """The ticks since the last counted one: those that are certain, and those that may be."""
        slack_s = _SLACK_S + _DRIFT * (at_s - self.at_s)
        sure = math.floor((at_s - self.latest_s - slack_s) / TICK_S)
        maybe = math.floor((at_s - self.earliest_s + slack_s) / TICK_S)
        return max(0, sure), max(0, maybe)

    def _unchanged(self, at_s: float, ticks: int, is_hidden: bool, is_whole: bool) -> TickedCount:
        """The count where the rate is the same, after so many ticks that do not show."""
        moved_s = ticks * TICK_S
        earliest_s, latest_s = self.earliest_s + moved_s, self.latest_s + moved_s
        if not is_hidden:  # there was no tick since the last one
            earliest_s = max(earliest_s, at_s - TICK_S - _SLACK_S)
            latest_s = max(latest_s, earliest_s)
        known = replace(
            self,
            at_s=at_s,
            earliest_s=earliest_s,
            latest_s=latest_s,
            ticked_s=self.ticked_s + moved_s,
        )
        if self.rate == 0 or not ticks:
            return known
        return known._with_events(moved_s * self.rate, 0.0, is_whole, ticks)

    def _ticked(self, at_s: float, rate: float, ticks: int, is_certain: bool) -> TickedCount:
        """The clock of the meter after so many ticks."""
        drift_s = _DRIFT * (at_s - self.at_s)
        earliest_s = self.earliest_s + ticks * TICK_S - drift_s
        latest_s = self.latest_s + ticks * TICK_S + drift_s
        is_narrow = at_s - self.at_s < TICK_S
        if is_certain or is_narrow:
            before_s = self.at_s if is_narrow else at_s - TICK_S
            earliest_s, latest_s = max(earliest_s, before_s - _SLACK_S), min(latest_s, at_s)
            if earliest_s > latest_s:  # a tick was late, a clock was set, or ticks were hidden
                earliest_s, latest_s = before_s, at_s
        return replace(
            self,
            at_s=at_s,
            rate=rate,
            earliest_s=earliest_s,
            latest_s=latest_s,
            ticked_s=self.ticked_s + ticks * TICK_S,
            has_moved=True,
        )

    def _with_events(
        self, events: float, unknown: float, is_whole: bool, ticks: int = 1
    ) -> TickedCount:
        """The count with more events, of which so many may be wrong."""
        error = self.error + unknown
        if is_whole:
            return replace(self, count=self.count + max(0, round(events)), error=error)
        error += ticks * TICK_S * self.rounding
        edge = _edge_error(self.rate, self.rounding)
        return replace(self, count=self.count + max(0.0, events), error=error, edge_error=edge)


def _edge_error(rate: float, rounding: float) -> float:
    return TICK_S / ALPHA * (rounding + _ULPS * math.ulp(rate))


def is_exact(rate: float, rounding: float) -> bool:
    """Whether the events of a tick are known as a whole number."""
    return 2 * _edge_error(rate, rounding) <= _WHOLE


def _events(before: float, after: float) -> float:
    """The events of the tick between two rates in a row."""
    return TICK_S * (before + (after - before) / ALPHA)


def is_whole_tick(before: float, after: float, rounding: float = 0.0) -> bool:
    """Whether there was one tick between two rates: then its events are a whole number."""
    events = _events(before, after)
    spare = 2 * _edge_error(max(before, after), rounding)
    return events >= -spare and abs(events - round(events)) <= spare


def _range(
    before: float, after: float, ticks: int, most: float, rounding: float
) -> tuple[float, float] | None:
    """The events of some ticks in a row and their largest error; None where they are impossible.

    Args:
        before: the rate before these ticks.
        after: the rate after them.
        most: highest possible rate in a tick.
        rounding: error of the rates by their digits.
    """
    events = _events(before, after)
    spare = 2 * _edge_error(max(before, after), rounding)
    if ticks == 1:
        is_possible = -spare - _WHOLE <= events <= _LATE * most * TICK_S + spare
        return (events, 0.0) if is_possible else None
    error = 0.0
    for passed in range(1, ticks):
        first, last = (1 - ALPHA) ** passed, (1 - ALPHA) ** (ticks - passed)
        least = max(first * before, (after - (1 - last) * most) / last if most < math.inf else 0.0)
        highest = min(first * before + (1 - first) * most, after / last)
        if highest < least - spare:
            return None
        events += TICK_S * (least + highest) / 2
        error += TICK_S * max(0.0, highest - least) / 2
    return events, error


class RateCounts:
    """The counts of one node's meters, from its pages in turn."""

    def __init__(self) -> None:
        self._counts: dict[str, TickedCount] = {}
        self._uptime_ms = 0.0

    def counted(
        self, values: Mapping[str, float], at_s: float, idle_most: float = SHARED_IDLE_MOST
    ) -> dict[str, float]:
        """The readings of a page, with counts in place of rates; a count that it shows wins.

        After a restart of the node all counts begin at 0 again.

        Args:
            values: the readings; without one-minute rates they are returned as they are.
            at_s: time of the page [s since the epoch].
            idle_most: largest idle time of the handlers in a tick [ratio].
        """
        found = {name: each for name, each in values.items() if not name.startswith(_OF_RATES)}
        if len(found) == len(values):
            return found
        rates = {
            meter: (rate, values.get(f"{ROUNDING}:{meter}", 0.0))
            for name, rate in values.items()
            if name.startswith(_RATE) and (meter := name.removeprefix(_RATE)) not in found
        }
        uptime_ms = found.get(UPTIME_MS, math.inf)
        is_same = uptime_ms >= self._uptime_ms
        self._uptime_ms = 0.0 if math.isinf(uptime_ms) else uptime_ms
        later = self._looked(rates, at_s, idle_most) if is_same else None
        if later is None:
            later = {name: TickedCount.first(at_s, *each) for name, each in rates.items()}
        self._counts = later
        for name in rates:
            found |= _readings(name, later[name])
        return found

    def _looked(
        self, rates: Mapping[str, tuple[float, float]], at_s: float, idle_most: float
    ) -> dict[str, TickedCount] | None:
        """The counts of all meters; None where one of them is not the same meter as before."""
        later: dict[str, TickedCount] = {}
        for name, (rate, rounding) in rates.items():
            before = self._counts.get(name)
            if before is None:
                later[name] = TickedCount.first(at_s, rate, rounding)
                continue
            most = idle_most * 1e9 if name in IDLE_METERS else math.inf
            after = before.look(at_s, rate, rounding, most)
            if after is None:
                return None
            later[name] = after
        missing = self._counts.keys() - later.keys()
        return later | {name: self._counts[name] for name in missing}


def _readings(name: str, count: TickedCount) -> dict[str, float]:
    found = {name: count.count}
    if count.has_moved:
        found[f"{TICKED_S}:{name}"] = count.ticked_s
    if count.error or count.edge_error:
        found[f"{TICK_ERROR}:{name}"] = count.error
        found[f"{TICK_EDGE_ERROR}:{name}"] = count.edge_error
    return found


@dataclass(frozen=True)
class Ticks:
    """The whole ticks of a count in a span.

    Attributes:
        duration_s: their time; 0 without a whole tick [s].
        events: growth of the count in them; None where it is not known.
        error: its largest error [unit of the count].
    """

    duration_s: float = 0.0
    events: float | None = None
    error: float = 0.0


def whole_ticks(samples: Sequence[Sample], name: str) -> Ticks | None:
    """The whole ticks of a count, from the first look after a tick to the last look.

    Of two samples alone the ticks between them count whole, although the first of them began
    before the span.

    Args:
        samples: samples of one broker by time.

    Returns:
        None for a count that does not follow from one-minute rates.
    """
    clock = f"{TICKED_S}:{name}"
    if clock not in samples[-1].values:
        return None
    shown = [each.values for each in samples if clock in each.values]
    if len(samples) > 2:
        begun_s = shown[0][clock]
        shown = [each for each in shown if each[clock] != begun_s]
    if len(shown) < 2 or shown[-1][clock] <= shown[0][clock]:
        return Ticks()
    first, last = shown[0], shown[-1]
    missed, edge = f"{TICK_ERROR}:{name}", f"{TICK_EDGE_ERROR}:{name}"
    return Ticks(
        last[clock] - first[clock],
        last[name] - first[name] if name in first and name in last else None,
        last.get(missed, 0.0) - first.get(missed, 0.0) + first.get(edge, 0.0) + last.get(edge, 0.0),
    )


def begins_anew(before: Sample, after: Sample) -> bool:
    """Whether counts that follow from one-minute rates began at 0 again."""
    clock = f"{TICKED_S}:{HANDLER_IDLE_NS}"
    return after.values.get(clock, 0.0) < before.values.get(clock, 0.0)


POLL_SHARE_MAX = 0.1
"""Largest share of a broker's time for its samples without a warning [ratio]."""


def reads_rates(nodes: Mapping[int, NodeInfo]) -> bool:
    """Whether counts of a node follow from one-minute rates."""
    return any(node.rates for node in nodes.values())


def window_least_s(nodes: Mapping[int, NodeInfo], interval_s: float) -> float | None:
    """The shortest window that has a whole tick of each rate [s]; None where no rate is read.

    Args:
        interval_s: time between two samples [s].
    """
    return 2 * (TICK_S + interval_s) if reads_rates(nodes) else None


def require_whole_ticks(nodes: Mapping[int, NodeInfo], measure_s: float, interval_s: float) -> None:
    """Check that a window has a whole tick of each one-minute rate.

    Args:
        measure_s: length of the window [s].
        interval_s: time between two samples [s].

    Raises:
        ConfigError: the window is too short.
    """
    least_s = window_least_s(nodes, interval_s)
    if least_s is None or measure_s >= least_s:
        return
    raise ConfigError(
        f"workload.trial.measure_s is {measure_s:g} and sample_interval_s {interval_s:g}; expected "
        f"{least_s:g} s or longer, better 20 s or more, as the exporters show one-minute rates in "
        f"place of counts, which move every {TICK_S:g} s; raise measure_s, or have the exporters "
        f"show the Count of the meters"
    )


def idle_error(interval_s: float) -> float:
    """Largest error of the handlers' idle time from ticks that samples miss [ratio].

    Args:
        interval_s: time between two samples [s].
    """
    ticks = math.ceil(interval_s / TICK_S)
    return ALPHA * IDLE_MOST / 2 * (ticks - 1) / ticks


def rate_caveats(nodes: Mapping[int, NodeInfo], interval_s: float) -> Iterator[str]:
    """A sentence for each thing that one-minute rates mean for an answer.

    Args:
        interval_s: time between two samples [s].
    """
    of_rates = sorted(node.node_id for node in nodes.values() if node.rates)
    if not of_rates:
        return
    names = sorted({name for node in nodes.values() for name in node.rates})
    yield (
        f"the exporters of {named_brokers(of_rates)} show one-minute rates in place of counts "
        f"({', '.join(names)}): their windows consist of whole ticks of {TICK_S:g} s"
    )
    poll_s = max(node.poll_s for node in nodes.values() if node.rates)
    every_s = max(interval_s, poll_s)
    if every_s > SEES_EACH_TICK_S:
        yield (
            f"samples every {every_s:g} s miss ticks of these rates, so that the request handlers' "
            f"idle time is known to ±{idle_error(every_s):.3f}, and a trial in which this error "
            f"decides is INVALID; set workload.trial.sample_interval_s to {SEES_EACH_TICK_S:g} or "
            f"less, or have the exporters show the Count of the meters"
        )
    if poll_s > POLL_SHARE_MAX * SEES_EACH_TICK_S:
        yield (
            f"a sample takes up to {poll_s:.2f} s of a broker's CPU, and one-minute rates need one "
            f"every {SEES_EACH_TICK_S:g} s, so that the load found is slightly too low; limit the "
            f"exporters to the beans that are read (includeObjectNames), or have them show the "
            f"Count of the meters and sample less often"
        )
