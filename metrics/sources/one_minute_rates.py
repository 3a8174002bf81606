"""Counts that are computed from the one-minute rates of Kafka's meters.

Some exporters show a meter's one-minute rate, but not the meter's count of events. Kafka uses the
meters of Yammer's metrics 2.2. Such a meter updates its one-minute rate every 5 s, counted from the
time at which the meter was created. This module calls one update a *tick*. The formulas use these
symbols:

- n: number of events between two successive ticks;
- x = n / 5 s: rate of events between two successive ticks;
- m, m': one-minute rates before and after a tick;
- α = 1 - e^(-5/60): weight of x in the one-minute rate.

The first tick sets the one-minute rate to x. Each later tick changes the one-minute rate m to
m' = m + α (x - m). So the one-minute rates m and m' after two successive ticks give the number n of
events between these ticks:

    n = 5 s · (m + (m' - m) / α)

The computed n is exact if the one-minute rates have all digits of a double, because n is then
rounded to a whole number.

- If samples miss a tick, one rate between two known rates is unknown. The unknown rate has bounds,
  because no rate of events is negative, and no thread is idle for more than the whole time. The
  computed count is the middle of the range of possible counts. Half of this range is the largest
  error of the computed count.
- If an exporter rounds the one-minute rates with a rounding error of at most e, the error of the
  count after k ticks is at most 5 s · e · (k + 2 / α). In the sum of the terms (m' - m) / α, only
  the rounding errors of the first and the last one-minute rate remain, which are at most 2 e / α.

The computed count of a meter begins at 0 when the meter's one-minute rate is first read. Each tick
adds the events since the previous tick. The reading `ticked_s:READING` is the time that the count
covers, and grows by 5 s with each tick. Without events, ticks do not change a one-minute rate of 0.
So a meter whose one-minute rate was always 0 has the count 0, and no reading `ticked_s`.

This module also computes two limits for such counts: the minimum length of a window, and the
maximum interval between samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from metrics.common.errors import ConfigError
from metrics.sources.beans import HANDLER_IDLE_NS, TICK_EDGE_ERROR, TICK_ERROR, TICKED_S, UPTIME_MS
from metrics.sources.rules import IDLE_METERS, ONE_MINUTE_RATE, ROUNDING
from metrics.sources.sample import Sample
from metrics.sources.source import NodeInfo, named_brokers

TICK_S = 5.0
"""Time between two ticks of a meter [s]."""
SEES_EACH_TICK_S = 4.0
"""If the interval between samples is at most this long [s], no tick is missed, even if a sample
takes some time."""
ALPHA = 1 - math.exp(-5 / 60.0)
"""Weight of the latest tick in the one-minute rate [ratio]."""
IDLE_MOST, SHARED_IDLE_MOST = 1.1, 2.2
"""Largest idle time of handlers between two ticks, as a share of the time [ratio]. The first value
is for one pool of handlers, and the second value for two pools that share a meter. The share of one
idle pool can exceed 1, because a handler's wait of up to 0.3 s counts wholly when the wait ends."""

_RATE = f"{ONE_MINUTE_RATE}:"
_OF_RATES = (_RATE, f"{ROUNDING}:")
_DIGITS_OF_DOUBLE = 15
_ULPS = 4.0
"""Largest rounding error of a meter's computation [units in the last place]."""
_WHOLE = 0.25
"""Largest accepted difference between a computed number of events and the nearest whole number
[events]."""
_LATE = 2.0
"""Longest time between two ticks, as a multiple of 5 s. A meter ticks late if its process was
paused."""
_SLACK_S = 0.3
"""Largest error of the time of a tick, or of the time at which a rate is read [s]."""
_DRIFT = 2e-4
"""Largest difference between the speeds of two clocks [ratio]."""


def rounding_of(text: str) -> float:
    """Largest rounding error of a printed number, or 0 if the number has all digits of a double."""
    mantissa, _, exponent = text.lower().split(None, 1)[0].partition("e")
    if len(mantissa.replace(".", "").lstrip("+-0")) >= _DIGITS_OF_DOUBLE:
        return 0.0
    return 0.5 * 10.0 ** min(99, int(exponent or 0) - len(mantissa.partition(".")[2]))


