"""The history of a cluster's use, and the growth that it shows."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.cluster.opening import OpenCluster
from jobs.runs.headroom.production import History, machines_of, past_use
from metrics.headroom.answer import Answer
from metrics.headroom.growth import DAY_S, Growth, NoForecastLibraryError, growth_of
from metrics.headroom.loads import RATIO
from metrics.headroom.today import Today
from metrics.headroom.words import growth_words, short_history_words
from metrics.judging.thresholds import Indicators
from metrics.sources.server.source import PrometheusServerSource
from metrics.sources.source import MetricsSource
from metrics.tables.headroom import HeadroomRow

NO_LIBRARY = (
    "no date: statsmodels is not installed; install it with pip install 'kafka-redline[forecast]'"
)


def of_tables(rows: Sequence[HeadroomRow], *, is_estimate: bool) -> History:
    """The share of the limit in use in earlier calls of the same kind."""
    return [
        (row.at_s, 1.0 / row.headroom.times)
        for row in rows
        if row.headroom.times and row.is_estimate == is_estimate
    ]


def of_source(
    source: MetricsSource,
    opened: OpenCluster,
    answer: Answer,
    today: Today,
    limits: Indicators,
    link_mbit_per_s: float | None,
) -> History:
    """The share in use of the resource that gives out first, from a Prometheus server.

    It is empty for other sources, and for a use in bytes.

    Raises:
        NoConclusionError: the server does not answer.
    """
    first = answer.first
    if not isinstance(source, PrometheusServerSource) or first.unit != RATIO:
        return []

    def share_of(past: Today) -> float | None:
        for load in past.loads(limits).get(first.broker_id, {}).values():
            if (load.resource.value, load.unit) == (first.resource, first.unit):
                free = first.limit - first.at_rest
                return (load.used - first.at_rest) / free if free > 0 else None
        return None

    return past_use(source, today.end_s, share_of, machines_of(opened), link_mbit_per_s)


def continued(history: History, answer: Answer, at_s: float) -> tuple[Growth | None, str]:
    """The growth of a history with today's answer, and a sentence about it."""
    whole = [*history, (at_s, 1.0 / answer.times)] if answer.times > 0 else list(history)
    days = {int(each // DAY_S) for each, _ in whole}
    low, high = answer.times_low / answer.times, answer.times_high / answer.times
    try:
        growth = growth_of(whole, low, high)
    except NoForecastLibraryError:
        return None, NO_LIBRARY
    if growth is None:
        return None, short_history_words(len(days))
    return growth, growth_words(growth, at_s)
