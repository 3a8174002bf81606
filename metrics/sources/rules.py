"""Rule sets, which assign series of an exporter to readings. The files in conf/prometheus contain
rule sets.

A rule set maps the name of a reading to a selector such as
`kafka_network_requestmetrics_totaltimems_count{request="Produce"}`. A selector contains all labels
of the series. `*` in a name or as the value of a label matches any text. The matched text is added
to the name of the reading, as in `network_wait_ns:PLAINTEXT/0`. The suffix `_total` is ignored,
because release 1 of the exporter adds it to some names of release 0 and removes it from others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from typing import Any

from metrics.common.errors import ConfigError
from metrics.common.grouping import grouped
from metrics.sources.beans import (
    CONTROLLER_EPOCH,
    EVERY_BEAN,
    HANDLER_IDLE_NS,
    PRODUCE_ERRORS,
    SHARED_HANDLER_IDLE_NS,
    Kind,
    Role,
    beans_for,
    count_as,
    readings_of,
    with_own_idle,
)
from metrics.sources.exposition import Labels, parse_series

BROKER_HANDLER_IDLE_NS = "broker_handler_idle_ns"
"""Idle time of a broker's request handlers. The idle time of a controller's request handlers is not
included. Kafka 4.2 and later releases show this reading (KIP-1207)."""
ACTIVE_CONTROLLER = "active_controller"
"""A gauge that controllers show, and that the brokers of a cluster with ZooKeeper also show."""
NODE_ID = "node_id"
"""A reading such as `node_id:3`, which can come from any series with the node id as a label."""
JAVA = "java"
"""A reading such as `java:OpenJDK/Debian/17`, which can come from any series with the JVM's name,
vendor and version as labels."""
NODE_SERIES = (ACTIVE_CONTROLLER, NODE_ID, JAVA)
"""Readings that identify a node, and that are not part of a sample."""

_TOTAL = "_total"
_SUM = "_sum"
_ANY = "__any"  # replaces `*`, which is not allowed in the name of a series
_OF_REPLICAS = ("leader_partitions", "under_replicated_partitions", "isr_shrinks", "isr_expands")
_SERIES_MAX = 200_000
"""Highest number of series whose match a rule set keeps in its cache. Each new topic adds some
series to the cache of the rule set."""
_NAMES = dict.fromkeys(reading.name for reading in readings_of(EVERY_BEAN))
READINGS = (*(name for name in _NAMES if name != SHARED_HANDLER_IDLE_NS), BROKER_HANDLER_IDLE_NS)
"""The readings to which a rule set may assign series."""

METERS = frozenset(
    {bean.name for bean in EVERY_BEAN if bean.kind is Kind.COUNTER and bean.attribute == "Count"}
    - {SHARED_HANDLER_IDLE_NS}
    | {BROKER_HANDLER_IDLE_NS}
)
"""Readings that are the count of a meter. If a page does not show a meter's count, the meter's
one-minute rate can be read instead."""
IDLE_METERS = frozenset({HANDLER_IDLE_NS, BROKER_HANDLER_IDLE_NS})
"""Meters that count idle time. The one-minute rate of a meter of idle time is the share of the time
in which threads are idle."""
ONE_MINUTE_RATE = "one_minute_rate"
ROUNDING = "rounding"
"""Prefixes of readings on a page. `one_minute_rate:bytes_in` is the rate [unit of the count / s].
`rounding:bytes_in` is the largest rounding error of the printed rate."""


@dataclass(frozen=True)
class Selector:
    """A pattern for one series, or for several series that differ in the texts at the places of
    `*`.

    Attributes:
        name, labels: name and labels of the series. `*` matches any text.
        factor: factor that converts the number of the series to the unit of the reading.
        is_start_time: True if the series' number is the start time of the process [s since the
            epoch], and the reading is the time since this start [ms].
        has_total: True if the selector's name ended in `_total` in the rule set. If two series
            differ only in the suffix `_total`, the series that agrees with `has_total` is
            preferred.
        is_exact: True if the whole name of a series, with its suffix `_total`, must match `name`.
            False if a suffix `_total` of the series is ignored.
        is_rate: True if the series' number is a meter's one-minute rate.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    factor: float = 1.0
    is_start_time: bool = False
    has_total: bool = False
    is_exact: bool = False
    is_rate: bool = False

    @property
    def text(self) -> str:
        """The text of the selector in a rule set."""
        labels = ",".join(f'{label}="{value}"' for label, value in self.labels.items())
        return f"{self.name}{{{labels}}}" if labels else self.name

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("(.+)".join(map(re.escape, self.name.split("*"))))

    def matches_name(self, name: str) -> bool:
        """Whether the selector can match a series with this name."""
        return self._pattern.fullmatch(self._compared(name)) is not None

    def is_written_like(self, name: str) -> bool:
        """Whether the name and the selector agree in the suffix `_total`: both have it, or neither
        has it.
        """
        return self.is_exact or self.has_total == name.endswith(_TOTAL)

    def _compared(self, name: str) -> str:
        return name if self.is_exact else name.removesuffix(_TOTAL)

    def matched_text(self, name: str, labels: Labels) -> str | None:
        """The texts that `*` matches in a series, joined by `/`, or None if the selector does not
        match.
        """
        if self.labels.keys() != labels.keys():
            return None
        found = self._pattern.fullmatch(self._compared(name))
        if found is None:
            return None
        texts = list(found.groups())
        for label, wanted in self.labels.items():
            if wanted == "*":
                texts.append(labels[label])
            elif wanted != labels[label]:
                return None
        return "/".join(texts)


