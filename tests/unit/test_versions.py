"""Each request that the engine sends is checked against the versions of the broker's connection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
)

from jobs.engine.clients.registry import client_of
from jobs.engine.network import connections as versions
from jobs.engine.network.connections import refusals_of
from jobs.engine.task.plan import TrialPlan
from metrics.common.errors import ConfigError
from metrics.traffic.clients import ConsumerOptions
from tests.support import patterns
from tests.support.fake_cluster import SimulatedCluster
from tests.support.processes import PATIENCE_S

REQUESTS = (
    ProduceRequest,
    FetchRequest,
    MetadataRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
)
IDEMPOTENT = {"acks": "all", "enable_idempotence": True}
TRANSACTIONS = {**IDEMPOTENT, "transaction_duration_ms": 100.0}


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    """A broker that offers all requests of the engine in versions 0 to 17."""
    with SimulatedCluster(1, {0: (1,)}) as cluster:
        cluster.offered |= dict.fromkeys(REQUESTS, 17) | {MetadataRequest: 8}
        yield cluster


def plan_of(cluster: SimulatedCluster, **fields: Any) -> TrialPlan:
    brokers = {1: ("127.0.0.1", cluster.ports[1])}
    return patterns.plan(brokers=brokers, leaders=(1,) * 4, **fields)


def refusal_of(plan: TrialPlan, task: int) -> str:
    """The reason that a task states before its load."""
    client = client_of(plan, task)
    try:
        with pytest.raises(ConfigError) as refused:
            client.open()
    finally:
        client.close()
    return str(refused.value)


@pytest.mark.parametrize(
    ("request_kind", "options", "name", "ours"),
    [
        (ProduceRequest, {}, "Produce", 7),
        (MetadataRequest, {}, "Metadata", 4),
        (InitProducerIdRequest, IDEMPOTENT, "InitProducerId", 1),
        (FindCoordinatorRequest, TRANSACTIONS, "FindCoordinator", 1),
        (InitProducerIdRequest, TRANSACTIONS, "InitProducerId", 1),
        (AddPartitionsToTxnRequest, TRANSACTIONS, "AddPartitionsToTxn", 0),
        (EndTxnRequest, TRANSACTIONS, "EndTxn", 1),
        (FetchRequest, {"consumers": ConsumerOptions(groups=1), "consumer_tasks": 1}, "Fetch", 10),
    ],
)
def test_tasks_name_a_request_that_the_broker_does_not_know(
    cluster: SimulatedCluster, request_kind: Any, options: dict[str, Any], name: str, ours: int
) -> None:
    most = cluster.offered[request_kind]
    cluster.oldest[request_kind] = ours + 1
    plan, task = plan_of(cluster, **options), int(request_kind is FetchRequest)
    text = refusal_of(plan, task)
    assert f"broker 1 at 127.0.0.1:{cluster.ports[1]} knows {name} {ours + 1} to {most}" in text
    assert f"this engine speaks {ours};" in text
    if ours:
        cluster.oldest[request_kind], cluster.offered[request_kind] = 0, ours - 1
        assert f"knows {name} 0 to {ours - 1}, and this engine" in refusal_of(plan, task)
    del cluster.offered[request_kind]
    assert f"knows {name} in no version, and this engine speaks {ours};" in refusal_of(plan, task)


def test_a_request_that_a_load_does_not_send_is_not_needed(cluster: SimulatedCluster) -> None:
    for kind in REQUESTS:
        if kind not in (ProduceRequest, MetadataRequest):
            del cluster.offered[kind]
    client = client_of(plan_of(cluster), 0)
    client.open()
    client.close()
    places = {1: ("127.0.0.1", cluster.ports[1])}
    for oldest, newest, words in (
        (7, 7, None),
        (8, 17, "knows Produce 8 to 17, and this engine speaks 7;"),
        (0, 6, "knows Produce 0 to 6, and this engine speaks 7;"),
    ):
        cluster.oldest[ProduceRequest], cluster.offered[ProduceRequest] = oldest, newest
        found = refusals_of(places, {}, PATIENCE_S)
        assert words in found[1] if words else found == {}, "the check before a run"


def test_the_table_has_kafkas_keys() -> None:
    table = [each for each in vars(versions).values() if isinstance(each, versions.Api)]
    assert {f"{each.name}Request": each.key for each in table} == {
        kind.__name__: kind.API_KEY for kind in REQUESTS
    }
