"""Assignment of the series on an exporter's page to readings. The name of a series contains the
name of a bean, and this bean decides the reading.

The rules of an exporter choose three properties of a series' name: the case of the letters, the
separators, and the last word (`Count`, `_count`, `_total` or none). The rules also choose which
keys of the bean are in the series' name and which are labels. The order of the parts is the same
under all rules: the domain, the type, the name, other keys, and the attribute. So two names count
as equal if they differ only in case and separators. The last word of a series' name may show the
meaning of the series' number. The word `_total` does not show the meaning, because some rules use
`_total` for counts, and others for rates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache
from itertools import permutations

from metrics.sources.beans import (
    HANDLER_IDLE_NS,
    PRODUCE_ERRORS,
    SHARED_HANDLER_IDLE_NS,
    Bean,
    Kind,
    Role,
    beans_for,
)
from metrics.sources.exposition import Labels, parse_series
from metrics.sources.rules import ACTIVE_CONTROLLER, BROKER_HANDLER_IDLE_NS, NODE_ID, Selector

_OTHER_SYMBOLS = re.compile(r"[^a-z0-9]")
_PERIOD, _SHARE = "PerSec", "Percent"
_COUNTED: tuple[str, ...] = ("Count",)
_NAMES_MAX = 100_000
"""Highest number of names and series in the cache. Many brokers show the same series."""
_RATES = ("oneminuterate", "fiveminuterate", "fifteenminuterate", "meanrate", "rate")


class Meaning(str, Enum):
    """The meaning of a series' number, according to its name."""

    COUNT = "count"
    MEAN = "mean"
    SUM = "sum"
    VALUE = "value"
    RATE = "rate"
    UNCERTAIN = "uncertain"


_ENDS = {
    "count": Meaning.COUNT,
    "counttotal": Meaning.COUNT,
    "mean": Meaning.MEAN,
    "sum": Meaning.SUM,
    **dict.fromkeys((*_RATES, *(f"{each}total" for each in _RATES)), Meaning.RATE),
    "": Meaning.UNCERTAIN,
    "total": Meaning.UNCERTAIN,
    "value": Meaning.UNCERTAIN,
}
"""Last word of a series' name → meaning of the series' number, for beans with several
attributes."""
_OBJECT_NAME = "objectname"
"""The label `_objectname`, which release 1 of the exporter adds if its rules give several series
one name. The end of the label's value is the name of the bean's attribute."""
_OF_HISTOGRAMS = frozenset({Meaning.MEAN, Meaning.SUM})


@dataclass(frozen=True)
class Candidate:
    """A series on an exporter's page that may show the number of a reading.

    Attributes:
        reading: name of the reading, without the text that `*` matched.
        meaning: meaning of the series' number, according to the series' name.
        selector: pattern for the series, with `*` in place of each part that differs between
            several beans.
        family: key of the rule that made the series. All series of a family have the same meaning.
        rank: 0 for the attribute's current name, 1 for its name in earlier releases.
        is_histogram: whether the bean is a histogram.
    """

    reading: str
    meaning: Meaning
    selector: Selector
    family: tuple[str, ...]
    rank: int = 0
    is_histogram: bool = False


@dataclass(frozen=True)
class _Part:
    """A key of a bean, and the texts that the key's value may have. The texts are empty for the
    value `*`.
    """

    key: str
    values: tuple[str, ...]

    @property
    def pattern(self) -> str:
        """A regular expression for this part of a bean in the name of a series."""
        if not self.values:
            return f"{'(?:name)?' if self.key == 'name' else self.key}(.+?)"
        key = "" if self.key in {"type", "name"} else f"(?:{self.key})?"
        return f"{key}(?:{'|'.join(self.values)})"

    def fits(self, value: str) -> bool:
        """Whether a label with this name and value can be this part of a bean."""
        return not self.values or squeezed(value) in self.values