@dataclass(frozen=True)
class Match:
    """The assignment of a series to a reading by a selector.

    Attributes:
        reading: name of the reading, with the text that `*` matched.
        rank: order of preference among the matches of one reading; 0 for the preferred match.
        selector: the selector that matched the series.
    """

    reading: str
    rank: int
    selector: Selector


RANKS_EACH = 2
"""Number of ranks for the matches of one selector. The better rank is for a series that agrees with
the selector in the suffix `_total`. The worse rank is for a series that differs in this suffix."""
_Candidate = tuple[str, int, Selector]
"""Tuples of the name of a reading, the rank of one of its selectors, and this selector."""


@dataclass(frozen=True)
class RuleSet:
    """The selectors of all readings, for example from a file of conf/prometheus.

    Attributes:
        name: name of the file, for messages.
        selectors: reading → its selectors, the preferred selector first.
    """

    name: str
    selectors: Mapping[str, tuple[Selector, ...]]

    def match(self, series: str) -> Match | None:
        """The reading of a series, or None if no selector matches."""
        return self._match(series) if self.candidates_for(series.partition("{")[0]) else None

    def series_names(self, reading: str) -> set[str]:
        """The possible names of a reading's series. Selectors that contain `*` add no names."""
        names = {each.name for each in self.selectors.get(reading, ()) if "*" not in each.name}
        return {form for name in names for form in (name, f"{name}_total")}

    @property
    def name_patterns(self) -> Iterator[str]:
        """Regular expressions for the names of all series."""
        for selectors in self.selectors.values():
            for each in selectors:
                pattern = each.name.replace("*", ".+")
                yield pattern
                if not each.is_exact:
                    yield f"{pattern}{_TOTAL}"

    @cached_property
    def candidates_for(self) -> Callable[[str], tuple[_Candidate, ...]]:
        """A cached function: name of a series → the selectors that can match the series."""

        def find(name: str) -> tuple[_Candidate, ...]:
            names = dict.fromkeys((name.removesuffix(_TOTAL), name))
            named = (each for known in names for each in self._by_name.get(known, ()))
            return (*named, *(each for each in self._by_name[_ANY] if each[2].matches_name(name)))

        return cache(find)

    @cached_property
    def _match(self) -> Callable[[str], Match | None]:
        """A function: series → its match. The function has a cache, because many brokers show the
        same series.
        """

        def find(series: str) -> Match | None:
            parsed = parse_series(series)
            if parsed is None:
                return None
            name, labels = parsed
            for reading, rank, selector in self.candidates_for(series.partition("{")[0]):
                text = selector.matched_text(name, labels)
                if text is not None:
                    full = f"{reading}:{text}" if text else reading
                    preference = RANKS_EACH * rank + (not selector.is_written_like(name))
                    return Match(full, preference, selector)
            return None

        return lru_cache(_SERIES_MAX)(find)

    @cached_property
    def _by_name(self) -> dict[str, list[_Candidate]]:
        """An index: name of a series → selectors for this name. The index is needed because an
        exporter may show 10,000 series.
        """
        return {_ANY: []} | grouped(
            (_ANY if "*" in selector.name else selector.name, (reading, rank, selector))
            for reading, selectors in self.selectors.items()
            for rank, selector in enumerate(selectors)
        )


def rule_set(name: str, data: Mapping[str, Any]) -> RuleSet:
    """A rule set from the key `readings` of a file.

    Args:
        name: name of the file, for messages.
        data: reading → entry or list of entries. An entry is a selector, or a map with the key
            `series`. Further keys of the map are optional: `factor`, `start_time` and
            `one_minute_rate`. If a reading has a list of entries, the first entry is preferred.

    Raises:
        ConfigError: the name of a reading is unknown, or a selector is malformed.
    """
    for reading in data:
        if reading not in READINGS and reading not in NODE_SERIES:
            raise ConfigError(
                f"the reading {reading} in {name} is unknown; expected one of "
                f"{', '.join((*READINGS, *NODE_SERIES))}; correct the name of the reading"
            )
    return RuleSet(name, selectors_of(data, name))


def selectors_of(data: Mapping[str, Any], name: str = "") -> dict[str, tuple[Selector, ...]]:
    """Reading → its selectors. See `rule_set` for the arguments and the errors."""
    return {
        reading: tuple(
            _selector(f"{name}, {reading}", entry, reading)
            for entry in (given if isinstance(given, list) else [given])
        )
        for reading, given in data.items()
    }