class TickedCount:
    """The count of a meter's events, which begins when the meter's one-minute rate is first read.

    The count ends at the last tick, which is an update of the one-minute rate.

    Attributes:
        at_s: time at which the one-minute rate was last read [s since the epoch].
        rate: the one-minute rate that was last read [unit of the count / s].
        rounding: smallest rounding error of all rates so far [unit of the count / s]. The smallest
            error is used, because an exporter may omit zeros at the end of a rate.
        earliest_s, latest_s: earliest and latest possible time of the last tick [s since the
            epoch].
        count: number of events [unit of the count].
        ticked_s: total time between the counted ticks [s].
        error: largest error of `count` from missed ticks and rounded rates [unit of the count].
        edge_error: largest error that rounded rates add at each edge of a window, in addition to
            `error` [unit of the count].
        has_moved: whether any rate was above 0. While the rate is 0, ticks do not change the rate,
            so the number of ticks is unknown.
    """

    def __init__(self, at_s: float, rate: float, rounding: float) -> None:
        self.at_s, self.rate, self.rounding = at_s, rate, rounding
        self.earliest_s, self.latest_s = at_s - TICK_S, at_s
        self.count = self.ticked_s = self.error = 0.0
        is_known = rate == 0 or is_exact(rate, rounding)
        self.edge_error = 0.0 if is_known else _edge_error(rate, rounding)
        self.has_moved = rate > 0

    def update(self, at_s: float, rate: float, rounding: float, most: float) -> bool:
        """Add the next reading of the rate.

        Args:
            at_s: time of the reading [s since the epoch].
            rate: the rate.
            rounding: rounding error of the rate's digits.
            most: highest possible rate of events in a tick.

        Returns:
            False if the rate cannot belong to the same meter, for example after a restart.
        """
        before, passed_s = self.rate, at_s - self.at_s
        self.rounding = min(self.rounding, rounding)
        is_whole = is_exact(max(rate, before), self.rounding)
        if is_whole:
            self.error, self.edge_error = self.error + self.edge_error, 0.0
        slack_s = _SLACK_S + _DRIFT * passed_s
        sure = max(0, math.floor((at_s - self.latest_s - slack_s) / TICK_S))
        maybe = max(0, math.floor((at_s - self.earliest_s + slack_s) / TICK_S))
        if rate == before:
            self._keep_rate(at_s, sure, is_shown=is_whole and rate != 0)
            return True
        least = max(1, sure)
        most_ticks = max(least, maybe)
        if is_whole and least <= 1:
            if is_whole_tick(before, rate, self.rounding):
                least = most_ticks = 1
            elif passed_s < TICK_S - _SLACK_S:
                return False
            else:
                least, most_ticks = 2, max(2, most_ticks)
        tried = range(least, most_ticks + 1)
        ranges = (_range(before, rate, ticks, most, self.rounding) for ticks in tried)
        possible = [each for each in ranges if each is not None]
        if not possible:
            return False
        lowest, highest = min(low for low, _ in possible), max(high for _, high in possible)
        # If the number of ticks is uncertain, the time of the ticks is uncertain, too.
        fastest = 2 * max(rate, before) if math.isinf(most) else most
        doubtful = (most_ticks - least) * TICK_S * fastest
        likely = math.floor((at_s - (self.earliest_s + self.latest_s) / 2) / TICK_S)
        self._tick(at_s, min(max(least, likely), most_ticks), is_certain=least == most_ticks)
        self.rate, self.has_moved = rate, True
        self.error += (highest - lowest) / 2 + doubtful
        if is_whole:
            self.count += max(0, round((lowest + highest) / 2))
        else:
            self._add_rounded((lowest + highest) / 2)
        return True

    def readings(self, name: str) -> dict[str, float]:
        """The count, its clock and its errors as readings of a sample."""
        found = {name: self.count}
        if self.has_moved:
            found[f"{TICKED_S}:{name}"] = self.ticked_s
        if self.error or self.edge_error:
            found[f"{TICK_ERROR}:{name}"] = self.error
            found[f"{TICK_EDGE_ERROR}:{name}"] = self.edge_error
        return found

    def _keep_rate(self, at_s: float, ticks: int, *, is_shown: bool) -> None:
        """Add a reading with an unchanged rate.

        Args:
            at_s: time of the reading [s since the epoch].
            ticks: minimum number of ticks since the last reading; ignored if `is_shown` is true.
            is_shown: whether every tick would have changed the rate. If true, the unchanged rate
                shows that there was no tick.
        """
        self.at_s = at_s
        if is_shown:  # there was no tick since the last reading
            self.earliest_s = max(self.earliest_s, at_s - TICK_S - _SLACK_S)
            self.latest_s = max(self.latest_s, self.earliest_s)
            return
        moved_s = ticks * TICK_S
        self.earliest_s, self.latest_s = self.earliest_s + moved_s, self.latest_s + moved_s
        self.ticked_s += moved_s
        if self.rate and ticks:
            self._add_rounded(moved_s * self.rate, ticks)

    def _tick(self, at_s: float, ticks: int, is_certain: bool) -> None:
        """Advance the meter's clock by a number of ticks."""
        drift_s, is_narrow = _DRIFT * (at_s - self.at_s), at_s - self.at_s < TICK_S
        earliest_s = self.earliest_s + ticks * TICK_S - drift_s
        latest_s = self.latest_s + ticks * TICK_S + drift_s
        if is_certain or is_narrow:
            before_s = self.at_s if is_narrow else at_s - TICK_S
            earliest_s, latest_s = max(earliest_s, before_s - _SLACK_S), min(latest_s, at_s)
            if earliest_s > latest_s:  # a tick was late, a clock was set, or ticks did not show
                earliest_s, latest_s = before_s, at_s
        self.at_s, self.earliest_s, self.latest_s = at_s, earliest_s, latest_s
        self.ticked_s += ticks * TICK_S

    def _add_rounded(self, events: float, ticks: int = 1) -> None:
        """Add events that are computed from rounded rates."""
        self.count += max(0.0, events)
        self.error += ticks * TICK_S * self.rounding
        self.edge_error = _edge_error(self.rate, self.rounding)


