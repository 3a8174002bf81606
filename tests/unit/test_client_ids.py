"""The client ids by which brokers know a run's connections: one for each, or the given one."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path

from jobs.cluster.permissions import Quota
from jobs.config import load_cluster
from jobs.engine.clients.librdkafka import connection_options
from jobs.engine.network.links import library_options
from jobs.engine.network.options import ClientIds
from tests.support.patterns import plan


def test_all_clients_of_a_trial_have_the_given_id_or_their_own(tmp_path: Path) -> None:
    given, file = tmp_path / "client.properties", tmp_path / "prod.yaml"
    given.write_text("bootstrap.servers=a:9092\nclient.id=orders,zone=a\n")
    for keys, expected in (
        ("", "orders,zone=a"),
        ("client_id: mine\n", "mine"),
        ("client_id_suffix: true\n", "orders,zone=a-redline-t1-0"),
    ):
        file.write_text(f"client_properties: {given}\nmetrics: {{client_only: true}}\n{keys}")
        options = pickle.loads(pickle.dumps(load_cluster(str(file)).client_kwargs()))
        load = plan(trial_id="t1", client_options=options)
        name = load.producer_name(0)
        assert name == "redline-t1-0"  # names of transactions and connections stay unique
        assert load.client_id(name) == expected
        assert library_options(options, name)["client_id"] == expected
        assert set(connection_options(options)) == {"security.protocol"}
    options = load_cluster("example").client_kwargs()
    load = plan(trial_id="t1", client_options=options)
    assert load.client_id(load.member_name(0, 1)) == "redline-t1-group-0-1"
    assert library_options(options, "redline-t1-canary")["client_id"] == "redline-t1-canary"


def test_a_quota_of_a_client_id_holds_for_clients_that_have_it() -> None:
    for ids, client_id, holds in (
        (ClientIds(), "redline-x-0", True),
        (ClientIds(), "orders", False),
        (ClientIds("orders"), "orders", True),
        (ClientIds("orders"), "orders-2", False),
        (ClientIds("orders"), "redline-x-0", False),
        (ClientIds("orders", True), "orders-redline-x-0", True),
        (ClientIds("orders", True), "orders", False),
    ):
        quota = Quota({"client-id": client_id}, {"producer_byte_rate": 1e6})
        assert quota.may_throttle("us", partial(ids.may_be, prefix="redline-")) is holds
