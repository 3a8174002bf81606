"""The past of the whole cluster, where a Prometheus server keeps it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from jobs.cluster.opening import OpenCluster
from jobs.cluster.sources import open_metrics
from jobs.config import Cluster
from jobs.config.metrics_registry import broker_source
from metrics.common.errors import ConfigError
from metrics.sources.history import History, KeepsHistory
from metrics.sources.http_access import ScrapeError
from metrics.units import iso_utc

SPAN_S, STEP_S = 28 * 86_400.0, 3_600.0
"""Time that is looked back, and between two numbers of it [s]."""
_READING = "messages_in"


@dataclass(frozen=True)
class Past:
    """The messages of all topics of the cluster over weeks.

    Attributes:
        facts: `cluster_history` for the evidence; empty without one.
        notes: a sentence where the server did not answer.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def history_of(
    cluster: Cluster, opened: OpenCluster, clock: Callable[[], float] = time.time
) -> Past:
    """The past of the cluster; empty where its file names no Prometheus server."""
    if getattr(broker_source(cluster), "server", None) is None:
        return Past()
    try:
        with closing(open_metrics(cluster, opened, None)) as source:
            if not isinstance(source, KeepsHistory):
                return Past()
            now_s = clock()
            found = source.history(_READING, now_s - SPAN_S, now_s, STEP_S)
    except (ConfigError, ScrapeError) as error:
        return Past(notes=(f"the past of the cluster is not known: {error}",))
    rates = rates_of(found)
    if not rates:
        return Past(notes=("the Prometheus server has no two hours of the brokers",))
    return Past(
        {
            "cluster_history": {
                "step_s": STEP_S,
                "from": iso_utc(rates[0][0]),
                "mean_messages_per_s": round(sum(rate for _, rate in rates) / len(rates), 3),
                "peak_messages_per_s": round(max(rate for _, rate in rates), 3),
                "messages_per_s": [[iso_utc(at_s), round(rate, 3)] for at_s, rate in rates],
            }
        }
    )


def rates_of(found: Mapping[int, History]) -> list[tuple[float, float]]:
    """(Begin of a step [s since the epoch], messages per second of all brokers), oldest first.

    A step in which a broker has no number, or restarted, is left out.
    """
    steps: dict[float, dict[int, float]] = {}
    for broker, values in found.items():
        for (before_s, before), (at_s, value) in pairwise(values):
            if value >= before and at_s - before_s < 1.5 * STEP_S:
                steps.setdefault(before_s, {})[broker] = (value - before) / (at_s - before_s)
    return [
        (at_s, sum(rates.values()))
        for at_s, rates in sorted(steps.items())
        if len(rates) == len(found)
    ]