def _edge_error(rate: float, rounding: float) -> float:
    return TICK_S / ALPHA * (rounding + _ULPS * math.ulp(rate))


def is_exact(rate: float, rounding: float) -> bool:
    """Whether a rate is so precise that a tick's number of events can be computed as a whole
    number.
    """
    return 2 * _edge_error(rate, rounding) <= _WHOLE


def _events(before: float, after: float) -> float:
    """The number of events of the tick between two successive rates."""
    return TICK_S * (before + (after - before) / ALPHA)


def is_whole_tick(before: float, after: float, rounding: float = 0.0) -> bool:
    """Whether exactly one tick lies between two rates. In this case, the computed number of events
    is a whole number.
    """
    events = _events(before, after)
    spare = 2 * _edge_error(max(before, after), rounding)
    return events >= -spare and abs(events - round(events)) <= spare


def _range(
    before: float, after: float, ticks: int, most: float, rounding: float
) -> tuple[float, float] | None:
    """The lowest and the highest possible number of events of several successive ticks.

    Args:
        before: the one-minute rate before the first tick.
        after: the one-minute rate after the last tick.
        ticks: number of successive ticks.
        most: highest possible rate of events in a tick.
        rounding: rounding error of the one-minute rates.

    Returns:
        (lowest number of events, highest number of events), or None if `ticks` ticks cannot change
        the one-minute rate from `before` to `after`.
    """
    events = _events(before, after)
    spare = 2 * _edge_error(max(before, after), rounding)
    if ticks == 1:
        is_possible = -spare - _WHOLE <= events <= _LATE * most * TICK_S + spare
        return (events, events) if is_possible else None
    lowest = highest = events
    for passed in range(1, ticks):
        first, last = (1 - ALPHA) ** passed, (1 - ALPHA) ** (ticks - passed)
        least = max(first * before, (after - (1 - last) * most) / last if most < math.inf else 0.0)
        largest = min(first * before + (1 - first) * most, after / last)
        if largest < least - spare:
            return None
        middle = TICK_S * (least + largest) / 2
        half = TICK_S * max(0.0, largest - least) / 2
        lowest, highest = lowest + middle - half, highest + middle + half
    return lowest, highest


