"""Log directories as brokers report them in Kafka's own encoding, complete or not."""

from __future__ import annotations

from kafka.errors import KafkaStorageError, UnknownError
from kafka.protocol.admin import DescribeLogDirsRequest

from jobs.cluster.connect import connect
from jobs.cluster.health import UNKNOWN_BYTES, ClusterHealth, LogDir
from tests.support.fake_cluster import TOPIC, SimulatedCluster

REPLICAS = {0: (1, 2), 1: (2, 3)}


def log_dirs(cluster: SimulatedCluster) -> tuple[LogDir, ...]:
    with connect(cluster.addresses, timeout_s=60.0) as admin:
        return ClusterHealth(admin).log_dirs([TOPIC])


def test_a_directory_with_an_error_and_a_broker_without_directories_are_named() -> None:
    with SimulatedCluster(3, REPLICAS) as cluster:
        cluster.log_dirs = {
            1: [(0, "/good"), (KafkaStorageError.errno, "/failed")],
            2: [],
            3: [(UnknownError.errno, "/odd")],
        }
        good, failed, none, odd = log_dirs(cluster)
    assert (good.path, good.is_known, good.own_logs, good.own_bytes) == ("/good", True, 1, 100)
    assert failed.is_offline and failed.unknown_words == "/failed of broker 1 is offline"
    assert none == LogDir(2, "", UNKNOWN_BYTES, UNKNOWN_BYTES)
    assert none.unknown_words == "broker 2 reports no log directory"
    assert not odd.is_offline
    assert odd.unknown_words == "broker 3 does not report the size of /odd"
    assert not any(each.is_known for each in (failed, none, odd))


def test_a_release_before_3_3_reports_directories_without_their_sizes_or_none() -> None:
    with SimulatedCluster(3, REPLICAS) as cluster:
        cluster.offered[DescribeLogDirsRequest] = 1
        found = log_dirs(cluster)
        del cluster.offered[DescribeLogDirsRequest]
        none = log_dirs(cluster)
    paths = [(each.path, each.is_known) for each in found]
    assert paths == [(f"/data/{broker}", False) for broker in (1, 2, 3)]
    assert sum(each.own_logs for each in found) == 4
    assert none == tuple(LogDir(each, "", UNKNOWN_BYTES, UNKNOWN_BYTES) for each in (1, 2, 3))