def _selector(where: str, given: Any, reading: str) -> Selector:
    entry = {"series": given} if isinstance(given, str) else given
    known = {"series", "factor", "start_time", ONE_MINUTE_RATE}
    if not isinstance(entry, Mapping) or "series" not in entry or set(entry) - known:
        raise ConfigError(
            f"{where} is {given!r}; expected a series, or a map with series and factor, start_time "
            f"or one_minute_rate; correct the entry"
        )
    parsed = parse_series(str(entry["series"]).replace("*", _ANY))
    factor, is_start_time = entry.get("factor", 1.0), entry.get("start_time", False)
    is_rate = entry.get(ONE_MINUTE_RATE, False)
    is_number = isinstance(factor, (int, float)) and not isinstance(factor, bool)
    are_flags = isinstance(is_start_time, bool) and isinstance(is_rate, bool)
    if parsed is None or not is_number or not are_flags:
        raise ConfigError(
            f'{where} is {given!r}; expected a series such as name{{label="value"}}, a number for '
            f"factor, and true or false for start_time and for one_minute_rate; correct the entry"
        )
    if is_rate and reading not in METERS:
        raise ConfigError(
            f"{where} has one_minute_rate; expected only for meters ({', '.join(sorted(METERS))}); "
            f"remove one_minute_rate"
        )
    name = parsed[0].replace(_ANY, "*")
    labels = {label: value.replace(_ANY, "*") for label, value in parsed[1].items()}
    has_total = name.endswith(_TOTAL)
    found = Selector(
        name.removesuffix(_TOTAL), labels, float(factor), bool(is_start_time), has_total
    )
    return as_rate(found, reading) if is_rate else found


def as_rate(selector: Selector, reading: str) -> Selector:
    """A selector for the series with a meter's one-minute rate.

    Args:
        selector: pattern for the series, with a factor that converts the series' number to a rate
            [1/s] or to an idle share [ratio].
        reading: name of the meter's count.
    """
    unit = 1e9 if reading in IDLE_METERS else 1.0
    return replace(selector, factor=selector.factor * unit, is_rate=True)


def missing_readings(
    found: Iterable[str], roles: Iterable[Role], *, has_quorum: bool = True
) -> tuple[str, ...]:
    """The readings that the given roles have, without the readings in `found`."""
    have = {PRODUCE_ERRORS, *(name.partition(":")[0] for name in found)}  # a guard names its lack
    names = (each.name for each in readings_of(beans_for("4.2", roles, has_quorum=has_quorum)))
    return tuple(dict.fromkeys(name for name in names if name not in have))


def roles_of(values: Mapping[str, float]) -> frozenset[Role]:
    """The roles of a process, from its readings.

    A process that shows replicas is a broker. A process without replicas that shows
    `active_controller` is only a controller. A broker with ZooKeeper also shows
    `active_controller`, so a broker counts as a controller only if it shows both
    `active_controller` and the epoch of a KRaft quorum.
    """
    is_broker = any(each in values for each in _OF_REPLICAS) or ACTIVE_CONTROLLER not in values
    is_controller = ACTIVE_CONTROLLER in values and (not is_broker or CONTROLLER_EPOCH in values)
    roles = ((Role.BROKER, is_broker), (Role.CONTROLLER, is_controller))
    return frozenset(role for role, has in roles if has)


def with_handlers(values: Mapping[str, float], at_s: float, *, is_shared: bool) -> dict[str, float]:
    """The readings of a sample, with the idle time of the broker's handlers as `handler_idle_ns`.

    Args:
        values: readings of the series.
        at_s: time of the sample [s].
        is_shared: whether the process is both a broker and a controller.
    """
    found = {
        name: value for name, value in values.items() if name.partition(":")[0] not in NODE_SERIES
    }
    _replace_sums(found)
    if BROKER_HANDLER_IDLE_NS in found:
        found = _renamed(found, BROKER_HANDLER_IDLE_NS, HANDLER_IDLE_NS)
    elif is_shared and HANDLER_IDLE_NS in found:
        found = _renamed(found, HANDLER_IDLE_NS, SHARED_HANDLER_IDLE_NS)
    return with_own_idle(found, at_s)


def _renamed(values: Mapping[str, float], name: str, new: str) -> dict[str, float]:
    """The readings of a sample, after one count is renamed. The readings of the count's ticks and
    errors are renamed, too.

    Args:
        values: all readings.
        name: current name of the count.
        new: new name of the count.
    """
    kept = {key: value for key, value in values.items() if key.split(":")[-1] not in {name, new}}
    return kept | count_as(new, values, name)


def _replace_sums(values: dict[str, float]) -> None:
    """Replace the sum of each histogram by the histogram's mean. Some exporters show sums instead
    of means.
    """
    for name in [each for each in values if each.endswith(_SUM)]:
        base, total = name.removesuffix(_SUM), values.pop(name)
        count = values.get(f"{base}_count")
        if count is not None:
            values[f"{base}_mean"] = total / count if count else 0.0
