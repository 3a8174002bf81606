"""The latest scrapes of brokers or hosts by a Prometheus server, each scrape with its time.

One query with a range selector returns the samples of all targets with the times of their scrapes.
Each scrape is delivered only once, so no old number counts as a new sample. If a target has no
scrape during `STALE_INTERVALS` scrape intervals, the target gets a sample with an error.

The module also converts an answer of a server into pages of exporters, one page for each scrape. A
server adds labels to the series of a page, such as `job` and `instance`. The server's own series
`up` has only the labels that the server adds. Without the labels that the server added, a series
has the same text as on the exporter's page. So the same code reads the pages of servers and the
pages of exporters.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise
from statistics import median

from metrics.common.errors import ConfigError
from metrics.common.grouping import grouped
from metrics.sources.exposition import Poll, kind_of
from metrics.sources.http_access import ClosedError, ScrapeError
from metrics.sources.rules import RuleSet
from metrics.sources.scraper import Scrape, read_numbers
from metrics.sources.series_choice import AUTO
from metrics.sources.server.api import ServerApi, ServerSeries
from metrics.sources.server.broker_label import BrokerLabel
from metrics.units import format_some

NAME = "__name__"
UP = "up"
"""The series that a server adds for each target, with the value 1 if the scrape succeeded."""
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
"""Escapes of characters in the text format and in PromQL."""


@dataclass
class ServerPage:
    """The page of one target in one scrape.

    Attributes:
        at_s: time of the scrape [s since the epoch], according to the server's clock.
        lines: pairs (series, text of its number). The series lacks the labels that the server
            added.
        is_up: whether the scrape succeeded.
    """

    at_s: float
    lines: list[tuple[str, str]] = field(default_factory=list)
    is_up: bool = True

    @property
    def poll(self) -> Poll:
        """The page in the text format of an exporter."""
        return Poll(self.at_s, "".join(f"{series} {number}\n" for series, number in self.lines))

    def scrape(self, rules: RuleSet) -> Scrape:
        """The readings of the page according to some rules."""
        found = (
            (match, number)
            for series, number in self.lines
            if (match := rules.match(series)) is not None
        )
        return Scrape(self.at_s, read_numbers(found, self.at_s))


def by_value(answer: Iterable[ServerSeries], label: str) -> dict[str, list[ServerSeries]]:
    """Value of a label → the series with this value."""
    return grouped((each.labels.get(label, ""), each) for each in answer)


def added_labels(series: Sequence[ServerSeries]) -> frozenset[str]:
    """The names of the labels that a server added to the series of one target.

    The added labels are the labels of the series `up`. If the server does not store `up`, the
    result has the labels that occur in all series of the target.
    """
    own = [each for each in series if each.labels.get(NAME) == UP] or series
    names = [frozenset(each.labels) for each in own]
    return reduce(frozenset.intersection, names, names[0] if names else frozenset()) - {NAME}


def differing(series: Iterable[ServerSeries], added: Collection[str]) -> dict[str, list[str]]:
    """Added label → its values, for each label that has several values.

    If a label has several values, several targets appear as one broker.
    """
    values: dict[str, set[str]] = {label: set() for label in added}
    for each in series:
        for label in added:
            values[label].add(each.labels.get(label, ""))
    return {label: sorted(found) for label, found in sorted(values.items()) if len(found) > 1}


def pages_of(series: Iterable[ServerSeries], added: Collection[str]) -> list[ServerPage]:
    """The pages of one target, by time."""
    found: dict[float, ServerPage] = {}
    for each in series:
        text = series_text(each.labels, added)
        is_up_series = each.labels.get(NAME) == UP
        for at_s, number in each.samples:
            page = found.setdefault(at_s, ServerPage(at_s))
            if is_up_series:
                page.is_up = page.is_up and float(number) > 0
            else:
                page.lines.append((text, number))
    return [found[at_s] for at_s in sorted(found)]


def series_text(labels: Mapping[str, str], added: Collection[str]) -> str:
    """The text of a series on an exporter's page."""
    own = sorted((name, value) for name, value in labels.items() if name not in {NAME, *added})
    inner = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in own)
    return f"{labels[NAME]}{{{inner}}}" if inner else labels[NAME]


