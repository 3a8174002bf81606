"""What a page is that does not show a broker's metrics, for the message that refuses it."""

from __future__ import annotations

import math
import re

from metrics.sources.exposition import brief, number_of, parse_series, series_of

_TAG = re.compile(r"<\s*(?:!doctype|html|head|body|\?xml)\b", re.IGNORECASE)
_TITLE = re.compile(r"<title[^<>]*>([^<]*)", re.IGNORECASE)
_SAMPLE_LINE = re.compile(r"^(?!#).*\S", re.MULTILINE)
_TITLE_MAX = 60
_HEAD = 2_000
"""Length of a page's begin that shows its kind [characters]."""
_NAMES_HEAD = 2**18
"""Length of a page's begin whose series are named [characters]."""
_UNREADABLE_SHARE = 0.02
"""Smallest share of unreadable characters from which a page counts as binary data [ratio]."""

_OTHERS: tuple[tuple[str, str], ...] = (
    ("kafka_connect_", "Kafka Connect, not of a broker"),
    ("kafka_consumer_", "a Kafka client, not of a broker"),
    ("kafka_producer_", "a Kafka client, not of a broker"),
    ("kafka_streams_", "Kafka Streams, not of a broker"),
    ("kafka_schema_registry_", "a schema registry, not of a broker"),
    ("kafka_consumergroup_", "kafka_exporter, which reads offsets over the protocol"),
    ("kafka_topic_partition_", "kafka_exporter, which reads offsets over the protocol"),
    ("kafka_brokers", "kafka_exporter, which reads offsets over the protocol"),
    ("org_apache_zookeeper", "ZooKeeper, not of a broker"),
    ("znode_count", "ZooKeeper, not of a broker"),
    ("node_", "node_exporter, which belongs in metrics.host.prometheus"),
    ("windows_", "windows_exporter, which shows the host"),
    ("container_", "cAdvisor, which shows containers"),
    ("kube_", "kube-state-metrics, which shows objects of Kubernetes"),
    ("prometheus_", "a Prometheus server, which scrapes exporters"),
    ("pushgateway_", "a push gateway"),
    ("probe_", "blackbox_exporter, which probes addresses"),
    ("redline_", "a run of kafka-redline, which shows its own progress"),
)
"""Begin of the names of series, and whose they are; the first that fits names the page."""


def kind_of(text: str) -> str:
    """What a page is, as a clause that begins with "the page"; for pages without readings."""
    for look in (_empty, _unreadable, _markup, _json, _of_others, _of_jvm):
        found = look(text)
        if found:
            return f"the page {found}"
    return "the page has no metrics in the Prometheus text format"


def is_cut_off(text: str) -> bool:
    """Whether a page of metrics lacks the line feed at its end, so that its last number may lack
    digits.
    """
    return not text.endswith("\n") and bool(_names(text[:_HEAD]))


def _empty(text: str) -> str:
    if not text.strip():
        return "is empty"
    if _SAMPLE_LINE.search(text) is None:
        return "has comments only, and no series"
    return ""


def _unreadable(text: str) -> str:
    begin = text[:_HEAD]
    if begin.startswith(("\x1f\ufffd", "\x1f\x8b")):
        return "is compressed (gzip), although no compression was requested"
    if begin.count("\x00") > len(begin) * _UNREADABLE_SHARE:
        return "is not UTF-8: it has zero bytes, as UTF-16 or a binary protocol has"
    if begin.count("\ufffd") > len(begin) * _UNREADABLE_SHARE:
        return "is not UTF-8 text"
    return ""


def _markup(text: str) -> str:
    if _TAG.search(text[:_HEAD]) is None:
        return ""
    title = _TITLE.search(text)
    named = f' with the title "{brief(title[1], _TITLE_MAX)}"' if title else ""
    return f"is HTML or XML{named}, as a proxy or a web server answers"


def _json(text: str) -> str:
    return "is JSON, not the Prometheus text format" if text.lstrip()[:1] in {"{", "["} else ""


def _of_others(text: str) -> str:
    names = _names(text)
    for begin, whose in _OTHERS:
        if any(name.startswith(begin) for name in names):
            return f"is that of {whose}"
    return ""


def _of_jvm(text: str) -> str:
    names = _names(text)
    if any(name.startswith(("kafka_", "java_lang_")) for name in names):
        return "shows Kafka's metrics, and not those of the request handlers"
    if any(name.startswith("jvm_") for name in names):
        return (
            "is that of a JVM without Kafka's beans: another process on this port, or an exporter "
            "that waits (startDelaySeconds)"
        )
    if names:
        return f"has series such as {brief(min(names), _TITLE_MAX)}, and none of Kafka"
    return ""


def _names(text: str) -> set[str]:
    """Names of the series at the begin of a page."""
    found = set()
    for line in text[:_NAMES_HEAD].split("\n"):
        series = series_of(line)
        parsed = parse_series(series) if series else None
        if parsed is not None and _is_number(line[len(series) :]):
            found.add(parsed[0])
    return found


def _is_number(text: str) -> bool:
    return not math.isnan(number_of(text)) or text.strip()[:3].lower() == "nan"
