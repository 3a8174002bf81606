"""Each request that the engine sends has a version that the broker of its connection knows."""

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
from jobs.engine.network import apis as versions
from jobs.engine.network.apis import Api, negotiated
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
READS = {"consumers": ConsumerOptions(groups=1), "consumer_tasks": 1}


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
    ("request_kind", "options", "api"),
    [
        (ProduceRequest, {}, versions.PRODUCE),
        (MetadataRequest, {}, versions.METADATA),
        (InitProducerIdRequest, IDEMPOTENT, versions.INIT_PRODUCER_ID),
        (FindCoordinatorRequest, TRANSACTIONS, versions.FIND_COORDINATOR),
        (AddPartitionsToTxnRequest, TRANSACTIONS, versions.ADD_PARTITIONS_TO_TXN),
        (EndTxnRequest, TRANSACTIONS, versions.END_TXN),
        (FetchRequest, READS, versions.FETCH),
    ],
)
def test_tasks_name_a_request_of_which_the_broker_knows_no_version(
    cluster: SimulatedCluster, request_kind: Any, options: dict[str, Any], api: Api
) -> None:
    name, above, most = api.name, api.most + 1, cluster.offered[request_kind]
    ours = f"{api.least} to {api.most}" if api.least < api.most else str(api.most)
    cluster.oldest[request_kind], cluster.offered[request_kind] = above, max(most, above)
    plan, task = plan_of(cluster, **options), int(request_kind is FetchRequest)
    text = refusal_of(plan, task)
    place = f"broker 1 at 127.0.0.1:{cluster.ports[1]}"
    assert f"{place} supports {name} {above} to {max(most, above)}, and this engine" in text
    assert f"this engine supports {ours};" in text
    if api.least:
        cluster.oldest[request_kind], cluster.offered[request_kind] = 0, api.least - 1
        assert f"supports {name} 0 to {api.least - 1}, and this engine" in refusal_of(plan, task)
    del cluster.offered[request_kind]
    assert f"supports {name} in no version, and this engine supports {ours};" in refusal_of(
        plan, task
    )


def test_the_highest_version_that_both_know_is_spoken() -> None:
    for (least, most), spoken in (
        ((0, 2), 2), ((0, 17), 3), ((3, 3), 3), ((1, 1), 1), ((0, 0), None), ((4, 9), None)
    ):  # fmt: skip
        known = {versions.FIND_COORDINATOR.key: (least, most)}
        if spoken is None:
            with pytest.raises(
                ConfigError, match=f"{least} to {most}, and this engine supports 1 t"
            ):
                negotiated([versions.FIND_COORDINATOR], known)
        else:
            found = negotiated([versions.FIND_COORDINATOR], known)
            assert found == {versions.FIND_COORDINATOR: spoken}


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
        (8, 17, "supports Produce 8 to 17, and this engine supports 7;"),
        (0, 6, "supports Produce 0 to 6, and this engine supports 7;"),
    ):
        cluster.oldest[ProduceRequest], cluster.offered[ProduceRequest] = oldest, newest
        found = refusals_of(places, {}, PATIENCE_S)
        assert words in found[1] if words else found == {}, "the check before a run"


def test_the_table_has_kafkas_keys() -> None:
    table = [each for each in vars(versions).values() if isinstance(each, Api)]
    assert {f"{each.name}Request": each.key for each in table} == {
        kind.__name__: kind.API_KEY for kind in REQUESTS
    }