CLOCK_OFFSET_MAX_S = 0.25
"""Largest accepted offset of the server's clock from the driver's clock, as for the clocks of
executors [s]."""
CLOCK_EVERY_S = 30.0
"""Time after which the clocks are compared again [s]."""
STALE_INTERVALS = 3.0
"""Number of scrape intervals without a scrape after which a target is stale."""
BACK_INTERVALS = 2.0
"""Scrapes that a call missed are delivered later if they are at most this number of scrape
intervals old."""
LOOK_BACK_S = 300.0
"""A series counts as present on the server if it had a sample within this time before `open`
[s]."""
_OPEN_SCRAPES, _OPEN_S = 3.5, 15.0
"""Two spans of time before `open`: the first as a number of scrape intervals, the second in
seconds. `open` reads the pages of all scrapes in the longer of the two spans."""
_NAMED_MAX = 6
_LAG_S = 0.2
"""Initial estimate of the time between a scrape and its appearance in queries [s]."""
_LAG_MAX_S = 5.0
_RETRY_S = 0.5
"""Longest time between two queries for the same scrape [s]."""


@dataclass(frozen=True)
class FeedSpec:
    """The targets to read from a server.

    Attributes:
        selector: label matchers of the targets, such as `job="kafka"`, without braces.
        label: the label that distinguishes the targets.
        hosts: broker id → advertised host.
        what: noun phrase that messages use for the targets, such as `the brokers`.
    """

    selector: str
    label: BrokerLabel
    hosts: Mapping[int, str]
    what: str = "the brokers"


@dataclass
class FeedTarget:
    """One target: the exporter of a broker, or of a host.

    Attributes:
        value: value of the label that distinguishes this target.
        url: URL of the server with the label of the target, for messages.
        node_id: id of the target's first broker.
        added: names of the labels that the server adds.
        last_s: time of the last delivered scrape [s since the epoch], according to the server's
            clock.
        pages: pages that `ServerFeed.open` has read.
        rules: rule set that assigns the target's series to readings.
    """

    value: str
    brokers: tuple[int, ...]
    url: str
    node_id: int
    interval_s: float = 0.0
    added: frozenset[str] = frozenset()
    last_s: float = 0.0
    pages: list[ServerPage] = field(default_factory=list)
    rules: RuleSet = field(default_factory=lambda: RuleSet(AUTO, {}))
    _polls: int = 0

    def poll(self, timeout_s: float) -> Poll:
        """The page of the next scrape. `ServerFeed.open` has read the scrapes. The earliest scrape
        is returned first.
        """
        # If there is only one scrape, the second poll returns the same page again.
        if self._polls > len(self.pages):
            raise ScrapeError(
                f"its {len(self.pages)} last scrapes do not show the meaning of the numbers of "
                "the series; wait for more scrapes"
            )
        self._polls += 1
        return self.pages[: self._polls][-1].poll

    def use(self, rules: RuleSet) -> None:
        """Set the rules for all later scrapes."""
        self.rules = rules

    def scrape_known_series(self, timeout_s: float) -> Scrape:
        """The last scrape that `ServerFeed.open` has read."""
        return self.pages[-1].scrape(self.rules)


