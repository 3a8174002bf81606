"""The series of an exporter that a run would read, by reading."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from jobs.checks.finding import Finding, ok
from metrics.sources.source import NodeInfo, named_brokers

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


def _series_text(shown: Mapping[str, Sequence[int]]) -> str:
    """The series of a reading; the brokers of each, where it differs between brokers."""
    if len({tuple(ids) for ids in shown.values()}) == 1:
        first, *others = shown
        return f"{first} and {len(others)} like it" if others else first
    return "; ".join(f"{text} ({named_brokers(ids)})" for text, ids in shown.items())
