"""The choice of a series for each reading, from several polls of an exporter's page.

The name of a series does not always show the meaning of its number. For example, in Confluent's
rules, `…avgidlepercent` is the count of the request handlers' meter, and `…avgidlepercent_total` is
the meter's one-minute rate. If the name does not show the meaning, the numbers of successive polls
show whether a series is a count or a rate:

- A series is the count of a meter if its number is whole and never falls. A number with a fraction
  is a rate.
- A series of the handlers' meter is the count of the idle time [ns] if the series' number is above
  `IDLE_GROWTH_MAX`, and if it grows by at most `IDLE_GROWTH_MAX` in each nanosecond. A lower number
  is the rate of the idle time.
- A series is a one-minute rate if its number stays the same for 5 s, and if the next number gives a
  whole number of events (`metrics.sources.one_minute_rates`). Other averages, such as a five-minute
  rate, do not give a whole number of events. A meter's rate is read only if the page does not show
  the meter's count.

If one rule of the exporter made several series, these series have the same meaning. So a series of
known meaning shows the meaning of all series of its rule. A series of unknown meaning is chosen
only if it is the only series for its reading. The load of the warm-up shows whether the chosen
series are counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from itertools import pairwise

from metrics.common.grouping import grouped
from metrics.sources.bean_series import Candidate, Meaning, candidates_of, may_be_reading, squeezed
from metrics.sources.beans import FROM_FIRST_USE, REQUESTS
from metrics.sources.exposition import Poll, number_of, parse_series, series_of
from metrics.sources.one_minute_rates import TICK_S, is_exact, is_whole_tick, rounding_of
from metrics.sources.rules import (
    IDLE_METERS,
    JAVA,
    METERS,
    RuleSet,
    Selector,
    as_rate,
    selectors_of,
)

AUTO = "auto"
"""The name of a rule set that is derived from an exporter's page, and not read from a file."""
SECOND_POLL_S = 1.0
"""Time between two polls if one poll does not show the meaning of a series [s]."""
TICKS_SEEN_S = 3 * TICK_S + 2.0
"""Time from the first to the last poll [s]. In this time, each meter certainly updates its
one-minute rate at least three times, even on a broker that has just started."""
POLLS_MAX = 20
IDLE_GROWTH_MAX = 2.5
"""Largest one-minute rate of the request handlers' idle time [ratio]. At rest, the one-minute rate
of the idle time is 2 if the handlers of broker and controller share one meter."""
_PHASES_APART = 0.05
"""Largest accepted difference between the counts of a request's phases [ratio]. The counts are read
one after the other."""
_POLL_EDGE_S = 0.6
"""If a count shows the handlers' idle time, the increase of the count between two polls has at most
this error [s]. Each poll adds up to 0.3 s, because a handler's wait of up to 0.3 s is counted only
when it ends."""
_POLLS_APART_S = TICK_S - 0.5
"""Longest time between two polls with at most one tick between them [s]."""
_NAMED_RATES = ("oneminuterate", "oneminuteratetotal")
_PERCENT = 0.01

_NO_TOTAL = frozenset(
    {"topic", "partition", "clientid", "client", "user", "listener", "networkprocessor", "request"}
    | {"name", "type", "id", "quantile", "version", "error", "delayedoperation", "processor"}
)
"""Labels that name a part of a broker. A series with one of these labels, such as `topic`, shows
only the numbers of one part."""

_NOT_COMPARED = frozenset({JAVA, *FROM_FIRST_USE})
"""Readings that may be missing: an exporter's page may not contain their series, or may contain the
series without a number."""

_FLUSH_WORDS = (
    ("network", "log"),
    ("RequestMetrics", "LogFlushStats"),
    ("LocalTimeMs", "LogFlushRateAndTimeMs"),
)
"""Pairs (word to replace, new word). A series shows the local times of requests, and another series
shows the times of log flushes. The replacements turn the name of the first series into the name of
the second series. Each word is also tried in lower case."""

_OF_AGENT: Mapping[str, tuple[Selector, ...]] = selectors_of(
    {
        "uptime_ms": {"series": "process_start_time_seconds", "start_time": True},
        "process_cpu_ns": {"series": "process_cpu_seconds_total", "factor": 1e9},
        "gc_ms": {"series": 'jvm_gc_collection_seconds_sum{gc="*"}', "factor": 1000},
        "heap_used_bytes": [
            'jvm_memory_used_bytes{area="heap"}',
            'jvm_memory_bytes_used{area="heap"}',
        ],
        "heap_max_bytes": [
            'jvm_memory_max_bytes{area="heap"}',
            'jvm_memory_bytes_max{area="heap"}',
        ],
        JAVA: [
            'jvm_runtime_info{runtime="*",vendor="*",version="*"}',
            'jvm_info{runtime="*",vendor="*",version="*"}',
        ],
    },
    AUTO,
)
"""Series of the JVM that the exporter itself adds. A series of the JVM is read if the page shows no
bean for its reading."""
_BUILD, _STANDALONE = "jmx_exporter_build_info", re.compile('name="[^"]*(?:httpserver|standalone)"')
"""Two facts about exporters: the series that names the kind of an exporter, and the kinds that run
outside the broker's JVM."""


