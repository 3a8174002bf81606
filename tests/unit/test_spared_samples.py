"""Samples of brokers with many partitions of others: what they read, and how often."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from itertools import count

import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.config.metrics_registry import load_rules
from metrics.common.errors import ConfigError
from metrics.sources.bean_poller import BeanPoller, BeanValue
from metrics.sources.beans import PARTITIONS
from metrics.sources.first_polls import FirstPolls, least_interval_s, slower_sampling
from metrics.sources.prometheus import PrometheusSource
from metrics.sources.rules import RuleSet, rule_set
from metrics.sources.source import (
    ORDINARY_LINES,
    SAMPLE_PARTITION_S,
    SAMPLES_SHARE_MAX,
    Endpoint,
    jmx_interval_s,
    scrape_interval_s,
)
from tests.support.bean_answers import answers
from tests.support.processes import PATIENCE_S
from tests.support.rate_pages import POOL, RateExporter
from tests.support.served_exporter import BROKER, Exporter, serving

MANY = 50_000
WINDOW_S, FEWEST = 45.0, 4
"""Length of a window of the workload `quick` [s], and the samples that it needs."""


RATES = rule_set(
    "rates",
    {
        "uptime_ms": {"series": "process_start_time_seconds", "start_time": True},
        "leader_partitions": "kafka_server_replicamanager_leadercount",
        "handler_idle_ns": {"series": POOL, "one_minute_rate": True},
    },
)


class Crowded(BeanPoller[Endpoint]):
    """A recorded broker that has so many partitions, a few beans for each.

    Attributes:
        asked: beans with an attribute, for each poll.
    """

    name = "crowded"

    def __init__(self, partitions: int) -> None:
        super().__init__([Endpoint(1, "broker", 1)], PATIENCE_S, lambda: 1_000.0)
        self._beans = dict(answers("4.1.2-combined-1")[0])
        self._beans[PARTITIONS.object_name] = {"Value": partitions}
        self.asked: list[int] = []

    def unreachable(self, endpoint: Endpoint, error: str) -> ConfigError:
        raise AssertionError(error)

    def poll(
        self, endpoint: Endpoint, beans: Mapping[str, Sequence[str]], timeout_s: float
    ) -> Iterable[BeanValue]:
        self.asked.append(sum(map(len, beans.values())))
        assert not any("partition=" in name or "topic=" in name for name in beans)
        return [
            BeanValue(name, each, value)
            for name, attributes in self._beans.items()
            for each, value in attributes.items()
        ]


def opened(partitions: int) -> Crowded:
    source = Crowded(partitions)
    with closing(source):
        source.open()
        for _ in range(3):
            source.sample_all()
    return source


def test_beans_do_not_grow_with_partitions_of_others_and_are_read_less_often() -> None:
    few, many = opened(10), opened(MANY)
    assert few.asked == many.asked
    assert len(set(many.asked[1:])) <= 2, "the first sample is read without the node id"
    assert few.nodes[1].spared_s < 0.01
    share = MANY * SAMPLE_PARTITION_S / many.nodes[1].spared_s
    assert share == pytest.approx(SAMPLES_SHARE_MAX)


def others(lines: int) -> str:
    """So many lines of a page about the partitions of others."""
    return "".join(
        f'kafka_log_log_size{{topic="others",partition="{each}"}} 7\n' for each in range(lines)
    )


def spared_s(exporter: Exporter, clock: Callable[[], float], rules: RuleSet) -> float:
    """The least time between two scrapes of an exporter [s]."""
    endpoint = Endpoint(1, "127.0.0.1", exporter.port)
    source = PrometheusSource([endpoint], rules, PATIENCE_S, "4.1", clock, pause=lambda _: None)
    with closing(source):
        source.open()
        return source.nodes[1].spared_s


def ticking(step_s: float) -> Callable[[], float]:
    """A clock by which each request takes this time."""
    times = count()
    return lambda: 1_000.0 + step_s * next(times)


@pytest.mark.parametrize("knows_filter", [True, False])
def test_a_scrape_of_many_partitions_is_less_frequent(knows_filter: bool) -> None:
    """An exporter that answers with the requested series alone reads all beans nevertheless."""
    with serving(Exporter(BROKER + others(4 * ORDINARY_LINES))) as exporter:
        exporter.knows_filter = knows_filter
        found_s = spared_s(exporter, ticking(0.2), load_rules("kafka-kraft"))
    assert found_s == pytest.approx(0.2 * 0.75 / SAMPLES_SHARE_MAX, rel=0.001)
    with serving(Exporter(BROKER + others(1_000))) as exporter:
        assert spared_s(exporter, ticking(0.2), load_rules("kafka-kraft")) == 0.0, "few partitions"
    rates = RateExporter(more=others(4 * ORDINARY_LINES))
    with serving(rates):
        found_s = spared_s(rates, lambda: rates.now_s, RATES)
    assert found_s == 0.0, "counts follow from samples that are as frequent as the meters' ticks"


def test_the_interval_of_a_window_is_bounded_by_the_samples_that_it_needs(
    snapshot: SnapshotAssertion,
) -> None:
    few = FirstPolls(spared_s=jmx_interval_s(10))
    assert slower_sampling(few, 1.0, least_interval_s(few, WINDOW_S, FEWEST)) == ()
    some = FirstPolls(spared_s=3.0)
    least_s = least_interval_s(some, WINDOW_S, FEWEST)
    assert least_s == 3.0
    (sentence,) = slower_sampling(some, 1.0, least_s)
    assert sentence == snapshot
    many = FirstPolls(spared_s=scrape_interval_s(5.0, 500_000))
    least_s = least_interval_s(many, WINDOW_S, FEWEST)
    assert least_s == WINDOW_S / FEWEST
    (sentence,) = slower_sampling(many, 1.0, least_s)
    assert "44%" in sentence and "workload.trial.measure_s" in sentence
    assert sentence == snapshot
