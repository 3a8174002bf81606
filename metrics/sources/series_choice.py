"""The choice of a series for each reading, from one or two polls of a page.

A name alone does not always say what a number is: of the meter of the request handlers, Confluent's
rules show the count as `…avgidlepercent` and the one-minute rate as `…avgidlepercent_total`. So
where the name leaves the meaning uncertain, the numbers of two polls tell:

- the count of a meter is a whole number that never falls; a rate has a fraction;
- the count of the handlers' idle time grows by at most `IDLE_GROWTH_MAX` ns each ns, and is large;
  its rate is at most `IDLE_GROWTH_MAX`.

Series that one rule made mean the same, so one of them that shows what it is tells of all.
What stays uncertain is chosen only where there is one series, and is refused where there are two.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise

from metrics.sources.bean_series import Candidate, Meaning, candidates_of, may_be_reading, squeezed
from metrics.sources.beans import FROM_FIRST_USE, HANDLER_IDLE_NS, REQUESTS
from metrics.sources.exposition import Poll, number_of, parse_series, series_of
from metrics.sources.rules import BROKER_HANDLER_IDLE_NS, JAVA, RuleSet, Selector, selectors_of

AUTO = "auto"
"""The name of the rules that are found on the page."""
SECOND_POLL_S = 1.0
"""Time between two polls, where the numbers of one do not tell what a series is [s]."""
IDLE_GROWTH_MAX = 2.5
"""Largest one-minute rate of the idle time; 2 at rest, where a controller shares the meter."""
_PHASES_APART = 0.05
"""Largest difference between the counts of a request's phases, which are read one after another
[ratio]."""
_POLL_EDGE_S = 0.6
"""Longest idle time that both edges of an interval add, as handlers wait up to 0.3 s [s]."""

_IDLE = frozenset({HANDLER_IDLE_NS, BROKER_HANDLER_IDLE_NS})
_NO_TOTAL = frozenset(
    {"topic", "partition", "clientid", "client", "user", "listener", "networkprocessor", "request"}
    | {"name", "type", "id", "quantile", "version", "error", "delayedoperation", "processor"}
)
"""Labels that name a part of a broker: a series with one is never a reading of the whole."""

_NOT_COMPARED = frozenset({JAVA, *FROM_FIRST_USE})
"""Readings whose series come and go, or hold no number."""

_FLUSH_WORDS = (
    ("network", "log"),
    ("RequestMetrics", "LogFlushStats"),
    ("LocalTimeMs", "LogFlushRateAndTimeMs"),
)
"""Words of the bean of a request's local time → words of the bean of log flushes."""

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
"""Series of the JVM that the exporter adds itself, for readings whose bean the page lacks."""
_BUILD, _STANDALONE = "jmx_exporter_build_info", re.compile('name="[^"]*(?:httpserver|standalone)"')
"""The series by which an exporter states whether it is an agent, and the names of one that is a
program of its own."""