@dataclass(frozen=True)
class _Bean:
    """A bean of the catalogue, prepared for the comparison with names of series."""

    reading: str
    domain: str
    parts: tuple[_Part, ...]
    attributes: tuple[str, ...]
    is_histogram: bool
    group: str

    @property
    def type_in_name(self) -> str:
        """The type after the domain in a name, or an empty text if another key may come before the
        type.
        """
        kind = self.parts[0]
        is_first = kind.key == "type" and all(part.values for part in self.parts)
        return kind.values[0] if is_first else ""

    def candidate(self, name: str, labels: Labels, constant: Mapping[str, str]) -> Candidate | None:
        """The candidate for a series, or None if the series does not belong to the bean."""
        plain = squeezed(name)
        if not plain.startswith(self.domain):
            return None
        in_name, own, attribute_of = list(self.parts), {}, None
        for label, value in labels.items():
            if squeezed(label) == _OBJECT_NAME:
                attribute_of = squeezed(value.rpartition(">")[2])
                own[label] = value
                continue
            part = next((each for each in in_name if each.key == squeezed(label)), None)
            if part is None:
                if constant.get(label) != value:
                    return None
                own[label] = value
                continue
            if not part.fits(value):
                return None
            in_name.remove(part)
            own[label] = value if part.values else "*"
        for rank, attribute in enumerate(self.attributes):
            for pattern in _patterns(self.domain, tuple(in_name), attribute):
                found = pattern.fullmatch(plain)
                if found is not None:
                    selector = Selector(
                        _starred(name, found), dict(sorted(own.items())), is_exact=True
                    )
                    keys = tuple(part.key for part in in_name)
                    return self._made(selector, found, keys, rank, attribute_of)
        return None

    def _made(
        self,
        selector: Selector,
        found: re.Match[str],
        in_name: tuple[str, ...],
        rank: int,
        attribute: str | None,
    ) -> Candidate | None:
        """The candidate for a name that matches the bean. `attribute` is the attribute's name in a
        label of the series, or None if no label contains the attribute's name.
        """
        meaning, end = Meaning.VALUE, found["end"] if attribute is None else attribute
        if self.attributes == _COUNTED:
            meaning = _ENDS.get(end, Meaning.RATE)
            if end not in _ENDS or (meaning in _OF_HISTOGRAMS and not self.is_histogram):
                return None
        family = (self.group, *in_name, _shortened(found, self.parts), end)
        reading = self.reading
        if self.is_histogram:
            named = meaning if meaning in _OF_HISTOGRAMS else Meaning.COUNT
            reading = f"{reading}_{named.value}"
        return Candidate(reading, meaning, selector, family, rank, self.is_histogram)


@lru_cache(_NAMES_MAX)
def squeezed(text: str) -> str:
    """The letters and digits of a text, in lower case."""
    return _OTHER_SYMBOLS.sub("", text.lower())


@cache
def _patterns(domain: str, parts: tuple[_Part, ...], attribute: str) -> tuple[re.Pattern[str], ...]:
    """Patterns for series' names. Each name contains all these parts, and there is one pattern for
    each order of the parts.
    """
    end = "[a-z0-9]*" if attribute in _COUNTED else f"{_end(attribute)}(?:total)?"
    return tuple(
        re.compile(f"{domain}{''.join(part.pattern for part in order)}(?P<end>{end})")
        for order in permutations(parts)
    )


def _end(attribute: str) -> str:
    """A pattern that finds a bean's attribute at the end of a series' name.

    The pattern lacks the word `total` at the end of the attribute's name, because release 1 of the
    exporter drops `_total` from the names of some series.
    """
    if attribute == "Value":
        return "(?:value)?"
    return re.sub("total$", "", squeezed(attribute))


def _starred(name: str, found: re.Match[str]) -> str:
    """The name of a series, with `*` in place of some parts. These parts, such as the name of a
    listener, differ between the beans of one reading.
    """
    places = [place for place, symbol in enumerate(name) if squeezed(symbol)]
    spans = (found.span(group) for group in range(1, (found.re.groups or 0) + 1))
    ends = found.span("end")
    for begin, end in sorted((each for each in spans if each != ends), reverse=True):
        name = f"{name[: places[begin]]}*{name[places[end - 1] + 1 :]}"
    return name


