"""Releases and roles of Kafka in use: each planted limit is found."""

from __future__ import annotations

import logging

import pytest

from tests.bench.calibration import NEAR, measure

log = logging.getLogger(__name__)

STATED_MS = 60.0
ONE_SIZE = "--set=workload.message_bytes=[1000]"
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


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_planted_limit_is_found(cluster: str) -> None:
    options = (f"--set=cluster.testbed.{each}" for each in CLUSTERS[cluster])
    (point,) = measure(STATED_MS, 1, ONE_SIZE, *options)
    log.warning("%s: %s: off by %+.1f %%", cluster, point, 100.0 * point.off_by)
    assert abs(point.off_by) <= NEAR