class Behavior(str, Enum):
    """What the numbers of a series show."""

    COUNT = "count"
    NO_COUNT = "no count"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Refusal:
    """A reading for which no series is chosen although the page shows some.

    Attributes:
        reading: the reading.
        series: the series.
        why: the reason; a clause.
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
    """The series that are read of one page.

    Attributes:
        selectors: reading → its series.
        preferred: a clause for each choice between several series.
        refused: readings without a series for which the page shows some.
        unproven: readings whose series are uncertain by name, and were 0.
        needs_poll: whether a second poll can tell more.
    """

    selectors: Mapping[str, tuple[Selector, ...]] = field(default_factory=dict)
    preferred: tuple[str, ...] = ()
    refused: tuple[Refusal, ...] = ()
    unproven: tuple[str, ...] = ()
    needs_poll: bool = False

    @property
    def rules(self) -> RuleSet:
        """The choices as a rule set."""
        return RuleSet(AUTO, self.selectors)

    @property
    def has_beans(self) -> bool:
        """Whether the page shows a bean of Kafka."""
        return any(each not in _OF_AGENT for each in self.selectors)

    @property
    def refusals(self) -> tuple[str, ...]:
        """A clause for each reason why readings are refused, with the first of them."""
        first: dict[str, list[Refusal]] = {}
        for each in self.refused:
            first.setdefault(each.why, []).append(each)
        return tuple(
            f"{one.text} (and {len(others)} more readings)" if others else one.text
            for one, *others in first.values()
        )

    @property
    def texts(self) -> dict[str, str]:
        """Reading → its series as text."""
        return {
            reading: f"{each[0].text}, one-minute rate" if each[0].is_rate else each[0].text
            for reading, each in sorted(self.selectors.items())
            if reading not in _NOT_COMPARED
        }


@dataclass
class _Group:
    """The series on a page with one selector.

    Attributes:
        candidate: what its name says.
        numbers: series → its numbers, one for each poll.
        is_doubled: whether the page shows a series twice, with different numbers.
    """

    candidate: Candidate
    numbers: dict[str, list[float]] = field(default_factory=dict)
    is_doubled: bool = False

    @property
    def text(self) -> str:
        """The series as text."""
        return self.candidate.selector.text

    @property
    def has_number(self) -> bool:
        """Whether a series has a number in each poll."""
        return any(all(map(math.isfinite, each)) for each in self.numbers.values())

    def behavior(self, seconds: float) -> Behavior:
        """What the numbers show: a count, none, or nothing."""
        of_idle = self.candidate.reading in _IDLE
        each = [
            idle_behavior(known, seconds) if of_idle else count_behavior(known)
            for numbers in self.numbers.values()
            if (known := [number for number in numbers if math.isfinite(number)])
        ]
        return _joint(each)


def count_behavior(numbers: Sequence[float]) -> Behavior:
    """What the numbers of a meter in successive polls show."""
    if any(number < 0 or not number.is_integer() for number in numbers):
        return Behavior.NO_COUNT
    if any(later < earlier for earlier, later in pairwise(numbers)):
        return Behavior.NO_COUNT
    return Behavior.COUNT if numbers[-1] > 0 else Behavior.UNKNOWN


def idle_behavior(numbers: Sequence[float], seconds: float) -> Behavior:
    """What the numbers of the request handlers' meter in successive polls show.

    Args:
        seconds: time between the first poll and the last [s]; 0 for one poll.
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
    """Choose the series of each reading.

    Args:
        polls: one poll of a page or two, the earlier first.
    """
    groups = _groups(polls)
    seconds = polls[-1].at_s - polls[0].at_s
    behaviors = {id(group): group.behavior(seconds) for group in groups}
    families = _families(groups, behaviors)
    by_reading: dict[str, list[_Group]] = {}
    for group in groups:
        by_reading.setdefault(group.candidate.reading, []).append(group)
    chosen: dict[str, tuple[Selector, ...]] = {}
    refused: list[Refusal] = []
    preferred: list[str] = []
    unproven: list[str] = []
    for reading, all_shown in by_reading.items():
        shown = [group for group in all_shown if group.has_number]
        if not shown:
            if reading in _IDLE:
                names = tuple(each.text for each in all_shown)
                refused.append(Refusal(reading, names, "as it has no number"))
            continue
        choice = _Choice(reading, shown, behaviors, families)
        taken, why = choice.make()
        if taken is None:
            refused.append(Refusal(reading, tuple(sorted(each.text for each in shown)), why))
            continue
        chosen[reading] = (taken.candidate.selector,)
        if choice.is_unproven(taken):
            unproven.append(reading)
        if why:
            preferred.append(why)
    _drop_needless_sums(chosen)
    for reading in FROM_FIRST_USE:
        chosen.update(_of_first_use(reading, chosen))
    for reading, selectors in _agent_selectors(polls[0].text).items():
        chosen.setdefault(reading, selectors)
    uncertain = any(group.candidate.meaning is Meaning.UNCERTAIN for group in groups)
    needs_poll = len(polls) < 2 and (uncertain or bool(refused))
    return Choices(chosen, tuple(preferred), tuple(refused), tuple(unproven), needs_poll)


@dataclass(frozen=True)
class _Choice:
    """The choice among the series of one reading."""

    reading: str
    shown: Sequence[_Group]
    behaviors: Mapping[int, Behavior]
    families: Mapping[tuple[str, ...], Behavior]

    def make(self) -> tuple[_Group | None, str]:
        """The chosen series and why it is preferred to others, or None and why there is none."""
        if any(group.is_doubled for group in self.shown):
            return None, "as the page shows the series twice, with different numbers"
        certain = [each for each in self.shown if self._is_certain(each)]
        if certain:
            best = min(each.candidate.rank for each in certain)
            preferred = [each for each in certain if each.candidate.rank == best]
            return self._only(preferred, "its name says what it is")
        uncertain = [each for each in self.shown if each.candidate.meaning is Meaning.UNCERTAIN]
        counts = [each for each in uncertain if self._behavior(each) is Behavior.COUNT]
        unknown = [each for each in uncertain if self._behavior(each) is Behavior.UNKNOWN]
        if counts:
            return self._only(counts, "by its numbers it is the count")
        if unknown:
            return self._only(unknown, "the other is no count")
        if all(each.candidate.meaning is Meaning.RATE for each in self.shown):
            return None, "which averages over a time before the window, as it is no count"
        return None, "whose numbers are no count: a count is a whole number that grows"

    def is_unproven(self, group: _Group) -> bool:
        """Whether neither name nor numbers show what the series is."""
        is_uncertain = group.candidate.meaning is Meaning.UNCERTAIN
        return is_uncertain and self._behavior(group) is Behavior.UNKNOWN

    def _behavior(self, group: _Group) -> Behavior:
        """What the group is, by its own numbers and those of the same rule's other series."""
        own = self.behaviors[id(group)]
        return _joint([own, self.families.get(group.candidate.family, Behavior.UNKNOWN)])

    def _is_certain(self, group: _Group) -> bool:
        meaning = group.candidate.meaning
        if meaning is Meaning.COUNT:
            return self.behaviors[id(group)] is not Behavior.NO_COUNT
        return meaning in {Meaning.VALUE, Meaning.MEAN, Meaning.SUM}

    def _only(self, equal: Sequence[_Group], reason: str) -> tuple[_Group | None, str]:
        first = min(equal, key=lambda each: each.text)
        numbers = sorted(first.numbers.values())
        if any(sorted(other.numbers.values()) != numbers for other in equal):
            names = ", ".join(sorted(each.text for each in equal))
            return None, f"as nothing shows which of {names} is the reading"
        others = sorted(
            each.text
            for each in self.shown
            if each is not first
            and each.candidate.meaning is not Meaning.RATE
            and each.candidate.rank == first.candidate.rank
        )
        if not others:
            return first, ""
        return first, f"{self.reading} is {first.text} and not {', '.join(others)}: {reason}"


