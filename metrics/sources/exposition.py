"""A reader for numbers in the Prometheus text format, version 0.0.4. The reader supports only the
parts of the format that contain numbers.

A line has the form `name{label="value",...} number [timestamp]`. An exporter writes a series with
the same text in every scrape. So each text is parsed once, and later scrapes look up the result.

For error messages, the module also describes pages without a broker's metrics.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

_SERIES = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPED = re.compile(r"\\(.)")

NUMBER_MAX = 1e27
"""Largest accepted number: the largest 64-bit count times 10⁹."""
_NUMBER_LENGTH_MAX = 400
_SERIES_LENGTH_MAX = 8_192
"""Longest text of a series that is parsed [characters]."""

Labels = dict[str, str]


@dataclass(frozen=True)
class Poll:
    """One answer of an exporter.

    Attributes:
        at_s: time of the middle of the exchange [s since the epoch].
        text: the page.
        took_s: duration of the exchange [s].
    """

    at_s: float
    text: str
    took_s: float = 0.0


def series_of(line: str) -> str:
    """The text of the series in a line, or an empty text for a comment or a malformed line."""
    if not line or line[0] == "#":
        return ""
    return line[: line.rfind("}") + 1 or max(0, line.find(" "))]


def number_of(text: str) -> float:
    """The number at the start of a text. A timestamp may follow the number in the text.

    The result is NaN if the text does not start with a number, or if the number is larger than
    `NUMBER_MAX`. No counter reaches `NUMBER_MAX`.
    """
    try:
        found = float(text[:_NUMBER_LENGTH_MAX].split(None, 1)[0])
    except (ValueError, IndexError):
        return math.nan
    return found if abs(found) <= NUMBER_MAX else math.nan


def numbers(values: Mapping[str, object]) -> dict[str, float]:
    """Name → number, for the values that are numbers. A value of NaN is omitted, because a JVM
    reports NaN if a value is unknown.
    """
    parsed = {name: number_of(str(value)) for name, value in values.items()}
    return {name: value for name, value in parsed.items() if not math.isnan(value)}


def brief(text: str, most: int) -> str:
    """The first characters of a remote text, on one line and without control characters."""
    words = " ".join(text[: 4 * most].split())
    return "".join(each for each in words if each.isprintable())[:most]


def parse_series(text: str) -> tuple[str, Labels] | None:
    """The name and the labels of a series, or None for a malformed text."""
    found = _SERIES.fullmatch(text.strip()) if len(text) <= _SERIES_LENGTH_MAX else None
    if found is None:
        return None
    labels: Labels = {}
    rest, at = (found[2] or "").rstrip(), 0
    while at < len(rest):
        label = _LABEL.match(rest, at)
        if label is None:
            return None
        labels[label[1]] = _ESCAPED.sub(lambda each: "\n" if each[1] == "n" else each[1], label[2])
        at = label.end()
    return found[1], labels


_TAG = re.compile(r"<\s*(?:!doctype|html|head|body|\?xml)\b", re.IGNORECASE)
_TITLE = re.compile(r"<title[^<>]*>([^<]*)", re.IGNORECASE)
_SAMPLE_LINE = re.compile(r"^(?!#).*\S", re.MULTILINE)
_TITLE_MAX = 60
_HEAD = 2_000
"""Number of characters at the start of a page that show the kind of the page."""
_NAMES_HEAD = 2**18
"""Number of characters at the start of a page in which names of series are searched."""
_UNREADABLE_SHARE = 0.02
"""A page counts as binary data if more than this share of its characters is unreadable [ratio]."""

_OTHERS: tuple[tuple[str, str], ...] = (
    ("kafka_connect_", "Kafka Connect, which is not a broker"),
    ("kafka_consumer_", "a Kafka client, which is not a broker"),
    ("kafka_producer_", "a Kafka client, which is not a broker"),
    ("kafka_streams_", "Kafka Streams, which is not a broker"),
    ("kafka_schema_registry_", "a schema registry, which is not a broker"),
    ("kafka_consumergroup_", "kafka_exporter, which reads offsets over the protocol"),
    ("kafka_topic_partition_", "kafka_exporter, which reads offsets over the protocol"),
    ("kafka_brokers", "kafka_exporter, which reads offsets over the protocol"),
    ("org_apache_zookeeper", "ZooKeeper, which is not a broker"),
    ("znode_count", "ZooKeeper, which is not a broker"),
    ("node_", "node_exporter, which belongs in metrics.host.prometheus"),
    ("windows_", "windows_exporter, which shows the host"),
    ("container_", "cAdvisor, which shows containers"),
    ("kube_", "kube-state-metrics, which shows objects of Kubernetes"),
    ("prometheus_", "a Prometheus server, which scrapes exporters"),
    ("pushgateway_", "a push gateway"),
    ("probe_", "blackbox_exporter, which probes addresses"),
    ("redline_", "a run of kafka-redline, which shows its own progress"),
)
"""Pairs of the first characters of a series' name and the program that shows such series. The first
match counts."""


def kind_of(text: str) -> str:
    """A clause about the kind of a page without readings. The clause begins with "the page"."""
    found = chain(_kinds(text), _owners(text))
    return f"the page {next(found, 'has no metrics in the Prometheus text format')}"


def is_cut_off(text: str) -> bool:
    """Whether a page of metrics does not end in a line feed, so that digits may be missing."""
    return not text.endswith("\n") and bool(_names(text[:_HEAD]))


def _kinds(text: str) -> Iterator[str]:
    """Clauses about a page that is not in the Prometheus text format, the most specific clause
    first.
    """
    begin = text[:_HEAD]
    if not text.strip():
        yield "is empty"
    if _SAMPLE_LINE.search(text) is None:
        yield "has comments only, and no series"
    if begin.startswith(("\x1f\ufffd", "\x1f\x8b")):
        yield "is compressed (gzip), although no compression was requested"
    if begin.count("\x00") > len(begin) * _UNREADABLE_SHARE:
        yield "is not UTF-8: it has zero bytes, as UTF-16 or a binary protocol has"
    if begin.count("\ufffd") > len(begin) * _UNREADABLE_SHARE:
        yield "is not UTF-8 text"
    if _TAG.search(begin) is not None:
        title = _TITLE.search(text)
        named = f' with the title "{brief(title[1], _TITLE_MAX)}"' if title else ""
        yield f"is HTML or XML{named}, as a proxy or a web server answers"
    if text.lstrip()[:1] in {"{", "["}:
        yield "is JSON, not the Prometheus text format"


def _owners(text: str) -> Iterator[str]:
    """Clauses about the program that shows a page's series, the most specific clause first."""
    names = _names(text)
    for start, whose in _OTHERS:
        if any(name.startswith(start) for name in names):
            yield f"comes from {whose}"
    if any(name.startswith(("kafka_", "java_lang_")) for name in names):
        yield "shows metrics of Kafka, but none of the request handlers"
    if any(name.startswith("jvm_") for name in names):
        yield (
            "comes from a JVM without Kafka's beans: another process on this port, or an exporter "
            "that waits (startDelaySeconds)"
        )
    if names:
        yield f"has series such as {brief(min(names), _TITLE_MAX)}, and none of Kafka"


def _names(text: str) -> set[str]:
    """The names of the series at the start of a page."""
    found = set()
    for line in text[:_NAMES_HEAD].split("\n"):
        series = series_of(line)
        parsed = parse_series(series) if series else None
        printed = line[len(series) :]
        is_number = not math.isnan(number_of(printed)) or printed.strip()[:3].lower() == "nan"
        if parsed is not None and is_number:
            found.add(parsed[0])
    return found
