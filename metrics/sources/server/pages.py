"""An answer of a Prometheus server as the pages of its exporters, one for each scrape.

A server adds labels to the series of a page, such as `job` and `instance`; its own series `up` has
no others. Without them a series has the text that the exporter gave it, so that its page is chosen
from and read like that of an exporter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from metrics.sources.exposition import Poll
from metrics.sources.rules import Match, RuleSet
from metrics.sources.scraper import read_numbers
from metrics.sources.server.api import ServerSeries

NAME = "__name__"
UP = "up"
"""The series that a server adds for each target: 1 where its scrape succeeded."""
_SHOWN = {"\\": "\\\\", "\n": "\\n", '"': '\\"'}


@dataclass
class ServerPage:
    """What one target showed in one scrape.

    Attributes:
        at_s: time of the scrape [s since the epoch, by the server's clock].
        lines: series, without the labels that the server added, and its number.
        is_up: whether the scrape succeeded.
    """

    at_s: float
    lines: list[tuple[str, str]] = field(default_factory=list)
    is_up: bool = True

    @property
    def poll(self) -> Poll:
        """The page as an exporter shows it."""
        return Poll(self.at_s, "".join(f"{series} {number}\n" for series, number in self.lines))

    def values(self, rules: RuleSet) -> dict[str, float]:
        """Reading → its value, by these rules."""
        found: list[tuple[Match, str]] = []
        for series, number in self.lines:
            match = rules.match(series)
            if match is not None:
                found.append((match, number))
        return read_numbers(found, self.at_s)


def by_value(answer: Iterable[ServerSeries], label: str) -> dict[str, list[ServerSeries]]:
    """Value of a label → the series that have it."""
    found: dict[str, list[ServerSeries]] = {}
    for each in answer:
        found.setdefault(each.labels.get(label, ""), []).append(each)
    return found


def added_labels(series: Sequence[ServerSeries]) -> frozenset[str]:
    """The labels that a server added to the series of one target.

    They are those of `up`; where that is not stored, those that all series have.
    """
    own = [each for each in series if each.labels.get(NAME) == UP] or series
    names = [frozenset(each.labels) for each in own]
    return reduce(frozenset.intersection, names, names[0] if names else frozenset()) - {NAME}


def differing(series: Iterable[ServerSeries], added: Collection[str]) -> dict[str, list[str]]:
    """Added label → its values, where several targets show themselves as one broker."""
    values: dict[str, set[str]] = {label: set() for label in added}
    for each in series:
        for label in added:
            values[label].add(each.labels.get(label, ""))
    return {label: sorted(found) for label, found in sorted(values.items()) if len(found) > 1}


def pages_of(series: Iterable[ServerSeries], added: Collection[str]) -> list[ServerPage]:
    """The pages of one target, by their times."""
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
    """A series as on an exporter's page."""
    own = sorted((name, value) for name, value in labels.items() if name not in {NAME, *added})
    inner = ",".join(f'{name}="{_escaped(value)}"' for name, value in own)
    return f"{labels[NAME]}{{{inner}}}" if inner else labels[NAME]


def _escaped(value: str) -> str:
    return "".join(_SHOWN.get(symbol, symbol) for symbol in value)