class Behavior(str, Enum):
    """Whether a series is a cumulative count, judged by its numbers in successive polls."""

    COUNT = "count"
    NO_COUNT = "no count"
    UNKNOWN = "unknown"


class _Evidence(str, Enum):
    """Whether a series is a one-minute rate, according to its name or its numbers."""

    RATE = "one-minute rate"
    OTHER = "another number"
    ZERO = "0 until now"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Refusal:
    """A reading for which no series was chosen, although a page has series for this reading.

    Attributes:
        reading: name of the reading.
        series: the series on the page that may show the reading.
        why: clause with the reason.
    """

    reading: str
    series: tuple[str, ...]
    why: str

    @property
    def text(self) -> str:
        """The refusal as a clause."""
        return f"{self.reading} is not read from {' and '.join(self.series)}, {self.why}"


@dataclass(frozen=True)
class Choices:
    """The series that are read on one page.

    Attributes:
        selectors: reading → its chosen series.
        preferred: one clause for each choice between several series.
        refused: readings for which no series was chosen, although the page has series for them.
        needs_poll: whether one more poll can improve the choice.
    """

    selectors: Mapping[str, tuple[Selector, ...]] = field(default_factory=dict)
    preferred: tuple[str, ...] = ()
    refused: tuple[Refusal, ...] = ()
    needs_poll: bool = False

    @property
    def rules(self) -> RuleSet:
        """A rule set of the chosen series."""
        return RuleSet(AUTO, self.selectors)

    @property
    def has_beans(self) -> bool:
        """Whether any chosen series comes from a bean of Kafka."""
        return any(each not in _OF_AGENT for each in self.selectors)

    @property
    def refusals(self) -> tuple[str, ...]:
        """One clause for each reason to refuse series. The clause contains the first reading that
        was refused for this reason.
        """
        by_reason = grouped((each.why, each) for each in self.refused)
        return tuple(
            f"{first.text} (and {len(others)} more readings)" if others else first.text
            for first, *others in by_reason.values()
        )

    @property
    def texts(self) -> dict[str, str]:
        """Reading → text of its chosen series."""
        return {
            reading: f"{each[0].text}, one-minute rate" if each[0].is_rate else each[0].text
            for reading, each in sorted(self.selectors.items())
            if reading not in _NOT_COMPARED
        }


