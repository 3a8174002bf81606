"""The limits that `redline find-limit` finds, compared with those planted in real brokers."""

from __future__ import annotations

import logging

import pytest

from tests.bench.planted import KINDS, NEAR, SIZES, measure

pytestmark = pytest.mark.long
log = logging.getLogger(__name__)

CLUSTERS = {
    "2.8.2 with ZooKeeper": ("kafka_version=2.8.2",),
    "3.3.2 with ZooKeeper": ("kafka_version=3.3.2",),
    "3.6.2 with ZooKeeper": ("kafka_version=3.6.2",),
    "3.9.2 with ZooKeeper": ("kafka_version=3.9.2", "metadata=zookeeper"),
    "3.9.2 combined": ("kafka_version=3.9.2", "metadata=combined"),
    "4.1.2 combined": ("kafka_version=4.1.2", "metadata=combined"),
    "4.3.1": ("kafka_version=4.3.1",),
    "3.9.2 and 4.1.2": ("kafka_version=3.9.2", "kafka_versions=3: 4.1.2"),
}
"""Releases and roles of Kafka in use → keys of the testbed."""


@pytest.mark.timeout(3600)
def test_95_percent_of_the_answers_lie_within_5_percent_of_the_planted_limit() -> None:
    kind = KINDS["handlers"]
    points = [point for value in kind.values for point in measure("handlers", value, 1)]
    for point in points:
        log.warning("%s: off by %+.1f %%", point, 100.0 * point.off_by)
    expected = len(kind.values) * SIZES
    assert len(points) == expected
    assert sum(point.is_right for point in points) >= kind.share * expected


@pytest.mark.timeout(900)
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_planted_limit_is_found_on_each_release(cluster: str) -> None:
    options = [f"--set=cluster.testbed.{each}" for each in CLUSTERS[cluster]]
    (point,) = measure("handlers", "60", 1, "--set=workload.message_bytes=[1000]", *options)
    log.warning("%s: %s: off by %+.1f %%", cluster, point, 100.0 * point.off_by)
    assert abs(point.off_by) <= NEAR