def _shortened(found: re.Match[str], parts: Iterable[_Part]) -> str:
    """`short` if the exporter's rule removed `PerSec` or `Percent` from the name, and `whole`
    otherwise.
    """
    whole = next((part.values[0] for part in parts if part.key == "name" and part.values), "")
    return "whole" if whole in found[0] else "short"


def _name_values(value: str) -> tuple[str, ...]:
    """The forms that a bean's name can have inside the name of a series, the longest first."""
    whole = squeezed(value)
    short = (squeezed(value.removesuffix(each)) for each in (_PERIOD, _SHARE))
    return (whole, *(each for each in short if each != whole))


def _bean(reading: str, bean: Bean) -> _Bean:
    domain, _, keys = bean.object_name.partition(":")
    parts = []
    for each in keys.split(","):
        key, _, value = each.partition("=")
        values = (
            () if value == "*" else _name_values(value) if key == "name" else (squeezed(value),)
        )
        parts.append(_Part(squeezed(key), values))
    is_histogram = bean.kind is Kind.HISTOGRAM
    if is_histogram:
        group, attributes = "histogram", _COUNTED
    else:
        group = next((e for e in (_PERIOD, _SHARE) if bean.object_name.endswith(e)), "other")
        named = filter(None, (bean.attribute, bean.earlier))
        attributes = tuple(f"{each}{bean.key or ''}" for each in named)
    return _Bean(reading, squeezed(domain), tuple(parts), attributes, is_histogram, group)


def _beans() -> Iterator[_Bean]:
    of_handlers = {HANDLER_IDLE_NS, SHARED_HANDLER_IDLE_NS}
    named = (
        (handler if bean.name in of_handlers else bean.name, bean)
        for version, handler in (("4.2", BROKER_HANDLER_IDLE_NS), ("4.1", HANDLER_IDLE_NS))
        for bean in beans_for(version, Role)
        if bean.name != PRODUCE_ERRORS  # most are always 0, so no poll shows a count
    )
    for reading, bean in dict.fromkeys(named):
        yield _bean(reading, bean)
    active = "kafka.controller:type=KafkaController,name=ActiveControllerCount"
    yield _bean(ACTIVE_CONTROLLER, Bean(ACTIVE_CONTROLLER, active, Kind.GAUGE))
    info = "kafka.server:type=app-info,id=*"
    start = Bean(NODE_ID, info, Kind.GAUGE, "StartTimeMs", earlier="start-time-ms")
    yield _bean(NODE_ID, start)


BEANS: tuple[_Bean, ...] = tuple(_beans())
"""The beans of all readings."""
_DOMAINS = tuple(sorted({bean.domain for bean in BEANS}))


def may_be_reading(name: str) -> bool:
    """Whether a series with this name can belong to a bean of the catalogue."""
    return squeezed(name).startswith(_DOMAINS)


@lru_cache(_NAMES_MAX)
def candidates_of(
    series: str, constant: frozenset[tuple[str, str]] = frozenset()
) -> tuple[Candidate, ...]:
    """The possible readings of a series.

    Args:
        series: name and labels, as on the page.
        constant: (label, value) pairs that every series of the page has.
    """
    parsed = parse_series(series)
    if parsed is None:
        return ()
    name, labels = parsed
    is_typed = any(squeezed(label) == "type" for label in labels)
    beans = _named(squeezed(name), is_typed)
    found = (bean.candidate(name, labels, dict(constant)) for bean in beans)
    return tuple(each for each in found if each is not None)


@lru_cache(_NAMES_MAX)
def _named(plain: str, is_typed: bool) -> tuple[_Bean, ...]:
    """The beans to which a series with this name can belong.

    Args:
        plain: the name, without case and separators.
        is_typed: whether the series has a label `type`. If the series has this label, the series'
            name may lack the type of the bean.
    """
    return tuple(
        bean
        for bean in BEANS
        if plain.startswith(bean.domain if is_typed else bean.domain + bean.type_in_name)
    )