@dataclass
class _Group:
    """All series of one selector on a page.

    Attributes:
        candidate: reading and meaning of the series, according to the name of the series.
        times_s: time of each poll [s].
        printed: for each series, the text of its number in each poll.
        is_doubled: whether the page shows a series twice, with different numbers.
        shows: whether the group's series are cumulative counts. If the series' name does not show
            this, the numbers of all groups from the same rule of the exporter decide this together.
    """

    candidate: Candidate
    times_s: Sequence[float]
    printed: list[list[str]] = field(default_factory=list)
    is_doubled: bool = False
    shows: Behavior = Behavior.UNKNOWN

    @property
    def reading(self) -> str:
        """The name of the group's reading."""
        return self.candidate.reading

    @property
    def text(self) -> str:
        """The text of the group's selector."""
        return self.candidate.selector.text

    @cached_property
    def numbers(self) -> list[list[float]]:
        """For each series, the values of the series in all polls."""
        return [[*map(number_of, each)] for each in self.printed]

    @property
    def has_number(self) -> bool:
        """Whether at least one series has a number in each poll."""
        return any(all(map(math.isfinite, each)) for each in self.numbers)

    def behavior(self) -> Behavior:
        """Whether the group's series are cumulative counts, judged only by their numbers."""
        seconds = self.times_s[-1] - self.times_s[0]
        return _joint(
            idle_behavior(known, seconds) if self.reading in IDLE_METERS else count_behavior(known)
            for numbers in self.numbers
            if (known := [*filter(math.isfinite, numbers)])
        )

    # --- one-minute rates: a meter has one series -----------------------------

    @property
    def end(self) -> str:
        """The last word of the series' name."""
        return self.candidate.family[-1]

    @property
    def rate(self) -> Selector:
        """The selector for the one-minute rate. If the page shows an idle share as a percentage,
        the selector's factor converts the percentage to a ratio.
        """
        is_percent = self.reading in IDLE_METERS and max(self.numbers[0]) > IDLE_GROWTH_MAX
        factor = _PERCENT if is_percent else 1.0
        return as_rate(replace(self.candidate.selector, factor=factor), self.reading)

    def evidence(self) -> _Evidence:
        """The evidence that the group's series is a one-minute rate, or that it is not."""
        numbers, is_idle = self.numbers[0], self.reading in IDLE_METERS
        if min(numbers) < 0 or (is_idle and max(numbers) * _PERCENT > IDLE_GROWTH_MAX):
            return _Evidence.OTHER
        if self.end in _NAMED_RATES:
            return _Evidence.RATE
        if self.candidate.meaning is not Meaning.UNCERTAIN:
            return _Evidence.OTHER
        if max(numbers) == 0:
            # The idle time of handlers is 0 only in the first seconds of a broker.
            return _Evidence.UNKNOWN if is_idle else _Evidence.ZERO
        whole = list(self._whole_ticks())
        if all(number.is_integer() for number in numbers) or not all(whole):
            return _Evidence.OTHER
        return _Evidence.RATE if len(whole) > is_idle else _Evidence.UNKNOWN

    def _whole_ticks(self) -> Iterator[bool]:
        """For each change of the number, whether a one-minute rate can change in this way.

        Changes from 0 do not count, because the meter's first tick may have set the rate. The
        result is empty if the page rounds the number, because the number of events cannot be
        computed from a rounded rate.
        """
        numbers, unit = self.numbers[0], self.rate.factor
        rounding = min(map(rounding_of, self.printed[0])) * unit
        if not is_exact(max(numbers) * unit, rounding):
            return
        for (before_s, before), (at_s, number) in pairwise(zip(self.times_s, numbers, strict=True)):
            if number != before != 0 and at_s - before_s <= _POLLS_APART_S:
                yield is_whole_tick(before * unit, number * unit, rounding)


def count_behavior(numbers: Sequence[float]) -> Behavior:
    """Whether a meter's series is a cumulative count, judged by its numbers in successive polls."""
    if any(number < 0 or not number.is_integer() for number in numbers):
        return Behavior.NO_COUNT
    if any(later < earlier for earlier, later in pairwise(numbers)):
        return Behavior.NO_COUNT
    return Behavior.COUNT if numbers[-1] > 0 else Behavior.UNKNOWN


def idle_behavior(numbers: Sequence[float], seconds: float) -> Behavior:
    """Whether a series of the request handlers' meter is a cumulative count of idle time.

    Args:
        numbers: the value of the series in each poll.
        seconds: time between the first and the last poll [s], or 0 for one poll.
    """
    first, last = numbers[0], numbers[-1]
    if last == first == 0:
        return Behavior.UNKNOWN
    if min(numbers) < 0 or max(numbers) <= IDLE_GROWTH_MAX:
        return Behavior.NO_COUNT
    if not 0 <= last - first <= (IDLE_GROWTH_MAX * seconds + _POLL_EDGE_S) * 1e9:
        return Behavior.NO_COUNT
    return count_behavior(numbers)


def choose(polls: Sequence[Poll]) -> Choices:
    """Choose a series for each reading.

    Args:
        polls: successive answers of one exporter, the earliest first.
    """
    groups = _groups(polls)
    chosen: dict[str, tuple[Selector, ...]] = {}
    refused: dict[str, Refusal] = {}
    preferred: list[str] = []
    unproven: set[str] = set()
    for reading, all_shown in grouped((each.reading, each) for each in groups).items():
        shown = [group for group in all_shown if group.has_number]
        if not shown and reading not in IDLE_METERS:
            continue
        taken, why = _choice(shown) if shown else (None, "because it has no number")
        if taken is None:
            series = tuple(sorted(each.text for each in shown or all_shown))
            refused[reading] = Refusal(reading, series, why)
            continue
        chosen[reading] = (taken.candidate.selector,)
        if _is_uncertain(taken) and taken.shows is Behavior.UNKNOWN:
            unproven.add(reading)
        if why:
            preferred.append(why)
    is_early = len(polls) < 2 and (bool(refused) or any(map(_is_uncertain, groups)))
    uncounted = METERS - (chosen.keys() - unproven)
    rates, is_open = _rates([each for each in groups if each.reading in uncounted])
    chosen |= rates
    _drop_needless_sums(chosen)
    for reading in FROM_FIRST_USE:
        chosen.update(_of_first_use(reading, chosen))
    for reading, selectors in _agent_selectors(polls[0].text).items():
        chosen.setdefault(reading, selectors)
    is_soon = polls[-1].at_s - polls[0].at_s < TICKS_SEEN_S and len(polls) < POLLS_MAX
    return Choices(
        chosen,
        tuple(preferred),
        tuple(each for reading, each in refused.items() if reading not in rates),
        is_early or (is_open and is_soon),
    )