class RateCounts:
    """The counts of one node's meters, computed from successive pages."""

    def __init__(self) -> None:
        self._counts: dict[str, TickedCount] = {}
        self._uptime_ms = 0.0

    def counted(
        self, values: Mapping[str, float], at_s: float, idle_most: float = SHARED_IDLE_MOST
    ) -> dict[str, float]:
        """The readings of an exporter's page, with counts in place of one-minute rates.

        If the page also shows a meter's count, the result contains the shown count. After a restart
        of the node, all counts begin at 0 again.

        Args:
            values: readings of the exporter's page. If no reading is a one-minute rate, the
                readings are returned unchanged.
            at_s: time at which the exporter's page was read [s since the epoch].
            idle_most: largest idle share of the handlers between two ticks [ratio].
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
        for name, count in self._counts.items():
            most = idle_most * 1e9 if name in IDLE_METERS else math.inf
            is_same = is_same and (name not in rates or count.update(at_s, *rates[name], most))
        if not is_same:
            self._counts = {}
        for name, shown in rates.items():
            found |= self._counts.setdefault(name, TickedCount(at_s, *shown)).readings(name)
        return found


@dataclass(frozen=True)
class Ticks:
    """The whole update intervals of a one-minute rate within a span of time.

    Attributes:
        duration_s: total length of the update intervals [s], or 0 if there is none.
        events: increase of the count in the update intervals, or None if the increase is unknown.
        error: largest error of `events` [unit of the count].
    """

    duration_s: float = 0.0
    events: float | None = None
    error: float = 0.0


def whole_ticks(samples: Sequence[Sample], name: str) -> Ticks | None:
    """The whole update intervals of a one-minute rate between the first and the last sample.

    The first update interval begins with a tick after the first sample, and the last update
    interval ends before the last sample. If there are only two samples, all ticks between the
    samples count, although the first update interval began before the first sample.

    Args:
        samples: samples of one broker, in chronological order.
        name: name of the count.

    Returns:
        The whole update intervals, or None if the count is not computed from one-minute rates.
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


def counts_restarted(before: Sample, after: Sample) -> bool:
    """Whether the counts that are computed from one-minute rates began at 0 again between two
    samples.
    """
    clock = f"{TICKED_S}:{HANDLER_IDLE_NS}"
    return after.values.get(clock, 0.0) < before.values.get(clock, 0.0)


POLL_SHARE_MAX = 0.1
"""A warning is shown if samples use more than this share of a broker's time [ratio]."""


def reads_rates(nodes: Mapping[int, NodeInfo]) -> bool:
    """Whether any count of any node is computed from one-minute rates."""
    return any(node.rates for node in nodes.values())


def window_least_s(nodes: Mapping[int, NodeInfo], interval_s: float) -> float | None:
    """The shortest window that certainly contains a whole tick [s].

    Args:
        nodes: node id → node.
        interval_s: time between two samples [s].

    Returns:
        The length of the window, or None if no count is computed from one-minute rates.
    """
    return 2 * (TICK_S + interval_s) if reads_rates(nodes) else None


def require_whole_ticks(nodes: Mapping[int, NodeInfo], measure_s: float, interval_s: float) -> None:
    """Check that a window contains a whole tick of each one-minute rate.

    Args:
        nodes: node id → node.
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
        f"{least_s:g} s or longer, better 20 s or more, because the exporters show one-minute "
        f"rates instead of counts, and Kafka updates these rates every {TICK_S:g} s; raise "
        f"measure_s, or configure the exporters to show the Count of the meters"
    )


def idle_error(interval_s: float) -> float:
    """Largest error that missed ticks cause in the handlers' idle time [ratio].

    Args:
        interval_s: time between two samples [s].
    """
    ticks = math.ceil(interval_s / TICK_S)
    return ALPHA * IDLE_MOST / 2 * (ticks - 1) / ticks


def rate_caveats(nodes: Mapping[int, NodeInfo], interval_s: float) -> Iterator[str]:
    """One sentence for each effect that one-minute rates have on the answer.

    Args:
        nodes: node id → node.
        interval_s: time between two samples [s].
    """
    of_rates = sorted(node.node_id for node in nodes.values() if node.rates)
    if not of_rates:
        return
    names = sorted({name for node in nodes.values() for name in node.rates})
    yield (
        f"the exporters of {named_brokers(of_rates)} show one-minute rates instead of counts "
        f"({', '.join(names)}): only whole update intervals of {TICK_S:g} s count in a window"
    )
    poll_s = max(node.poll_s for node in nodes.values() if node.rates)
    every_s = max(interval_s, poll_s)
    if every_s > SEES_EACH_TICK_S:
        yield (
            f"samples every {every_s:g} s miss updates of these rates, so the request handlers' "
            f"idle time is known to ±{idle_error(every_s):.3f}, and a trial is INVALID if its "
            f"verdict depends on this error; set workload.trial.sample_interval_s to "
            f"{SEES_EACH_TICK_S:g} or less, or configure the exporters to show the Count of the "
            f"meters"
        )
    if poll_s > POLL_SHARE_MAX * SEES_EACH_TICK_S:
        yield (
            f"a sample takes up to {poll_s:.2f} s of a broker's CPU time, and one-minute rates "
            f"need a sample every {SEES_EACH_TICK_S:g} s, so the measured limit is slightly too "
            f"low; limit the exporters to the beans that are read (includeObjectNames); or let "
            f"them show the Count of the meters, and raise workload.trial.sample_interval_s"
        )