class ServerFeed:
    """Reads the targets of one server. A feed is not thread-safe.

    Args:
        api: the server.
        spec: the targets to read.
        clock: wall clock [s since the epoch].
        pause: waits for a number of seconds; the default waits until `close` at the latest.
    """

    def __init__(
        self,
        api: ServerApi,
        spec: FeedSpec,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self._api = api
        self.spec = spec
        self._clock = clock
        self._closed = threading.Event()
        self._pause = pause if pause is not None else self._closed.wait
        self.targets: list[FeedTarget] = []
        self._names = UP
        self._offset_s = 0.0
        self._clocks_s = 0.0
        self._returned_s = 0.0
        self._lag_s = _LAG_S

    # --- opening ------------------------------------------------------------

    def open(self, is_wanted: Callable[[str], bool]) -> None:
        """Find the targets and their scrape intervals, and read the pages of their last scrapes.

        Args:
            is_wanted: gets the name of a series, and returns whether the series may be a reading.

        Raises:
            ConfigError: the server does not answer, or does not show all targets.
        """
        try:
            self._compare_clocks(at_open=True)
            names = self._shown_names()
            wanted = sorted(name for name in names if is_wanted(name))
            if not wanted:
                page = "".join(f"{name} 1\n" for name in names)
                raise ConfigError(
                    f"the series that {self._selected} selects on {self._api.url} do not belong to "
                    f"{self.spec.what}: {kind_of(page)}; correct {self.spec.label.section}.selector"
                )
            self._find_targets(wanted)
            self._names = _any_of(wanted)
            self._read_pages()
        except ScrapeError as error:
            keys = f"{self.spec.label.section}.server and selector"
            remedy = "" if isinstance(error, ClosedError) else f"; check {keys}"
            raise ConfigError(
                f"the Prometheus server {self._api.url} shows no metrics of {self.spec.what}: "
                f"{error}{remedy}"
            ) from error

    @property
    def _selected(self) -> str:
        return f"{{{self.spec.selector}}}"

    def _shown_names(self) -> list[str]:
        since_s = self._server_s() - LOOK_BACK_S
        names = self._api.names(f"label/{NAME}/values", self._selected, since_s)
        if names:
            return names
        jobs = self._api.names("label/job/values", "", since_s)
        known = format_some(jobs, _NAMED_MAX) or "none"
        raise ConfigError(
            f"{self._selected} selects no series of the last {LOOK_BACK_S / 60:.0f} min on "
            f"{self._api.url}; expected series of {self.spec.what}; the server's jobs are {known}; "
            f"correct {self.spec.label.section}.selector"
        )

    def _find_targets(self, names: Sequence[str]) -> None:
        label = self.spec.label
        shown = self._recent(UP) or self._recent(re.escape(names[0]))
        values = [value for value, series in shown.items() if value and self._current(series)]
        if not values:
            raise self._no_label()
        assigned = sorted(label.assign(values, self.spec.hosts).items())
        brokers = grouped((value, broker) for broker, value in assigned)
        self.targets = [
            FeedTarget(value, tuple(ids), f"{self._api.url} ({label.name}={value!r})", ids[0])
            for value, ids in brokers.items()
        ]
        for target in self.targets:
            series = self._current(shown[target.value])
            target.interval_s = self._interval(target, [at_s for at_s, _ in series[0].samples])

    def _no_label(self) -> ConfigError:
        label = self.spec.label
        since_s = self._server_s() - LOOK_BACK_S
        of_targets = f'{{__name__="{UP}",{self.spec.selector}}}'
        names = self._api.names("labels", of_targets, since_s)
        names = names or self._api.names("labels", self._selected, since_s)
        known = ", ".join(sorted({*names} - {NAME})) or "none"
        return ConfigError(
            f"the series that {self._selected} selects on {self._api.url} have no label "
            f"{label.name}; their labels are {known}; set {label.section}.broker_label to the "
            f"label that distinguishes the brokers"
        )

    def _recent(self, names: str) -> dict[str, list[ServerSeries]]:
        """Label value of a target → recent series of this target. The targets differ in the value
        of this label. Only series with a name that matches `names` are in the result.
        """
        expression = f"{{__name__=~{_quoted(names)},{self.spec.selector}}}[{LOOK_BACK_S:.0f}s]"
        return by_value(self._api.query(expression), self.spec.label.name)

    def _current(self, series: Sequence[ServerSeries]) -> list[ServerSeries]:
        """The series that still get samples, as shown by the time since their last sample. The
        result always contains the series with the latest sample.
        """
        newest_s = max((each.samples[-1][0] for each in series), default=0.0)

        def is_current(each: ServerSeries) -> bool:
            times_s = [at_s for at_s, _ in each.samples]
            step_s = median(later - earlier for earlier, later in pairwise(times_s))
            return newest_s - times_s[-1] <= STALE_INTERVALS * step_s

        return [
            each
            for each in series
            if each.samples[-1][0] == newest_s or (len(each.samples) > 1 and is_current(each))
        ]

    def _several(self, target: FeedTarget, series: Iterable[ServerSeries]) -> str:
        """A sentence if several targets appear as one target, or an empty text otherwise."""
        apart = differing(series, target.added)
        if not apart:
            return ""
        named = "; ".join(f"{label} is {' and '.join(found)}" for label, found in apart.items())
        label, key = self.spec.label, self.spec.label.section
        return (
            f"{self._selected} selects several targets with {label.name}={target.value!r} on "
            f"{self._api.url} ({named}); expected one exporter for each "
            f"broker of one cluster; add a label that distinguishes them to {key}.selector, or "
            f"set {key}.broker_label to another label"
        )

    def _interval(self, target: FeedTarget, times_s: Sequence[float]) -> float:
        where = f"with {self.spec.label.name}={target.value!r}"
        if len(times_s) < 2:
            raise ConfigError(
                f"the Prometheus server {self._api.url} has {len(times_s)} scrape of the last "
                f"{LOOK_BACK_S / 60:.0f} min {where}; expected 2 or more, which show its scrape "
                "interval; wait for the next scrape, or scrape every "
                f"{LOOK_BACK_S / 5:.0f} s or more often"
            )
        interval_s = median(later - earlier for earlier, later in pairwise(times_s))
        age_s = self._server_s() - times_s[-1]
        if age_s > STALE_INTERVALS * interval_s + _LAG_MAX_S:
            raise ConfigError(
                f"the last scrape {where} on {self._api.url} is {age_s:.0f} s old; expected one "
                f"scrape every {interval_s:.3g} s; check on the server's page /targets why the "
                "scrapes stopped"
            )
        return round(interval_s, 3)

    def _read_pages(self) -> None:
        shown = self._query(max(_OPEN_S, _OPEN_SCRAPES * self.interval_s))
        for target in self.targets:
            series = shown.get(target.value, [])
            target.added = added_labels(series)
            if several := self._several(target, series):
                raise ConfigError(several)
            target.pages = [
                page for page in pages_of(series, target.added) if page.is_up and page.lines
            ]
            if not target.pages:
                raise ScrapeError(
                    f"its scrapes with {self.spec.label.name}={target.value!r} fail or have no "
                    "such series; check the server's page /targets"
                )
            target.last_s = target.pages[-1].at_s

    @property
    def interval_s(self) -> float:
        """The longest scrape interval of the targets [s]."""
        return max((target.interval_s for target in self.targets), default=0.0)

    # --- reading ------------------------------------------------------------

    def read_known_series(self) -> None:
        """Restrict all later queries to the series in the targets' rules."""
        self._names = _any_of(
            sorted({n for each in self.targets for n in each.rules.name_patterns})
        )

    def deliver(self) -> list[list[Scrape]]:
        """The scrapes of each target since the last call, with times on the driver's clock.

        The call waits until each target has a scrape that began after the call. If a target has no
        new scrape in time, the last item of the target has an error. If the previous call ended
        more than one scrape interval ago, only the latest scrape is delivered.
        """
        called_s = self._clock()
        try:
            self._compare_clocks()
            found = self._collect(called_s)
        except ScrapeError as error:
            self._pause(min(_RETRY_S, self.interval_s))
            text = f"the Prometheus server {self._api.url}: {error}"
            found = [[Scrape(self._clock(), error=text)] for _ in self.targets]
        self._returned_s = self._clock()
        return found

    def past(
        self, target: FeedTarget, rules: RuleSet, span: tuple[float, float, float]
    ) -> Iterator[Scrape]:
        """The past scrapes of a target, one for each step.

        A scrape contains no number that is older than one step. A step without a scrape is left
        out.

        Args:
            target: the target.
            rules: rule set that assigns the target's series to readings.
            span: a tuple of the first time [s since the epoch], the last time [s since the epoch],
                and the step [s].

        Raises:
            ScrapeError: the server does not answer.
        """
        from_s, to_s, step_s = span
        selector = self._expression("|".join(rules.name_patterns), (target,))
        expression = f"last_over_time({selector}[{round(step_s * 1000)}ms])"
        series = self._api.query_range(expression, from_s, to_s, step_s)
        return (page.scrape(rules) for page in pages_of(series, target.added) if page.lines)

    def _collect(self, called_s: float) -> list[list[Scrape]]:
        is_continued = called_s - self._returned_s <= self.interval_s
        ends_s = called_s + STALE_INTERVALS * self.interval_s + _LAG_MAX_S
        new: dict[str, dict[float, ServerPage]] = {each.value: {} for each in self.targets}
        several: dict[str, str] = {}
        retry_s = min(_RETRY_S, self.interval_s / 4)
        self._pause(max(0.0, self._due_s(called_s) - self._clock()))
        queries = 0
        while True:
            queries += 1
            oldest_s = min(each.last_s for each in self.targets) - self._offset_s
            back_s = self._clock() - max(called_s - BACK_INTERVALS * self.interval_s, oldest_s)
            shown = self._query(back_s + retry_s)
            for target in self.targets:
                series = shown.get(target.value, [])
                if found := self._several(target, series):
                    several[target.value] = found
                for page in pages_of(series, target.added):
                    if page.at_s > target.last_s:
                        new[target.value][page.at_s] = page
            waiting = [each for each in self.targets if not self._is_new(new[each.value], called_s)]
            if not waiting or self._clock() >= ends_s or self._closed.is_set():
                break
            self._pause(retry_s)
        self._learn_lag(new.values(), is_late=queries > 1)
        return [
            [Scrape(self._clock(), error=several[each.value])]
            if each.value in several
            else list(self._delivered(each, new[each.value], called_s, is_continued))
            for each in self.targets
        ]

    def _is_new(self, pages: Mapping[float, ServerPage], called_s: float) -> bool:
        return any(at_s - self._offset_s >= called_s for at_s in pages)

    def _delivered(
        self,
        target: FeedTarget,
        pages: Mapping[float, ServerPage],
        called_s: float,
        is_continued: bool,
    ) -> Iterator[Scrape]:
        ordered = [pages[at_s] for at_s in sorted(pages)]
        if ordered:
            target.last_s = ordered[-1].at_s
        for page in ordered if is_continued else ordered[-1:]:
            if page.is_up and page.lines:
                yield replace(page, at_s=page.at_s - self._offset_s).scrape(target.rules)
        where = f"with {self.spec.label.name}={target.value!r}"
        if not self._is_new(pages, called_s):
            age_s = self._server_s() - target.last_s
            error = (
                f"the last scrape {where} is {age_s:.0f} s old; expected one scrape every "
                f"{target.interval_s:.3g} s"
            )
            yield Scrape(self._clock(), error=error)
        elif not (ordered[-1].is_up and ordered[-1].lines):
            error = f"the Prometheus server's scrape {where} failed"
            yield Scrape(self._clock(), error=error)

    def _due_s(self, called_s: float) -> float:
        """The expected time at which all targets have a scrape that began after the call [s]."""
        due_s = called_s
        for target in self.targets:
            last_s = target.last_s - self._offset_s
            intervals = max(1.0, -(-(called_s - last_s) // target.interval_s))
            next_s = last_s + intervals * target.interval_s
            if next_s - called_s <= target.interval_s:
                due_s = max(due_s, next_s + self._lag_s)
        return due_s

    def _learn_lag(self, pages: Iterable[Mapping[float, ServerPage]], *, is_late: bool) -> None:
        """Update the estimate of the time between a scrape and its appearance in queries."""
        now_s = self._server_s()
        lags_s = [now_s - max(found) for found in pages if found]
        lag_s = min(lags_s, default=0.0) if is_late else 0.9 * self._lag_s
        self._lag_s = min(_LAG_MAX_S, max(_LAG_S, lag_s))

    def _query(self, back_s: float) -> dict[str, list[ServerSeries]]:
        """Value of the label → series of the target in the last `back_s` seconds."""
        expression = (
            f"{self._expression(self._names, self.targets)}[{max(1, round(back_s * 1000))}ms]"
        )
        return by_value(self._api.query(expression), self.spec.label.name)

    def _expression(self, names: str, targets: Sequence[FeedTarget]) -> str:
        """A selector for the series of some targets, without series of single topics."""
        values = "|".join(re.escape(target.value) for target in targets)
        name, label = _quoted(names), f"{self.spec.label.name}=~{_quoted(values)}"
        return f'{{__name__=~{name},{self.spec.selector},{label},topic="",partition=""}}'

    # --- clocks -------------------------------------------------------------

    def _server_s(self) -> float:
        return self._clock() + self._offset_s

    def _compare_clocks(self, *, at_open: bool = False) -> None:
        """Compare the server's clock with the driver's clock every `CLOCK_EVERY_S`.

        Raises:
            ScrapeError: the clocks differ too much.
        """
        if not at_open and self._clock() - self._clocks_s < CLOCK_EVERY_S:
            return
        offset_s, error_s = self._api.clock_offset()
        self._clocks_s = self._clock()
        if max(0.0, abs(offset_s) - error_s) > CLOCK_OFFSET_MAX_S:
            way = "ahead of" if offset_s > 0 else "behind"
            raise ClosedError(
                f"its clock is {abs(offset_s):.3f} s {way} the driver's (± {error_s:.3f} s), more "
                f"than {CLOCK_OFFSET_MAX_S:g} s; synchronize the clocks of both hosts"
            )
        if at_open:
            self._offset_s = offset_s

    def close(self) -> None:
        """Close the connection. Further calls have no effect."""
        self._closed.set()
        self._api.close()


def _any_of(names: Iterable[str]) -> str:
    """A regular expression that matches `up`, and each name that one of the given expressions
    matches.
    """
    return "|".join(dict.fromkeys((UP, *names)))


def _quoted(text: str) -> str:
    """A text as a string literal of PromQL."""
    return f'"{text.translate(_ESCAPES)}"'