def _is_uncertain(group: _Group) -> bool:
    return group.candidate.meaning is Meaning.UNCERTAIN


def _choice(shown: Sequence[_Group]) -> tuple[_Group | None, str]:
    """The chosen series of a reading, or None if no series is chosen. A clause states why the
    series is preferred to others, or why no series is chosen.
    """
    if any(group.is_doubled for group in shown):
        return None, "because the page shows the series twice, with different numbers"
    meanings = {Meaning.VALUE, Meaning.MEAN, Meaning.SUM}
    certain = [
        each
        for each in shown
        if each.candidate.meaning in meanings
        or (each.candidate.meaning is Meaning.COUNT and each.shows is not Behavior.NO_COUNT)
    ]
    if certain:
        best = min(each.candidate.rank for each in certain)
        preferred = [each for each in certain if each.candidate.rank == best]
        return _only(shown, preferred, "the chosen name shows what the number means")
    for behavior, reason in (
        (Behavior.COUNT, "the numbers of the chosen series grow like a count"),
        (Behavior.UNKNOWN, "only the chosen series can be a count"),
    ):
        if alike := [each for each in shown if _is_uncertain(each) and each.shows is behavior]:
            return _only(shown, alike, reason)
    if all(each.candidate.meaning is Meaning.RATE for each in shown):
        return None, "because it is an average over a time before the window, not a count"
    return None, "because its numbers are not a count: a count is a whole number that grows"


def _only(
    shown: Sequence[_Group], equal: Sequence[_Group], reason: str
) -> tuple[_Group | None, str]:
    """The first of several equally good series, or None if their numbers differ."""
    first = min(equal, key=lambda each: each.text)
    numbers = sorted(first.numbers)
    if any(sorted(other.numbers) != numbers for other in equal):
        names = ", ".join(sorted(each.text for each in equal))
        return None, f"because nothing shows which of {names} is the reading"
    others = sorted(
        each.text
        for each in shown
        if each is not first
        and each.candidate.meaning is not Meaning.RATE
        and each.candidate.rank == first.candidate.rank
    )
    if not others:
        return first, ""
    return first, f"{first.reading} is {first.text} and not {', '.join(others)}: {reason}"


def _rates(groups: Iterable[_Group]) -> tuple[dict[str, tuple[Selector, ...]], bool]:
    """Two results: meter → selector of the meter's one-minute rate, and whether one more poll may
    find more rates.

    If the number of a series is 0, the last word of the series' name decides. In this case, the
    series is a one-minute rate if the page's other series with the same last word are one-minute
    rates.
    """
    shown = [(each, each.evidence()) for each in groups if each.has_number and not each.is_doubled]
    ends = {each.end for each, found in shown if found is _Evidence.RATE}
    ends -= {each.end for each, found in shown if found is _Evidence.OTHER}
    rates = grouped(
        (each.reading, each)
        for each, found in shown
        if found is _Evidence.RATE or (found is _Evidence.ZERO and each.end in ends)
    )
    chosen: dict[str, tuple[Selector, ...]] = {
        meter: (alike[0].rate,)
        for meter, alike in rates.items()
        if all(each.numbers == alike[0].numbers for each in alike)
    }
    return chosen, any(found is _Evidence.UNKNOWN for _, found in shown)


def _joint(behaviors: Iterable[Behavior]) -> Behavior:
    """Whether the series of one rule are counts, judged by the numbers of all these series."""
    found = set(behaviors)
    if Behavior.NO_COUNT in found:
        return Behavior.NO_COUNT
    return Behavior.COUNT if Behavior.COUNT in found else Behavior.UNKNOWN


def _behaviors_of_phases(groups: Sequence[_Group]) -> Iterator[Behavior]:
    """Yield `NO_COUNT` if the numbers of histograms cannot be counts of requests.

    The longest time of a request is a whole number that never falls, and so looks like a count. But
    the counts of all phases of a request are equal, while the longest times of the phases differ.
    """
    if not groups[0].candidate.is_histogram:
        return
    requests: dict[str, list[float]] = {}
    for group in groups:
        request = next((each for each in REQUESTS if group.reading.startswith(each)), "")
        last = [numbers[-1] for numbers in group.numbers]
        requests.setdefault(request, []).extend(filter(math.isfinite, last))
    compared = [counts for request, counts in requests.items() if request and len(counts) > 1]
    if any(max(each) - min(each) > _PHASES_APART * max(each) for each in compared):
        yield Behavior.NO_COUNT
    elif not any(map(max, compared)) and any(map(max, filter(None, requests.values()))):
        yield Behavior.NO_COUNT  # there are no two phases to compare