def _joint(behaviors: Iterable[Behavior]) -> Behavior:
    """What several series of one rule are together."""
    found = set(behaviors)
    if Behavior.NO_COUNT in found:
        return Behavior.NO_COUNT
    return Behavior.COUNT if Behavior.COUNT in found else Behavior.UNKNOWN


def _families(
    groups: Iterable[_Group], behaviors: Mapping[int, Behavior]
) -> dict[tuple[str, ...], Behavior]:
    found: dict[tuple[str, ...], list[_Group]] = {}
    for group in groups:
        if group.candidate.reading not in _IDLE and group.candidate.meaning is Meaning.UNCERTAIN:
            found.setdefault(group.candidate.family, []).append(group)
    return {
        family: _joint([*(behaviors[id(each)] for each in same), *_behaviors_of_phases(same)])
        for family, same in found.items()
    }


def _behaviors_of_phases(groups: Sequence[_Group]) -> Iterator[Behavior]:
    """What the phases of a request show, where the groups are of histograms.

    The largest time of a request is a whole number that never falls, too. But each request counts
    in each of its phases, so that their counts are equal, and their times are not.
    """
    if not groups[0].candidate.is_histogram:
        return
    requests: dict[str, list[float]] = {}
    for group in groups:
        request = next((each for each in REQUESTS if group.candidate.reading.startswith(each)), "")
        last = [numbers[-1] for numbers in group.numbers.values()]
        requests.setdefault(request, []).extend(filter(math.isfinite, last))
    compared = [counts for request, counts in requests.items() if request and len(counts) > 1]
    if any(max(each) - min(each) > _PHASES_APART * max(each) for each in compared):
        yield Behavior.NO_COUNT
    elif not any(map(max, compared)) and any(map(max, filter(None, requests.values()))):
        yield Behavior.NO_COUNT  # no two phases to compare


def _groups(polls: Sequence[Poll]) -> list[_Group]:
    """The groups of series that may be readings, with their numbers."""
    pages = [printed_numbers(poll.text) for poll in polls]
    constant = constant_labels(pages[0])
    found: dict[tuple[str, str], _Group] = {}
    for series in pages[0]:
        for candidate in candidates_of(series, constant):
            group = found.setdefault(
                (candidate.reading, candidate.selector.text), _Group(candidate)
            )
            each = [[*map(number_of, page.get(series, [""]))] for page in pages]
            group.numbers[series] = [numbers[0] for numbers in each]
            group.is_doubled |= any(len(set(numbers)) > 1 for numbers in each)
    return list(found.values())


def printed_numbers(text: str) -> dict[str, list[str]]:
    """Series that may be readings → their numbers as text, in the order of the page."""
    found: dict[str, list[str]] = {}
    for line in text.split("\n"):
        series = series_of(line)
        if series and may_be_reading(series.partition("{")[0]):
            found.setdefault(series, []).append(line[len(series) :])
    return found


def constant_labels(series: Iterable[str]) -> frozenset[tuple[str, str]]:
    """The labels that all series have with the same value, such as one for the environment."""
    common: set[tuple[str, str]] | None = None
    for each in series:
        parsed = parse_series(each)
        if parsed is not None:
            labels = set(parsed[1].items())
            common = labels if common is None else common & labels
            if not common:
                break
    return frozenset(each for each in common or () if squeezed(each[0]) not in _NO_TOTAL)


def _of_first_use(
    reading: str, chosen: Mapping[str, tuple[Selector, ...]]
) -> dict[str, tuple[Selector, ...]]:
    """The series of a bean that Kafka registers at its first use, after the model of another.

    Empty where the page shows it already, or shows no other histogram like it.
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
    """A text of the bean of local times as that of the bean of log flushes."""
    for word, other in _FLUSH_WORDS:
        text = text.replace(word, other).replace(word.lower(), other.lower())
    return text


def _drop_needless_sums(chosen: dict[str, tuple[Selector, ...]]) -> None:
    """Drop the sum of each histogram whose mean is shown, or whose count is not."""
    for reading in [each for each in chosen if each.endswith("_sum")]:
        base = reading.removesuffix("_sum")
        if f"{base}_mean" in chosen or f"{base}_count" not in chosen:
            del chosen[reading]


def _agent_selectors(text: str) -> dict[str, tuple[Selector, ...]]:
    """The series of the broker's JVM that an agent adds to a page.

    A stand-alone exporter can only add those of its own process, so it has none.
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
