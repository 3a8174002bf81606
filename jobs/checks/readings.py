"""The series of an exporter that a run would read, by reading."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from jobs.checks.finding import Finding, ok
from metrics.sources.beans import Reading, Role, beans_for, readings_of
from metrics.sources.shortcomings import missing_metrics
from metrics.sources.source import NodeInfo, named_brokers

_NEWEST = "4.2"
_VARIED = re.compile(r"\b(name|request)=[^,]+")
_PHASES = re.compile(r"^(produce|fetch_consumer|fetch_follower|controller)_.+_ms_(count|mean)$")


def readings_findings(nodes: Mapping[int, NodeInfo]) -> list[Finding]:
    """A finding for each reading whose series was found on the pages of exporters.

    The phases of a kind of request have one finding, which names the first of their series.
    """
    found: dict[str, dict[str, list[int]]] = {}
    for node in nodes.values():
        for reading, text in node.series.items():
            named = _PHASES.sub(r"\1_…_ms_\2", reading)
            found.setdefault(named, {}).setdefault(text, []).append(node.node_id)
    choices = sorted({clause for node in nodes.values() for clause in node.choices})
    rows = [ok(f"reading {reading}", _series_text(shown)) for reading, shown in found.items()]
    return [*rows, *(ok("choice of series", clause) for clause in choices)]


def remedies_of_missing(nodes: Mapping[int, NodeInfo]) -> dict[str, str]:
    """The sentence for readings that no series shows → the beans to export, as a clause.

    Empty where the series were not found on the pages of exporters.
    """
    if not any(node.series for node in nodes.values()):
        return {}
    return {
        sentence: f"to read it, have the exporter's rules export {beans_text(names)}"
        for sentence, names in missing_metrics(nodes).items()
    }


def beans_text(names: Collection[str]) -> str:
    """The attributes of the beans of some readings; of many that are alike, their pattern."""
    known = {each.name: each for each in readings_of(beans_for(_NEWEST, tuple(Role)))}
    alike: dict[str, list[Reading]] = {}
    for each in (known[name] for name in names):
        alike.setdefault(_VARIED.sub(r"\1=*", each.object_name), []).append(each)
    texts = []
    for pattern, readings in alike.items():
        objects = {each.object_name for each in readings}
        attributes = dict.fromkeys(
            f"{each.attribute}.{each.key}" if each.key else each.attribute for each in readings
        )
        bean = pattern if len(objects) > 1 else objects.pop()
        texts.append(f"{' and '.join(attributes)} of {bean}")
    return ", ".join(texts)


def _series_text(shown: Mapping[str, Sequence[int]]) -> str:
    """The series of a reading; the brokers of each, where it differs between brokers."""
    if len({tuple(ids) for ids in shown.values()}) == 1:
        first, *others = shown
        return f"{first} and {len(others)} like it" if others else first
    return "; ".join(f"{text} ({named_brokers(ids)})" for text, ids in shown.items())