def _groups(polls: Sequence[Poll]) -> list[_Group]:
    """The groups of all series that may be readings. Each group has the numbers of its series."""
    pages = [_printed_numbers(poll.text) for poll in polls]
    constant, times_s = _constant_labels(pages[0]), [poll.at_s for poll in polls]
    found: dict[tuple[str, str], _Group] = {}
    for series in pages[0]:
        for candidate in candidates_of(series, constant):
            key = (candidate.reading, candidate.selector.text)
            group = found.setdefault(key, _Group(candidate, times_s))
            printed = [page.get(series, [""]) for page in pages]
            group.printed.append([texts[0] for texts in printed])
            group.is_doubled |= any(len({*map(number_of, texts)}) > 1 for texts in printed)
    for group in found.values():
        group.shows = group.behavior()
    families = grouped(
        (group.candidate.family, group)
        for group in found.values()
        if group.reading not in IDLE_METERS and _is_uncertain(group)
    )
    for same in families.values():
        together = _joint([*(each.shows for each in same), *_behaviors_of_phases(same)])
        for group in same:
            group.shows = together
    return list(found.values())


def _printed_numbers(text: str) -> dict[str, list[str]]:
    """Series that may be a reading → texts of its numbers. The order is the order of the page."""
    lines = ((series_of(line), line) for line in text.split("\n"))
    return grouped(
        (series, line[len(series) :])
        for series, line in lines
        if series and may_be_reading(series.partition("{")[0])
    )


def _constant_labels(series: Iterable[str]) -> frozenset[tuple[str, str]]:
    """The (label, value) pairs that all series have, such as a label for the environment."""
    labels = [{*parsed[1].items()} for each in series if (parsed := parse_series(each)) is not None]
    common = set.intersection(*labels) if labels else set()
    return frozenset(each for each in common if squeezed(each[0]) not in _NO_TOTAL)


def _of_first_use(
    reading: str, chosen: Mapping[str, tuple[Selector, ...]]
) -> dict[str, tuple[Selector, ...]]:
    """Reading → assumed name of the series for a bean that Kafka registers only at its first use.
    The assumed name is derived from the name of the series that shows the local times of produce
    requests. The result is empty if `chosen` already has the reading, or has no local times of
    produce requests.
    """
    model = chosen.get(f"produce_local_ms_{reading.rpartition('_')[2]}")
    if reading in chosen or model is None:
        return {}
    labels = {
        label: _as_other_bean(value)
        for label, value in model[0].labels.items()
        if squeezed(label) != "request"
    }
    name = _as_other_bean(model[0].name)
    return {reading: (replace(model[0], name=name, labels=labels),)}


def _as_other_bean(text: str) -> str:
    """The name of a series that shows times of log flushes. The name is derived from `text`, the
    name of a series that shows local times of requests. The text can also be the value of a label.
    """
    for word, other in _FLUSH_WORDS:
        text = text.replace(word, other).replace(word.lower(), other.lower())
    return text


def _drop_needless_sums(chosen: dict[str, tuple[Selector, ...]]) -> None:
    """Drop the sum of each histogram if the page also shows the mean, or does not show the
    count.
    """
    for reading in [each for each in chosen if each.endswith("_sum")]:
        base = reading.removesuffix("_sum")
        if f"{base}_mean" in chosen or f"{base}_count" not in chosen:
            del chosen[reading]


def _agent_selectors(text: str) -> dict[str, tuple[Selector, ...]]:
    """Reading → series about the broker's JVM. The exporter itself adds these series to the page.
    The result is empty for a stand-alone exporter, because such an exporter shows its own process
    and not the broker.
    """
    shown = RuleSet(AUTO, _OF_AGENT)
    found: dict[str, tuple[Selector, ...]] = {}
    lines = (series_of(line) for line in text.split("\n") if line[:4] in {"jvm_", "proc", "jmx_"})
    for series in filter(None, lines):
        if series.startswith(_BUILD) and _STANDALONE.search(series):
            return {}
        match = shown.match(series)
        if match is not None:
            reading = match.reading.partition(":")[0]
            found.setdefault(reading, _OF_AGENT[reading])
    return found
